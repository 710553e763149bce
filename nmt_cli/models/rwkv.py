"""RWKV-4 (Peng et al. 2023): attention as a decaying sum, so that decoding keeps one step of state.

Departures: the paper's model is a decoder alone; here time mixing is what mixes positions in the
residual skeleton, with cross-attention between it and channel mixing. An encoder mixes time in
both directions and channels in one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt_cli.models.base import (
    ONE_STATE,
    Architecture,
    Seq2Seq,
    Traits,
    Tree,
    Vocabulary,
    full_precision,
    register,
)
from nmt_cli.models.options import require
from nmt_cli.models.scan import running_max, scan
from nmt_cli.models.stack import (
    BASE,
    BASE_TRAINING,
    STACK_RECIPE,
    TINY,
    BothWays,
    DecoderParts,
    Design,
    EncoderParts,
    Mixer,
    Stack,
    StackOptions,
    extend,
)


@dataclass(frozen=True)
class RwkvOptions(StackOptions):
    """Options of ``rwkv``."""

    d_ffn: Annotated[int, "inner width of channel mixing"] = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_ffn >= 1, "d_ffn=0: channel mixing cannot be left out")


class TokenShift(nn.Module):
    """Blend each position with the one before, channel by channel (section 3.1.1)."""

    def __init__(self, *own_shares: Tensor) -> None:
        """Start from what the position itself contributes to each blend, (D,) each."""
        super().__init__()
        self.own_share = nn.Parameter(torch.stack(own_shares))  # mu

    def forward(self, x: Tensor, past: Tensor) -> tuple[list[Tensor], Tensor]:
        """Blend x (B, T, D) after past (B, 1, D): one (B, T, D) a blend, and the new past."""
        joined, past = extend(past, x)
        before = joined[:, :-1]
        return [torch.lerp(before, x, share) for share in self.own_share.to(x.dtype)], past


class Place(NamedTuple):
    """Where a layer stands, counted from 0: what RWKV starts its weights by (appendix E)."""

    layer: int
    layers: int

    def height(self) -> float:
        """Give 0 for the lowest layer and 1 for the highest."""
        return self.layer / max(self.layers - 1, 1)

    def own_share(self, d_model: int) -> Tensor:
        """Give what a position starts to contribute to its blend, growing with channel and layer.

        The first channels of low layers start from the position before, the last from their own.
        """
        channel = torch.arange(d_model) / d_model
        return channel ** (1 - self.layer / self.layers)


class TimeMixing(Mixer):
    """The WKV operator between token shift and a gate (sections 3.1.2 and 3.1.3).

        wkv_t = sum_{i<t} exp(k_i - (t-1-i) w) v_i + exp(u + k_t) v_t, over the same without v

    Both sums are kept divided by exp(m_t), m_t the largest exponent so far, so none overflows;
    with m known for all t (it is a running maximum) each sum is a scan.
    """

    def __init__(self, options: StackOptions, place: Place) -> None:
        super().__init__()
        D, own, height = options.d_model, place.own_share(options.d_model), place.height()
        self.shift = TokenShift(0.5 * own, own, own + 0.3 * height)  # for r, k and v
        self.receptance, self.key, self.value, self.out = (
            nn.Linear(D, D, bias=False) for _ in range(4)
        )
        channel = torch.arange(D) / max(D - 1, 1)
        self.log_decay = nn.Parameter(-5 + 8 * channel ** (0.7 + 1.3 * height))  # w = exp of it
        self.bonus = nn.Parameter(math.log(0.3) + 0.5 * (torch.arange(D) % 3 - 1))

    def start(self, rows: int) -> Tree:
        """Give (the input before (B, 1, D), both sums and the largest exponent, each (B, D))."""
        D = len(self.bonus)
        past, sums = self.zeros(rows, 1, D), self.zeros(rows, D)
        return past, sums, sums, torch.full_like(sums, -1e30)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        past, above, below, largest = cast(tuple[Tensor, ...], state)
        (for_r, for_k, for_v), past = self.shift(x, past)
        gate = torch.sigmoid(self.receptance(for_r))
        k, v = full_precision(self.key(for_k)), full_precision(self.value(for_v))
        wkv, sums = self.wkv(k, v, (above, below, largest))
        return self.out(gate * wkv), (past, *sums)

    def wkv(
        self, k: Tensor, v: Tensor, before: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run the operator over keys and values (B, T, D): wkv (B, T, D) and the sums after."""
        above, below, largest = before
        w = torch.exp(self.log_decay)
        steps = torch.arange(k.shape[1] + 1, device=k.device, dtype=k.dtype)[:, None] * w
        with torch.no_grad():  # what the sums are divided by cancels out, and so does its gradient
            risen = torch.cat([largest.unsqueeze(1), k], dim=1) + steps
            m = running_max(risen) - steps  # (B, T + 1, D)
        decay = torch.exp(m[:, :-1] - w - m[:, 1:])
        share = torch.exp(k - m[:, 1:])
        both = torch.stack([share * v, share], dim=2)  # (B, T, 2, D)
        start = torch.stack([above, below], dim=1)
        sums = scan(decay.unsqueeze(2).expand_as(both), both, start)
        earlier = torch.cat([start.unsqueeze(1), sums[:, :-1]], dim=1)
        # The current word enters with its bonus: divide by the larger of the two exponents.
        own = self.bonus + k
        top = torch.maximum(m[:, :-1], own).detach()
        old, new = torch.exp(m[:, :-1] - top), torch.exp(own - top)
        wkv = (old * earlier[:, :, 0] + new * v) / (old * earlier[:, :, 1] + new)
        return wkv, (sums[:, -1, 0], sums[:, -1, 1], m[:, -1])


class ChannelMixing(Mixer):
    """A gated feed-forward layer of squared ReLU after a token shift (section 3.1)."""

    def __init__(self, options: StackOptions, place: Place) -> None:
        super().__init__()
        D, own = options.d_model, place.own_share(options.d_model)
        self.shift = TokenShift(own, own)  # for r and k
        self.receptance = nn.Linear(D, D, bias=False)
        self.key = nn.Linear(D, options.d_ffn, bias=False)
        self.value = nn.Linear(options.d_ffn, D, bias=False)

    def start(self, rows: int) -> Tree:
        """Give the input before (B, 1, D), zero."""
        return self.zeros(rows, 1, self.receptance.in_features)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Run over x (B, T, D)."""
        (for_r, for_k), past = self.shift(x, cast(Tensor, state))
        mixed = self.value(torch.relu(self.key(for_k)).square())
        return torch.sigmoid(self.receptance(for_r)) * mixed, past


def build(options: RwkvOptions, vocab: Vocabulary) -> Seq2Seq:
    """Put RWKV into the skeleton."""

    def both_ways(place: Place) -> BothWays:
        return BothWays(lambda: TimeMixing(options, place))

    def places(layers: int) -> list[Place]:
        return [Place(layer, layers) for layer in range(layers)]

    return Stack(
        options,
        vocab,
        Design(
            [
                EncoderParts(both_ways(place), ChannelMixing(options, place))
                for place in places(options.encoder_layers)
            ],
            [
                DecoderParts(TimeMixing(options, place), ChannelMixing(options, place))
                for place in places(options.decoder_layers)
            ],
            options.positions,
            options.cross_attention,
        ),
    )


register(
    Architecture(
        name="rwkv",
        summary="attention as a decaying sum, trained in parallel by a scan",
        paper="Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era",
        traits=Traits(2023, parallel=True, path="n", keeps=ONE_STATE),
        options=RwkvOptions,
        build=build,
        recipe=STACK_RECIPE,
        sizes={"tiny": TINY, "small": {}, "base": BASE},
        size_training=BASE_TRAINING,
        bf16_on_cpu=True,
        variants=({}, {"cross_attention": False}, {"encoder_layers": 1, "decoder_layers": 1}),
    )
)
