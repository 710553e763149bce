"""Teacher forcing: a batch in one pass, each target position after the right ones before it.

The projection to the vocabulary is apart, a slice of positions at a time: a tensor of all positions
and all entries would be the largest there is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nmt_cli.batches import Batch
from nmt_cli.loss import loss_and_gradient
from nmt_cli.models.base import Seq2Seq

LOSS_ROWS = 1024
"""Target positions projected to the vocabulary at once."""

Forward = Callable[[Seq2Seq, Tensor, Tensor, Tensor], Tensor]


def teacher_forced(model: Seq2Seq, src: Tensor, src_mask: Tensor, tgt: Tensor) -> Tensor:
    """Read src (B, S) and tgt (B, T), BOS first: the hidden states (B, T, D) that predict."""
    memory = model.encode(src, src_mask)
    return model.decode(tgt, memory, model.start(memory)).hidden


def target_hidden(
    model: Seq2Seq, batch: Batch, forward: Forward = teacher_forced
) -> tuple[Tensor, Tensor]:
    """Run teacher forcing: hidden states (N, D) and targets (N,) of the real target positions."""
    hidden = forward(model, batch.src, batch.src_mask, batch.tgt[:, :-1])
    hidden = hidden.flatten(0, 1).index_select(0, batch.predicted)
    return hidden, batch.tgt[:, 1:].flatten()[batch.predicted]


def backward(
    model: Seq2Seq,
    batch: Batch,
    smoothing: float,
    scale: float | Tensor,
    forward: Forward = teacher_forced,
) -> Tensor:
    """Add the gradients of one batch's summed loss, times scale, and give the loss (unscaled).

    The projection to the vocabulary is done and differentiated a slice at a time, so that no
    (tokens, vocabulary) tensor is ever held.
    """
    hidden, targets = target_hidden(model, batch, forward)
    detached = hidden.detach()
    gradients = torch.empty_like(detached)
    total = torch.zeros((), device=hidden.device, dtype=torch.float32)
    for begin in range(0, len(targets), LOSS_ROWS):
        rows = slice(begin, begin + LOSS_ROWS)
        part = detached[rows].requires_grad_()
        logits = model.project(part)
        with torch.autocast(hidden.device.type, enabled=False):  # each product as in the forward
            loss, gradient = loss_and_gradient(logits.detach(), targets[rows], smoothing, scale)
            logits.backward(gradient)
        assert part.grad is not None
        gradients[rows] = part.grad
        total = total + loss
    with torch.autocast(hidden.device.type, enabled=False):
        hidden.backward(gradients)
    return total
