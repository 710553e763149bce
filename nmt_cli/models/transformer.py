"""The Transformer (Vaswani et al. 2017), and what later years changed in it.

Pre-norm by default (Xiong et al. 2020), post-norm as in the paper by option; sinusoidal
positions (section 3.5) or one of their successors; embeddings shared with the projection (section
3.4); fewer heads of keys and values (Shazeer 2019; Ainslie et al. 2023); attention within a window
(Beltagy et al. 2020) or without a softmax (Katharopoulos et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.attention import masked_softmax, prefers_fused
from nmt_cli.models.base import (
    Architecture,
    Seq2Seq,
    Traits,
    Tree,
    Vocabulary,
    full_precision,
    register,
)
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.options import WIDEST, only_with, require
from nmt_cli.models.positions import RelativePositions, alibi, distances, rotate
from nmt_cli.models.stack import (
    BASE,
    BASE_TRAINING,
    MOST_POSITIONS,
    STACK_RECIPE,
    TINY,
    Activation,
    DecoderParts,
    Design,
    EncoderParts,
    KeysValues,
    Mixer,
    Stack,
    StackOptions,
    feed_forward,
    merge_heads,
)

_ROOM = 4
"""Positions for which keys and values get room at a time: more would have to be selected, too."""
_BLOCK = 64
"""Positions of causal linear attention that are worked on as one matrix."""


@dataclass(frozen=True)
class TransformerOptions(StackOptions):
    """Options of ``transformer``."""

    positions: Annotated[
        Literal["sinusoidal", "learned", "rope", "alibi", "relative", "none"],
        "what tells one position from another",
    ] = "sinusoidal"  # type: ignore[assignment]
    max_positions: Annotated[int, "tokens that a sentence may have, if positions are learnt"] = 1024
    farthest: Annotated[int, "distance from which relative positions are one"] = 16
    ffn: Annotated[Activation, "activation of the feed-forward layers"] = "relu"
    kv_heads: Annotated[int, "heads of self-attention's keys and values; 0: as many as heads"] = 0
    window: Annotated[int, "words that self-attention reaches on a side; 0: all"] = 0
    kernel: Annotated[Literal["softmax", "linear"], "how self-attention weighs words"] = "softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("max_positions", MOST_POSITIONS), ("farthest", 1024)):
            value = getattr(self, name)
            require(1 <= value <= most, f"{name}={value}: must be 1 to {most}")
        only_with(self, "max_positions", self.positions == "learned", "positions=learned")
        only_with(self, "farthest", self.positions == "relative", "positions=relative")
        only_with(self, "ffn", self.d_ffn > 0, "feed-forward layers (d_ffn=0)")
        require(0 <= self.window <= WIDEST, f"window={self.window}: must be 0 to {WIDEST}")
        require(
            self.kv_heads >= 0 and self.heads % (self.kv_heads or 1) == 0,
            f"kv_heads={self.kv_heads}: must divide heads={self.heads}",
        )
        require(
            self.positions != "rope" or self.d_model // self.heads % 2 == 0,
            f"positions=rope: turns pairs of channels, but a head has {self.d_model // self.heads}",
        )
        on_scores = self.positions in {"rope", "alibi", "relative"} or self.window > 0
        require(
            self.kernel == "softmax" or not on_scores,
            "kernel=linear: has no scores, so it goes with window=0 and positions that are added "
            "to embeddings: sinusoidal, learned or none",
        )


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself (section 3.2.2)."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        D, self.heads = options.d_model, options.heads
        self.kv_heads = options.kv_heads or options.heads
        self.d_head = D // self.heads
        self.qkv = nn.Linear(D, (self.heads + 2 * self.kv_heads) * self.d_head)
        self.out = nn.Linear(D, D)
        self.dropout = Dropout(options.dropout)
        self.window, self.positions = options.window, options.positions
        relative = options.positions == "relative"
        self.relative = RelativePositions(self.d_head, options.farthest) if relative else None

    def split(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give q (B, H, T, D/H), k and v (B, H_kv, T, D/H) of x (B, T, D) from (B,) on."""
        widths = [self.heads * self.d_head] + [self.kv_heads * self.d_head] * 2
        q, k, v = (
            x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)
            for x in self.qkv(x).split(widths, dim=-1)
        )
        if self.positions == "rope":
            steps = position[:, None] + torch.arange(x.shape[1], device=x.device)
            q, k = rotate(q, steps), rotate(k, steps)
        return q, k, v

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False
    ) -> Tensor:
        """Attend from q to k and v as ``split`` gives them: (B, T, D).

        Args:
            q: queries (B, H, T, D/H), of the last T of S positions.
            k: keys (B, H_kv, S, D/H).
            v: values (B, H_kv, S, D/H).
            mask: what may be seen, broadcast to (B, T, S); None: all.
            causal: whether, in place of a mask, each of S = T positions sees itself and those
                before: what a fused kernel does faster than with a mask.
        """
        T, S = q.shape[2], k.shape[2]
        biased = self.positions == "alibi"
        bias = alibi(distances(T, S, q.device), self.heads) if biased else None
        fused = prefers_fused(q) and self.relative is None
        if causal and (biased or not fused):
            mask, causal = self.seen(T, S, q.device), False
        if fused:
            seen = None if mask is None else mask.unsqueeze(1)
            if bias is not None:
                seen = (bias if seen is None else bias.masked_fill(~seen, -torch.inf)).to(q.dtype)
            p = self.dropout.p if self.training else 0.0
            mixed = F.scaled_dot_product_attention(
                q, k, v, attn_mask=seen, dropout_p=p, is_causal=causal,
                enable_gqa=self.kv_heads != self.heads,
            )  # fmt: skip
            return self.out(merge_heads(mixed))
        q = q * self.d_head**-0.5
        if self.kv_heads != self.heads:  # each head of keys serves a group of queries
            q = q.unflatten(1, (self.kv_heads, -1))
            k, v = k.unsqueeze(2), v.unsqueeze(2)
        scores = q @ k.transpose(-1, -2)
        if self.relative:
            scores = scores + self.relative.scores(q, distances(T, S, q.device))
        if bias is not None:
            scores = scores + bias.view(*scores.shape[1:-2], T, S).to(scores.dtype)
        if mask is not None:
            mask = mask.view(mask.shape[0], *[1] * (scores.dim() - 3), *mask.shape[1:])
        weights = self.dropout(masked_softmax(scores, mask).to(v.dtype))
        mixed = weights @ v
        if self.relative:
            mixed = mixed + self.relative.mixed(weights, distances(T, S, q.device))
        return self.out(merge_heads(mixed.flatten(1, -3)))

    def seen(self, T: int, S: int, device: torch.device) -> Tensor:
        """Tell what the last T of S positions see: themselves and those before, (1, T, S)."""
        distance = distances(T, S, device)
        seen = distance <= 0
        if self.window:
            seen = seen & (distance >= -self.window)
        return seen.unsqueeze(0)


class FullAttention(SelfAttention):
    """Attention of every position to all real ones, for an encoder."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend over x (B, S, D) with mask (B, S)."""
        rows, S, _ = x.shape
        position = torch.zeros(rows, dtype=torch.int64, device=x.device)
        seen = mask[:, None, :]
        if self.window:  # padding sees itself, so that no row of the softmax is empty
            distance = distances(S, S, x.device)
            seen = (seen & (distance.abs() <= self.window)) | (distance == 0)
        return self.attend(*self.split(x, position), seen)


class CausalAttention(SelfAttention, Mixer):
    """Attention of every position to itself and those before, whose keys and values are kept."""

    def start(self, rows: int) -> Tree:
        """Give empty keys and values."""
        empty = self.zeros(rows, self.kv_heads, 0, self.d_head)
        return empty, empty

    def start_in_place(self, rows: int) -> Tree:
        """Give (keys, values, taken): both with room behind the places taken, as (B, taken, 0)."""
        if self.window:
            return self.start(rows)
        return *cast(KeysValues, self.start(rows)), self.zeros(rows, 0, 0)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Attend from x (B, T, D) over the positions kept and its own."""
        past_k, past_v, *taken = cast(tuple[Tensor, ...], state)
        q, k, v = self.split(x, position)
        if taken:
            return self.attend_in_place(q, k, v, past_k, past_v, taken[0])
        if past_k.shape[2] > 0:
            k, v = torch.cat([past_k.to(k.dtype), k], 2), torch.cat([past_v.to(v.dtype), v], 2)
        T, S = q.shape[2], k.shape[2]
        causal = 1 < T == S and not self.window
        # a single position sees all that is kept
        seen = None if causal or T == 1 else self.seen(T, S, x.device)
        mixed = self.attend(q, k, v, seen, causal)
        return mixed, (k, v) if not self.window else (
            k[:, :, -self.window :],
            v[:, :, -self.window :],
        )

    def attend_in_place(
        self, q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, taken: Tensor
    ) -> tuple[Tensor, Tree]:
        """Attend over the positions kept and those of k and v, which are put behind them."""
        (B, _, T, _), before = q.shape, taken.shape[1]
        after = before + T
        past_k, past_v = put(k, past_k, before), put(v, past_v, before)
        seen = None if T == 1 else self.seen(T, after, q.device)
        mixed = self.attend(q, past_k[:, :, :after], past_v[:, :, :after], seen)
        return mixed, (past_k, past_v, taken.new_empty(B, after, 0))


def put(x: Tensor, past: Tensor, place: int) -> Tensor:
    """Write x (B, H, T, d) into (B, H, S, d) from a place on, or into a copy with more room."""
    needed = place + x.shape[2]
    if needed > past.shape[2]:
        room = x.new_empty(*x.shape[:2], -(-needed // _ROOM) * _ROOM, x.shape[3])
        room[:, :, :place] = past[:, :, :place]
        past = room
    past[:, :, place:needed] = x
    return past


class LinearAttention(SelfAttention):
    """Attention whose weights are products of features (Katharopoulos et al. 2020, eq. 4 to 7).

    The sum over keys is then formed once for all queries, and decoding keeps that sum alone.
    """

    def features(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give the features elu(x) + 1 of q and k, and v, each (B, H, T, D/H), in at least fp32."""
        position = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        q, k, v = (full_precision(part) for part in self.split(x, position))
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return positive(q), positive(k), v


def positive(x: Tensor) -> Tensor:
    """elu(x) + 1, written so that it never rounds to zero."""
    return torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0)))


class FullLinearAttention(LinearAttention):
    """Linear attention of every position to all real ones, for an encoder (equation 6)."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend over x (B, S, D) with mask (B, S)."""
        q, k, v = self.features(x)
        k = k * mask[:, None, :, None]
        with torch.autocast(x.device.type, enabled=False):
            above = q @ (k.transpose(-1, -2) @ v)
            below = q @ k.sum(dim=2).unsqueeze(-1)
        return self.out(merge_heads(above / below))


class CausalLinearAttention(LinearAttention, Mixer):
    """Linear attention of every position to itself and those before (equations 8 to 12).

    Within a block of positions the products are formed, between blocks only their sum is carried.
    """

    def start(self, rows: int) -> Tree:
        """Give the sums of k v^T (B, H, D/H, D/H) and of k (B, H, D/H), zero."""
        sums = self.zeros(rows, self.heads, self.d_head, self.d_head)
        return sums, sums[..., 0]

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Attend from x (B, T, D) over the sums kept and its own positions."""
        products, keys = cast(tuple[Tensor, Tensor], state)
        q, k, v = self.features(x)
        with torch.autocast(x.device.type, enabled=False):
            mixed, state = self.sum_up(q, k, v, products, keys)
        return self.out(merge_heads(mixed)), state

    def sum_up(
        self, q: Tensor, k: Tensor, v: Tensor, products: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tree]:
        """Give the mean of v for each q (B, H, T, D/H), block by block, and the sums after."""
        mixed = []
        for q_b, k_b, v_b in zip(*(part.split(_BLOCK, dim=2) for part in (q, k, v)), strict=True):
            weights = (q_b @ k_b.transpose(-1, -2)).tril()
            above = weights @ v_b + q_b @ products
            below = weights.sum(-1, keepdim=True) + q_b @ keys.unsqueeze(-1)
            mixed.append(above / below)
            products = products + k_b.transpose(-1, -2) @ v_b
            keys = keys + k_b.sum(dim=2)
        return torch.cat(mixed, dim=2), (products, keys)


def build(options: TransformerOptions, vocab: Vocabulary) -> Seq2Seq:
    """Put attention into the skeleton."""
    linear = options.kernel == "linear"
    full = FullLinearAttention if linear else FullAttention
    causal = CausalLinearAttention if linear else CausalAttention
    added = options.positions if options.positions in {"sinusoidal", "learned"} else "none"
    return Stack(
        options,
        vocab,
        Design(
            [
                EncoderParts(full(options), feed_forward(options, options.ffn))
                for _ in range(options.encoder_layers)
            ],
            [
                DecoderParts(causal(options), feed_forward(options, options.ffn))
                for _ in range(options.decoder_layers)
            ],
            added,
            options.cross_attention,
            options.max_positions,
        ),
    )


register(
    Architecture(
        name="transformer",
        summary="self-attention in place of recurrence, trained in parallel",
        paper="Vaswani et al. 2017, Attention Is All You Need",
        traits=Traits(2017, parallel=True, path="1", keeps="keys and values of every word"),
        options=TransformerOptions,
        build=build,
        recipe=STACK_RECIPE,
        sizes={"tiny": TINY, "small": {}, "base": BASE},
        size_training=BASE_TRAINING,
        bf16_on_cpu=True,
        variants=(
            {},
            {"norm": "post", "tied": False},
            {"encoder_layers": 1, "heads": 4, "kv_heads": 2},
            {"cross_attention": False, "normalization": "rms"},
            {"positions": "none", "d_ffn": 0},
            {"positions": "learned", "ffn": "gelu"},
            {"positions": "rope", "ffn": "swiglu", "window": 2},
            {"positions": "alibi", "heads": 4, "kv_heads": 1},
            {"positions": "relative", "farthest": 2, "heads": 4, "kv_heads": 2},
            {"positions": "relative", "window": 3},
            {"positions": "alibi", "window": 1},
            {"kernel": "linear"},
            {"kernel": "linear", "heads": 4, "kv_heads": 2, "positions": "learned"},
        ),
    )
)
