"""What TensorBoard is given, read back by its own reader."""

import sys

import pytest

from nmt_cli.errors import NmtError
from nmt_cli.tracking import TensorBoard
from tests.conftest import nmt, text, write_pairs


def read(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = (run / "tensorboard").iterdir()
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "images": 0})
    events.Reload()
    return events


def steps(events, name):
    return [event.step for event in events.Scalars(name)]


@pytest.mark.slow
def test_curves_samples_and_pictures_are_written_and_go_on(tmp_path):
    write_pairs(tmp_path)
    options = ("--size", "tiny", "--steps", 4, "--validate-every", 2, "-o", "R", "--tensorboard")
    text(nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", *options, cwd=tmp_path))
    events = read(tmp_path / "R")
    for name in ("loss", "lr", "tokens_per_s"):
        assert steps(events, f"train/{name}") == [1, 2, 3, 4]
    assert steps(events, "valid/bleu") == steps(events, "valid/loss") == [2, 4]
    assert steps(events, "test/bleu") == [4]
    tags = events.Tags()
    assert {f"attention/{n}" for n in range(1, 6)} | {"test/bleu by source length"} == set(
        tags["images"]
    )
    assert {f"samples/{n}/text_summary" for n in range(1, 6)} <= set(tags["tensors"])
    resumed = ("train", "--resume", "R", "--steps", 6, "--tensorboard")
    text(nmt(*resumed, cwd=tmp_path))
    assert steps(read(tmp_path / "R"), "train/loss") == [1, 2, 3, 4, 5, 6]


def test_without_its_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(NmtError, match="pip install tensorboard"):
        TensorBoard(tmp_path, resumed=False)
