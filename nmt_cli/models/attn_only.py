"""The ablation: attention from target to source, and nothing else that sees another word.

Embeddings and positions, one multi-head attention (Vaswani et al. 2017, section 3.2) and the
projection. The decoder knows of the target only the last word and its position.
"""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.models.base import Architecture, Seq2Seq, Traits, Vocabulary, register
from nmt_cli.models.stack import STACK_RECIPE, DecoderParts, Design, SkeletonOptions, Stack


@dataclass(frozen=True)
class AttentionOnlyOptions(SkeletonOptions):
    """Options of ``attn-only``."""


def build(options: AttentionOnlyOptions, vocab: Vocabulary) -> Seq2Seq:
    """Leave all of the skeleton empty but one cross-attention."""
    return Stack(options, vocab, Design([], [DecoderParts(None, None)], "sinusoidal"))


register(
    Architecture(
        name="attn-only",
        summary="the ablation: one attention to the source, no recurrence, no self-attention",
        paper="an ablation of Vaswani et al. 2017",
        traits=Traits(2017, parallel=True, path="none", keeps="the position"),
        options=AttentionOnlyOptions,
        build=build,
        recipe=STACK_RECIPE,
        sizes={"tiny": {"d_model": 64}, "small": {}, "base": {"d_model": 512, "heads": 8}},
        bf16_on_cpu=True,
        variants=({}, {"norm": "post", "tied": False}),
    )
)
