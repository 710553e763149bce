"""Layers of different mixers in one stack, named in a pattern (after Jamba, Lieber et al. 2024).

Departures: Jamba is a decoder alone with experts in its feed-forward layers; here the pattern
stands in the encoder, there in both directions, and in the decoder, and feed-forward layers are
plain. An rwkv layer starts as one in the middle of a stack would, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

from torch import nn

from nmt_cli.models.base import Architecture, Seq2Seq, Traits, Vocabulary, register
from nmt_cli.models.indrnn import IndRnn, IndRnnOptions
from nmt_cli.models.mamba import Mamba, MambaOptions
from nmt_cli.models.mingru import MinGru, MinLstm, MinOptions
from nmt_cli.models.options import MOST_LAYERS, require
from nmt_cli.models.qrnn import Qrnn, QrnnOptions
from nmt_cli.models.rwkv import Place, TimeMixing
from nmt_cli.models.sru import Sru, SruOptions
from nmt_cli.models.stack import (
    BASE_TRAINING,
    STACK_RECIPE,
    TINY,
    BothWays,
    DecoderParts,
    Design,
    EncoderParts,
    LayerOptions,
    Mixer,
    Stack,
    StackOptions,
    feed_forward,
)
from nmt_cli.models.transformer import CausalAttention, FullAttention, TransformerOptions

_MIXERS: dict[str, tuple[type[LayerOptions], Callable[[Any], Mixer]]] = {
    "attention": (TransformerOptions, CausalAttention),
    "indrnn": (IndRnnOptions, IndRnn),
    "mamba": (MambaOptions, Mamba),
    "mingru": (MinOptions, MinGru),
    "minlstm": (MinOptions, MinLstm),
    "qrnn": (QrnnOptions, Qrnn),
    "rwkv": (StackOptions, lambda options: TimeMixing(options, Place(1, 3))),
    "sru": (SruOptions, Sru),
}


@dataclass(frozen=True)
class HybridOptions(LayerOptions):
    """Options of ``hybrid``."""

    pattern: Annotated[str, f"the mixer of each layer, of: {', '.join(_MIXERS)}"] = (
        "mamba,mamba,attention,mamba"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.names():
            require(
                name in _MIXERS,
                f"pattern={self.pattern}: no mixer {name!r}; there are: {', '.join(_MIXERS)}",
            )
        layers = len(self.names())
        require(layers <= MOST_LAYERS, f"pattern: has {layers} layers, at most {MOST_LAYERS}")

    def names(self) -> list[str]:
        """Split the pattern."""
        return [name.strip() for name in self.pattern.split(",")]


def build(options: HybridOptions, vocab: Vocabulary) -> Seq2Seq:
    """Put the named mixers, with their own defaults, into the skeleton."""
    shared = {field.name: getattr(options, field.name) for field in fields(LayerOptions)}

    def make(name: str) -> Mixer:
        kind, mixer = _MIXERS[name]
        return mixer(kind(**shared))

    def make_encoder(name: str) -> nn.Module:
        if name == "attention":
            return FullAttention(TransformerOptions(**shared))
        return BothWays(lambda: make(name))

    names = options.names()
    return Stack(
        options,
        vocab,
        Design(
            [EncoderParts(make_encoder(name), feed_forward(options)) for name in names],
            [DecoderParts(make(name), feed_forward(options)) for name in names],
            options.positions,
            options.cross_attention,
        ),
    )


register(
    Architecture(
        name="hybrid",
        summary="layers of different mixers, named in a pattern",
        paper="Lieber et al. 2024, Jamba: A Hybrid Transformer-Mamba Language Model",
        traits=Traits(2024, parallel=True, path="1 or n", keeps="what its mixers keep"),
        options=HybridOptions,
        build=build,
        recipe=STACK_RECIPE,
        sizes={
            "tiny": TINY,
            "small": {},
            "base": {"d_model": 512, "heads": 8, "d_ffn": 2048},
        },
        size_training=BASE_TRAINING,
        variants=(
            {"pattern": "mamba,attention"},
            {"pattern": "attention,indrnn,mingru,minlstm,qrnn,rwkv,sru"},
        ),
    )
)
