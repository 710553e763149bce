"""Weights made ready to translate with on a CPU: in fp32, bf16 or int8.

Every linear layer is replaced by one that keeps its weights in the order in which the processor
reads them, or rounded to a smaller format; all give fp32, and all between the layers stays fp32.
Nothing is trained with these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ROWS = 64
"""Rows that are multiplied at once, for which weights are laid out; other numbers work too."""
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
    section 2.1); the sums are exact in int32.
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


LINEARS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "fp32": Fp32Linear,
    "bf16": Bf16Linear,
    "int8": Int8Linear,
}
"""What a linear layer is replaced by, for each number format."""


def pack(model: nn.Module, linear: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every linear layer of a model, such as by ``Int8Linear``.

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
