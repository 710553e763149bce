"""The scan h_t = a_t * h_{t-1} + b_t, by which every linear recurrence runs over a sequence.

Each element is a recurrence of its own, linear in its state, so the steps need not be taken one
after the other (Blelloch 1990; Martin & Cundy 2018): the sequence is cut into chunks, all chunks
are scanned at once from zero, and then each gets what the chunks before it carry over. Nothing
is divided and no product of gates is inverted, so it is as stable as the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

_WIDE = 512
"""On a CPU, from so many elements a step on, passes over memory cost more than calls: no chunks."""


def scan(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Give h_t = a_t * h_{t-1} + b_t for every t, in at least fp32.

    Args:
        a: (B, T, ...).
        b: (B, T, ...).
        start: (B, ...), h before the first step.

    Returns:
        h (B, T, ...). It can be differentiated once.
    """
    wide = torch.promote_types(a.dtype, torch.float32)
    if torch.onnx.is_in_onnx_export():
        return _plain_loop(a.to(wide), b.to(wide), start.to(wide))
    states: Tensor = _Scan.apply(a.to(wide), b.to(wide), start.to(wide))  # type: ignore[no-untyped-call]
    return states


def stays_a_loop(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep a loop over time a loop where a model is exported, as tracing would unroll it.

    The function has to be one that TorchScript understands.
    """
    script = cache(torch.jit.script)

    @wraps(function)
    def call(*args: Any) -> Tensor:
        if torch.onnx.is_in_onnx_export():
            looped: Tensor = script(function)(*args)
            return looped
        return function(*args)

    return call


@stays_a_loop
def _plain_loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    states: list[Tensor] = []
    for t in range(a.shape[1]):
        start = a[:, t] * start + b[:, t]
        states.append(start)
    return torch.stack(states, 1)


def running_max(x: Tensor) -> Tensor:
    """Give the largest of x (B, T, ...) up to each position."""
    return _largest_so_far(x) if torch.onnx.is_in_onnx_export() else x.cummax(dim=1).values


@stays_a_loop
def _largest_so_far(x: Tensor) -> Tensor:
    largest = x[:, 0]
    found: list[Tensor] = []
    for t in range(x.shape[1]):
        largest = torch.maximum(largest, x[:, t])
        found.append(largest)
    return torch.stack(found, 1)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        h = _loop(a, b, start) if _is_wide(a) else _chunked(a, b, start)
        ctx.save_for_backward(a, h, start)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of h_t is a scan from the end: g_t = dh_t + a_{t+1} * g_{t+1}."""
        a, h, start = ctx.saved_tensors
        g = _loop_back(a, d_h) if _is_wide(a) else _chunked_back(a, d_h)
        d_a = torch.empty_like(a)
        torch.mul(g[:, 0], start, out=d_a[:, 0])
        torch.mul(g[:, 1:], h[:, :-1], out=d_a[:, 1:])
        return d_a, g, g[:, 0] * a[:, 0]


def _is_wide(a: Tensor) -> bool:
    return a.shape[1] < 4 or (not a.is_cuda and a[:, 0].numel() >= _WIDE)


def _loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    h = b.clone()
    for a_t, h_t in zip(a.unbind(1), h.unbind(1), strict=True):
        start = h_t.addcmul_(a_t, start)
    return h


def _loop_back(a: Tensor, d_h: Tensor) -> Tensor:
    g = d_h.clone()
    *earlier, later = g.unbind(1)
    for a_next, g_t in zip(reversed(a.unbind(1)[1:]), reversed(earlier), strict=True):
        later = g_t.addcmul_(a_next, later)
    return g


def _chunked_back(a: Tensor, d_h: Tensor) -> Tensor:
    later = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], dim=1)
    return _chunked(later.flip(1), d_h.flip(1), torch.zeros_like(a[:, 0])).flip(1)


def _chunked(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Scan all chunks at once from zero, then carry what is before each into it."""
    T = a.shape[1]
    length = math.isqrt(T)
    chunks = -(-T // length)
    fill = a.new_zeros(a.shape[0], chunks * length - T, *a.shape[2:])
    a = torch.cat([a, fill], dim=1).unflatten(1, (chunks, length))  # (B, C, L, ...)
    b = torch.cat([b, fill], dim=1).unflatten(1, (chunks, length))
    alone = torch.empty_like(b)  # the chunk scanned from zero
    decay = torch.empty_like(a)  # what is left of the state before the chunk
    alone[:, :, 0], decay[:, :, 0] = b[:, :, 0], a[:, :, 0]
    for t in range(1, length):
        torch.addcmul(b[:, :, t], a[:, :, t], alone[:, :, t - 1], out=alone[:, :, t])
        torch.mul(a[:, :, t], decay[:, :, t - 1], out=decay[:, :, t])
    before = torch.empty_like(a[:, :, 0])  # (B, C, ...)
    for chunk in range(chunks):
        before[:, chunk] = start
        start = torch.addcmul(alone[:, chunk, -1], decay[:, chunk, -1], start)
    return alone.addcmul_(decay, before.unsqueeze(2)).flatten(1, 2)[:, :T]
