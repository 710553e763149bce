"""SRU (Lei et al. 2018): light recurrence with a highway connection.

Departures: the paper's translation model is a Transformer with SRU in place of its feed-forward
layers; here SRU is what mixes positions, in the residual skeleton, with cross-attention and
feed-forward layers as everywhere. The candidate W x has a bias, and W starts as every layer of the
skeleton does, at half the variance of the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.base import (
    ONE_STATE,
    Traits,
    Tree,
    full_precision,
)
from nmt_cli.models.scan import scan, stays_a_loop
from nmt_cli.models.stack import (
    Mixer,
    StackOptions,
    register_mixer,
)


@dataclass(frozen=True)
class SruOptions(StackOptions):
    """Options of ``sru``."""

    v: Annotated[bool, "the cell enters its gates, as in the paper; false trains in parallel"] = (
        False
    )


class Sru(Mixer):
    """c = f c + (1 - f) W x and h = r c + (1 - r) alpha x (section 3, equations 1 to 4).

    The gates are f = sigmoid(W_f x + v_f c + b_f) and r = sigmoid(W_r x + v_r c + b_r), with c of
    the step before; without ``v`` they see the input alone. alpha = sqrt(3), as b starts at 0
    (section 3.2).
    """

    def __init__(self, options: SruOptions) -> None:
        super().__init__()
        D = options.d_model
        self.input = nn.Linear(D, 3 * D)
        nn.init.zeros_(self.input.bias)
        self.from_cell = nn.Parameter(0.1 * torch.randn(2, D)) if options.v else None

    def start(self, rows: int) -> Tree:
        """Give a cell of zeros (B, D)."""
        return self.zeros(rows, self.input.in_features)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        cell = cast(Tensor, state)
        candidate, f, r = full_precision(self.input(x)).chunk(3, dim=-1)
        if self.from_cell is None:
            cells = scan(torch.sigmoid(f), torch.sigmoid(-f) * candidate, cell)
        else:
            v_f, v_r = self.from_cell
            cells = _steps(candidate, f, v_f, cell)
            r = r + v_r * torch.cat([cell.unsqueeze(1), cells[:, :-1]], dim=1)
        r = torch.sigmoid(r)
        return r * cells + (1 - r) * (3**0.5 * x), cells[:, -1]


@stays_a_loop
def _steps(candidate: Tensor, f: Tensor, v_f: Tensor, cell: Tensor) -> Tensor:
    """Give the cell after each step, where the cell enters the gate (equation 1)."""
    cells: list[Tensor] = []
    for t in range(candidate.shape[1]):
        keep = torch.sigmoid(torch.addcmul(f[:, t], v_f, cell))
        cell = torch.lerp(candidate[:, t], cell, keep)
        cells.append(cell)
    return torch.stack(cells, 1)


register_mixer(
    "sru",
    Sru,
    SruOptions,
    summary="light recurrence with a highway connection, trained in parallel",
    paper="Lei et al. 2018, Simple Recurrent Units for Highly Parallelizable Recurrence",
    traits=Traits(2018, parallel=True, path="n", keeps=ONE_STATE),
    bf16_on_cpu=True,
    variants=({}, {"v": True}, {"v": True, "cross_attention": False}),
)
