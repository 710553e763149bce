"""What trackers are given: TensorBoard's read back by its own reader, the others' by stand-ins."""

import json
import sys
import textwrap

import pytest

from nmt_cli.errors import NmtError
from nmt_cli.experiment import Prepared
from nmt_cli.tracking import TRACKERS, TensorBoard, Tracker
from nmt_cli.validation import Sampled
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


def test_a_resumed_run_that_is_only_tested_goes_on_at_its_step():
    steps = []

    class Spy:
        def begin(self, step):
            steps.append(step)

        def text(self, name, markdown, step):
            steps.append(step)

    tracker = Tracker(Spy())
    tracker.take(Prepared(40, 10, 40))
    tracker.take(Sampled(1, "a", "b", "c", None))
    assert steps == [40, 40]


def test_without_its_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(NmtError, match="pip install tensorboard"):
        TensorBoard(tmp_path, resumed=False)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_without_its_package_says_what_to_install(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NmtError, match=f"--tracker {name}.*pip install {name}"):
        TRACKERS[name](tmp_path, {}, False)


STAND_IN = """
    import json, types

    class Image:
        def __init__(self, pixels):
            self.size = pixels.size

    Html = Markdown = str

    def note(what, *given):
        with open("calls", "a") as calls:
            calls.write(json.dumps([what, *given], default=lambda x: list(x.size)) + "\\n")

    def init(**given):
        note("init", given)

    def log(values, step):
        note("log", values, step)

    def finish():
        note("finish")

    def set_experiment(name):
        note("set_experiment", name)

    def start_run(run_id=None, run_name=None):
        note("start_run", run_id, run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="number 1"))

    def log_params(values):
        note("log_params", values)

    def log_metrics(values, step):
        note("log_metrics", values, step)

    def log_text(text, name):
        note("log_text", name)

    def log_image(image, name):
        note("log_image", name, image)

    def end_run():
        note("end_run")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wandb", "mlflow"])  # trackio has wandb's functions
def test_a_tracker_hears_of_all_and_knows_a_resumed_run_again(tmp_path, monkeypatch, name):
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_pairs(tmp_path)
    options = ("--size", "tiny", "--steps", 2, "--validate-every", 2, "-o", "R", "--tracker", name)
    text(nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", *options, cwd=tmp_path))
    text(nmt("train", "--resume", "R", "--steps", 4, "--tracker", name, cwd=tmp_path))
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    log = "log_metrics" if name == "mlflow" else "log"
    losses = [call[2] for call in calls if call[0] == log and "train/loss" in call[1]]
    assert losses == [1, 2, 3, 4]
    assert [call[2] for call in calls if call[0] == log and "test/bleu" in call[1]] == [2, 4]
    if name == "mlflow":
        begun = [call[1:] for call in calls if call[0] == "start_run"]
        assert begun == [[None, "R"], ["number 1", None]]
        assert [call[1]["steps"] for call in calls if call[0] == "log_params"] == ["2"]
        pictures = [call[1] for call in calls if call[0] == "log_image"]
        assert "test/bleu-by-source-length/step-0000004.png" in pictures
    else:
        first, second = (call[1] for call in calls if call[0] == "init")
        assert first["config"]["steps"] == 2
        assert first["name"] == "R"
        assert first.get("id") == second.get("id")
        assert ("id" in first) == (name == "wandb")
        shown = {key for call in calls if call[0] == "log" for key in call[1]}
        assert {"samples/1", "attention/1", "test/bleu by source length"} <= shown
    assert calls[-1][0] in {"finish", "end_run"}
