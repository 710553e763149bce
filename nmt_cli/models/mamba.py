"""Mamba (Gu & Dao 2023): a state space whose step size and maps depend on the input.

Departures: the paper's model is a decoder alone, of Mamba blocks and nothing else; here a block is
what mixes positions in the residual skeleton, with cross-attention and feed-forward layers as
everywhere. B is discretised by Euler's rule, delta B, as in the authors' code, not by equation 4.
"""

from __future__ import annotations

import math
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
from nmt_cli.models.options import require
from nmt_cli.models.scan import scan
from nmt_cli.models.stack import (
    Mixer,
    StackOptions,
    extend,
    register_mixer,
)

_SHORTEST_STEP, _LONGEST_STEP = 1e-3, 1e-1


@dataclass(frozen=True)
class MambaOptions(StackOptions):
    """Options of ``mamba``."""

    d_state: Annotated[int, "states of each channel"] = 8
    expand: Annotated[int, "how many times wider than the layer the block is inside"] = 2
    d_conv: Annotated[int, "words that the short convolution sees"] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d_state", "expand", "d_conv"):
            value = getattr(self, name)
            require(1 <= value <= 256, f"{name}={value}: must be 1 to 256")


class Mamba(Mixer):
    """The selective state space block (section 3.4, figure 3).

    With E = expand * D channels of N states each, and for one channel (algorithm 2):

        u = silu(conv(W x)),  delta = softplus(W_1 W_2 u + b),  B, C = W_B u, W_C u
        h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t,  y_t = C_t . h_t + skip u_t

    and the block gives W_out (y silu(W_z x)).
    """

    def __init__(self, options: MambaOptions) -> None:
        super().__init__()
        D, N = options.d_model, options.d_state
        E, self.rank = options.expand * D, math.ceil(D / 16)
        self.d_inner, self.d_state = E, N
        self.input = nn.Linear(D, 2 * E, bias=False)
        self.kernel = nn.Parameter(torch.empty(options.d_conv, E))
        self.kernel_bias = nn.Parameter(torch.zeros(E))
        self.selection = nn.Linear(E, self.rank + 2 * N, bias=False)
        self.step = nn.Parameter(torch.empty(E, self.rank))
        self.step_bias = nn.Parameter(torch.empty(E))
        orders = torch.arange(1, N + 1).float()  # of the diagonal of A (section 3.6, S4D-Real)
        self.log_decay = nn.Parameter(orders.log()[:, None].repeat(1, E))  # (N, E)
        self.skip = nn.Parameter(torch.ones(E))
        self.out = nn.Linear(E, D, bias=False)
        with torch.no_grad():
            bound = options.d_conv**-0.5
            self.kernel.uniform_(-bound, bound)
            self.step.uniform_(-(self.rank**-0.5), self.rank**-0.5)
            log_step = torch.empty(E).uniform_(math.log(_SHORTEST_STEP), math.log(_LONGEST_STEP))
            self.step_bias.copy_(torch.log(torch.expm1(log_step.exp())))  # softplus gives the step

    def start(self, rows: int) -> Tree:
        """Give (the d_conv - 1 inputs of the convolution before, states (B, N, E)), all zero."""
        past = self.zeros(rows, len(self.kernel) - 1, self.d_inner)
        return past, self.zeros(rows, self.d_state, self.d_inner)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        past, h = cast(tuple[Tensor, Tensor], state)
        T = x.shape[1]
        inner, z = self.input(x).chunk(2, dim=-1)
        joined, past = extend(past, inner)
        u = self.kernel_bias + sum(
            joined[:, k : k + T] * weight for k, weight in enumerate(self.kernel)
        )
        u = F.silu(u)
        low, B, C = full_precision(self.selection(u)).split(
            [self.rank, self.d_state, self.d_state], dim=-1
        )
        delta = F.softplus(low @ self.step.t() + self.step_bias)  # (B, T, E)
        decay = torch.exp(delta.unsqueeze(2) * -torch.exp(self.log_decay))  # (B, T, N, E)
        states = scan(decay, (delta * u).unsqueeze(2) * B.unsqueeze(-1), h)
        y = (C.unsqueeze(2) @ states).squeeze(2) + self.skip * u
        return self.out(y * F.silu(z)), (past, states[:, -1])


register_mixer(
    "mamba",
    Mamba,
    MambaOptions,
    summary="selective state space, trained in parallel by a scan",
    paper="Gu & Dao 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
    traits=Traits(2023, parallel=True, path="n", keeps=ONE_STATE),
    variants=(
        {},
        {"d_state": 1, "d_conv": 1, "expand": 1},
        {"cross_attention": False, "d_ffn": 0},
    ),
    base={"d_state": 16},
)
