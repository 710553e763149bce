"""A run that diverges and is rolled back, from the command line's options to the log."""

import json
import math

import pytest

import nmt_cli
from nmt_cli.divergence import Diverged
from nmt_cli.training import Trainer
from tests.conftest import write_pairs

COMMON = {"src_lang": "en", "tgt_lang": "fr", "size": "tiny", "save_every": 5, "steps": 20}


@pytest.fixture
def spoilt(monkeypatch):
    """Make the loss nan from the 12th batch to a given one, counted over the whole run."""

    def spoil(last):
        gradients, calls = Trainer._gradients, []

        def wrong(trainer, *given):
            loss, norm = gradients(trainer, *given)
            calls.append(trainer.progress.position)
            return (math.nan if 12 <= len(calls) <= last else loss), norm

        monkeypatch.setattr(Trainer, "_gradients", wrong)
        return calls

    return spoil


def train(folder, **options):
    write_pairs(folder)
    out, data = folder / "R", str(folder / "pairs")
    nmt_cli.train(out, data=data, batch_sentences=2, **COMMON, **options)
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_run_goes_on_from_the_last_save_past_the_batches_at_half_the_rate(tmp_path, spoilt):
    calls = spoilt(17)
    log = train(tmp_path, on_divergence="rollback", schedule="constant", warmup=0)
    steps = [record["step"] for record in log if "lr" in record and "skipped" not in record]
    assert steps == [*range(1, 12), *range(11, 21)]
    assert [record["step"] for record in log if record.get("skipped")] == [*range(12, 17)]
    (back,) = (record for record in log if record.get("rolled_back"))
    assert (back["step"], back["diverged_at"], back["lr_factor"]) == (10, 17, 0.5)
    rates = [record["lr"] for record in log if "loss" in record]
    assert rates[0] == 2 * rates[-1]
    assert len(set(calls)) == len(calls) == 27  # no batch is read twice


def test_without_the_wish_it_stops(tmp_path, spoilt):
    spoilt(17)
    with pytest.raises(Diverged, match=r"step 17.*--lr"):
        train(tmp_path)


def test_what_is_still_of_use_is_named(tmp_path, spoilt):
    spoilt(17)
    with pytest.raises(Diverged, match=rf"{tmp_path / 'R'} keeps its best weights"):
        train(tmp_path, validate_every=5)
    assert (tmp_path / "R" / "model.safetensors").is_file()


def test_a_run_that_diverges_again_and_again_stops(tmp_path, spoilt):
    spoilt(10_000)
    with pytest.raises(Diverged, match=r"nan.*after 3 rollbacks"):
        train(tmp_path, on_divergence="rollback")
    log = [json.loads(line) for line in (tmp_path / "R" / "log.jsonl").read_text().splitlines()]
    assert sum("rolled_back" in record for record in log) == 3
