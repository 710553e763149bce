"""minGRU and minLSTM (Feng et al. 2024, "Were RNNs all we needed?", sections 3.1 and 3.2).

A GRU and an LSTM whose gates see the input alone, not the state before, so that the state is a
linear recurrence and a whole sequence is one scan.

Departures: the paper's models have no encoder and no cross-attention; here they stand in the
residual skeleton, each followed by one linear map, in the plain form (the candidate state is not
forced to be positive).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.base import (
    ONE_STATE,
    Traits,
    Tree,
    full_precision,
)
from nmt_cli.models.options import WIDEST, require
from nmt_cli.models.scan import scan
from nmt_cli.models.stack import (
    Mixer,
    StackOptions,
    register_mixer,
)


@dataclass(frozen=True)
class MinOptions(StackOptions):
    """Options of ``mingru`` and ``minlstm``."""

    d_state: Annotated[int, "width of the recurrent state"] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.d_state <= WIDEST, f"d_state={self.d_state}: must be 1 to {WIDEST}")


class MinRnn(Mixer):
    """What both share: gates and candidate from the input, a scan, a linear map of the state."""

    gates: int

    def __init__(self, options: MinOptions) -> None:
        super().__init__()
        self.d_state = options.d_state
        self.input = nn.Linear(options.d_model, (self.gates + 1) * options.d_state)
        self.out = nn.Linear(options.d_state, options.d_model)

    def start(self, rows: int) -> Tree:
        """Give a state of zeros (B, d_state)."""
        return self.zeros(rows, self.d_state)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        *gates, candidate = full_precision(self.input(x)).chunk(self.gates + 1, dim=-1)
        keep, renew = self.weigh(*gates)
        h = scan(keep, renew * candidate, cast(Tensor, state))
        return self.out(h), h[:, -1]

    @abstractmethod
    def weigh(self, *gates: Tensor) -> tuple[Tensor, Tensor]:
        """Give the shares of the state before and of the candidate in the new state."""


class MinGru(MinRnn):
    """h = (1 - z) h + z candidate, with z = sigmoid(W x) (section 3.1.2)."""

    gates = 1

    def weigh(self, *gates: Tensor) -> tuple[Tensor, Tensor]:
        """Give 1 - z and z."""
        (z,) = gates
        return torch.sigmoid(-z), torch.sigmoid(z)


class MinLstm(MinRnn):
    """h = f' h + i' candidate, where f' = f / (f + i) and i' = i / (f + i) (section 3.2.3)."""

    gates = 2

    def weigh(self, *gates: Tensor) -> tuple[Tensor, Tensor]:
        """Give f' and i' by the difference of log i and log f, as both may vanish."""
        f, i = gates
        renewed = F.softplus(-f) - F.softplus(-i)
        return torch.sigmoid(-renewed), torch.sigmoid(renewed)


for _name, _mixer, _gates in (
    ("mingru", MinGru, "one gate"),
    ("minlstm", MinLstm, "two gates that add up to one"),
):
    register_mixer(
        _name,
        _mixer,
        MinOptions,
        summary=f"recurrence with {_gates} of the input alone, trained in parallel",
        paper="Feng et al. 2024, Were RNNs All We Needed?",
        traits=Traits(2024, parallel=True, path="n", keeps=ONE_STATE),
        variants=({}, {"cross_attention": False}, {"norm": "post", "positions": "sinusoidal"}),
        tiny={"d_state": 64},
        base={"d_state": 512},
    )
