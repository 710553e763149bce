"""RNN, GRU and LSTM encoder-decoders: through one fixed vector, and with attention.

Cho et al. 2014 and Sutskever et al. 2014 squeeze the source into one vector, which Cho's decoder
reads at every step; Bahdanau et al. 2015 attend before the recurrence, with the decoder state of
the step before; Luong et al. 2015 attend after it and may feed the attentional vector to the next
step (section 3.3).

Departures: the fixed vector is the encoder's last hidden state of its top layer, mapped by one
layer to the first state of each decoder layer; the readout is one tanh layer as wide as the
embedding, so that both may share weights (Press & Wolf 2017), where Cho and Bahdanau have maxout;
Bahdanau's reads the state after the step, not before, and Cho's sees neither vector nor word again;
the encoder reads both ways unless bidirectional=false.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.additive_loop import attend_and_recur
from nmt_cli.models.attention import (
    AdditiveScore,
    Attention,
    AttentionName,
    DotScore,
    GeneralScore,
    make_attention,
)
from nmt_cli.models.base import (
    ONE_STATE,
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Traits,
    Tree,
    Vocabulary,
    full_precision,
    register,
)
from nmt_cli.models.cells import GRU, LSTM, RNN, Cell, State
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.feeding_loop import recur_and_attend
from nmt_cli.models.options import WIDEST, only_with, require
from nmt_cli.models.recurrent_layers import (
    CellStack,
    DecoderStack,
    Encoder,
    RecurrentOptions,
    SelfAttentiveStack,
)

Steps = tuple[Tensor, Tensor, Tensor, tuple[State, Tree]]
"""Top outputs (B, T, D), contexts (B, T, D), attention (B, H, T, S), and the state after them."""
FedState = tuple[State, Tree, Tensor]
"""The state of the cells, of the attention, and the attentional vector (B, E)."""
FedSteps = tuple[Tensor, Tensor, FedState]
"""Attentional vectors (B, T, E), attention (B, H, T, S), and the state after them."""


@dataclass(frozen=True)
class FixedVectorOptions(RecurrentOptions):
    """Options of ``rnn``, ``gru`` and ``lstm``."""

    context: Annotated[
        Literal["start", "every-step"],
        "feed the vector to the first state alone (Sutskever), or to every step too (Cho)",
    ] = "every-step"


@dataclass(frozen=True)
class AttentionOptions(RecurrentOptions):
    """Options of ``rnn-attn``, ``gru-attn`` and ``lstm-attn``."""

    attention: Annotated[
        AttentionName, "bahdanau attends before the recurrence, all others after it"
    ] = "bahdanau"
    heads: Annotated[int, "heads of attention=multi-head"] = 4
    reach: Annotated[int, "words that attention=local-m and local-p see on a side"] = 10
    coverage: Annotated[
        bool, "tell an additive score how much each word was attended to (Tu 2016)"
    ] = False
    input_feeding: Annotated[
        bool, "feed the attentional vector to the next step (Luong 3.3); not with bahdanau"
    ] = False
    self_attention: Annotated[
        bool, "step from a mean over all states so far (Cheng 2016), all of which are kept"
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not (self.input_feeding and self.attention == "bahdanau"),
            "input_feeding=true needs attention after the recurrence, such as "
            "attention=luong-general; Bahdanau's context enters the recurrence already",
        )
        require(
            self.attention != "multi-head" or (self.heads >= 1 and self.d_model % self.heads == 0),
            f"heads={self.heads}: must divide d_model={self.d_model}",
        )
        only_with(self, "heads", self.attention == "multi-head", "attention=multi-head")
        local = self.attention in {"local-m", "local-p"}
        only_with(self, "reach", local, "attention=local-m or local-p")
        require(1 <= self.reach <= WIDEST, f"reach={self.reach}: must be 1 to {WIDEST}")
        require(
            not self.coverage
            or self.attention == "bahdanau"
            or (self.attention == "luong-concat" and self.input_feeding),
            "coverage=true needs an additive score taken step by step: attention=bahdanau, or "
            "attention=luong-concat with input_feeding=true",
        )


class RecurrentSeq2Seq(Seq2Seq):
    """What the three decoders share: embeddings, encoder, first state, projection."""

    def __init__(
        self, options: RecurrentOptions, vocab: Vocabulary, cell: Cell, d_readout: int
    ) -> None:
        super().__init__()
        self.tgt_embedding = nn.Embedding(vocab.tgt, options.d_embed)
        nn.init.normal_(self.tgt_embedding.weight, std=options.d_embed**-0.5)
        if options.tied and vocab.shared:
            self.src_embedding = self.tgt_embedding
        else:
            self.src_embedding = nn.Embedding(vocab.src, options.d_embed)
            nn.init.normal_(self.src_embedding.weight, std=options.d_embed**-0.5)
        self.encoder = Encoder(options, cell)
        self.first_state = nn.Linear(options.d_model, cell.parts * options.layers * options.d_model)
        self.readout = nn.Linear(d_readout, options.d_embed)
        self.projection = nn.Linear(options.d_embed, vocab.tgt)
        nn.init.zeros_(self.projection.bias)
        if options.tied:
            self.projection.weight = self.tgt_embedding.weight
        self.dropout = Dropout(options.dropout)
        self.parts, self.layers = cell.parts, options.layers
        self.scale = options.d_embed**0.5

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed target tokens (B, T): (B, T, E), of unit variance at first."""
        return self.dropout(self.tgt_embedding(tokens) * self.scale)

    def read(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode: outputs (B, S, D) and the fixed vector (B, D)."""
        outputs, vector = self.encoder(self.dropout(self.src_embedding(src) * self.scale), src_mask)
        return outputs, vector

    def begin(self, vector: Tensor) -> State:
        """Map the fixed vector (B, D) to the first state of each decoder layer."""
        state = full_precision(torch.tanh(self.first_state(vector)))
        return state.unflatten(-1, (self.parts, self.layers, -1)).unbind(1)

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., E) to logits (..., V)."""
        return self.projection(hidden)


class FixedVector(RecurrentSeq2Seq):
    """The source reaches the decoder through one vector alone.

    It sets the decoder's first state (Sutskever et al. 2014) and may be read again at every
    step (Cho et al. 2014, section 2.2).
    """

    def __init__(self, options: FixedVectorOptions, vocab: Vocabulary, cell: Cell) -> None:
        super().__init__(options, vocab, cell, options.d_model)
        self.every_step = options.context == "every-step"
        d_context = options.d_model if self.every_step else 0
        self.decoder = DecoderStack(options, cell, options.d_embed + d_context)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give the fixed vector (B, D)."""
        return (self.read(src, src_mask)[1],)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give the state of the cells."""
        (vector,) = cast(tuple[Tensor], memory)
        return self.begin(vector)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Run the recurrence over all given tokens in one call; there is no attention."""
        x = self.embed(tokens)
        if self.every_step:
            (vector,) = cast(tuple[Tensor], memory)
            beams = tokens.shape[0] // vector.shape[0]
            by_row = vector.repeat_interleave(beams, dim=0).unsqueeze(1)  # (B*K, 1, D)
            x = torch.cat([x, by_row.expand(-1, x.shape[1], -1).to(x.dtype)], dim=-1)
        outputs, state = self.decoder(x, cast(State, state))
        hidden = torch.tanh(self.readout(self.dropout(outputs)))
        return Decoded(self.dropout(hidden), state, ())


class Attentional(RecurrentSeq2Seq):
    """What both attentional decoders share: a memory of every source position."""

    def __init__(
        self, options: AttentionOptions, vocab: Vocabulary, cell: Cell, d_readout: int
    ) -> None:
        super().__init__(options, vocab, cell, d_readout)
        self.attention = make_attention(
            options.attention,
            options.d_model,
            heads=options.heads,
            reach=options.reach,
            coverage=options.coverage,
        )

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give (keys, values, mask, fixed vector)."""
        values, vector = self.read(src, src_mask)
        values = self.dropout(values)
        return *self.attention.prepare(values), src_mask, vector

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (state of the cells, state of the attention)."""
        *_, mask, vector = cast(tuple[Tensor, ...], memory)
        decoder = cast(DecoderStack | CellStack, self.decoder)
        return decoder.start(self.begin(vector)), self.attention.start(mask)


class Luong(Attentional):
    """Attention after the recurrence, all steps in one call (Luong et al. 2015, equation 5)."""

    def __init__(self, options: AttentionOptions, vocab: Vocabulary, cell: Cell) -> None:
        super().__init__(options, vocab, cell, 2 * options.d_model)
        self.decoder: DecoderStack | CellStack = (
            SelfAttentiveStack(options, cell)
            if options.self_attention
            else DecoderStack(options, cell, options.d_embed)
        )

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Run the recurrence, then attend with every state at once."""
        keys, values, mask, _ = cast(tuple[Tensor, ...], memory)
        cells, attending = cast(tuple[State, Tree], state)
        outputs, cells = self.decoder(self.embed(tokens), cells)
        outputs = self.dropout(outputs)
        context, weights, attending = self.attention(outputs, keys, values, mask, attending)
        hidden = torch.tanh(self.readout(torch.cat([context, outputs], dim=-1)))
        return Decoded(self.dropout(hidden), (cells, attending), (weights,) if attention else ())


class InputFeeding(Attentional):
    """Luong's decoder that is fed its own attentional vector (section 3.3), step by step."""

    def __init__(self, options: AttentionOptions, vocab: Vocabulary, cell: Cell) -> None:
        super().__init__(options, vocab, cell, 2 * options.d_model)
        self.decoder = make_cells(options, cell, d_feed=options.d_embed)
        self.d_embed = options.d_embed

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (state of the cells, of the attention, attentional vector (B, E), first zero)."""
        cells, attending = cast(tuple[State, Tree], super().start(memory, max_length))
        return cells, attending, cells[0].new_zeros(cells[0].shape[0], self.d_embed)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Step through the tokens, attending with each new state."""
        gates = self.decoder.embedded(self.embed(tokens))
        parts = cast(tuple[Tensor, ...], memory)
        plain = type(self.attention) is Attention and self.attention.focus is None
        plain = plain and type(self.attention.score) in {DotScore, GeneralScore}
        plain = plain and self.decoder.is_one_lstm and len(gates) == len(parts[0])
        run = self.all_steps if plain and torch.is_grad_enabled() else self.step_by_step
        fed, weights, after = run(gates, parts, cast(FedState, state))
        return Decoded(fed, after, (weights,) if attention else ())

    def step_by_step(self, gates: Tensor, memory: tuple[Tensor, ...], state: FedState) -> FedSteps:
        """Recur and attend, one step at a time over gates (B, T, 4 D) of the embeddings."""
        keys, values, mask, _ = memory
        cells, attending, feed = state
        feeds, all_weights = [], []
        for step_gates in gates.unbind(1):
            top, cells = self.decoder.step(step_gates, feed.to(gates.dtype), cells)
            top = self.dropout(top).unsqueeze(1)
            context, weights, attending = self.attention(top, keys, values, mask, attending)
            joined = torch.cat([context, top.to(context.dtype)], dim=-1).squeeze(1)
            feed = self.dropout(torch.tanh(self.readout(joined)))
            feeds.append(feed)
            all_weights.append(weights)
        state = (tuple(map(full_precision, cells)), attending, full_precision(feed))
        return torch.stack(feeds, dim=1), torch.cat(all_weights, dim=2), state

    def all_steps(self, gates: Tensor, memory: tuple[Tensor, ...], state: FedState) -> FedSteps:
        """Do the same for one LSTM layer and one row a sentence, with a faster way back."""
        keys, values, mask, _ = memory
        (hidden, cell), attending, feed = state
        B, T, _ = gates.shape
        fed, weights, (hidden, cell, feed) = recur_and_attend(
            gates,
            keys,
            values,
            mask,
            (hidden[:, 0], cell[:, 0], feed),
            (
                cast(nn.Linear, self.decoder.fed).weight,
                cast(nn.Linear, self.decoder.recurrent[0]).weight,
                self.readout.weight,
                self.readout.bias,
            ),
            (
                self.dropout.mask(gates.new_empty(T, B, hidden.shape[-1])),
                self.dropout.mask(gates.new_empty(T, B, self.d_embed)),
            ),
        )
        state = ((hidden.unsqueeze(1), cell.unsqueeze(1)), attending, feed)
        return fed, weights.unsqueeze(1), state


class Bahdanau(Attentional):
    """Attention before the recurrence, with the state of the step before (Bahdanau 2015)."""

    def __init__(self, options: AttentionOptions, vocab: Vocabulary, cell: Cell) -> None:
        super().__init__(options, vocab, cell, 2 * options.d_model + options.d_embed)
        self.decoder = make_cells(options, cell, d_feed=options.d_model)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Step through the tokens: attend, then recur; the readout is for all steps at once."""
        embedded = self.embed(tokens)
        gates = self.decoder.embedded(embedded)
        parts = cast(tuple[Tensor, ...], memory)
        plain = type(self.attention) is Attention and self.decoder.is_one_lstm
        plain = plain and len(gates) == len(parts[0])
        run = self.all_steps if plain and torch.is_grad_enabled() else self.step_by_step
        tops, contexts, weights, state = run(gates, parts, cast(tuple[State, Tree], state))
        joined = torch.cat([contexts, self.dropout(tops), embedded], dim=-1)
        out = self.dropout(torch.tanh(self.readout(joined)))
        return Decoded(out, state, (weights,) if attention else ())

    def step_by_step(
        self, gates: Tensor, memory: tuple[Tensor, ...], state: tuple[State, Tree]
    ) -> Steps:
        """Attend and recur, one step at a time over gates (B, T, 4 D) of the embeddings."""
        keys, values, mask, _ = memory
        cells, attending = state
        tops, contexts, all_weights = [], [], []
        for step_gates in gates.unbind(1):
            context, weights, attending = self.attention(
                self.decoder.top(cells), keys, values, mask, attending
            )
            context = context.squeeze(1)
            top, cells = self.decoder.step(step_gates, context, cells)
            tops.append(top)
            contexts.append(context)
            all_weights.append(weights)
        state = (tuple(map(full_precision, cells)), attending)
        return torch.stack(tops, 1), torch.stack(contexts, 1), torch.cat(all_weights, 2), state

    def all_steps(
        self, gates: Tensor, memory: tuple[Tensor, ...], state: tuple[State, Tree]
    ) -> Steps:
        """Do the same for one LSTM layer and one row a sentence, with a faster way back."""
        keys, values, mask, _ = memory
        score = cast(AdditiveScore, self.attention.score)
        (before, cell_before), attending = state
        tops, contexts, weights, (hidden, cell) = attend_and_recur(
            gates,
            keys,
            values,
            mask,
            (before[:, 0], cell_before[:, 0]),
            (
                score.query.weight,
                score.energy.weight,
                cast(nn.Linear, self.decoder.fed).weight,
                cast(nn.Linear, self.decoder.recurrent[0]).weight,
            ),
        )
        state = ((hidden.unsqueeze(1), cell.unsqueeze(1)), attending)
        return tops, contexts, weights.unsqueeze(1), state


def make_cells(options: AttentionOptions, cell: Cell, d_feed: int) -> CellStack:
    """Make the cells of a decoder that is fed something at each step."""
    kind = SelfAttentiveStack if options.self_attention else CellStack
    return kind(options, cell, d_feed)


def build_attentional(options: AttentionOptions, vocab: Vocabulary, cell: Cell) -> Seq2Seq:
    """Choose the decoder by where it attends and what it is fed."""
    if options.attention == "bahdanau":
        return Bahdanau(options, vocab, cell)
    if options.input_feeding:
        return InputFeeding(options, vocab, cell)
    return Luong(options, vocab, cell)


_SIZES = {
    "tiny": {"d_model": 128, "d_embed": 64},
    "small": {},
    "base": {"d_model": 1024, "d_embed": 512, "layers": 2},
}

_FEW: tuple[dict[str, Any], ...] = (
    {},
    {"layers": 3, "residual": True, "layer_norm": True},
    {"bidirectional": False, "tied": False},
)
_MORE_FIXED = (
    {"layers": 2},
    {"reverse_source": True, "bidirectional": False, "context": "start"},
)
_MORE_ATTENTION = (
    {"layers": 2},
    {"attention": "luong-dot"},
    {"attention": "luong-concat"},
    {"attention": "luong-general"},
    {"attention": "luong-general", "input_feeding": True},
    {"attention": "luong-dot", "input_feeding": True, "layers": 2},
    {"attention": "luong-concat", "input_feeding": True},
    {"layers": 2, "reverse_source": True},
    {"attention": "scaled-dot"},
    {"attention": "multi-head", "heads": 2},
    {"attention": "multi-head", "heads": 2, "input_feeding": True},
    {"attention": "local-m", "reach": 1},
    {"attention": "local-m", "reach": 2, "input_feeding": True},
    {"attention": "local-p", "reach": 2},
    {"attention": "local-p", "reach": 1, "input_feeding": True},
    {"coverage": True},
    {"attention": "luong-concat", "input_feeding": True, "coverage": True},
    {"self_attention": True},
    {"self_attention": True, "layers": 2, "residual": True, "layer_norm": True},
    {"self_attention": True, "attention": "luong-general"},
    {"self_attention": True, "attention": "luong-general", "input_feeding": True},
)
_SOME_ATTENTION = (
    {"attention": "luong-dot"},
    {"attention": "luong-general", "input_feeding": True},
)


def _register(
    name: str, kind: str, cell: Cell, first: str, year: int, rate: float, *, every: bool
) -> None:
    """Register a cell's two architectures; ``first`` is the paper that the cell comes from."""
    traits = Traits(year, parallel=False, path="n", keeps=ONE_STATE)
    register(
        Architecture(
            name=name,
            summary=f"{kind} encoder-decoder through one fixed vector",
            paper=f"{first}; Sutskever et al. 2014, Sequence to Sequence Learning with Neural "
            "Networks",
            traits=traits._replace(reads="one vector"),
            options=FixedVectorOptions,
            build=partial(FixedVector, cell=cell),
            recipe=Recipe(lr=rate, warmup=300, batch_tokens=1024, generated_epochs=7),
            sizes={**_SIZES, "small": {"d_model": 512}},
            bf16_on_cpu=True,
            variants=(*_FEW, *(_MORE_FIXED if every else ())),
        )
    )
    register(
        Architecture(
            name=f"{name}-attn",
            summary=f"{kind} encoder-decoder that attends to every source word",
            paper="Bahdanau et al. 2015; Luong et al. 2015, Effective Approaches to "
            "Attention-based Neural Machine Translation",
            traits=traits._replace(year=2015),
            options=AttentionOptions,
            build=partial(build_attentional, cell=cell),
            recipe=Recipe(lr=rate, warmup=300, batch_tokens=1024, generated_epochs=5),
            sizes=_SIZES,
            bf16_on_cpu=cell is LSTM,
            variants=(*_FEW, *(_MORE_ATTENTION if every else _SOME_ATTENTION)),
        )
    )


_register("rnn", "Elman RNN", RNN, "Elman 1990", 1990, 1e-3, every=False)
_register("gru", "GRU", GRU, "Cho et al. 2014", 2014, 3e-3, every=False)
_register("lstm", "LSTM", LSTM, "Hochreiter & Schmidhuber 1997", 2014, 3e-3, every=True)
