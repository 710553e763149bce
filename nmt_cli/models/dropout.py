"""Dropout (Srivastava et al. 2014) whose masks are cheap on a CPU.

``torch.bernoulli_`` draws one number per element on one thread; here eight elements share one
64-bit random word, or four where a probability of so many 256ths would be too coarse.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
    """Draw a mask like ``x``: 0 with a probability within 2 % of p, else what keeps the mean."""
    coarse = p <= 0.5 and abs(round(256 * p) - 256 * p) <= 0.02 * 256 * p
    lane, levels = (torch.int8, 1 << 8) if coarse else (torch.int16, 1 << 16)
    dropped = round(p * levels)
    words = torch.empty((x.numel() * lane.itemsize + 7) // 8, dtype=torch.int64)
    words.random_(-(1 << 63), None)
    lanes = words.view(lane)[: x.numel()].view(x.shape)
    keep = lanes >= dropped - levels // 2
    return keep.to(x.dtype).mul_(levels / (levels - dropped))
