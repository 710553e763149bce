"""The Transformer (Vaswani et al. 2017).

Pre-norm by default (Xiong et al. 2020), post-norm as in the paper by option; sinusoidal
positions (section 3.5); embeddings shared with the projection (section 3.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.attention import scaled_dot_weights
from nmt_cli.models.base import (
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Tree,
    Vocabulary,
    register,
)
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.options import MOST_LAYERS, require

KeysValues = tuple[Tensor, Tensor]
"""Keys and values, each (B, H, S, D/H)."""


@dataclass(frozen=True)
class TransformerOptions:
    """Options of ``transformer``."""

    d_model: Annotated[int, "width of embeddings and layers"] = 128
    heads: Annotated[int, "attention heads"] = 4
    d_ffn: Annotated[int, "inner width of the feed-forward layers"] = 512
    encoder_layers: Annotated[int, "layers of the encoder"] = 4
    decoder_layers: Annotated[int, "layers of the decoder"] = 4
    norm: Annotated[Literal["pre", "post"], "layer norm before or after each sublayer"] = "pre"
    tied: Annotated[bool, "share target embedding and projection (and both sides' if one)"] = True
    dropout: Annotated[float, "dropout on embeddings, in sublayers and on their results"] = 0.2

    def __post_init__(self) -> None:
        require(self.d_model % 2 == 0, f"d_model={self.d_model}: must be even")
        require(
            self.heads >= 1 and self.d_model % self.heads == 0,
            f"heads={self.heads}: must divide d_model={self.d_model}",
        )
        for name in ("encoder_layers", "decoder_layers"):
            layers = getattr(self, name)
            require(1 <= layers <= MOST_LAYERS, f"{name}={layers}: must be 1 to {MOST_LAYERS}")
        require(self.d_ffn >= 1, f"d_ffn={self.d_ffn}: must be at least 1")
        require(0 <= self.dropout < 1, f"dropout={self.dropout}: must be in [0, 1)")


def sinusoid(positions: Tensor, d_model: int) -> Tensor:
    """Encode positions (...) as (..., D): sine and cosine of geometric wavelengths."""
    exponents = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float32)
    rates = torch.exp(exponents * (-math.log(10000.0) / d_model))
    angles = positions.unsqueeze(-1).to(rates.dtype) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Reshape (B, T, D) to (B, H, T, D/H)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Reshape (B, H, T, D/H) to (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself (section 3.2.2)."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.d_model, 3 * options.d_model)
        self.out = nn.Linear(options.d_model, options.d_model)
        self.dropout = Dropout(options.dropout)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give q, k and v of x (B, T, D), each (B, H, T, D/H)."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attend; mask is broadcast to (B, H, T, S). Gives (B, T, D)."""
        if q.is_cuda:
            p = self.dropout.p if self.training else 0.0
            fused = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
            return self.out(merge_heads(fused))
        weights = self.dropout(scaled_dot_weights(q, k, mask).to(v.dtype))
        return self.out(merge_heads(weights @ v))


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's output."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.query = nn.Linear(options.d_model, options.d_model)
        self.key_value = nn.Linear(options.d_model, 2 * options.d_model)
        self.out = nn.Linear(options.d_model, options.d_model)
        self.dropout = Dropout(options.dropout)

    def keys_values(self, encoded: Tensor) -> KeysValues:
        """Prepare the encoder's output (B, S, D)."""
        k, v = self.key_value(encoded).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from x (B*K, T, D): result (B*K, T, D) and weights (B*K, H, T, S)."""
        k, v = memory
        rows, T, D = x.shape
        q = split_heads(self.query(x).reshape(k.shape[0], -1, D), self.heads)  # (B, H, K*T, D/H)
        weights = scaled_dot_weights(q, k, mask[:, None, None, :])
        out = self.out(merge_heads(self.dropout(weights.to(v.dtype)) @ v)).reshape(rows, T, D)
        by_row = weights.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)  # (B*K, H, T, S)
        return out, by_row


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between (section 3.3)."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.inner = nn.Linear(options.d_model, options.d_ffn)
        self.outer = nn.Linear(options.d_ffn, options.d_model)
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each position of x (B, T, D)."""
        return self.outer(self.dropout(torch.relu(self.inner(x))))


class Residual(nn.Module):
    """x + sublayer(x), with the layer norm on the way in (pre) or on the sum (post)."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(options.d_model)
        self.pre = options.norm == "pre"
        self.dropout = Dropout(options.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """Give what the sublayer reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, result: Tensor) -> Tensor:
        """Add the sublayer's result to the stream."""
        x = x + self.dropout(result)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options)
        self.around_attention = Residual(options)
        self.ffn = FeedForward(options)
        self.around_ffn = Residual(options)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply to x (B, S, D) with mask (B, S)."""
        q, k, v = self.attention.split(self.around_attention.enter(x))
        x = self.around_attention.leave(x, self.attention(q, k, v, mask[:, None, None, :]))
        return self.around_ffn.leave(x, self.ffn(self.around_ffn.enter(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention over the cache, cross-attention, feed-forward."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options)
        self.around_attention = Residual(options)
        self.cross = CrossAttention(options)
        self.around_cross = Residual(options)
        self.ffn = FeedForward(options)
        self.around_ffn = Residual(options)

    def forward(
        self, x: Tensor, past: KeysValues, memory: KeysValues, mask: Tensor, causal: Tensor
    ) -> tuple[Tensor, KeysValues, Tensor]:
        """Apply to x (B*K, T, D).

        Args:
            x: the stream.
            past: self-attention keys and values of the tokens before.
            memory: cross-attention keys and values, B rows.
            mask: (B, S), the source mask.
            causal: (T, past + T), which keys each position may see.

        Returns:
            the stream, the grown cache and the cross-attention weights (B*K, H, T, S).
        """
        q, k, v = self.attention.split(self.around_attention.enter(x))
        k, v = torch.cat([past[0].to(k.dtype), k], 2), torch.cat([past[1].to(v.dtype), v], 2)
        x = self.around_attention.leave(x, self.attention(q, k, v, causal))
        out, weights = self.cross(self.around_cross.enter(x), memory, mask)
        x = self.around_cross.leave(x, out)
        return self.around_ffn.leave(x, self.ffn(self.around_ffn.enter(x))), (k, v), weights


class Transformer(Seq2Seq):
    """Encoder and decoder of attention and feed-forward layers, without recurrence."""

    def __init__(self, options: TransformerOptions, vocab: Vocabulary) -> None:
        super().__init__()
        D = options.d_model
        self.options = options
        self.tgt_embedding = nn.Embedding(vocab.tgt, D)
        share_source = options.tied and vocab.shared
        self.src_embedding = self.tgt_embedding if share_source else nn.Embedding(vocab.src, D)
        self.encoder = nn.ModuleList(EncoderLayer(options) for _ in range(options.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(options) for _ in range(options.decoder_layers))
        pre = options.norm == "pre"
        self.encoder_norm = nn.LayerNorm(D) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(D) if pre else nn.Identity()
        self.projection = nn.Linear(D, vocab.tgt, bias=False)
        if options.tied:
            self.projection.weight = self.tgt_embedding.weight
        self.dropout = Dropout(options.dropout)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=D**-0.5)

    def embed(self, embedding: nn.Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        """Scale embeddings by sqrt(D) and add positions: tokens (B, T) to (B, T, D)."""
        x = embedding(tokens) * self.options.d_model**0.5
        return self.dropout(x + sinusoid(positions, self.options.d_model).to(x.dtype))

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give (mask, per decoder layer the cross-attention keys and values)."""
        positions = torch.arange(src.shape[1], device=src.device)
        x = self.embed(self.src_embedding, src, positions)
        for layer in self.encoder:
            x = layer(x, src_mask)
        x = self.encoder_norm(x)
        layers = (cast(DecoderLayer, layer) for layer in self.decoder)
        return src_mask, tuple(layer.cross.keys_values(x) for layer in layers)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (position (B,), per layer empty self-attention keys and values)."""
        mask, layers = cast(tuple[Tensor, tuple[KeysValues, ...]], memory)
        past = tuple((k[:, :, :0], v[:, :, :0]) for k, v in layers)
        return torch.zeros(mask.shape[0], dtype=torch.int64, device=mask.device), past

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Read tokens (B*K, T) after the cached ones."""
        mask, layers = cast(tuple[Tensor, tuple[KeysValues, ...]], memory)
        position, caches = cast(tuple[Tensor, tuple[KeysValues, ...]], state)
        T, past = tokens.shape[1], caches[0][0].shape[2]
        steps = torch.arange(T, device=tokens.device)
        causal = torch.arange(past + T, device=tokens.device) <= (past + steps)[:, None]
        x = self.embed(self.tgt_embedding, tokens, position[:, None] + steps)
        grown, seen = [], []
        for layer, cache, keys_values in zip(self.decoder, caches, layers, strict=True):
            x, cache, weights = layer(x, cache, keys_values, mask, causal)
            grown.append(cache)
            seen.append(weights)
        hidden = self.decoder_norm(x)
        return Decoded(hidden, (position + T, tuple(grown)), tuple(seen) if attention else ())

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., D) to logits (..., V)."""
        return self.projection(hidden)


register(
    Architecture(
        name="transformer",
        summary="self-attention in place of recurrence, trained in parallel",
        paper="Vaswani et al. 2017, Attention Is All You Need",
        options=TransformerOptions,
        build=Transformer,
        recipe=Recipe(lr=5e-3, warmup=1000, batch_tokens=2048, generated_epochs=12),
        sizes={
            "tiny": {"d_model": 64, "heads": 4, "d_ffn": 256},
            "small": {},
            "base": {
                "d_model": 512,
                "heads": 8,
                "d_ffn": 2048,
                "encoder_layers": 6,
                "decoder_layers": 6,
            },
        },
        size_training={"base": {"lr": 1e-3, "warmup": 4000}},
        variants=({}, {"norm": "post"}, {"tied": False}, {"encoder_layers": 1, "heads": 2}),
    )
)
