"""Attention of a recurrent decoder over the encoder's memory.

Bahdanau et al. 2015, equation 6 and appendix A.1.2 (additive); Luong et al. 2015, sections 3.1
(dot, general, concat) and 3.2 (local); Vaswani et al. 2017, section 3.2 (scaled dot product,
multi-head); Tu et al. 2016 (coverage). Queries may have B*K rows over B rows of memory: the K
beams of a sentence then share its keys.
"""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.base import Tree, full_precision, lengths_of

AttentionName = Literal[
    "bahdanau",
    "luong-dot",
    "luong-general",
    "luong-concat",
    "scaled-dot",
    "multi-head",
    "local-m",
    "local-p",
]


class Score(nn.Module):
    """How well each memory position answers each query; the part of the keys is prepared once."""

    def keys(self, values: Tensor) -> Tensor:
        """Prepare memory (B, S, D) for scoring."""
        return values

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries (B, T, D) against keys (B, S, D): (B, T, S)."""
        return query @ keys.transpose(1, 2)


class DotScore(Score):
    """score(s, h) = s . h."""


class ScaledDotScore(Score):
    """score(s, h) = s . h / sqrt(D)."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Give the scaled products of every query and key."""
        return (query * query.shape[-1] ** -0.5) @ keys.transpose(1, 2)


class GeneralScore(Score):
    """score(s, h) = s . W h."""

    def __init__(self, d_query: int, d_memory: int) -> None:
        super().__init__()
        self.memory = nn.Linear(d_memory, d_query, bias=False)

    def keys(self, values: Tensor) -> Tensor:
        """Compute W h."""
        return self.memory(values)


class AdditiveScore(Score):
    """score(s, h) = v . tanh(W s + U h).

    Luong's concat, v . tanh(W [s; h]), is the same function with W and U side by side.
    """

    def __init__(self, d_query: int, d_memory: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_query, bias=False)
        self.memory = nn.Linear(d_memory, d_query)
        self.energy = nn.Linear(d_query, 1, bias=False)

    def keys(self, values: Tensor) -> Tensor:
        """Compute U h."""
        return self.memory(values)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Give v . tanh of every sum of a query and a key."""
        sums = self.query(query).unsqueeze(2) + keys.unsqueeze(1)  # (B, T, S, D)
        return self.energy(torch.tanh(sums)).squeeze(-1)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Normalise over the last axis in at least fp32, giving no weight where mask is False."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1, dtype=wide)


def prefers_fused(q: Tensor) -> bool:
    """Tell whether torch's fused attention is to be had and the faster one: on a GPU.

    On a CPU its backward is slow at the lengths of sentences.
    """
    return q.is_cuda


class Attention(nn.Module):
    """A mean of the values, weighed by how well their keys score with each query."""

    def __init__(self, score: Score, focus: Focus | None = None) -> None:
        super().__init__()
        self.score = score
        self.focus = focus

    def prepare(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Give the keys and values of memory (B, S, D)."""
        return self.score.keys(values), values

    def start(self, mask: Tensor) -> Tree:
        """Give what is carried from step to step, for the B rows of a (B, S) mask."""
        return self.focus.start(mask) if self.focus else ()

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, state: Tree
    ) -> tuple[Tensor, Tensor, Tree]:
        """Attend.

        Args:
            query: (B*K, T, D).
            keys: (B, S, D), as ``prepare`` gives them.
            values: (B, S, D), as ``prepare`` gives them.
            mask: (B, S) bool, True = a real token.
            state: from ``start`` or the step before, with B*K rows.

        Returns:
            context (B*K, T, D), weights (B*K, H, T, S) and the state after.
        """
        rows, T, D = query.shape
        B, S, _ = values.shape
        scores = self.score(query.reshape(B, -1, D), keys)  # (B, K*T, S)
        if self.focus is None:
            weights = masked_softmax(scores, mask.unsqueeze(1))
        else:
            seen, bell, state = self.focus(query, mask, state)
            weights = masked_softmax(scores, seen) * bell
        context = weights.to(values.dtype) @ values
        return context.reshape(rows, T, -1), weights.reshape(rows, 1, T, S), state


class Focus(nn.Module):
    """Where local attention looks: a window around one position (Luong section 3.2).

    That position is the decoder's own step (local-m, monotonic) or predicted from its state
    (local-p, equation 9), which also weighs the window by a Gaussian (equation 10). Departure: past
    the end of the source local-m stays at its last word, where the paper's window would be empty.
    """

    def __init__(self, d_query: int, reach: int, predict: bool) -> None:
        super().__init__()
        self.reach = reach
        self.inner = nn.Linear(d_query, d_query, bias=False) if predict else None
        self.outer = nn.Linear(d_query, 1, bias=False) if predict else None

    def start(self, mask: Tensor) -> Tree:
        """Give the first step (B,), if that is what counts."""
        return (
            () if self.inner else torch.zeros(mask.shape[0], dtype=torch.int64, device=mask.device)
        )

    def forward(self, query: Tensor, mask: Tensor, state: Tree) -> tuple[Tensor, Tensor, Tree]:
        """Give which words are seen and their Gaussian, (B, K*T, S) both, and the state after."""
        (B, S), T = mask.shape, query.shape[1]
        lengths = lengths_of(mask)[:, None]  # (B, 1)
        if self.inner and self.outer:
            energy = self.outer(torch.tanh(self.inner(query))).reshape(B, -1)
            centre = lengths * torch.sigmoid(full_precision(energy))  # (B, K*T)
        else:
            position = cast(Tensor, state)
            steps = (position[:, None] + torch.arange(T, device=mask.device)).reshape(B, -1)
            centre = torch.minimum(steps, lengths - 1)
            state = position + T
        offset = torch.arange(S, device=mask.device) - centre.unsqueeze(-1)  # (B, K*T, S)
        seen = (offset.abs() <= self.reach) & mask.unsqueeze(1)
        if not self.inner:
            return seen, torch.ones((), device=mask.device), state
        deviation = self.reach / 2
        return seen, torch.exp(-offset.square() / (2 * deviation**2)), state


class Coverage(Attention):
    """Additive attention that is told how much each word was attended to so far.

    Tu et al. 2016, section 3.1.1, the linguistic form without fertility: the sum of the weights
    of all steps before enters the score, v . tanh(W s + U h_j + V coverage_j).
    """

    def __init__(self, score: AdditiveScore, d_query: int) -> None:
        super().__init__(score)
        self.covered = nn.Parameter(torch.randn(d_query) * d_query**-0.5)

    def start(self, mask: Tensor) -> Tree:
        """Give the coverage (B, S), zero."""
        return torch.zeros(mask.shape, dtype=self.covered.dtype, device=mask.device)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, state: Tree
    ) -> tuple[Tensor, Tensor, Tree]:
        """Attend for one step (T = 1)."""
        coverage = cast(Tensor, state)
        (B, S, _), rows = keys.shape, query.shape[0]
        score = cast(AdditiveScore, self.score)
        told = coverage.to(keys.dtype).unsqueeze(-1) * self.covered.to(keys.dtype)
        sums = score.query(query).reshape(B, -1, 1, keys.shape[-1]) + keys.unsqueeze(1)
        sums = sums + told.view(B, -1, S, keys.shape[-1])  # (B, K, S, D)
        scores = score.energy(torch.tanh(sums)).squeeze(-1)
        weights = masked_softmax(scores, mask.unsqueeze(1))
        context = (weights.to(values.dtype) @ values).reshape(rows, 1, -1)
        return context, weights.reshape(rows, 1, 1, S), coverage + weights.reshape(rows, S)


class MultiHead(Attention):
    """Scaled dot products in H parts of the width (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, d_query: int, d_memory: int, heads: int) -> None:
        super().__init__(ScaledDotScore())
        self.heads = heads
        self.query = nn.Linear(d_query, d_query)
        self.key, self.value = (nn.Linear(d_memory, d_query) for _ in range(2))
        self.out = nn.Linear(d_query, d_query)

    def prepare(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Map memory (B, S, D) to keys and values, each (B, H, S, D/H), a head's together."""
        k, v = self._split(self.key(values)), self._split(self.value(values))
        return k.contiguous(), v.contiguous()

    def _split(self, x: Tensor) -> Tensor:
        """Reshape (B, T, D) to (B, H, T, D/H)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, state: Tree
    ) -> tuple[Tensor, Tensor, Tree]:
        """Attend with every head."""
        rows, T, D = query.shape
        q = self._split(self.query(query).reshape(keys.shape[0], -1, D))
        weights = scaled_dot_weights(q, keys, mask[:, None, None, :])  # (B, H, K*T, S)
        context = self.out((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))
        by_row = weights.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)
        return context.reshape(rows, T, D), by_row, state


def make_attention(
    name: AttentionName, width: int, *, heads: int, reach: int, coverage: bool
) -> Attention:
    """Build an attention by its name; query and memory are of one width."""
    if coverage:
        return Coverage(AdditiveScore(width, width), width)
    if name in {"bahdanau", "luong-concat"}:
        return Attention(AdditiveScore(width, width))
    if name == "multi-head":
        return MultiHead(width, width, heads)
    if name in {"local-m", "local-p"}:
        return Attention(GeneralScore(width, width), Focus(width, reach, name == "local-p"))
    if name == "luong-general":
        return Attention(GeneralScore(width, width))
    return Attention(DotScore() if name == "luong-dot" else ScaledDotScore())


def scaled_dot_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) for q (..., T, d), k (..., S, d), mask broadcast to (..., T, S)."""
    return masked_softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), mask)
