"""IndRNN (Li et al. 2018): each unit sees its own past alone, h = act(W x + u * h + b).

Departures: the paper's model is no encoder-decoder; here it stands in the residual skeleton.
The recurrent weights u start uniform in [0, 1] (section 4) and are not clipped to gamma^(1/T), as
T is not known beforehand: with ReLU a unit whose u exceeds 1 grows with the length of the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.base import (
    ONE_STATE,
    Traits,
    Tree,
    full_precision,
)
from nmt_cli.models.scan import stays_a_loop
from nmt_cli.models.stack import (
    Mixer,
    StackOptions,
    register_mixer,
)


@dataclass(frozen=True)
class IndRnnOptions(StackOptions):
    """Options of ``indrnn``."""

    activation: Annotated[
        Literal["relu", "tanh"], "what the state passes through: tanh bounds it, relu does not"
    ] = "relu"


class IndRnn(Mixer):
    """h_t = act(W x_t + u * h_{t-1} + b) (equation 2): elementwise, but not linear, so a loop."""

    def __init__(self, options: IndRnnOptions) -> None:
        super().__init__()
        self.input = nn.Linear(options.d_model, options.d_model)
        self.recurrent = nn.Parameter(torch.rand(options.d_model))
        self.rectified = options.activation == "relu"

    def start(self, rows: int) -> Tree:
        """Give a state of zeros (B, D)."""
        return self.zeros(rows, len(self.recurrent))

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        inputs = full_precision(self.input(x))
        states = _steps(inputs, self.recurrent, cast(Tensor, state), self.rectified)
        return states, states[:, -1]


@stays_a_loop
def _steps(inputs: Tensor, recurrent: Tensor, h: Tensor, rectified: bool) -> Tensor:
    states: list[Tensor] = []
    for t in range(inputs.shape[1]):
        h = torch.addcmul(inputs[:, t], recurrent, h)
        h = torch.relu(h) if rectified else torch.tanh(h)
        states.append(h)
    return torch.stack(states, 1)


register_mixer(
    "indrnn",
    IndRnn,
    IndRnnOptions,
    summary="recurrence in which each unit sees its own past alone",
    paper="Li et al. 2018, Independently Recurrent Neural Network (IndRNN)",
    traits=Traits(2018, parallel=False, path="n", keeps=ONE_STATE),
    variants=({}, {"activation": "tanh", "cross_attention": False}),
)
