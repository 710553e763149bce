"""A GPU gives what a CPU gives, to rounding. ``pytest -m gpu`` runs what needs one."""

import pytest
import torch

from nmt_cli.batches import BatchSize, HeldIds, TrainingBatches, collate, pad, with_ends
from nmt_cli.events import Score, Step
from nmt_cli.models import Vocabulary, architecture, architectures
from nmt_cli.precision import Precision, use_exact_kernels, use_fast_kernels
from nmt_cli.search import SearchOptions, search
from nmt_cli.teacher_forcing import backward
from nmt_cli.tokenizer import EOS
from nmt_cli.training import Trainer
from tests.test_training import make_pairs, options

V = 30
NAMES = [arch.name for arch in architectures()]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.fail("there is no GPU")
    return torch.device(request.param)


def make(name: str, dropout: float = 0.0):
    torch.manual_seed(4)
    arch = architecture(name)
    return arch.build(
        arch.options(**{**arch.sizes["tiny"], "dropout": dropout}), Vocabulary(V, V, True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_are_those_of_a_cpu(name, device):
    use_exact_kernels(device)
    batch = collate(make_pairs(8))
    found = []
    for place in (torch.device("cpu"), device):
        model = make(name).to(place)
        loss = backward(model, batch.to(place), 0.1, 1.0)
        found.append((loss.cpu(), [p.grad.cpu() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_translations_are_those_of_a_cpu(name, device, beam):
    use_exact_kernels(device)
    src, mask = pad([[*range(4, 4 + n), EOS] for n in (3, 9, 1, 6)])
    found = []
    for place in (torch.device("cpu"), device):
        model = make(name).to(place).eval()
        found.append(search(model, src.to(place), mask.to(place), SearchOptions(beam=beam)))
    for ours, cpus in zip(found[1], found[0], strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in cpus]
        assert [h.score for h in ours] == pytest.approx([h.score for h in cpus], abs=1e-3)


def losses(name: str, precision: str, device: torch.device, last_step: int = 12, state=None):
    """Train some steps in a number format, from a state on: the losses, and the trainer."""
    use_fast_kernels(device)
    batches = TrainingBatches(HeldIds(make_pairs()), BatchSize(30), seed=1)
    settings = options(last_step=last_step, average=0)
    trainer = Trainer(
        make(name).to(device), batches, lambda *_: Score(0.0, 1.0), settings,
        Precision(precision, ""), V,
    )  # fmt: skip
    if state is not None:
        trainer.restore(*state)
    return [e.loss for e in trainer.run(lambda: False) if isinstance(e, Step)], trainer


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["lstm", "lstm-attn", "gru-attn", "convs2s", "transformer", "sru"])
def test_half_precision_trains_as_fp32_does(name, device, precision):
    full, _ = losses(name, "fp32", device)
    half, trainer = losses(name, precision, device)
    assert trainer.precision.name == precision
    assert half == pytest.approx(full, rel=0.05)
    assert half[-1] < half[0]


@pytest.mark.parametrize("name", ["lstm-attn", "transformer", "mamba"])
def test_a_resumed_training_goes_on_as_one_that_never_stopped(name, device):
    straight, _ = losses(name, "fp32", device, last_step=12)
    before, stopped = losses(name, "fp32", device, last_step=6)
    after, _ = losses(name, "fp32", device, last_step=12, state=stopped.state())
    tolerance = 0.0 if device.type == "cpu" else 1e-4  # a GPU adds up in any order
    assert before + after == pytest.approx(straight, rel=tolerance, abs=tolerance)


def test_a_sentence_alone_and_in_a_batch(device):
    use_exact_kernels(device)
    model = make("transformer").to(device).eval()
    rows = [[*with_ends(list(range(4, 4 + n)), []).src] for n in (2, 8, 5)]
    together = search(model, *(x.to(device) for x in pad(rows)), SearchOptions(beam=3))
    for row, found in zip(rows, together, strict=True):
        (alone,) = search(model, *(x.to(device) for x in pad([row])), SearchOptions(beam=3))
        assert alone[0].tokens == found[0].tokens
