"""The Transformer (Vaswani et al. 2017).

Pre-norm by default (Xiong et al. 2020), post-norm as in the paper by option; sinusoidal
positions (section 3.5); embeddings shared with the projection (section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.attention import scaled_dot_weights
from nmt_cli.models.base import Architecture, Seq2Seq, Traits, Tree, Vocabulary, register
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.stack import (
    BASE,
    BASE_TRAINING,
    STACK_RECIPE,
    TINY,
    DecoderParts,
    Design,
    EncoderParts,
    KeysValues,
    Mixer,
    Positions,
    SkeletonOptions,
    Stack,
    StackOptions,
    feed_forward,
    merge_heads,
    split_heads,
)


@dataclass(frozen=True)
class TransformerOptions(StackOptions):
    """Options of ``transformer``."""

    positions: Annotated[Positions, "what tells one position from another in the embeddings"] = (
        "sinusoidal"
    )


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself (section 3.2.2)."""

    def __init__(self, options: SkeletonOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.d_model, 3 * options.d_model)
        self.out = nn.Linear(options.d_model, options.d_model)
        self.dropout = Dropout(options.dropout)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give q, k and v of x (B, T, D), each (B, H, T, D/H)."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attend; mask is broadcast to (B, H, T, S). Gives (B, T, D)."""
        if q.is_cuda:
            p = self.dropout.p if self.training else 0.0
            fused = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
            return self.out(merge_heads(fused))
        weights = self.dropout(scaled_dot_weights(q, k, mask).to(v.dtype))
        return self.out(merge_heads(weights @ v))


class FullAttention(SelfAttention):
    """Attention of every position to all real ones, for an encoder."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend over x (B, S, D) with mask (B, S)."""
        return self.attend(*self.split(x), mask[:, None, None, :])


class CausalAttention(SelfAttention, Mixer):
    """Attention of every position to itself and those before, whose keys and values are kept."""

    def start(self, rows: int) -> Tree:
        """Give empty keys and values."""
        empty = self.qkv.weight.new_zeros(rows, 0, self.qkv.in_features)
        return split_heads(empty, self.heads), split_heads(empty, self.heads)

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Attend from x (B, T, D) over the positions kept and its own."""
        past_k, past_v = cast(KeysValues, state)
        q, k, v = self.split(x)
        k, v = torch.cat([past_k.to(k.dtype), k], 2), torch.cat([past_v.to(v.dtype), v], 2)
        T, all_steps = q.shape[2], k.shape[2]
        steps = torch.arange(all_steps, device=x.device)
        causal = steps <= steps[all_steps - T :, None]  # (T, past + T)
        return self.attend(q, k, v, causal), (k, v)


def build(options: TransformerOptions, vocab: Vocabulary) -> Seq2Seq:
    """Put attention into the skeleton."""
    return Stack(
        options,
        vocab,
        Design(
            [
                EncoderParts(FullAttention(options), feed_forward(options))
                for _ in range(options.encoder_layers)
            ],
            [
                DecoderParts(CausalAttention(options), feed_forward(options))
                for _ in range(options.decoder_layers)
            ],
            options.positions,
            options.cross_attention,
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
        variants=(
            {},
            {"norm": "post"},
            {"tied": False},
            {"encoder_layers": 1, "heads": 2},
            {"cross_attention": False},
            {"d_ffn": 0},
        ),
    )
)
