"""Weights made ready to translate with on a CPU: in fp32, bf16 or int8.

Every linear layer is replaced by one that keeps its weights in the order in which the processor
reads them, or rounded to a smaller format, a recurrent layer by one that steps with two such, and a
feed-forward layer by one that maps some positions at a time; all give fp32, and all between the
layers stays fp32. Nothing is trained with these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.base import Tree, Uninitialised
from nmt_cli.models.cells import CELLS, State
from nmt_cli.models.stack import FeedForward, Mixer

_ROWS = 64
"""Rows that are multiplied at once, for which weights are laid out; other numbers work too."""
_TILE = 512
"""Positions that a feed-forward layer maps at once."""
_LARGEST = 127
_SMALLEST = 1e-30
"""What a row of zeros is divided by."""


class _Replacement(nn.Module):
    """What stands in the place of a linear layer."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias


class Fp32Linear(_Replacement):
    """x W^T + b, with W laid out once for oneDNN instead of at every product."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.product = _product(linear.weight.detach(), linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D_in) to (..., D_out)."""
        return self.product(x)


class Bf16Linear(_Replacement):
    """x W^T + b with x and W rounded to bf16, added up in fp32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.product = _product(linear.weight.detach().bfloat16(), None)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D_in) to (..., D_out) fp32."""
        product = self.product(x.bfloat16()).float()
        return product if self.bias is None else product.add_(self.bias)


class Int8Linear(_Replacement):
    """x W^T + b with x and W rounded to int8, each row of both by a scale of its own.

    A row x_i is stored as round(127 x_i / max|x_i|), so that what is next to it in the batch does
    not matter, and W likewise for each output ("vector-wise quantization", Dettmers et al. 2022,
    section 2.1); the sums are exact in int32. What comes in may still differ by a rounding of fp32
    among other neighbours, and then be rounded to another number here.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        rounded, scale = _round_rows(linear.weight.detach().float())
        self.register_buffer("weight", rounded.t())  # (D_in, D_out), each output's run together
        self.register_buffer("scale", scale.squeeze(1))  # (D_out,)
        self.product = in_few_sizes(lambda x: torch._int_mm(x, cast(Tensor, self.weight)))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D_in) to (..., D_out) fp32."""
        rounded, scale = _round_rows(x.reshape(-1, self.in_features))
        product = self.product(rounded).float().mul_(scale)
        of_output = cast(Tensor, self.scale)
        if self.bias is None:
            product.mul_(of_output)
        else:
            torch.addcmul(self.bias, product, of_output, out=product)
        return product.view(*x.shape[:-1], self.out_features)


class Stepped(nn.Module):
    """A recurrent layer whose products are packed: that of all inputs at once, then step by step.

    It is called as torch's own is, batch first, which in fp32 stays the faster one for a sequence.
    """

    def __init__(self, layer: nn.RNNBase, linear: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        self.from_input, self.from_state = (linear(product) for product in _products_of(layer))
        self.cell = CELLS[type(layer)]
        self.over_sequence = layer if linear is Fp32Linear else None
        self.width = layer.hidden_size

    def forward(
        self, x: Tensor, state: Tensor | State | None = None
    ) -> tuple[Tensor, Tensor | State]:
        """Run over x (B, T, D_in) from a state, each part (1, B, D), or zero.

        Returns:
            outputs (B, T, D) and the state after them.
        """
        if self.over_sequence and x.shape[1] > 1:
            return cast("tuple[Tensor, Tensor | State]", self.over_sequence(x, state))
        if state is None:
            parts: State = (x.new_zeros(x.shape[0], self.width),) * self.cell.parts
        else:
            given = state if isinstance(state, tuple) else (state,)
            parts = tuple(part.squeeze(0) for part in given)
        outputs = []
        for from_input in self.from_input(x).unbind(1):
            parts = self.cell.step(from_input, self.from_state(parts[0]), parts)
            outputs.append(parts[0])
        after = tuple(part.unsqueeze(0) for part in parts)
        return torch.stack(outputs, 1), after if len(after) > 1 else after[0]


def _products_of(layer: nn.RNNBase) -> Iterator[nn.Linear]:
    """Give what maps input and state of a recurrent layer to its gates."""
    for kind in ("ih", "hh"):
        weight, bias = (
            cast(nn.Parameter, getattr(layer, f"{name}_{kind}_l0")) for name in ("weight", "bias")
        )
        with Uninitialised(), torch.device("meta"):
            product = nn.Linear(weight.shape[1], weight.shape[0])
        product.weight, product.bias = weight, bias
        yield product


def _round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round the rows of x (N, D) to int8: the numbers and what to multiply them by, (N, 1)."""
    scale = x.abs().amax(1, keepdim=True).clamp_(min=_SMALLEST) / _LARGEST
    return (x / scale).round_().to(torch.int8), scale


def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Make the function x -> x W^T + b, with the weight packed where this build of torch can."""
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        multiply = torch.ops.mkldnn._linear_pointwise
    except (AttributeError, RuntimeError):  # no oneDNN, or none for this processor and format
        return lambda x: F.linear(x, weight, bias)
    return in_few_sizes(lambda x: multiply(x, packed, bias, "none", [], ""))


def in_few_sizes(product: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Let a product of rows (N, D_in) see few different N, by more rows that are cut off again.

    For every N oneDNN makes code and keeps it: hundreds of megabytes after an hour of all sizes.
    """

    def of_any_size(x: Tensor) -> Tensor:
        width = x.shape[-1]
        rows = x.numel() // width
        size = few_sizes(rows)
        if size == rows:
            return product(x)
        filled = x.new_empty(size, width)
        filled[:rows] = x.reshape(rows, width)
        y = product(filled)[:rows]
        return y.view(*x.shape[:-1], y.shape[-1])

    return of_any_size


def few_sizes(rows: int) -> int:
    """Round up to sixteen numbers between each power of two and the next, past 64."""
    if rows <= _ROWS:
        return rows
    step = 1 << (rows.bit_length() - 5)
    return -(-rows // step) * step


class InTiles(Mixer):
    """A feed-forward layer that maps some positions at a time.

    What lies between its two products, several times as wide, then stays in the cache.
    """

    def __init__(self, layer: FeedForward) -> None:
        super().__init__()
        self.layer = layer

    def start(self, rows: int) -> Tree:
        """Keep nothing."""
        return self.layer.start(rows)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Map each position of x (B, T, D)."""
        if x.shape[0] * x.shape[1] <= _TILE:
            return self.layer(x, state, position)
        tiles = x.flatten(0, 1).unsqueeze(0).split(_TILE, dim=1)
        mapped = torch.cat([self.layer(tile, state, position)[0] for tile in tiles], dim=1)
        return mapped.view_as(x), state


LINEARS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "fp32": Fp32Linear,
    "bf16": Bf16Linear,
    "int8": Int8Linear,
}
"""What a linear layer is replaced by, for each number format."""


def pack(model: nn.Module, linear: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every linear layer of a model, such as by ``Int8Linear``, those in recurrences too.

    oneDNN, and torch above it, are told to keep the code of 64 shapes, not of 1,024, unless the
    user says otherwise: a process that translates for long meets so many, and each takes up to half
    a megabyte.
    """
    for capacity in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(capacity, "64")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, linear(child))
            elif type(child) in CELLS:
                setattr(module, name, Stepped(cast(nn.RNNBase, child), linear))
            elif type(child) is FeedForward:
                setattr(module, name, InTiles(child))
