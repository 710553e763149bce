"""Self-attention of every kind against a loop over pairs of positions; norms and activations."""

import cmath

import pytest
import torch
from torch import nn

from nmt_cli.models.stack import FeedForward, SkeletonOptions, make_norm, whole
from nmt_cli.models.transformer import (
    CausalAttention,
    CausalLinearAttention,
    FullAttention,
    FullLinearAttention,
    TransformerOptions,
)

D, H, T = 16, 4, 7
CLOSE = {"rtol": 0.0, "atol": 1e-6}  # rotations and slopes are fp32
KINDS = [
    {},
    {"kv_heads": 1},
    {"kv_heads": 2, "window": 2},
    {"positions": "rope"},
    {"positions": "alibi", "kv_heads": 2},
    {"positions": "relative", "farthest": 2},
    {"positions": "relative", "farthest": 3, "kv_heads": 2, "window": 3},
    {"kernel": "linear"},
    {"kernel": "linear", "kv_heads": 2},
]


def turn(x, position):
    """Rotate pairs of channels as complex numbers."""
    out = []
    for pair in range(len(x) // 2):
        angle = position / 10000 ** (2 * pair / len(x))
        turned = complex(*x[2 * pair : 2 * pair + 2].tolist()) * cmath.exp(1j * angle)
        out += [turned.real, turned.imag]
    return torch.tensor(out, dtype=torch.float64)


def naive(mixer, options, x, sees):
    """Attend over x (T, D), one pair of positions at a time."""
    d, kv = D // H, options.kv_heads or H
    q, k, v = mixer.qkv(x).split([H * d, kv * d, kv * d], dim=1)
    rows = []
    for i in range(len(x)):
        heads = []
        for head in range(H):
            shared = head * kv // H
            scores, values = [], []
            for j in range(len(x)):
                if not sees(i, j) or (options.window and abs(i - j) > options.window):
                    continue
                query, key = q[i, head * d : (head + 1) * d], k[j, shared * d : (shared + 1) * d]
                value = v[j, shared * d : (shared + 1) * d]
                if options.kernel == "linear":
                    scores.append(
                        ((nn.functional.elu(query) + 1) @ (nn.functional.elu(key) + 1)).log()
                    )
                    values.append(value)
                    continue
                if options.positions == "rope":
                    query, key = turn(query, i), turn(key, j)
                if options.positions == "relative":
                    at = max(-options.farthest, min(options.farthest, j - i)) + options.farthest
                    key, value = key + mixer.relative.keys[at], value + mixer.relative.values[at]
                bias = -(2 ** (-8 * (head + 1) / H)) * abs(i - j)
                scores.append(query @ key / d**0.5 + (bias if options.positions == "alibi" else 0))
                values.append(value)
            weights = torch.stack(scores).softmax(0)
            heads.append(sum(w * value for w, value in zip(weights, values, strict=True)))
        rows.append(mixer.out(torch.cat(heads)))
    return torch.stack(rows)


def make(kind, given):
    torch.manual_seed(4)
    options = TransformerOptions(**{"d_model": D, "heads": H, "dropout": 0.0, **given})
    return options, kind(options).double(), torch.randn(1, T, D, dtype=torch.float64)


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_causal_attention(given):
    kind = CausalLinearAttention if given.get("kernel") == "linear" else CausalAttention
    options, mixer, x = make(kind, given)
    expected = naive(mixer, options, x[0], lambda i, j: j <= i)
    torch.testing.assert_close(whole(mixer, x)[0], expected, **CLOSE)


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_full_attention_and_its_padding(given):
    kind = FullLinearAttention if given.get("kernel") == "linear" else FullAttention
    options, mixer, x = make(kind, given)
    mask = torch.arange(T)[None] < 5
    expected = naive(mixer, options, x[0, :5], lambda i, j: True)
    mixed = mixer(x, mask)
    torch.testing.assert_close(mixed[0, :5], expected, **CLOSE)
    assert mixed.isfinite().all()


def test_linear_attention_in_blocks_equals_one_block(monkeypatch):
    _, mixer, x = make(CausalLinearAttention, {"kernel": "linear"})
    one = whole(mixer, x)
    monkeypatch.setattr("nmt_cli.models.transformer._BLOCK", 3)
    torch.testing.assert_close(whole(mixer, x), one, rtol=0, atol=1e-12)


def test_a_window_bounds_what_decoding_keeps():
    _, mixer, x = make(CausalAttention, {"window": 2})
    _, (k, v) = mixer(x, mixer.start(1), torch.zeros(1, dtype=torch.int64))
    assert k.shape[2] == v.shape[2] == 2


def test_the_rms_norm_is_the_scale_of_a_layer_norm():
    norm = make_norm(SkeletonOptions(d_model=8, normalization="rms")).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(3, 8, dtype=torch.float64)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_feed_forward_layers(activation):
    layer = FeedForward(TransformerOptions(d_model=6, heads=2, d_ffn=9, dropout=0.0), activation)
    x = torch.randn(1, 3, 6)
    inner = layer.inner(x)
    if activation == "swiglu":
        gate = layer.gate(x)
        inner = gate * torch.sigmoid(gate) * inner
    elif activation == "gelu":
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    else:
        inner = inner.clamp(min=0)
    torch.testing.assert_close(whole(layer, x), layer.outer(inner))
