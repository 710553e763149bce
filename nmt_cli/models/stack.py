"""The residual encoder-decoder in which a mixer stands: attention, a recurrence, a convolution.

A decoder layer mixes each position with those before it, reads the source by cross-attention,
and mixes channels; an encoder layer does the same in both directions, without the cross-attention.
Each of these is a residual branch with its own layer norm (Vaswani et al. 2017, section 3.1). A
mixer knows nothing of source or target, so any goes into any layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.models.attention import prefers_fused, scaled_dot_weights
from nmt_cli.models.base import (
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Traits,
    Tree,
    Vocabulary,
    flip_index,
    register,
    take,
    working_precision,
)
from nmt_cli.models.dropout import Dropout
from nmt_cli.models.options import MOST_LAYERS, WIDEST, require
from nmt_cli.models.positions import LearnedPositions, sinusoid

KeysValues = tuple[Tensor, Tensor]
"""Keys and values, each (B, H, S, D/H)."""
Positions = Literal["sinusoidal", "none"]
MOST_POSITIONS = 1 << 20


@dataclass(frozen=True)
class SkeletonOptions:
    """What the skeleton itself needs to know, whatever stands in it."""

    d_model: Annotated[int, "width of embeddings and layers"] = 128
    heads: Annotated[int, "heads of every attention"] = 4
    norm: Annotated[Literal["pre", "post"], "normalise before or after each sublayer"] = "pre"
    normalization: Annotated[
        Literal["layer", "rms"], "layer norm, or its scale alone (Zhang & Sennrich 2019)"
    ] = "layer"
    tied: Annotated[bool, "share target embedding and projection (and both sides' if one)"] = True
    dropout: Annotated[float, "dropout on embeddings, in sublayers and on their results"] = 0.2

    def __post_init__(self) -> None:
        require(
            2 <= self.d_model <= WIDEST and self.d_model % 2 == 0,
            f"d_model={self.d_model}: must be even, 2 to {WIDEST}",
        )
        require(
            self.heads >= 1 and self.d_model % self.heads == 0,
            f"heads={self.heads}: must divide d_model={self.d_model}",
        )
        require(0 <= self.dropout < 1, f"dropout={self.dropout}: must be in [0, 1)")


@dataclass(frozen=True)
class LayerOptions(SkeletonOptions):
    """What an architecture needs to know whose layers mix positions and channels."""

    d_ffn: Annotated[int, "inner width of the feed-forward layers; 0 leaves them out"] = 512
    cross_attention: Annotated[bool, "attend to the source; false passes one fixed vector"] = True
    positions: Annotated[Positions, "what tells one position from another in the embeddings"] = (
        "none"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.d_ffn <= WIDEST, f"d_ffn={self.d_ffn}: must be 0 to {WIDEST}")


@dataclass(frozen=True)
class StackOptions(LayerOptions):
    """What an architecture of equal layers needs to know."""

    encoder_layers: Annotated[int, "layers of the encoder"] = 4
    decoder_layers: Annotated[int, "layers of the decoder"] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_layers", "decoder_layers"):
            layers = getattr(self, name)
            require(1 <= layers <= MOST_LAYERS, f"{name}={layers}: must be 1 to {MOST_LAYERS}")


STACK_RECIPE = Recipe(lr=5e-3, warmup=1000, batch_tokens=2048, generated_epochs=12)
"""How a stack of the small size is trained."""
TINY = {"d_model": 64, "d_ffn": 256}
BASE = {"d_model": 512, "heads": 8, "d_ffn": 2048, "encoder_layers": 6, "decoder_layers": 6}
BASE_TRAINING = {"base": {"lr": 1e-3, "warmup": 4000}}


class Mixer(nn.Module, ABC):
    """Maps (B, T, D) to (B, T, D), each position from itself and those before it.

    A sequence may come in chunks of any length; the state carries on from one to the next, and
    no call changes the state that it is given, but for one that began with ``start_in_place``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("_kind", torch.empty(0), persistent=False)

    def zeros(self, *shape: int) -> Tensor:
        """Give zeros in the number format and on the device of this module, to start from."""
        return cast(Tensor, self._kind).new_zeros(shape)

    @abstractmethod
    def start(self, rows: int) -> Tree:
        """Give the state before the first position."""

    def start_in_place(self, rows: int) -> Tree:
        """Give a state that ``forward`` may change, and so use up, as it reads on."""
        return self.start(rows)

    @abstractmethod
    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Map a chunk.

        Args:
            x: (B, T, D).
            state: from ``start`` or from the chunk before.
            position: (B,) int64, how many positions came before the chunk.
        """


class BothWays(nn.Module):
    """Two mixers, one of them from the end of each row to its start, added up."""

    def __init__(self, make: Callable[[], Mixer]) -> None:
        super().__init__()
        self.forwards = make()
        self.backwards = make()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix x (B, S, D); padding, after the end in both directions, is never read."""
        flip = flip_index(mask)
        return whole(self.forwards, x) + take(whole(self.backwards, take(x, flip)), flip)


def whole(mixer: Mixer, x: Tensor) -> Tensor:
    """Map a sequence (B, T, D) from its first position to its last."""
    rows = x.shape[0]
    position = torch.zeros(rows, dtype=torch.int64, device=x.device)
    mixed, _ = mixer(x, mixer.start(rows), position)
    return cast(Tensor, mixed)


def extend(past: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Put the last inputs (B, K, D) before x (B, T, D): both joined, and the new last K inputs."""
    joined = torch.cat([past.to(x.dtype), x], dim=1)
    return joined, joined[:, x.shape[1] :].to(past.dtype)


Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(Mixer):
    """Two linear maps with a ReLU between, of each position alone (Vaswani section 3.3).

    Or with a GELU (Hendrycks & Gimpel 2016), or gated by a third (SwiGLU, Shazeer 2020).
    """

    def __init__(self, options: LayerOptions, activation: Activation) -> None:
        super().__init__()
        self.inner = nn.Linear(options.d_model, options.d_ffn)
        self.gate = nn.Linear(options.d_model, options.d_ffn) if activation == "swiglu" else None
        self.outer = nn.Linear(options.d_ffn, options.d_model)
        # in place: its backward needs the result alone
        self.activate = F.gelu if activation == "gelu" else F.relu_
        self.dropout = Dropout(options.dropout)

    def start(self, rows: int) -> Tree:
        """Keep nothing."""
        return ()

    def forward(self, x: Tensor, state: Tree, position: Tensor) -> tuple[Tensor, Tree]:
        """Map each position of x (B, T, D)."""
        inner = self.inner(x)
        inner = F.silu(self.gate(x)) * inner if self.gate else self.activate(inner)
        return self.outer(self.dropout(inner)), ()


def feed_forward(options: LayerOptions, activation: Activation = "relu") -> FeedForward | None:
    """Make a feed-forward layer, if there are to be any."""
    return FeedForward(options, activation) if options.d_ffn else None


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Reshape (B, T, D) to (B, H, T, D/H)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Reshape (B, H, T, D/H) to (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's output (Vaswani section 3.2)."""

    def __init__(self, options: SkeletonOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.query = nn.Linear(options.d_model, options.d_model)
        self.key_value = nn.Linear(options.d_model, 2 * options.d_model)
        self.out = nn.Linear(options.d_model, options.d_model)
        self.dropout = Dropout(options.dropout)

    def keys_values(self, encoded: Tensor) -> KeysValues:
        """Prepare the encoder's output (B, S, D)."""
        k, v = self.key_value(encoded).chunk(2, dim=-1)
        # each head's numbers together, or every step of a search would copy them so
        return split_heads(k, self.heads).contiguous(), split_heads(v, self.heads).contiguous()

    def forward(
        self, x: Tensor, memory: KeysValues, mask: Tensor, attention: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from x (B*K, T, D): the result (B*K, T, D) and, if they are wanted, the weights.

        The weights are (B*K, H, T, S).
        """
        k, v = memory
        rows, T, D = x.shape
        q = split_heads(self.query(x).reshape(k.shape[0], -1, D), self.heads)  # (B, H, K*T, D/H)
        if prefers_fused(q) and not attention:
            p = self.dropout.p if self.training else 0.0
            read = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask[:, None, None, :], dropout_p=p
            )
            return self.out(merge_heads(read)).reshape(rows, T, D), None
        weights = scaled_dot_weights(q, k, mask[:, None, None, :])
        out = self.out(merge_heads(self.dropout(weights.to(v.dtype)) @ v)).reshape(rows, T, D)
        if not attention:
            return out, None
        by_row = weights.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)  # (B*K, H, T, S)
        return out, by_row


class RMSNorm(nn.RMSNorm):
    """Torch's, with the scale rounded to what it scales, as its fused kernel wants it."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (..., D)."""
        if torch.onnx.is_in_onnx_export():  # which has no name for it
            return (
                x * torch.rsqrt(x.square().mean(-1, keepdim=True) + (self.eps or 0.0)) * self.weight
            )
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def make_norm(options: SkeletonOptions) -> nn.Module:
    """Make a normalisation of the kind asked for."""
    if options.normalization == "rms":
        return RMSNorm(options.d_model, eps=1e-6)
    return nn.LayerNorm(options.d_model)


class Residual(nn.Module):
    """x + sublayer(x), with the norm on the way in (pre) or on the sum (post)."""

    def __init__(self, options: SkeletonOptions) -> None:
        super().__init__()
        self.norm = make_norm(options)
        self.pre = options.norm == "pre"
        self.dropout = Dropout(options.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """Give what the sublayer reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, result: Tensor) -> Tensor:
        """Add the sublayer's result to the stream."""
        x = self.dropout.added_to(x, result)
        return x if self.pre else self.norm(x)


class EncoderParts(NamedTuple):
    """What stands in an encoder layer; None leaves a sublayer out."""

    mixer: nn.Module | None
    """Maps x (B, S, D) and mask (B, S) to (B, S, D), each real position from all real ones."""
    channels: Mixer | None


class DecoderParts(NamedTuple):
    """What stands in a decoder layer; None leaves a sublayer out."""

    mixer: Mixer | None
    channels: Mixer | None


class Design(NamedTuple):
    """What an architecture puts into the skeleton, one entry a layer."""

    encoder: Sequence[EncoderParts]
    decoder: Sequence[DecoderParts]
    positions: Literal["sinusoidal", "learned", "none"]
    """What is added to the embeddings."""
    cross_attention: bool = True
    max_positions: int = 0
    """How many positions there are, if they are learnt."""


def alike(options: StackOptions, make: Callable[[], Mixer]) -> Design:
    """Design a stack of equal layers around one kind of mixer."""
    return Design(
        [
            EncoderParts(BothWays(make), feed_forward(options))
            for _ in range(options.encoder_layers)
        ],
        [DecoderParts(make(), feed_forward(options)) for _ in range(options.decoder_layers)],
        options.positions,
        options.cross_attention,
    )


def register_mixer(
    name: str,
    mixer: Callable[[Any], Mixer],
    options: type[StackOptions],
    *,
    summary: str,
    paper: str,
    traits: Traits,
    variants: tuple[Mapping[str, Any], ...],
    tiny: Mapping[str, Any] = MappingProxyType({}),
    base: Mapping[str, Any] = MappingProxyType({}),
    bf16_on_cpu: bool = False,
) -> None:
    """Register a stack of equal layers around one kind of mixer.

    Args:
        name: of the architecture.
        mixer: makes one from the options.
        options: their class.
        summary: one line for the list.
        paper: where it is from.
        traits: what it costs.
        variants: option settings at which the laws are tested.
        tiny: what ``--size tiny`` sets beside the widths of every stack.
        base: what ``--size base`` sets beside the widths of every stack.
        bf16_on_cpu: whether bf16 was measured to pay on a CPU.
    """

    def build(options: StackOptions, vocab: Vocabulary) -> Seq2Seq:
        return Stack(options, vocab, alike(options, lambda: mixer(options)))

    register(
        Architecture(
            name=name,
            summary=summary,
            paper=paper,
            traits=traits,
            options=options,
            build=build,
            recipe=STACK_RECIPE,
            sizes={"tiny": {**TINY, **tiny}, "small": {}, "base": {**BASE, **base}},
            size_training=BASE_TRAINING,
            bf16_on_cpu=bf16_on_cpu,
            variants=variants,
        )
    )


class EncoderLayer(nn.Module):
    """Mixing in both directions and mixing of channels, each in a residual."""

    def __init__(self, options: SkeletonOptions, parts: EncoderParts) -> None:
        super().__init__()
        self.mixer, self.channels = parts
        self.around_mixer = Residual(options) if self.mixer else None
        self.around_channels = Residual(options) if self.channels else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply to x (B, S, D) with mask (B, S)."""
        if self.mixer and self.around_mixer:
            x = self.around_mixer.leave(x, self.mixer(self.around_mixer.enter(x), mask))
        if self.channels and self.around_channels:
            entering = self.around_channels.enter(x)
            x = self.around_channels.leave(x, whole(self.channels, entering))
        return x


class DecoderLayer(nn.Module):
    """Mixing with what came before, cross-attention, mixing of channels, each in a residual."""

    def __init__(self, options: SkeletonOptions, parts: DecoderParts, cross: bool) -> None:
        super().__init__()
        self.mixer, self.channels = parts
        self.cross = CrossAttention(options) if cross else None
        self.around_mixer = Residual(options) if self.mixer else None
        self.around_cross = Residual(options) if cross else None
        self.around_channels = Residual(options) if self.channels else None

    def start(self, rows: int, in_place: bool) -> Tree:
        """Give the states of both mixers before the first position."""

        def first(mixer: Mixer | None) -> Tree:
            if mixer is None:
                return ()
            return mixer.start_in_place(rows) if in_place else mixer.start(rows)

        return first(self.mixer), first(self.channels)

    def forward(
        self,
        x: Tensor,
        state: Tree,
        position: Tensor,
        memory: KeysValues | None,
        mask: Tensor,
        attention: bool,
    ) -> tuple[Tensor, Tree, Tensor | None]:
        """Apply to x (B*K, T, D).

        Args:
            x: the stream.
            state: of this layer.
            position: (B*K,), how many tokens came before.
            memory: cross-attention keys and values, B rows; None without cross-attention.
            mask: (B, S), the source mask.
            attention: whether the cross-attention weights are wanted.

        Returns:
            the stream, the state and the cross-attention weights (B*K, H, T, S), if wanted and any.
        """
        mixing, channelling = cast(tuple[Tree, Tree], state)
        weights = None
        if self.mixer and self.around_mixer:
            mixed, mixing = self.mixer(self.around_mixer.enter(x), mixing, position)
            x = self.around_mixer.leave(x, mixed)
        if self.cross and self.around_cross and memory:
            read, weights = self.cross(self.around_cross.enter(x), memory, mask, attention)
            x = self.around_cross.leave(x, read)
        if self.channels and self.around_channels:
            mixed, channelling = self.channels(self.around_channels.enter(x), channelling, position)
            x = self.around_channels.leave(x, mixed)
        return x, (mixing, channelling), weights


class Stack(Seq2Seq):
    """Encoder and decoder of residual layers, joined by cross-attention or by one fixed vector.

    Without cross-attention the decoder gets the mean of the encoder's output, mapped by one
    layer and added to every target embedding: the bottleneck of Cho et al. 2014, in a stack.
    """

    def __init__(self, options: SkeletonOptions, vocab: Vocabulary, design: Design) -> None:
        super().__init__()
        D = options.d_model
        self.d_model, self.sinusoidal = D, design.positions == "sinusoidal"
        learned, limit = design.positions == "learned", design.max_positions
        self.max_positions = limit if learned else None
        self.src_positions = LearnedPositions(limit, D) if learned else None
        self.tgt_positions = LearnedPositions(limit, D) if learned else None
        self.tgt_embedding = nn.Embedding(vocab.tgt, D)
        share_source = options.tied and vocab.shared
        self.src_embedding = self.tgt_embedding if share_source else nn.Embedding(vocab.src, D)
        self.encoder = nn.ModuleList(EncoderLayer(options, parts) for parts in design.encoder)
        self.decoder = nn.ModuleList(
            DecoderLayer(options, parts, design.cross_attention) for parts in design.decoder
        )
        pre = options.norm == "pre"
        self.encoder_norm = make_norm(options) if pre else nn.Identity()
        self.decoder_norm = make_norm(options) if pre else nn.Identity()
        self.bridge = None if design.cross_attention else nn.Linear(D, D)
        self.projection = nn.Linear(D, vocab.tgt, bias=False)
        self.dropout = Dropout(options.dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        if options.tied:
            self.projection.weight = self.tgt_embedding.weight
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=D**-0.5)

    def embed(
        self,
        embedding: nn.Embedding,
        learned: LearnedPositions | None,
        tokens: Tensor,
        position: Tensor,
    ) -> Tensor:
        """Scale embeddings of tokens (B, T) by sqrt(D) and add positions: (B, T, D)."""
        x = embedding(tokens) * self.d_model**0.5
        if learned:
            x = x + learned.after(position, tokens.shape[1])
        if self.sinusoidal:
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + sinusoid(position[:, None] + steps, self.d_model).to(x.dtype)
        return self.dropout(working_precision(x))

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give (mask, per decoder layer the cross-attention keys and values), or (vector,)."""
        first = torch.zeros(src.shape[0], dtype=torch.int64, device=src.device)
        x = self.embed(self.src_embedding, self.src_positions, src, first)
        for layer in self.encoder:
            x = layer(x, src_mask)
        x = self.encoder_norm(x)
        if self.bridge:
            real = src_mask.unsqueeze(-1)
            mean = x.masked_fill(~real, 0.0).sum(1) / real.sum(1)
            return (self.bridge(mean.to(x.dtype)),)
        crosses = (cast(CrossAttention, layer.cross) for layer in self.decoder)
        return src_mask, tuple(cross.keys_values(x) for cross in crosses)

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give (position (B,), the state of each layer)."""
        first = cast(tuple[Tensor, ...], memory)[0]
        rows, in_place = first.shape[0], max_length is not None
        layers = tuple(cast(DecoderLayer, layer).start(rows, in_place) for layer in self.decoder)
        return torch.zeros(rows, dtype=torch.int64, device=first.device), layers

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Read tokens (B*K, T) after those that the state knows."""
        position, states = cast(tuple[Tensor, tuple[Tree, ...]], state)
        x = self.embed(self.tgt_embedding, self.tgt_positions, tokens, position)
        first, *rest = cast(tuple[Tensor, ...], memory)
        if self.bridge:
            beams = tokens.shape[0] // first.shape[0]
            x = x + first.repeat_interleave(beams, dim=0).unsqueeze(1)
        layers = cast("tuple[KeysValues, ...]", rest[0]) if rest else [None] * len(states)
        after, seen = [], []
        for layer, before, keys_values in zip(self.decoder, states, layers, strict=True):
            x, layer_state, weights = layer(x, before, position, keys_values, first, attention)
            after.append(layer_state)
            if weights is not None:
                seen.append(weights)
        hidden = self.decoder_norm(x)
        state = (position + tokens.shape[1], tuple(after))
        return Decoded(hidden, state, tuple(seen))

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., D) to logits (..., V)."""
        return self.projection(hidden)
