"""Label-smoothed cross-entropy (Szegedy et al. 2016, section 7) with its own backward.

The gradient, softmax minus the smoothed target, is formed while the softmax is at hand, so a
slice of logits is passed over a handful of times rather than a dozen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        gradient = torch.softmax(wide, dim=-1)
        highest, index = wide.max(dim=-1)
        # The likeliest entry has p >= 1/V, so its logarithm is safe: log Z = logit - log p.
        log_z = highest - gradient.gather(1, index[:, None]).squeeze(1).log()
        right = wide.gather(1, targets[:, None]).squeeze(1)
        loss = log_z - (1 - smoothing) * right
        if smoothing > 0:
            loss = loss - smoothing * wide.mean(dim=-1)
            gradient.sub_(smoothing / wide.shape[-1])
        on_target = targets[:, None]
        gradient.scatter_add_(1, on_target, gradient.new_full(on_target.shape, smoothing - 1))
        ctx.save_for_backward(gradient.to(logits.dtype))
        return loss.sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output.to(gradient.dtype), None, None


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum the cross-entropy against targets that share ``smoothing`` among all V entries.

    Args:
        logits: (N, V), of any precision; the loss is computed in at least fp32.
        targets: (N,) int64.
        smoothing: probability mass spread evenly over the vocabulary.

    Returns:
        a scalar in nats, of at least fp32.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss
