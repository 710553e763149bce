"""Dropout (Srivastava et al. 2014) whose masks are cheap on a CPU.

``torch.bernoulli_`` draws one number per element on one thread; here eight elements share one
64-bit random word, or four where a probability of so many 256ths would be too coarse.
"""

from __future__ import annotations

import numpy as np
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

    def added_to(self, x: Tensor, result: Tensor) -> Tensor:
        """Give x + dropout(result); on a CPU in one pass, if both are of one number format."""
        kept = self.mask(result) if x.device.type == "cpu" and x.dtype == result.dtype else None
        return x + self(result) if kept is None else torch.addcmul(x, result, kept)

    def mask(self, like: Tensor) -> Tensor | None:
        """Draw the factors of a tensor, or None where every one is 1."""
        if not self.training or self.p == 0.0:
            return None
        if like.device.type != "cpu":
            return F.dropout(torch.ones_like(like), self.p)
        return scaled_mask(like, self.p)


def scaled_mask(x: Tensor, p: float) -> Tensor:
    """Draw a mask like ``x``: 0 with a probability of about p, else what keeps the mean.

    The probability is within 2 % of p, or a multiple of 1/65,536 where p is so near to 0 or 1.
    """
    coarse = p <= 0.5 and abs(round(256 * p) - 256 * p) <= 0.02 * 256 * p
    lane, levels = (torch.int8, 1 << 8) if coarse else (torch.int16, 1 << 16)
    dropped = min(round(p * levels), levels - 1)
    words = random_words((x.numel() * lane.itemsize + 7) // 8)
    lanes = words.view(lane)[: x.numel()].view(x.shape)
    keep = torch.ge(lanes, dropped - levels // 2, out=lanes)  # far faster into numbers than bools
    return keep.to(x.dtype).mul_(levels / (levels - dropped))


def random_words(count: int) -> Tensor:
    """Draw 64-bit words (int64), by a generator twice as fast as torch's that torch's seeds."""
    seed = int(torch.empty((), dtype=torch.int64).random_())  # torch.compile draws like this, too
    drawn: Tensor = torch.from_numpy(np.random.SFC64(seed).random_raw(count).view(np.int64))
    return drawn
