"""The scan against the loop that it stands for."""

import pytest
import torch

from nmt_cli.models import scan as scans
from nmt_cli.models.scan import scan


def plain(a, b, start):
    states = []
    for t in range(a.shape[1]):
        start = a[:, t] * start + b[:, t]
        states.append(start)
    return torch.stack(states, 1)


def inputs(*shape, dtype=torch.float64):
    B, _, *rest = shape
    a = torch.rand(*shape, dtype=dtype)
    tensors = (a, torch.randn(*shape, dtype=dtype), torch.randn(B, *rest, dtype=dtype))
    return [x.requires_grad_() for x in tensors]


@pytest.mark.parametrize("T", [1, 2, 4, 5, 16, 17, 63])
@pytest.mark.parametrize("rest", [(3,), (2, 4)])
@pytest.mark.parametrize("wide", [0, 1 << 30])
def test_the_scan_and_its_gradient_equal_the_loop(monkeypatch, T, rest, wide):
    """Once by the plain loop (every step counts as wide) and once in chunks."""
    monkeypatch.setattr(scans, "_WIDE", wide)
    torch.manual_seed(T)
    args = inputs(2, T, *rest)
    by = torch.randn(2, T, *rest, dtype=torch.float64)
    ours, theirs = scan(*args), plain(*args)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    for x, y in zip(
        torch.autograd.grad((ours * by).sum(), args),
        torch.autograd.grad((theirs * by).sum(), args),
        strict=True,
    ):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


def test_a_constant_gate_gives_the_geometric_series():
    a, b = torch.full((1, 50, 1), 0.5).double(), torch.ones(1, 50, 1).double()
    t = torch.arange(1, 51).double()
    torch.testing.assert_close(scan(a, b, torch.zeros(1, 1).double())[0, :, 0], 2 - 2 * 0.5**t)


@pytest.mark.parametrize("decay", [0.0, 1e-30, 0.5, 1.0])
def test_the_scan_is_stable_over_4096_steps_of_bf16_inputs(decay):
    a = torch.full((1, 4096, 8), decay, dtype=torch.bfloat16)
    b = torch.randn(1, 4096, 8).bfloat16()
    start = torch.randn(1, 8)
    h = scan(a, b, start)
    assert h.dtype == torch.float32 and h.isfinite().all()
    expected = plain(a.double(), b.double(), start.double())
    torch.testing.assert_close(h.double(), expected, rtol=1e-4, atol=1e-3)
