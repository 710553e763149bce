"""Dropout (Srivastava et al. 2014) whose masks are cheap on a CPU.

``torch.bernoulli_`` draws one number per element on one thread; here four elements share one
64-bit random word, so the keep probability is exact to 1/65,536.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LANES = 4
_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability ``p`` in training and scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply to a tensor of any shape."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * scaled_mask(x, self.p)


def scaled_mask(x: Tensor, p: float) -> Tensor:
    """Draw a mask like ``x``: 0 with probability p, else 1 / (1 - p)."""
    words = torch.empty((x.numel() + _LANES - 1) // _LANES, dtype=torch.int64)
    words.random_(-(1 << 63), None)
    lanes = words.view(torch.int16)[: x.numel()].view(x.shape)
    dropped = round(p * _LEVELS)
    keep = lanes >= dropped - _LEVELS // 2
    return keep.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))
