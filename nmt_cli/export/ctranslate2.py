"""A Transformer for CTranslate2, an engine in C++ (OpenNMT; its format is that of version 4).

What that engine has no name for is refused: it would be computed otherwise, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from nmt_cli.errors import NmtError
from nmt_cli.models.options import parse
from nmt_cli.models.positions import LearnedPositions, sinusoid
from nmt_cli.models.stack import (
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
    Stack,
)
from nmt_cli.models.transformer import SelfAttention, TransformerOptions
from nmt_cli.runs import RunFolder
from nmt_cli.tokenizer import BOS, EOS, UNK, Tokenizer
from nmt_cli.translation import load_model

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

Quantization = Literal["fp32", "int8"]
_POSITIONS = 2048
"""Length of the table that sinusoids are written to: twice the longest source, and the margin."""


def write_ctranslate2(run: RunFolder, folder: Path, quantization: Quantization) -> None:
    """Write a run's model, vocabulary and tokenizers into a folder that is there.

    Args:
        run: whose best weights are written.
        folder: an empty one.
        quantization: how the engine stores the weights; its own int8 has one scale a row.

    Raises:
        NmtError: if the package is not installed, or the model is not one that the engine knows.
    """
    config = run.config()
    if config["arch"] != "transformer":
        raise NmtError(
            f"{run.path}: --to ctranslate2 takes a transformer, which is what that engine computes,"
            f" not {config['arch']}"
        )
    options = parse(TransformerOptions, config["options"], "transformer")
    require_known(options)
    try:
        from ctranslate2.specs import TransformerSpec  # noqa: F401
    except ImportError:
        raise NmtError("--to ctranslate2: needs its package: pip install ctranslate2") from None
    model = load_model(run, torch.device("cpu"))
    src, tgt = run.tokenizers()
    spec = specify(cast(Stack, model), options, src, tgt)
    spec.validate()
    spec.optimize(quantization="int8" if quantization == "int8" else None)
    spec.save(str(folder))
    for name, tokenizer in (("source.spm", src), ("target.spm", tgt)):
        (folder / name).write_bytes(tokenizer.model)


def require_known(options: TransformerOptions) -> None:
    """Refuse options that the engine does not know.

    Raises:
        NmtError: naming all of them.
    """
    positions = {"alibi": "ALiBi in an encoder", "relative": "relative positions of this form"}
    unknown = [
        what
        for what, given in (
            (positions.get(options.positions), options.positions in positions),
            ("decoder without cross-attention", not options.cross_attention),
            ("linear attention", options.kernel == "linear"),
            ("attention within a window on both sides", options.window > 0),
            (
                "cross-attention with more heads of keys than self-attention (kv_heads)",
                options.kv_heads not in {0, options.heads},
            ),
            ("layer without feed-forward part (d_ffn=0)", options.d_ffn == 0),
        )
        if given and what
    ]
    if unknown:
        raise NmtError(f"--to ctranslate2: the engine has no {'; no '.join(unknown)}")


def specify(
    model: Stack, options: TransformerOptions, src: Tokenizer, tgt: Tokenizer
) -> TransformerSpec:
    """Describe a model with its weights in the engine's terms."""
    from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec

    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "swiglu": common_spec.Activation.SWISH,
    }
    common: dict[str, Any] = {
        "num_heads": options.heads,
        "pre_norm": options.norm == "pre",
        "activation": activations[options.ffn],
        "ffn_glu": options.ffn == "swiglu",
        "rms_norm": options.normalization == "rms",
        "rotary_dim": 0 if options.positions == "rope" else None,  # 0: the whole head
    }
    spec = TransformerSpec(
        transformer_spec.TransformerEncoderSpec(options.encoder_layers, **common),
        transformer_spec.TransformerDecoderSpec(options.decoder_layers, **common),
    )
    spec.config.layer_norm_epsilon = _epsilon(model)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        tgt.raw_pieces()[i] for i in (UNK, BOS, EOS)
    )
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(src.raw_pieces())
    spec.register_target_vocabulary(tgt.raw_pieces())
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _numbers(model.src_embedding.weight)
    decoder.embeddings.weight = _numbers(model.tgt_embedding.weight)
    _positions(encoder, model, model.src_positions)
    _positions(decoder, model, model.tgt_positions)
    decoder.projection.weight = _numbers(model.projection.weight)
    if options.norm == "pre":
        _norm(encoder.layer_norm, model.encoder_norm)
        _norm(decoder.layer_norm, model.decoder_norm)
    for part, module in zip(encoder.layer, model.encoder, strict=True):
        layer = cast(EncoderLayer, module)
        _self_attention(part.self_attention, layer.mixer, layer.around_mixer)
        _feed_forward(part.ffn, layer.channels, layer.around_channels)
    for part, module in zip(decoder.layer, model.decoder, strict=True):
        below = cast(DecoderLayer, module)
        _self_attention(part.self_attention, below.mixer, below.around_mixer)
        _cross_attention(part.attention, below.cross, below.around_cross)
        _feed_forward(part.ffn, below.channels, below.around_channels)
    return spec


def _numbers(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return tensor.detach().float().contiguous().numpy()


def _linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _numbers(linear.weight)
    if linear.bias is not None:
        spec.bias = _numbers(linear.bias)


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _numbers(cast(Tensor, norm.weight))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _numbers(norm.bias)


def _epsilon(model: Stack) -> float:
    norm = next(m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm))
    return float(norm.eps or 0.0)


def _positions(spec: Any, model: Stack, learned: LearnedPositions | None) -> None:
    """Write what is added to the embeddings; a model with RoPE adds nothing."""
    if not hasattr(spec, "position_encodings"):
        return
    if learned is not None:
        table = learned.weight
    elif model.sinusoidal:
        table = sinusoid(torch.arange(_POSITIONS), model.d_model)
    else:
        table = torch.zeros(_POSITIONS, model.d_model)
    spec.position_encodings.encodings = _numbers(table)


def _self_attention(spec: Any, module: nn.Module | None, around: Residual | None) -> None:
    attention = cast(SelfAttention, module)
    _norm(spec.layer_norm, cast(Residual, around).norm)
    _linear(spec.linear[0], attention.qkv)
    _linear(spec.linear[1], attention.out)


def _cross_attention(spec: Any, module: CrossAttention | None, around: Residual | None) -> None:
    attention = cast(CrossAttention, module)
    _norm(spec.layer_norm, cast(Residual, around).norm)
    _linear(spec.linear[0], attention.query)
    _linear(spec.linear[1], attention.key_value)
    _linear(spec.linear[2], attention.out)


def _feed_forward(spec: Any, module: nn.Module | None, around: Residual | None) -> None:
    feed = cast(FeedForward, module)
    _norm(spec.layer_norm, cast(Residual, around).norm)
    if feed.gate is not None:
        _linear(spec.linear_0, feed.gate)
        _linear(spec.linear_0_noact, feed.inner)
    else:
        _linear(spec.linear_0, feed.inner)
    _linear(spec.linear_1, feed.outer)
