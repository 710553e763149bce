"""Where memory does not suffice, work is done in smaller parts, with the same result."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from nmt_cli import training
from nmt_cli.batches import Batch, collate, with_ends
from nmt_cli.errors import NmtWarning
from nmt_cli.events import Step, Warned
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.precision import Precision
from nmt_cli.search import SearchOptions, best_continuations
from nmt_cli.tokenizer import EOS
from nmt_cli.translation import Searcher, Sentence, Task
from tests.test_training import make_trainer, never

FULL = "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"


def test_a_batch_in_parts_is_the_same_pairs():
    batch = collate([with_ends([5] * n, [6] * (4 - n)) for n in range(1, 4)])
    parts = batch.in_parts(2)
    assert [len(part.src) for part in parts] == [2, 1]
    for field, joined in zip(Batch._fields[:-1], zip(*parts, strict=True), strict=False):
        assert torch.equal(torch.cat(joined), getattr(batch, field))
    targets = [part.tgt[:, 1:].flatten()[part.predicted] for part in parts]
    assert torch.equal(torch.cat(targets), batch.tgt[:, 1:].flatten()[batch.predicted])
    assert len(batch.in_parts(8)) == 3


@pytest.mark.parametrize("room", [1, 3])
def test_training_reads_batches_in_parts_and_learns_the_same(monkeypatch, room):
    def losses():
        trainer = make_trainer(last_step=4, average=0)
        for module in trainer.model.modules():
            module.p = 0.0  # what dropout draws depends on the parts
        events = list(trainer.run(never))
        warned = [event.message for event in events if isinstance(event, Warned)]
        return [event.loss for event in events if isinstance(event, Step)], warned, trainer

    whole, warned, _ = losses()
    assert warned == []
    backward = training.backward

    def limited(model, batch, *rest):
        if len(batch.src) > room:
            raise RuntimeError(FULL)
        return backward(model, batch, *rest)

    monkeypatch.setattr(training, "backward", limited)
    parted, warned, trainer = losses()
    assert parted == pytest.approx(whole, rel=1e-4)
    parts = trainer.progress.parts
    assert parts > 1 and "out of memory at step 1" in warned[0] and f"{parts} parts" in warned[-1]
    assert trainer.state()[1]["parts"] == parts


@pytest.mark.parametrize(
    ("error", "message"),
    [(RuntimeError(FULL), "allocate"), (RuntimeError("a fault of ours"), "a fault of ours")],
)
def test_what_smaller_parts_do_not_help_is_raised(monkeypatch, error, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(training, "backward", fail)
    with pytest.raises(RuntimeError, match=message):
        list(make_trainer().run(never))


def test_a_search_is_done_in_halves_with_the_same_result(monkeypatch):
    kind = architecture("lstm-attn")
    torch.manual_seed(3)
    model = kind.build(kind.options(**kind.sizes["tiny"]), Vocabulary(20, 20, True)).eval()
    sources = [[*range(5, 6 + n), EOS] for n in range(7)]
    sentences = [Sentence(source, key) for key, source in enumerate(sources)]
    batches = [sentences[:2], sentences[2:6], sentences[6:]]
    task = Task(batches, SearchOptions(beam=2), best_continuations)
    searcher = Searcher(model, Precision("fp32", ""))
    expected = searcher(task)
    encode = model.encode

    def limited(src, mask):
        if len(src) > 2:
            raise RuntimeError(FULL)
        return encode(src, mask)

    monkeypatch.setattr(model, "encode", limited)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = searcher(task)
    assert {warning.category for warning in told} == {NmtWarning}
    assert "out of memory for 7 sentences" in str(told[0].message)
    assert [[h.tokens for h in best] for best in found] == [
        [h.tokens for h in best] for best in expected
    ]


TRIMMED = """
import torch
from nmt_cli.precision import Trimmer, keep_freed_memory
from tests.soaking import own_megabytes

keep_freed_memory()
large, small = [], []
for _ in range(100):
    large.append(torch.ones(1 << 18))  # a megabyte
    small.append(torch.ones(1 << 10))
del large
kept = own_megabytes()
Trimmer(every_s=1000)()
print(kept - own_megabytes())
Trimmer(every_s=0)()
print(kept - own_megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_long_sentences_took_is_given_back_at_times():
    done = subprocess.run(
        [sys.executable, "-c", TRIMMED],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    too_soon, given_back = map(float, done.stdout.split())
    assert too_soon < 5 and given_back > 90
