"""Attention of a decoder over the encoder's memory, as score functions of (query, memory).

Bahdanau et al. 2015, equation 6 and appendix A.1.2 (additive); Luong et al. 2015, section 3.1
(dot, general, concat); Vaswani et al. 2017, equation 1 (scaled dot product). Queries may have
B*K rows over B rows of memory: the K beams of a sentence then share its keys.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

ScoreName = Literal["bahdanau", "luong-dot", "luong-general", "luong-concat"]


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


def make_score(name: ScoreName, d_query: int, d_memory: int) -> Score:
    """Build a score function by its name."""
    if name == "luong-dot":
        return DotScore()
    if name == "luong-general":
        return GeneralScore(d_query, d_memory)
    return AdditiveScore(d_query, d_memory)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Normalise over the last axis in at least fp32, giving no weight where mask is False."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1, dtype=wide)


def attend(
    score: Score, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Average the values by how well their keys score with each query.

    Args:
        score: one of the score functions above.
        query: (B*K, T, D).
        keys: (B, S, D), from ``score.keys(values)``.
        values: (B, S, D).
        mask: (B, S) bool, True = a real token.

    Returns:
        context (B*K, T, D) and weights (B*K, T, S).
    """
    rows, T, _ = query.shape
    B, S, _ = values.shape
    scores = score(query.reshape(B, -1, query.shape[2]), keys)  # (B, K*T, S)
    weights = masked_softmax(scores, mask.unsqueeze(1))
    context = weights.to(values.dtype) @ values
    return context.reshape(rows, T, -1), weights.reshape(rows, T, S)


def scaled_dot_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) for q (..., T, d), k (..., S, d), mask broadcast to (..., T, S)."""
    return masked_softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), mask)
