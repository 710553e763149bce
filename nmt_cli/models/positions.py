"""What tells one position from another: added to embeddings, turned into queries, or on scores.

Sinusoids (Vaswani et al. 2017, section 3.5), learnt embeddings (Gehring et al. 2017, section 3.1),
rotary embeddings (Su et al. 2021), linear biases (Press et al. 2022, ALiBi) and relative
embeddings (Shaw et al. 2018).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nmt_cli.errors import NmtError
from nmt_cli.models.base import full_precision

_LONGEST_WAVE = 10000.0


def wave_rates(width: int, device: torch.device) -> Tensor:
    """Give the angles a position of each pair of channels, (width / 2,), geometric from 1 down."""
    exponents = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    return torch.exp(exponents * (-math.log(_LONGEST_WAVE) / width))


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Encode positions (...) as (..., width): sine and cosine of every rate."""
    angles = positions.unsqueeze(-1).to(torch.float32) * wave_rates(width, positions.device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Turn each pair of channels of x (B, H, T, d) by its position (B, T) times its rate.

    The product of two turned vectors depends on the difference of their positions alone (Su et
    al. 2021, equation 16).
    """
    angles = positions[:, None, :, None] * wave_rates(x.shape[-1], x.device)  # (B, 1, T, d/2)
    sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def distances(T: int, S: int, device: torch.device) -> Tensor:
    """Tell how far each of S positions stands after each of the last T, (T, S)."""
    steps = torch.arange(S, device=device)
    return steps - steps[S - T :, None]


def alibi(distance: Tensor, heads: int) -> Tensor:
    """Give what each head (H, T, S) adds to its scores over distances (T, S): a falling line.

    The slopes are 2^(-8/H), 2^(-16/H), ..., 2^-8 (Press et al. 2022, section 3). In an encoder,
    which the paper has none of, it falls to both sides.
    """
    steps = torch.arange(1, heads + 1, device=distance.device, dtype=torch.float32)
    slopes = torch.exp2(-8 * steps / heads)
    return -slopes[:, None, None] * distance.abs()


class LearnedPositions(nn.Embedding):
    """One learnt vector a position, up to a limit."""

    def __init__(self, limit: int, width: int) -> None:
        super().__init__(limit, width)
        nn.init.normal_(self.weight, std=0.1)

    def after(self, position: Tensor, steps: int) -> Tensor:
        """Give the vectors (B, steps, width) of the positions from (B,) on.

        Raises:
            NmtError: past the last position that there is.
        """
        # training starts at the first position, and asking a GPU would make it wait
        before = 0 if self.training else int(position.max())
        if before + steps > self.num_embeddings:
            raise NmtError(
                f"a sentence is longer than max_positions={self.num_embeddings} tokens, the "
                "positions that the model has learnt; split it, or train with a larger "
                "-O max_positions"
            )
        return self(position[:, None] + torch.arange(steps, device=position.device))


class RelativePositions(nn.Module):
    """Learnt vectors of distances, clipped, for keys and for values (Shaw et al. 2018, 3.2)."""

    def __init__(self, width: int, farthest: int) -> None:
        super().__init__()
        self.farthest = farthest
        self.keys = nn.Parameter(torch.randn(2 * farthest + 1, width) * width**-0.5)
        self.values = nn.Parameter(torch.randn(2 * farthest + 1, width) * width**-0.5)

    def _index(self, distance: Tensor) -> Tensor:
        return distance.clamp(-self.farthest, self.farthest) + self.farthest

    def scores(self, q: Tensor, distance: Tensor) -> Tensor:
        """Score queries (..., T, d) with the key vectors of distances (T, S): (..., T, S)."""
        by_vector = full_precision(q @ self.keys.to(q.dtype).t())  # (..., T, 2 farthest + 1)
        index = self._index(distance).expand(*q.shape[:-1], -1)
        return by_vector.gather(-1, index)

    def mixed(self, weights: Tensor, distance: Tensor) -> Tensor:
        """Average the value vectors by attention weights (..., T, S): (..., T, d)."""
        wide = full_precision(weights)  # many small weights may meet at one clipped distance
        by_vector = wide.new_zeros(*weights.shape[:-1], len(self.values))
        by_vector = by_vector.scatter_add(-1, self._index(distance).expand_as(weights), wide)
        return by_vector.to(weights.dtype) @ self.values.to(weights.dtype)
