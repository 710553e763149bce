"""Convolution in place of recurrence (Gehring et al. 2017, ConvS2S).

Departures: weight normalisation is left out, as the initialisation alone holds the variance here;
so is dividing the encoder's gradients by the number of attentions, since Adam divides them by their
own size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.attention import masked_softmax
from nmt_cli.models.base import (
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Traits,
    Tree,
    Vocabulary,
    full_precision,
    register,
)
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.options import MOST_LAYERS, WIDEST, require
from nmt_cli.models.positions import LearnedPositions
from nmt_cli.models.stack import MOST_POSITIONS, extend

_HALF = math.sqrt(0.5)
"""What keeps the variance of a sum of two (section 3.5)."""

_EMBEDDING = 0.1
"""Standard deviation of embeddings at the start (section 3.5). All layers keep it, so that the
unscaled products of attention are near 0 and a mean over the source is nearly a plain one, as the
factor sqrt(S) supposes: with inputs of unit variance attention would be sharp and that factor would
blow the decoder up."""


@dataclass(frozen=True)
class ConvOptions:
    """Options of ``convs2s``."""

    d_model: Annotated[int, "width of embeddings and layers"] = 128
    kernel: Annotated[int, "words that a convolution sees, an odd number"] = 3
    encoder_layers: Annotated[int, "layers of the encoder"] = 4
    decoder_layers: Annotated[int, "layers of the decoder"] = 4
    max_positions: Annotated[int, "tokens that a sentence may have: positions are learnt"] = 1024
    tied: Annotated[bool, "share target embedding and projection (and both sides' if one)"] = True
    dropout: Annotated[float, "dropout on embeddings, before convolutions and projection"] = 0.2

    def __post_init__(self) -> None:
        require(1 <= self.d_model <= WIDEST, f"d_model={self.d_model}: must be 1 to {WIDEST}")
        require(
            1 <= self.kernel <= 99 and self.kernel % 2 == 1,
            f"kernel={self.kernel}: must be odd, 1 to 99",
        )
        for name in ("encoder_layers", "decoder_layers"):
            layers = getattr(self, name)
            require(1 <= layers <= MOST_LAYERS, f"{name}={layers}: must be 1 to {MOST_LAYERS}")
        require(
            1 <= self.max_positions <= MOST_POSITIONS,
            f"max_positions={self.max_positions}: must be 1 to {MOST_POSITIONS}",
        )
        require(0 <= self.dropout < 1, f"dropout={self.dropout}: must be in [0, 1)")


class GatedConvolution(nn.Module):
    """A convolution over time into a gated linear unit (section 3.2)."""

    def __init__(self, options: ConvOptions) -> None:
        super().__init__()
        D, self.kernel = options.d_model, options.kernel
        self.window = nn.Linear(self.kernel * D, 2 * D)
        keep = 1 - options.dropout
        nn.init.normal_(self.window.weight, std=math.sqrt(4 * keep / (self.kernel * D)))
        nn.init.zeros_(self.window.bias)
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T + kernel - 1, D), filled up at its ends, to (B, T, D)."""
        T = x.shape[1] - self.kernel + 1
        x = self.dropout(x)
        seen = torch.cat([x[:, k : k + T] for k in range(self.kernel)], dim=-1)
        return F.glu(self.window(seen), dim=-1)


class Attention(nn.Module):
    """One of the decoder's attentions (section 3.3, equations 1 and 2)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query, self.out = (linear(d_model, 1.0) for _ in range(2))

    def forward(
        self, h: Tensor, embedded: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend from h (B*K, T, D) to B sources: result (B*K, T, D), weights (B*K, 1, T, S)."""
        rows, T, D = h.shape
        B, S, _ = keys.shape
        q = ((self.query(h) + embedded) * _HALF).reshape(B, -1, D)
        weights = masked_softmax(q @ keys.transpose(1, 2), mask[:, None])
        # A mean over S words has 1 / S of their variance: sqrt(S) gives it back (section 3.5).
        scale = mask.sum(1, dtype=weights.dtype).sqrt().to(values.dtype)[:, None, None]
        context = ((weights.to(values.dtype) @ values) * scale).reshape(rows, T, D)
        return (h + self.out(context)) * _HALF, weights.reshape(rows, 1, T, S)


def linear(d_model: int, keep: float) -> nn.Linear:
    """Make a linear map that keeps the variance of its input (section 3.5)."""
    made = nn.Linear(d_model, d_model)
    nn.init.normal_(made.weight, std=math.sqrt(keep / d_model))
    nn.init.zeros_(made.bias)
    return made


class Embedding(nn.Module):
    """Words and learnt positions, added up (section 3.1)."""

    def __init__(self, options: ConvOptions, words: nn.Embedding) -> None:
        super().__init__()
        self.words = words
        self.positions = LearnedPositions(options.max_positions, options.d_model)
        self.dropout = Dropout(options.dropout)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Embed tokens (B, T), the first of them at position (B,)."""
        return self.dropout(self.words(tokens) + self.positions.after(position, tokens.shape[1]))


class ConvS2S(Seq2Seq):
    """Convolutions on both sides, and an attention in every decoder layer."""

    def __init__(self, options: ConvOptions, vocab: Vocabulary) -> None:
        super().__init__()
        D, self.kernel = options.d_model, options.kernel
        self.max_positions = options.max_positions
        words = nn.Embedding(vocab.tgt, D)
        shared = options.tied and vocab.shared
        src_words = words if shared else nn.Embedding(vocab.src, D)
        for embedding in (words, src_words):
            nn.init.normal_(embedding.weight, std=_EMBEDDING)
        self.src_embedding = Embedding(options, src_words)
        self.tgt_embedding = Embedding(options, words)
        keep = 1 - options.dropout
        self.into_encoder, self.into_decoder = linear(D, keep), linear(D, keep)
        self.encoder = nn.ModuleList(
            GatedConvolution(options) for _ in range(options.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            GatedConvolution(options) for _ in range(options.decoder_layers)
        )
        self.attentions = nn.ModuleList(Attention(D) for _ in range(options.decoder_layers))
        self.out_of_encoder, self.out_of_decoder = linear(D, 1.0), linear(D, 1.0)
        self.dropout = Dropout(options.dropout)
        self.projection = nn.Linear(D, vocab.tgt)
        nn.init.zeros_(self.projection.bias)
        if options.tied:
            self.projection.weight = words.weight

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give (keys, values, mask): keys are the encoder's output, values that plus embeddings."""
        real, edge = src_mask.unsqueeze(-1), self.kernel // 2
        first = torch.zeros(src.shape[0], dtype=torch.int64, device=src.device)
        embedded = self.src_embedding(src, first)
        x = self.into_encoder(embedded)
        for convolution in self.encoder:
            filled = F.pad(x.masked_fill(~real, 0.0), (0, 0, edge, edge))
            x = (x + convolution(filled)) * _HALF
        keys = self.out_of_encoder(x)
        return keys, (keys + embedded) * _HALF, src_mask

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (position (B,), the kernel - 1 inputs before, (B, kernel - 1, D), of each layer)."""
        keys, _, mask = cast(tuple[Tensor, ...], memory)
        past = full_precision(keys).new_zeros(
            mask.shape[0], self.kernel - 1, self.into_decoder.out_features
        )
        position = torch.zeros(mask.shape[0], dtype=torch.int64, device=mask.device)
        return position, tuple(past for _ in self.decoder)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Convolve over the tokens and those before, attending in every layer."""
        keys, values, mask = cast(tuple[Tensor, ...], memory)
        position, pasts = cast(tuple[Tensor, tuple[Tensor, ...]], state)
        embedded = self.tgt_embedding(tokens, position)
        x = self.into_decoder(embedded)
        after, seen = [], []
        for convolution, attend, past in zip(self.decoder, self.attentions, pasts, strict=True):
            joined, past = extend(past, x)
            h, weights = attend(convolution(joined), embedded, keys, values, mask)
            x = (x + h) * _HALF
            after.append(past)
            seen.append(weights)
        hidden = self.dropout(self.out_of_decoder(x))
        return Decoded(
            hidden, (position + tokens.shape[1], tuple(after)), tuple(seen) if attention else ()
        )

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., D) to logits (..., V)."""
        return self.projection(hidden)


register(
    Architecture(
        name="convs2s",
        summary="convolutions on both sides, an attention in every decoder layer",
        paper="Gehring et al. 2017, Convolutional Sequence to Sequence Learning",
        traits=Traits(2017, parallel=True, path="n / kernel", keeps="kernel - 1 words a layer"),
        options=ConvOptions,
        build=ConvS2S,
        recipe=Recipe(lr=3e-3, warmup=500, batch_tokens=2048, generated_epochs=12),
        sizes={
            "tiny": {"d_model": 64},
            "small": {},
            "base": {"d_model": 512, "encoder_layers": 8, "decoder_layers": 8},
        },
        size_training={"base": {"lr": 1e-3}},
        bf16_on_cpu=True,
        variants=({}, {"kernel": 5, "encoder_layers": 1, "tied": False}, {"kernel": 1}),
    )
)
