"""Linear layers packed to translate with."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nmt_cli.batches import pad
from nmt_cli.models import Vocabulary, architectures
from nmt_cli.models.cells import CELLS
from nmt_cli.models.stack import FeedForward, LayerOptions, whole
from nmt_cli.packing import (
    LINEARS,
    Bf16Linear,
    Fp32Linear,
    Int8Linear,
    InTiles,
    Stepped,
    few_sizes,
    pack,
)
from nmt_cli.tokenizer import BOS, EOS


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(48, 33)


def test_int8_rounds_rows_and_adds_up_exactly(linear):
    x = torch.randn(5, 48)
    x[3] = 0
    weight, bias = linear.weight.detach(), linear.bias.detach()
    with torch.inference_mode():
        given = Int8Linear(linear)(x)
    for i in range(5):
        for j in range(33):
            most_x, most_w = float(x[i].abs().max()), float(weight[j].abs().max())
            total = 0
            for a, w in zip(x[i].tolist(), weight[j].tolist(), strict=True):
                total += round(127 * a / most_x if most_x else 0) * round(127 * w / most_w)
            wanted = total * (most_x / 127) * (most_w / 127) + float(bias[j])
            assert float(given[i, j]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("shape", [(48,), (1, 48), (70, 48), (2, 3, 48)])
def test_int8_reads_each_row_alone(linear, shape):
    smaller, x = Int8Linear(linear), torch.randn(shape)
    with torch.inference_mode():
        together = smaller(x)
        alone = torch.stack([smaller(row) for row in x.reshape(-1, 48)]).view(together.shape)
    assert torch.equal(together, alone)
    assert together.shape == (*shape[:-1], 33)


def test_bf16_is_the_product_of_rounded_numbers(linear):
    x = torch.randn(2, 3, 48)
    with torch.inference_mode():
        given = Bf16Linear(linear)(x)
        exact = x.bfloat16().double() @ linear.weight.bfloat16().double().t() + linear.bias
    assert given.dtype == torch.float32
    assert torch.allclose(given.double(), exact, rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize("linear", LINEARS.values())
@pytest.mark.parametrize("arch", architectures(), ids=lambda arch: arch.name)
def test_every_architecture_works_packed(arch, linear):
    torch.manual_seed(1)
    options = arch.options(**{**arch.sizes["tiny"], "dropout": 0.0})
    model = arch.build(options, Vocabulary(60, 60, True)).eval()
    src, mask = pad([[5, 6, 7, 8, EOS], [9, EOS]])
    tgt = torch.tensor([[BOS, 7, 8, 9], [BOS, 11, 12, 13]])

    def logits():
        with torch.inference_mode():
            memory = model.encode(src, mask)
            state = model.start(memory, 8)
            return model.project(model.decode(tgt, memory, state).hidden)

    before = logits()
    pack(model, linear)
    after = logits()
    assert not any(type(module) is nn.Linear for module in model.modules())
    off = float((after - before).norm() / before.norm())
    assert off < 1e-5 if linear is Fp32Linear else 0 < off < 0.1


@pytest.mark.parametrize("kind", LINEARS)
@pytest.mark.parametrize("cell", CELLS.values(), ids=[kind.__name__ for kind in CELLS])
def test_a_recurrence_is_stepped_as_torch_runs_it(cell, kind):
    torch.manual_seed(2)
    layer, x = cell.layer(24, 16), torch.randn(5, 7, 24)
    stepped = Stepped(layer, LINEARS[kind])
    with torch.inference_mode():
        wanted, last = layer(x)
        outputs, state = [], None
        for step in x.unbind(1):
            output, state = stepped(step[:, None], state)
            outputs.append(output)
        one_by_one = torch.cat(outputs, 1)
        at_once, after = stepped(x)
    accuracy = {"fp32": 1e-6, "bf16": 2e-2, "int8": 2e-2}[kind]
    torch.testing.assert_close(one_by_one, wanted, rtol=0, atol=accuracy)
    torch.testing.assert_close(at_once, one_by_one, rtol=0, atol=1e-6)
    torch.testing.assert_close(after, state, rtol=0, atol=1e-6)
    torch.testing.assert_close(after, last, rtol=0, atol=5 * accuracy)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("shape", [(512, 1), (1, 513), (30, 40)])
def test_feed_forward_in_tiles_is_that_of_all_positions(activation, shape):
    torch.manual_seed(3)
    layer = FeedForward(LayerOptions(d_model=16, d_ffn=32, dropout=0.0), activation).double()
    x = torch.randn(*shape, 16, dtype=torch.float64)
    given = x.clone()
    with torch.inference_mode():
        torch.testing.assert_close(whole(InTiles(layer), x), whole(layer, x), rtol=0, atol=1e-12)
    assert torch.equal(x, given)


@pytest.mark.parametrize("kind", LINEARS)
@pytest.mark.parametrize("shape", [(63,), (65,), (7, 19), (3, 5, 50), (1,)])
def test_any_number_of_rows_is_multiplied_as_each_row_alone(linear, kind, shape):
    packed = LINEARS[kind](linear)
    x = torch.randn(*shape, linear.in_features)
    with torch.inference_mode():
        alone = torch.cat([packed(row[None]) for row in x.reshape(-1, linear.in_features)])
        torch.testing.assert_close(packed(x), alone.view(*shape, -1), rtol=1e-5, atol=1e-5)


def test_few_sizes_are_enough_for_many_rows():
    rows = range(1, 10_001)
    assert all(n <= few_sizes(n) <= 1.07 * n + 1 for n in rows)
    assert all(few_sizes(n) == n for n in range(1, 65))
    assert len({few_sizes(n) for n in rows}) < 200


MANY_SHAPES = """
import sys, torch
from nmt_cli.packing import LINEARS, pack
from tests.soaking import own_megabytes

model = torch.nn.Sequential(*(torch.nn.Linear(64 + 8 * n, 128) for n in range(12)))
pack(model, LINEARS[sys.argv[1]])
torch.set_num_threads(1)


def see(layers):
    for layer in layers:
        for rows in range(1, 65):
            layer(torch.zeros(rows, layer.in_features))


with torch.inference_mode():
    see(model[:2])
    before = own_megabytes()
    see(model[2:])
print(own_megabytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["fp32", "bf16"])  # int8 has nothing cached
def test_memory_stays_after_many_shapes(kind):
    done = subprocess.run(
        [sys.executable, "-c", MANY_SHAPES, kind],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 50  # 640 shapes that are all kept take 230 and more
