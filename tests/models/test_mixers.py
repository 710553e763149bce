"""Every mixer against a naive loop over its paper's equations, one position at a time."""

import math

import pytest
import torch
from torch import nn

from nmt_cli.models import Vocabulary, architecture
from nmt_cli.models.base import flip_index, take
from nmt_cli.models.indrnn import IndRnn, IndRnnOptions
from nmt_cli.models.mamba import Mamba, MambaOptions
from nmt_cli.models.mingru import MinGru, MinLstm, MinOptions
from nmt_cli.models.options import parse
from nmt_cli.models.qrnn import Qrnn, QrnnOptions
from nmt_cli.models.rwkv import ChannelMixing, Place, RwkvOptions, TimeMixing
from nmt_cli.models.sru import Sru, SruOptions
from nmt_cli.models.stack import BothWays, whole

D, T = 6, 7
CLOSE = {"rtol": 0.0, "atol": 1e-10}
sigmoid, tanh = torch.sigmoid, torch.tanh


def make(kind, options):
    torch.manual_seed(5)
    mixer = kind(options).double().eval()
    for parameter in mixer.parameters():  # far from the first values, which hide much
        parameter.data += 0.3 * torch.randn_like(parameter)
    return mixer, torch.randn(T, D, dtype=torch.float64)


def assert_equals_loop(mixer, x, expected):
    torch.testing.assert_close(whole(mixer, x.unsqueeze(0))[0], torch.stack(expected), **CLOSE)


@pytest.mark.parametrize("kind", [MinGru, MinLstm])
def test_mingru_and_minlstm(kind):
    mixer, x = make(kind, MinOptions(d_model=D, heads=2, d_state=4))
    h, out = torch.zeros(4).double(), []
    for x_t in x:
        *gates, candidate = mixer.input(x_t).split(4)
        if kind is MinGru:
            z = sigmoid(gates[0])
            h = (1 - z) * h + z * candidate
        else:
            f, i = sigmoid(gates[0]), sigmoid(gates[1])
            h = f / (f + i) * h + i / (f + i) * candidate
        out.append(mixer.out(h))
    assert_equals_loop(mixer, x, out)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_indrnn(activation):
    mixer, x = make(IndRnn, IndRnnOptions(d_model=D, heads=2, activation=activation))
    h, out = torch.zeros(D).double(), []
    for x_t in x:
        h = getattr(torch, activation)(mixer.input(x_t) + mixer.recurrent * h)
        out.append(h)
    assert_equals_loop(mixer, x, out)


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_qrnn(window, pooling):
    mixer, x = make(Qrnn, QrnnOptions(d_model=D, heads=2, window=window, pooling=pooling))
    padded = torch.cat([torch.zeros(window - 1, D).double(), x])
    c, out = torch.zeros(D).double(), []
    for t in range(T):
        parts = mixer.convolution(padded[t : t + window].flatten()).split(D)
        z, gate = tanh(parts[0]), dict(zip(pooling, map(sigmoid, parts[1:]), strict=True))
        c = gate["f"] * c + gate.get("i", 1 - gate["f"]) * z
        out.append(gate.get("o", 1) * c)
    assert_equals_loop(mixer, x, out)


@pytest.mark.parametrize("v", [True, False])
def test_sru(v):
    mixer, x = make(Sru, SruOptions(d_model=D, heads=2, v=v))
    v_f, v_r = mixer.from_cell if v else torch.zeros(2, D).double()
    c, out = torch.zeros(D).double(), []
    for x_t in x:
        candidate, f, r = mixer.input(x_t).split(D)
        f, r = sigmoid(f + v_f * c), sigmoid(r + v_r * c)
        c = f * c + (1 - f) * candidate
        out.append(r * c + (1 - r) * math.sqrt(3) * x_t)
    assert_equals_loop(mixer, x, out)


@pytest.mark.parametrize("d_conv", [1, 4])
def test_mamba(d_conv):
    mixer, x = make(Mamba, MambaOptions(d_model=D, heads=2, d_state=3, expand=2, d_conv=d_conv))
    E, N, silu = 2 * D, 3, nn.functional.silu
    A = -torch.exp(mixer.log_decay).T
    inner, z = mixer.input(x).split(E, dim=1)
    padded = torch.cat([torch.zeros(d_conv - 1, E).double(), inner])
    h, out = torch.zeros(E, N).double(), []
    for t in range(T):
        u = silu((mixer.kernel * padded[t : t + d_conv]).sum(0) + mixer.kernel_bias)
        low, B, C = mixer.selection(u).split([mixer.rank, N, N])
        delta = torch.log(1 + torch.exp(mixer.step @ low + mixer.step_bias))
        y = torch.zeros(E).double()
        for e in range(E):
            h[e] = torch.exp(delta[e] * A[e]) * h[e] + delta[e] * B * u[e]
            y[e] = C @ h[e] + mixer.skip[e] * u[e]
        out.append(mixer.out(y * silu(z[t])))
    assert_equals_loop(mixer, x, out)


def shifted(shift, x, t):
    before = x[t - 1] if t else torch.zeros(D).double()
    return [share * x[t] + (1 - share) * before for share in shift.own_share]


def test_rwkvs_time_mixing_is_the_sum_that_defines_it():
    mixer, x = make(
        lambda options: TimeMixing(options, Place(1, 3)), RwkvOptions(d_model=D, heads=2)
    )
    w, keys, values, out = torch.exp(mixer.log_decay), [], [], []
    for t in range(T):
        for_r, for_k, for_v = shifted(mixer.shift, x, t)
        keys.append(mixer.key(for_k))
        values.append(mixer.value(for_v))
        weights = [torch.exp(keys[i] - (t - 1 - i) * w) for i in range(t)]
        weights.append(torch.exp(mixer.bonus + keys[t]))
        above = sum(weight * value for weight, value in zip(weights, values, strict=True))
        out.append(mixer.out(sigmoid(mixer.receptance(for_r)) * above / sum(weights)))
    assert_equals_loop(mixer, x, out)


def test_rwkvs_channel_mixing():
    mixer, x = make(
        lambda options: ChannelMixing(options, Place(1, 3)),
        RwkvOptions(d_model=D, heads=2, d_ffn=9),
    )
    out = []
    for t in range(T):
        for_r, for_k = shifted(mixer.shift, x, t)
        out.append(sigmoid(mixer.receptance(for_r)) * mixer.value(mixer.key(for_k).relu() ** 2))
    assert_equals_loop(mixer, x, out)


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_rwkv_is_safe_from_keys_whose_exponential_overflows(size):
    mixer = TimeMixing(RwkvOptions(d_model=D, heads=2), Place(1, 3))
    k = (size * torch.rand(2, 50, D)).requires_grad_()
    v = torch.randn(2, 50, D, requires_grad=True)
    _, *before = mixer.start(2)
    wkv, _ = mixer.wkv(k, v, tuple(before))
    wkv.sum().backward()
    assert wkv.isfinite().all() and k.grad.isfinite().all() and v.grad.isfinite().all()
    assert wkv.abs().max() <= v.abs().max() * 1.001  # a mean of values


def test_both_ways_reads_each_row_from_its_own_end():
    mixer, _ = make(Sru, SruOptions(d_model=D, heads=2))
    ways = BothWays(lambda: make(Sru, SruOptions(d_model=D, heads=2))[0])
    x, mask = torch.randn(2, 5, D).double(), torch.arange(5) < torch.tensor([[5], [3]])
    mixed = ways(x, mask)
    for row, length in ((0, 5), (1, 3)):
        alone = x[row : row + 1, :length]
        expected = whole(mixer, alone) + whole(mixer, alone.flip(1)).flip(1)
        torch.testing.assert_close(mixed[row : row + 1, :length], expected, **CLOSE)
    assert torch.equal(take(take(x, flip_index(mask)), flip_index(mask)), x)


@pytest.mark.parametrize("name", ["mamba", "rwkv", "qrnn", "sru", "mingru", "minlstm", "indrnn"])
def test_the_state_of_a_linear_recurrence_does_not_grow(name):
    arch = architecture(name)
    model = arch.build(
        parse(arch.options, {"d_model": D, "heads": 2}, name), Vocabulary(9, 9, True)
    )
    memory = model.encode(torch.randint(4, 9, (1, 3)), torch.ones(1, 3, dtype=torch.bool))

    def size(tree):
        return sum(map(size, tree)) if isinstance(tree, tuple) else tree.numel()

    start = model.start(memory)
    later = model.decode(torch.randint(4, 9, (1, 40)), memory, start).state
    assert size(later) == size(start)
