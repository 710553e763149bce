"""QRNN (Bradbury et al. 2017): gates by a convolution over time, state by pooling.

Departures: the paper's decoder attends once, above its last layer; here each layer stands in the
residual skeleton and has cross-attention of its own, and the encoder's last state does not enter
the decoder's gates. Zoneout is left out.
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
from nmt_cli.models.options import require
from nmt_cli.models.scan import scan
from nmt_cli.models.stack import (
    Mixer,
    StackOptions,
    extend,
    register_mixer,
)


@dataclass(frozen=True)
class QrnnOptions(StackOptions):
    """Options of ``qrnn``."""

    window: Annotated[int, "words that a gate sees: this one and those before it"] = 2
    pooling: Annotated[Literal["f", "fo", "ifo"], "which gates there are (section 2)"] = "fo"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.window <= 3, f"window={self.window}: must be 1, 2 or 3")


class Qrnn(Mixer):
    """Candidate z and gates by a causal convolution (equations 1 and 2), then a pooling.

    f: h = f h + (1 - f) z (equation 3). fo: c = f c + (1 - f) z, h = o c (equation 4).
    ifo: c = f c + i z, h = o c (equation 5).
    """

    def __init__(self, options: QrnnOptions) -> None:
        super().__init__()
        D = options.d_model
        self.gates = options.pooling
        self.window = options.window
        self.convolution = nn.Linear(options.window * D, (1 + len(self.gates)) * D)

    def start(self, rows: int) -> Tree:
        """Give (the window - 1 inputs before (B, window - 1, D), state (B, D)), all zero."""
        D = self.convolution.in_features // self.window
        return self.zeros(rows, self.window - 1, D), self.zeros(rows, D)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        past, cell = cast(tuple[Tensor, Tensor], state)
        T = x.shape[1]
        joined, past = extend(past, x)
        seen = torch.cat([joined[:, k : k + T] for k in range(self.window)], dim=-1)
        parts = full_precision(self.convolution(seen)).chunk(1 + len(self.gates), dim=-1)
        z = torch.tanh(parts[0])
        gate = dict(zip(self.gates, parts[1:], strict=True))
        renew = torch.sigmoid(gate["i"]) if "i" in gate else torch.sigmoid(-gate["f"])
        cells = scan(torch.sigmoid(gate["f"]), renew * z, cell)
        h = torch.sigmoid(gate["o"]) * cells if "o" in gate else cells
        return h, (past, cells[:, -1])


register_mixer(
    "qrnn",
    Qrnn,
    QrnnOptions,
    summary="gates by convolution, state by pooling, trained in parallel",
    paper="Bradbury et al. 2017, Quasi-Recurrent Neural Networks",
    traits=Traits(2017, parallel=True, path="n", keeps=ONE_STATE),
    variants=(
        {},
        {"pooling": "f", "window": 1},
        {"pooling": "ifo", "window": 3, "cross_attention": False},
    ),
)
