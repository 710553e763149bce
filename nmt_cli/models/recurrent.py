"""LSTM encoder-decoders: through one fixed vector, and with attention.

Sutskever et al. 2014 squeeze the source into one vector, which Cho et al. 2014 read at every
step; Bahdanau et al. 2015 attend before the
recurrence, with the decoder state of the step before; Luong et al. 2015 attend after it and may
feed the attentional vector to the next step (section 3.3).

Departures: the fixed vector is the encoder's last hidden state of its top layer, mapped by one
layer to the first state of each decoder layer; the readout is as wide as the embedding, so that
both may share weights (Press & Wolf 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.additive_loop import attend_and_recur
from nmt_cli.models.attention import AdditiveScore, ScoreName, attend, make_score
from nmt_cli.models.base import (
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Tree,
    Vocabulary,
    flip_index,
    full_precision,
    lengths_of,
    register,
    take,
)
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.options import MOST_LAYERS, require

LstmState = tuple[Tensor, Tensor]
"""Hidden state and cell of every layer, each (B, layers, D)."""
Steps = tuple[Tensor, Tensor, Tensor, LstmState]
"""Top states (B, T, D), contexts (B, T, D), attention (B, T, S), and the state after them."""


@dataclass(frozen=True)
class LstmOptions:
    """Options of both LSTM architectures."""

    d_model: Annotated[int, "width of the decoder state; the encoder's directions share it"] = 256
    d_embed: Annotated[int, "width of the embeddings"] = 256
    layers: Annotated[int, "stacked layers, in the encoder and in the decoder"] = 1
    bidirectional: Annotated[bool, "read the source in both directions"] = True
    reverse_source: Annotated[bool, "feed the source backwards (Sutskever section 3.3)"] = False
    tied: Annotated[bool, "share target embedding and projection (and both sides' if one)"] = True
    dropout: Annotated[float, "dropout on embeddings, between layers and before projection"] = 0.3

    def __post_init__(self) -> None:
        require(
            1 <= self.layers <= MOST_LAYERS, f"layers={self.layers}: must be 1 to {MOST_LAYERS}"
        )
        require(min(self.d_model, self.d_embed) >= 1, "d_model and d_embed must be at least 1")
        require(0 <= self.dropout < 1, f"dropout={self.dropout}: must be in [0, 1)")
        require(
            not self.bidirectional or self.d_model % 2 == 0,
            f"d_model={self.d_model}: must be even for a bidirectional encoder",
        )


@dataclass(frozen=True)
class FixedVectorOptions(LstmOptions):
    """Options of ``lstm``."""

    context: Annotated[
        Literal["start", "every-step"],
        "feed the vector to the first state alone (Sutskever), or to every step too (Cho)",
    ] = "every-step"


@dataclass(frozen=True)
class LstmAttentionOptions(LstmOptions):
    """Options of ``lstm-attn``."""

    attention: Annotated[
        ScoreName, "bahdanau attends before the recurrence, the Luong kinds after it"
    ] = "bahdanau"
    input_feeding: Annotated[bool, "feed the attentional vector to the next step (Luong 3.3)"] = (
        False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not (self.input_feeding and self.attention == "bahdanau"),
            "input_feeding=true needs a Luong kind, such as attention=luong-general; Bahdanau's "
            "context enters the recurrence already",
        )


class Encoder(nn.Module):
    """Stacked LSTM layers that never read padding."""

    def __init__(self, options: LstmOptions) -> None:
        super().__init__()
        directions = 2 if options.bidirectional else 1
        widths = [options.d_embed] + [options.d_model] * (options.layers - 1)
        d_state = options.d_model // directions
        self.forwards = nn.ModuleList(lstm_layer(width, d_state) for width in widths)
        self.backwards = nn.ModuleList(
            lstm_layer(width, d_state) for width in widths if options.bidirectional
        )
        self.reverse_source = options.reverse_source
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read embeddings x (B, S, E): outputs (B, S, D), and the last hidden state (B, D)."""
        flip = flip_index(mask)
        if self.reverse_source:
            x = take(x, flip)
        last = (lengths_of(mask) - 1)[:, None]  # (B, 1)
        final = x
        for layer, forwards in enumerate(self.forwards):
            if layer > 0:
                x = self.dropout(x)
            outputs = [forwards(x)[0]]
            ends = [take(outputs[0], last)]
            if len(self.backwards) > 0:
                flipped, _ = self.backwards[layer](take(x, flip))
                outputs.append(take(flipped, flip))
                ends.append(take(flipped, last))
            x = torch.cat(outputs, dim=-1)
            final = torch.cat(ends, dim=-1).squeeze(1)
        return (take(x, flip) if self.reverse_source else x), final


class DecoderStack(nn.Module):
    """Stacked LSTM layers run over all given steps in one call each."""

    def __init__(self, options: LstmOptions, d_input: int) -> None:
        super().__init__()
        widths = [d_input] + [options.d_model] * (options.layers - 1)
        self.layers = nn.ModuleList(lstm_layer(width, options.d_model) for width in widths)
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        """Run over x (B, T, D_in) from a state: outputs (B, T, D) and the state after them."""
        hidden, cell = state
        hiddens, cells = [], []
        for layer, lstm in enumerate(self.layers):
            if layer > 0:
                x = self.dropout(x)
            before = (hidden[:, layer].unsqueeze(0).contiguous(), cell[:, layer].unsqueeze(0))
            x, (h, c) = lstm(x, (before[0], before[1].contiguous()))
            hiddens.append(h.squeeze(0))
            cells.append(c.squeeze(0))
        return x, (full_precision(torch.stack(hiddens, 1)), full_precision(torch.stack(cells, 1)))


class CellStack(nn.Module):
    """Stacked LSTM cells run one step at a time, each fed something known only at that step.

    The half of the gates that depends on the embeddings is computed for all steps at once.
    """

    def __init__(self, options: LstmOptions, d_feed: int) -> None:
        super().__init__()
        d_gates = 4 * options.d_model
        self.embedded = nn.Linear(options.d_embed, d_gates)
        self.first = nn.Linear(d_feed + options.d_model, d_gates, bias=False)
        self.upper = nn.ModuleList(
            nn.Linear(2 * options.d_model, d_gates) for _ in range(options.layers - 1)
        )
        self.dropout = Dropout(options.dropout)
        bound = options.d_model**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        for linear in (self.embedded, *self.upper):
            set_forget_bias(cast(nn.Linear, linear).bias)

    def step(self, gates: Tensor, feed: Tensor, state: LstmState) -> LstmState:
        """Take one step.

        Args:
            gates: (B, 4 D), what the embedding contributes to the first layer's gates.
            feed: (B, D_feed), what is fed at this step beside the embedding.
            state: hidden states and cells (B, layers, D).
        """
        hidden, cell = state
        gates = gates + self.first(torch.cat([feed, hidden[:, 0].to(feed.dtype)], dim=-1))
        h, c = lstm_cell(gates, cell[:, 0])
        hiddens, cells = [h], [c]
        for layer, linear in enumerate(self.upper, start=1):
            below = self.dropout(hiddens[-1])
            h, c = lstm_cell(
                linear(torch.cat([below, hidden[:, layer].to(below.dtype)], dim=-1)),
                cell[:, layer],
            )
            hiddens.append(h)
            cells.append(c)
        return torch.stack(hiddens, 1), torch.stack(cells, 1)


def lstm_cell(gates: Tensor, cell: Tensor) -> LstmState:
    """One step of Hochreiter & Schmidhuber 1997 with forget gates, in torch's order i f g o."""
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def set_forget_bias(bias: Tensor) -> None:
    """Open the forget gates of a (4 D,) bias (Jozefowicz et al. 2015)."""
    with torch.no_grad():
        i_f_g_o = bias.chunk(4)
        i_f_g_o[1].fill_(1.0)


def lstm_layer(d_input: int, d_state: int) -> nn.LSTM:
    """Make one layer; its two biases, which add up, open the forget gates."""
    lstm = nn.LSTM(d_input, d_state, batch_first=True)
    set_forget_bias(cast(Tensor, lstm.bias_ih_l0))
    with torch.no_grad():
        cast(Tensor, lstm.bias_hh_l0).zero_()
    return lstm


class RecurrentSeq2Seq(Seq2Seq):
    """What the three decoders share: embeddings, encoder, first state, projection."""

    def __init__(self, options: LstmOptions, vocab: Vocabulary, d_readout: int) -> None:
        super().__init__()
        self.tgt_embedding = nn.Embedding(vocab.tgt, options.d_embed)
        nn.init.normal_(self.tgt_embedding.weight, std=options.d_embed**-0.5)
        if options.tied and vocab.shared:
            self.src_embedding = self.tgt_embedding
        else:
            self.src_embedding = nn.Embedding(vocab.src, options.d_embed)
            nn.init.normal_(self.src_embedding.weight, std=options.d_embed**-0.5)
        self.encoder = Encoder(options)
        self.first_state = nn.Linear(options.d_model, 2 * options.layers * options.d_model)
        self.readout = nn.Linear(d_readout, options.d_embed)
        self.projection = nn.Linear(options.d_embed, vocab.tgt)
        nn.init.zeros_(self.projection.bias)
        if options.tied:
            self.projection.weight = self.tgt_embedding.weight
        self.dropout = Dropout(options.dropout)
        self.layers = options.layers
        self.scale = options.d_embed**0.5

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed target tokens (B, T): (B, T, E), of unit variance at first."""
        return self.dropout(self.tgt_embedding(tokens) * self.scale)

    def read(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode: outputs (B, S, D) and the fixed vector (B, D)."""
        outputs, vector = self.encoder(self.dropout(self.src_embedding(src) * self.scale), src_mask)
        return outputs, vector

    def begin(self, vector: Tensor) -> LstmState:
        """Map the fixed vector (B, D) to the first state of each decoder layer."""
        both = full_precision(torch.tanh(self.first_state(vector)))
        hidden, cell = both.unflatten(-1, (2, self.layers, -1)).unbind(1)
        return hidden, cell

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., E) to logits (..., V)."""
        return self.projection(hidden)


class FixedVectorLstm(RecurrentSeq2Seq):
    """The source reaches the decoder through one vector alone.

    It sets the decoder's first state (Sutskever et al. 2014) and may be read again at every
    step (Cho et al. 2014, section 2.2).
    """

    def __init__(self, options: FixedVectorOptions, vocab: Vocabulary) -> None:
        super().__init__(options, vocab, options.d_model)
        self.every_step = options.context == "every-step"
        d_context = options.d_model if self.every_step else 0
        self.decoder = DecoderStack(options, options.d_embed + d_context)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give the fixed vector (B, D)."""
        return (self.read(src, src_mask)[1],)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (hidden, cell), each (B, layers, D)."""
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
        outputs, state = self.decoder(x, cast(LstmState, state))
        hidden = torch.tanh(self.readout(self.dropout(outputs)))
        return Decoded(self.dropout(hidden), state, ())


class AttentionalLstm(RecurrentSeq2Seq):
    """What both attentional decoders share: a memory of every source position."""

    def __init__(self, options: LstmAttentionOptions, vocab: Vocabulary, d_readout: int) -> None:
        super().__init__(options, vocab, d_readout)
        self.score = make_score(options.attention, options.d_model, options.d_model)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give (keys, values, mask, fixed vector)."""
        values, vector = self.read(src, src_mask)
        values = self.dropout(values)
        return self.score.keys(values), values, src_mask, vector


class LuongLstm(AttentionalLstm):
    """Attention after the recurrence, all steps in one call (Luong et al. 2015, equation 5)."""

    def __init__(self, options: LstmAttentionOptions, vocab: Vocabulary) -> None:
        super().__init__(options, vocab, 2 * options.d_model)
        self.decoder = DecoderStack(options, options.d_embed)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (hidden, cell), each (B, layers, D)."""
        return self.begin(cast(tuple[Tensor, ...], memory)[3])

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Run the recurrence, then attend with every state at once."""
        keys, values, mask, _ = cast(tuple[Tensor, ...], memory)
        outputs, state = self.decoder(self.embed(tokens), cast(LstmState, state))
        outputs = self.dropout(outputs)
        context, weights = attend(self.score, outputs, keys, values, mask)
        hidden = torch.tanh(self.readout(torch.cat([context, outputs], dim=-1)))
        return Decoded(self.dropout(hidden), state, (weights.unsqueeze(1),) if attention else ())


class InputFeedingLstm(AttentionalLstm):
    """Luong's decoder that is fed its own attentional vector (section 3.3), step by step."""

    def __init__(self, options: LstmAttentionOptions, vocab: Vocabulary) -> None:
        super().__init__(options, vocab, 2 * options.d_model)
        self.decoder = CellStack(options, d_feed=options.d_embed)
        self.d_embed = options.d_embed

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (hidden, cell, attentional vector), the vector (B, E) zero at first."""
        hidden, cell = self.begin(cast(tuple[Tensor, ...], memory)[3])
        return hidden, cell, hidden.new_zeros(hidden.shape[0], self.d_embed)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Step through the tokens, attending with each new state."""
        keys, values, mask, _ = cast(tuple[Tensor, ...], memory)
        hidden, cell, feed = cast(tuple[Tensor, Tensor, Tensor], state)
        feeds, all_weights = [], []
        for gates in self.decoder.embedded(self.embed(tokens)).unbind(1):
            hidden, cell = self.decoder.step(gates, feed.to(gates.dtype), (hidden, cell))
            top = self.dropout(hidden[:, -1:])
            context, weights = attend(self.score, top, keys, values, mask)
            joined = torch.cat([context, top.to(context.dtype)], dim=-1).squeeze(1)
            feed = self.dropout(torch.tanh(self.readout(joined)))
            feeds.append(feed)
            all_weights.append(weights)
        state = (full_precision(hidden), full_precision(cell), full_precision(feed))
        weights = torch.cat(all_weights, dim=1).unsqueeze(1)
        return Decoded(torch.stack(feeds, dim=1), state, (weights,) if attention else ())


class BahdanauLstm(AttentionalLstm):
    """Attention before the recurrence, with the state of the step before (Bahdanau 2015)."""

    def __init__(self, options: LstmAttentionOptions, vocab: Vocabulary) -> None:
        super().__init__(options, vocab, 2 * options.d_model + options.d_embed)
        self.decoder = CellStack(options, d_feed=options.d_model)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (hidden, cell), each (B, layers, D)."""
        return self.begin(cast(tuple[Tensor, ...], memory)[3])

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Step through the tokens: attend, then recur; the readout is for all steps at once."""
        embedded = self.embed(tokens)
        gates = self.decoder.embedded(embedded)
        parts = cast(tuple[Tensor, ...], memory)
        plain = len(self.decoder.upper) == 0 and len(gates) == len(parts[0])
        run = self.all_steps if plain and torch.is_grad_enabled() else self.step_by_step
        tops, contexts, weights, state = run(gates, parts, cast(LstmState, state))
        joined = torch.cat([contexts, self.dropout(tops), embedded], dim=-1)
        out = self.dropout(torch.tanh(self.readout(joined)))
        return Decoded(out, state, (weights.unsqueeze(1),) if attention else ())

    def step_by_step(self, gates: Tensor, memory: tuple[Tensor, ...], state: LstmState) -> Steps:
        """Attend and recur, one step at a time over gates (B, T, 4 D) of the embeddings."""
        keys, values, mask, _ = memory
        hidden, cell = state
        tops, contexts, all_weights = [], [], []
        for step_gates in gates.unbind(1):
            context, weights = attend(self.score, hidden[:, -1:], keys, values, mask)
            context = context.squeeze(1)
            hidden, cell = self.decoder.step(step_gates, context, (hidden, cell))
            tops.append(hidden[:, -1])
            contexts.append(context)
            all_weights.append(weights)
        state = (full_precision(hidden), full_precision(cell))
        return torch.stack(tops, 1), torch.stack(contexts, 1), torch.cat(all_weights, 1), state

    def all_steps(self, gates: Tensor, memory: tuple[Tensor, ...], state: LstmState) -> Steps:
        """Do the same for one layer and one row a sentence, with a faster way back."""
        keys, values, mask, _ = memory
        score = cast(AdditiveScore, self.score)
        *steps, (hidden, cell) = attend_and_recur(
            gates,
            keys,
            values,
            mask,
            (state[0][:, 0], state[1][:, 0]),
            (score.query.weight, score.energy.weight, self.decoder.first.weight),
        )
        tops, contexts, weights = steps
        return tops, contexts, weights, (hidden.unsqueeze(1), cell.unsqueeze(1))


def build_attentional(options: LstmAttentionOptions, vocab: Vocabulary) -> Seq2Seq:
    """Choose the decoder by where it attends and what it is fed."""
    if options.attention == "bahdanau":
        return BahdanauLstm(options, vocab)
    if options.input_feeding:
        return InputFeedingLstm(options, vocab)
    return LuongLstm(options, vocab)


_SIZES = {
    "tiny": {"d_model": 128, "d_embed": 64},
    "small": {},
    "base": {"d_model": 1024, "d_embed": 512, "layers": 2},
}

_SHAPES: tuple[dict[str, Any], ...] = ({}, {"layers": 2}, {"bidirectional": False}, {"tied": False})

register(
    Architecture(
        name="lstm",
        summary="LSTM encoder-decoder through one fixed vector",
        paper="Sutskever et al. 2014, Sequence to Sequence Learning with Neural Networks",
        options=FixedVectorOptions,
        build=FixedVectorLstm,
        recipe=Recipe(lr=3e-3, warmup=300, batch_tokens=1024, generated_epochs=7),
        sizes={**_SIZES, "small": {"d_model": 512}},
        variants=(*_SHAPES, {"reverse_source": True, "bidirectional": False, "context": "start"}),
    )
)
register(
    Architecture(
        name="lstm-attn",
        summary="LSTM encoder-decoder that attends to every source word",
        paper="Bahdanau et al. 2015; Luong et al. 2015, Effective Approaches to Attention-based "
        "Neural Machine Translation",
        options=LstmAttentionOptions,
        build=build_attentional,
        recipe=Recipe(lr=3e-3, warmup=300, batch_tokens=1024, generated_epochs=4.5),
        sizes=_SIZES,
        variants=(
            *_SHAPES,
            {"attention": "luong-dot"},
            {"attention": "luong-concat"},
            {"attention": "luong-general", "input_feeding": True},
            {"attention": "luong-dot", "input_feeding": True, "layers": 2},
            {"attention": "luong-concat", "input_feeding": True},
            {"attention": "luong-general"},
            {"layers": 2, "reverse_source": True},
        ),
    )
)
