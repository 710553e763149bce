"""Smaller weights to translate with on a CPU: bf16 and int8 in place of fp32.

Every linear layer is replaced by one that keeps its weights in the smaller format and gives fp32;
all between the layers stays fp32. Nothing is trained with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LARGEST = 127
_SMALLEST = 1e-30
"""What a row of zeros is divided by."""


class _Smaller(nn.Module):
    """What stands in the place of a linear layer."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias


class Bf16Linear(_Smaller):
    """x W^T + b with x and W rounded to bf16, added up in fp32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.register_buffer("weight", linear.weight.detach().bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D_in) to (..., D_out) fp32."""
        product = F.linear(x.bfloat16(), cast(Tensor, self.weight)).float()
        return product if self.bias is None else product.add_(self.bias)


class Int8Linear(_Smaller):
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

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D_in) to (..., D_out) fp32."""
        rounded, scale = _round_rows(x.reshape(-1, self.in_features))
        product = torch._int_mm(rounded, cast(Tensor, self.weight)).float().mul_(scale)
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


def with_smaller_weights(model: nn.Module, smaller: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every linear layer of a model, such as by ``Int8Linear``."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, smaller(child))
