"""Label-smoothed cross-entropy (Szegedy et al. 2016, section 7) with its gradient.

The gradient, softmax minus the smoothed target, is formed while the softmax is at hand, so a
slice of logits is passed over a handful of times rather than a dozen.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CACHED = 1 << 18
"""Logits that are worked on at once on a CPU."""


def loss_and_gradient(
    logits: Tensor, targets: Tensor, smoothing: float, scale: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """Sum the cross-entropy against targets that share ``smoothing`` among all V entries.

    Args:
        logits: (N, V), of any precision; the loss is computed in at least fp32.
        targets: (N,) int64.
        smoothing: probability mass spread evenly over the vocabulary.
        scale: what the gradient is multiplied by.

    Returns:
        a scalar in nats, of at least fp32, and, times scale, its gradient (N, V) by the logits.
    """
    entries = logits.shape[-1]
    # on a CPU so few rows at a time that all passes over them stay in its cache
    rows = max(1, _CACHED // entries) if logits.device.type == "cpu" else len(logits)
    gradients, losses = torch.empty_like(logits), []
    for part, to, gradient in zip(
        logits.split(rows), targets.split(rows), gradients.split(rows), strict=True
    ):
        wide = part.to(torch.promote_types(logits.dtype, torch.float32))
        p = torch.softmax(wide, dim=-1)
        # The likeliest entry has p >= 1/V, so its logarithm is safe: log Z = logit - log p.
        log_z = wide.amax(dim=-1) - p.amax(dim=-1).log()
        on_target = to[:, None]
        loss = log_z - (1 - smoothing) * wide.gather(1, on_target).squeeze(1)
        if smoothing > 0:
            loss = loss - smoothing * wide.mean(dim=-1)
            p.sub_(smoothing / entries)
        p.scatter_add_(1, on_target, p.new_full(on_target.shape, smoothing - 1))
        torch.mul(p, scale, out=gradient)
        losses.append(loss.sum())
    return torch.stack(losses).sum(), gradients
