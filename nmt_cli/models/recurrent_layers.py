"""What recurrent encoder-decoders are built of: stacked layers, run over all steps or one by one.

A decoder whose steps are known beforehand is one fused call a layer (``DecoderStack``); one that is
fed at each step what only that step finds out is stepped (``CellStack``), and so is one that reads
its own past (``SelfAttentiveStack``, Cheng et al. 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.base import flip_index, full_precision, lengths_of, take
from nmt_cli.models.cells import GRU, LSTM, Cell, State, open_forget_gates
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.lstm_loop import recur
from nmt_cli.models.options import MOST_LAYERS, WIDEST, only_with, require


@dataclass(frozen=True)
class RecurrentOptions:
    """Options of all recurrent architectures."""

    d_model: Annotated[int, "width of the decoder state; the encoder's directions share it"] = 256
    d_embed: Annotated[int, "width of the embeddings"] = 256
    layers: Annotated[int, "stacked layers, in the encoder and in the decoder"] = 1
    residual: Annotated[bool, "add to each layer above the first what it reads"] = False
    layer_norm: Annotated[bool, "normalise what each layer above the first reads"] = False
    bidirectional: Annotated[bool, "read the source in both directions"] = True
    reverse_source: Annotated[
        bool, "feed the source backwards (Sutskever section 3.3); matters with bidirectional=false"
    ] = False
    tied: Annotated[bool, "share target embedding and projection (and both sides' if one)"] = True
    dropout: Annotated[float, "dropout on embeddings, between layers and before projection"] = 0.3

    def __post_init__(self) -> None:
        require(
            1 <= self.layers <= MOST_LAYERS, f"layers={self.layers}: must be 1 to {MOST_LAYERS}"
        )
        for name in ("d_model", "d_embed"):
            width = getattr(self, name)
            require(1 <= width <= WIDEST, f"{name}={width}: must be 1 to {WIDEST}")
        require(0 <= self.dropout < 1, f"dropout={self.dropout}: must be in [0, 1)")
        for name in ("residual", "layer_norm"):
            only_with(self, name, self.layers > 1, "layers=2 or more")
        require(
            not self.bidirectional or self.d_model % 2 == 0,
            f"d_model={self.d_model}: must be even for a bidirectional encoder",
        )


class Between(nn.Module):
    """What stands between one layer and the next: norm and dropout below, a residual around."""

    def __init__(self, options: RecurrentOptions) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(options.d_model) if options.layer_norm else nn.Identity()
        self.dropout = Dropout(options.dropout)
        self.residual = options.residual

    def enter(self, x: Tensor) -> Tensor:
        """Give what the layer above reads."""
        return self.dropout(self.norm(x))

    def leave(self, x: Tensor, result: Tensor) -> Tensor:
        """Give what the layer above hands on."""
        return x + result if self.residual else result


class BetweenLayers(nn.ModuleList):
    """What stands below every layer but the first."""

    def __init__(self, options: RecurrentOptions) -> None:
        super().__init__(Between(options) for _ in range(options.layers - 1))

    def __iter__(self) -> Iterator[Between]:
        return cast(Iterator[Between], super().__iter__())


def run(layer: nn.Module, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """Run a layer over x (B, T, D_in) from a state (B, D) or zero: (B, T, D), the state after.

    On CUDA it runs outside autocast, which takes it to fp16 even where bf16 was asked for.
    """
    if trains_by_loop(layer, x):
        return run_side_by_side([layer], [x], None if state is None else [state])[0]
    given: Tensor | State | None = None
    if state is not None:
        parts = tuple(part.unsqueeze(0).contiguous() for part in state)
        given = parts if len(parts) > 1 else parts[0]
    if x.is_cuda:
        with torch.autocast("cuda", enabled=False):
            outputs, after = layer(full_precision(x), given)
    else:
        outputs, after = layer(x, given)
    parts = after if isinstance(after, tuple) else (after,)
    return outputs, tuple(part.squeeze(0) for part in parts)


def trains_by_loop(layer: nn.Module, x: Tensor) -> bool:
    """Tell whether our own loop is the faster way: for an LSTM that trains on a CPU."""
    return isinstance(layer, nn.LSTM) and x.device.type == "cpu" and torch.is_grad_enabled()


def run_side_by_side(
    layers: Sequence[nn.Module], inputs: Sequence[Tensor], states: Sequence[State] | None = None
) -> list[tuple[Tensor, State]]:
    """Run LSTM layers of one width, each over its own (B, T, D_in), as ``run`` does for one."""
    gates = [
        F.linear(
            x.transpose(0, 1).contiguous(),
            cast(Tensor, layer.weight_ih_l0),
            cast(Tensor, layer.bias_ih_l0) + cast(Tensor, layer.bias_hh_l0),
        )
        for layer, x in zip(layers, inputs, strict=True)
    ]
    recurrent = [cast(Tensor, layer.weight_hh_l0) for layer in layers]
    if states is None:
        zero = full_precision(gates[0]).new_zeros(
            len(layers), gates[0].shape[1], recurrent[0].shape[1]
        )
        first = zero, zero
    else:
        first = cast("tuple[Tensor, Tensor]", tuple(map(torch.stack, zip(*states, strict=True))))
    outputs, hidden, cell = recur(gates, *first, recurrent)
    return [
        (output.transpose(0, 1), (last, last_cell))
        for output, last, last_cell in zip(outputs, hidden, cell, strict=True)
    ]


class Encoder(nn.Module):
    """Stacked recurrent layers that never read padding."""

    def __init__(self, options: RecurrentOptions, cell: Cell) -> None:
        super().__init__()
        directions = 2 if options.bidirectional else 1
        widths = [options.d_embed] + [options.d_model] * (options.layers - 1)
        d_state = options.d_model // directions
        self.forwards = nn.ModuleList(cell.layer(width, d_state) for width in widths)
        self.backwards = nn.ModuleList(
            cell.layer(width, d_state) for width in widths if options.bidirectional
        )
        self.reverse_source = options.reverse_source
        self.between = BetweenLayers(options)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read embeddings x (B, S, E): outputs (B, S, D), and where they end, (B, D)."""
        flip = flip_index(mask)
        if self.reverse_source:
            x = take(x, flip)
        last = (lengths_of(mask) - 1)[:, None]  # (B, 1)
        x, final = self._layer(0, x, flip, last)
        for layer, between in enumerate(self.between, start=1):
            outputs, ends = self._layer(layer, between.enter(x), flip, last)
            x, final = between.leave(x, outputs), between.leave(final, ends)
        return (take(x, flip) if self.reverse_source else x), final

    def _layer(self, layer: int, x: Tensor, flip: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        layers, inputs = [self.forwards[layer]], [x]
        if len(self.backwards) > 0:
            layers.append(self.backwards[layer])
            inputs.append(take(x, flip))
        if trains_by_loop(layers[0], x):
            ran = run_side_by_side(layers, inputs)
        else:
            ran = [run(*pair) for pair in zip(layers, inputs, strict=True)]
        outputs = [output for output, _ in ran]
        ends = [take(output, last) for output in outputs]
        outputs[1:] = [take(output, flip) for output in outputs[1:]]
        return torch.cat(outputs, dim=-1), torch.cat(ends, dim=-1).squeeze(1)


class DecoderStack(nn.Module):
    """Stacked recurrent layers run over all given steps in one call each."""

    def __init__(self, options: RecurrentOptions, cell: Cell, d_input: int) -> None:
        super().__init__()
        widths = [d_input] + [options.d_model] * (options.layers - 1)
        self.layers = nn.ModuleList(cell.layer(width, options.d_model) for width in widths)
        self.between = BetweenLayers(options)

    def start(self, first: State) -> State:
        """Give what the first step reads, from the first state of every layer."""
        return first

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run over x (B, T, D_in) from a state, each part (B, layers, D).

        Returns:
            outputs (B, T, D) and the state after them.
        """
        x, after = self._layer(0, x, state)
        states = [after]
        for layer, between in enumerate(self.between, start=1):
            outputs, after = self._layer(layer, between.enter(x), state)
            x = between.leave(x, outputs)
            states.append(after)
        return x, tuple(full_precision(torch.stack(part, 1)) for part in zip(*states, strict=True))

    def _layer(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return run(self.layers[layer], x, tuple(part[:, layer] for part in state))


class CellStack(nn.Module):
    """Stacked cells run one step at a time.

    What the embeddings contribute to the gates is computed for all steps at once; beside them, a
    step may be fed something known only then.
    """

    def __init__(
        self, options: RecurrentOptions, cell: Cell, d_feed: int | None = None, d_beside: int = 0
    ) -> None:
        """Make the layers.

        Args:
            options: of the architecture.
            cell: the kind of recurrence.
            d_feed: width of what is fed beside the embedding; None: nothing is.
            d_beside: how much wider than its gates a layer's product of its input is.
        """
        super().__init__()
        self.cell = cell
        D, d_gates = options.d_model, cell.gates * options.d_model
        d_product = d_gates + d_beside
        self.embedded = nn.Linear(options.d_embed, d_product)
        self.fed = None if d_feed is None else nn.Linear(d_feed, d_product, bias=False)
        self.upper = nn.ModuleList(nn.Linear(D, d_product) for _ in range(options.layers - 1))
        self.recurrent = nn.ModuleList(
            nn.Linear(D, d_gates, bias=cell is GRU) for _ in range(options.layers)
        )
        self.between = BetweenLayers(options)
        bound, fed = D**-0.5, [] if self.fed is None else [self.fed]
        for module in (self.embedded, *fed, *self.upper, *self.recurrent):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        if cell is LSTM:
            for linear in (self.embedded, *self.upper):
                open_forget_gates(cast(nn.Linear, linear).bias[:d_gates])

    @property
    def is_one_lstm(self) -> bool:
        """Whether this is one LSTM layer and nothing more, for which loops are written out."""
        return type(self) is CellStack and self.cell is LSTM and len(self.upper) == 0

    def start(self, first: State) -> State:
        """Give what the first step reads, from the first state of every layer."""
        return first

    def top(self, state: State) -> Tensor:
        """Give the top layer's last hidden state (B, 1, D)."""
        return state[0][:, -1:]

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run over embeddings x (B, T, E), fed nothing: outputs (B, T, D), and the state after."""
        outputs = []
        for product in self.embedded(x).unbind(1):
            output, state = self.step(product, None, state)
            outputs.append(output)
        return torch.stack(outputs, 1), tuple(map(full_precision, state))

    def step(self, product: Tensor, feed: Tensor | None, state: State) -> tuple[Tensor, State]:
        """Take one step.

        Args:
            product: (B, gates * D + beside), of the embedding, for the first layer.
            feed: (B, D_feed), what is fed at this step beside the embedding.
            state: of every layer, as ``start`` or the step before gives it; axis 1 is the layer.

        Returns:
            the output (B, D) and the state after the step.
        """
        if self.fed is not None:
            product = product + self.fed(feed)
        x, after = self._layer(0, product, state)
        states = [after]
        for layer, (linear, between) in enumerate(
            zip(self.upper, self.between, strict=True), start=1
        ):
            output, after = self._layer(layer, linear(between.enter(x)), state)
            x = between.leave(x, output)
            states.append(after)
        return x, tuple(torch.stack(part, 1) for part in zip(*states, strict=True))

    def _layer(self, layer: int, product: Tensor, state: State) -> tuple[Tensor, State]:
        after = self._recur(layer, product, tuple(part[:, layer] for part in state))
        return after[0], after

    def _recur(self, layer: int, from_input: Tensor, before: State) -> State:
        from_state = self.recurrent[layer](before[0].to(from_input.dtype))
        return self.cell.step(from_input, from_state, before)


class SelfAttentiveStack(CellStack):
    """Cells that step from a mean over all their states so far (Cheng et al. 2016, section 3.2).

    With (h_i, c_i) the states of a layer, the first state among them, x what it reads and m the
    mean of the hidden states that the step before went on from,

        e_i = v . tanh(W h_i + W' x + W'' m),  (m, c) = sum_i softmax(e)_i (h_i, c_i),

    and the cell steps from (m, c) (equations 4 to 9). Decoding keeps every state, with its product
    W h_i, so that the memory grows with the length.
    """

    def __init__(self, options: RecurrentOptions, cell: Cell, d_feed: int | None = None) -> None:
        super().__init__(options, cell, d_feed, d_beside=options.d_model)
        D, layers = options.d_model, range(options.layers)
        self.key = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in layers)
        self.mean = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in layers)
        self.energy = nn.ModuleList(nn.Linear(D, 1, bias=False) for _ in layers)

    def start(self, first: State) -> State:
        """Give the past of each layer: its states and keys (B, layers, 1, D); m (B, layers, D)."""
        hidden = first[0]
        keys = [key(hidden[:, layer]) for layer, key in enumerate(self.key)]
        past = (*first, full_precision(torch.stack(keys, 1)))
        return *(part.unsqueeze(2) for part in past), hidden

    def top(self, state: State) -> Tensor:
        """Give the top layer's last hidden state (B, 1, D)."""
        return state[0][:, -1, -1:]

    def _layer(self, layer: int, product: Tensor, state: State) -> tuple[Tensor, State]:
        *past, keys, mean = (part[:, layer] for part in state)
        D = mean.shape[-1]
        from_input, query = product[:, :-D], product[:, -D:]
        query = query + self.mean[layer](mean.to(query.dtype))
        scores = self.energy[layer](torch.tanh(query.unsqueeze(1) + keys)).squeeze(-1)
        weights = torch.softmax(full_precision(scores), dim=-1).unsqueeze(-1)  # (B, t, 1)
        before = tuple((weights * part).sum(dim=1) for part in past)
        after = self._recur(layer, from_input, before)
        key = self.key[layer](after[0].to(query.dtype))
        grown = (
            torch.cat([part, new.to(part.dtype).unsqueeze(1)], dim=1)
            for part, new in zip((*past, keys), (*after, key), strict=True)
        )
        return after[0], (*grown, before[0])
