"""How a run replaces another: the old one stands until the new one can be resumed."""

import json

import pytest
import torch

from nmt_cli.errors import NmtError
from nmt_cli.runs import RunFolder, find_runs

CONFIG = {
    "arch": "lstm", "options": {}, "vocab": {"src": 1, "tgt": 1}, "tokenizer": {},
    "src_lang": "en", "tgt_lang": "de", "data_hash": "", "request": {},
}  # fmt: skip


def write_run(folder, mark):
    folder.write_config({**CONFIG, "mark": mark})
    folder.write_fingerprints([mark])
    folder.append_log({"mark": mark})
    folder.write_weights({"x": torch.tensor(mark)})
    folder.save_state(mark, {"x": torch.tensor(mark)}, {"mark": mark})


def whole_run(path):
    """Give the mark that all parts of a run bear."""
    run = RunFolder(path)
    marks = {
        run.config()["mark"],
        *run.fingerprints().tolist(),
        json.loads(run.log_path.read_text())["mark"],
    }
    tensors, values = run.load_state()
    marks |= {int(tensors["x"]), values["mark"]}
    assert len(marks) == 1
    return marks.pop()


@pytest.fixture
def replaced(tmp_path):
    """Give a folder with an old run, with an eval.json and a user's file, and a new one beside."""
    path = tmp_path / "run"
    write_run(RunFolder(path), 1)
    (path / "eval.json").write_text("{}")
    (path / "notes.txt").write_text("mine")
    new = RunFolder(path)
    new.write_beside()
    write_run(new, 2)
    return new


def test_the_old_run_stands_until_the_new_one_takes_its_place(replaced):
    path = replaced.path
    assert whole_run(path) == 1
    assert [run.path for run in find_runs(path.parent)] == [path]
    assert [run.path for run in find_runs(path)] == []
    replaced.take_place()
    assert whole_run(path) == 2
    assert sorted(entry.name for entry in path.iterdir()) == [
        "config.json", "last", "log.jsonl", "model.safetensors", "notes.txt",
        "training-pairs.safetensors",
    ]  # fmt: skip
    replaced.append_log({"mark": 3})
    assert len((path / "log.jsonl").read_text().splitlines()) == 2


def test_a_new_run_that_fails_leaves_the_old_one(replaced):
    replaced.discard_beside()
    assert whole_run(replaced.path) == 1
    assert not (replaced.path / ".nmt-new").exists()


@pytest.mark.parametrize("moved", range(6))
def test_a_replacement_cut_short_is_finished(replaced, moved, monkeypatch):
    """The moves upwards are cut after so many, the first being the one that decides."""
    from pathlib import Path

    rename, left = Path.rename, iter(range(moved + 1))

    def cut(self, target):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", cut)
    with pytest.raises(KeyboardInterrupt):
        replaced.take_place()
    monkeypatch.setattr(Path, "rename", rename)
    RunFolder(replaced.path).settle()
    assert whole_run(replaced.path) == 2
    assert not (replaced.path / "eval.json").exists()


def test_a_part_of_a_run_is_not_written_over(tmp_path):
    """A sentencepiece model of the user's own, in the folder that was named, is theirs."""
    assert not RunFolder(tmp_path).exists()
    (tmp_path / "tokenizer.model").write_text("mine")
    with pytest.raises(NmtError, match=r"tokenizer\.model: would be written over"):
        RunFolder(tmp_path).exists()


def test_a_model_of_another_tool_is_not_written_over(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["MarianMTModel"]}')
    with pytest.raises(NmtError, match=r"config\.json: would be written over"):
        RunFolder(tmp_path).exists()


@pytest.mark.parametrize("name", [".nmt-complete", ".nmt-new"])
def test_a_folder_that_only_bears_the_name_replaces_nothing(tmp_path, name):
    write_run(RunFolder(tmp_path), 1)
    (tmp_path / name).mkdir()
    RunFolder(tmp_path).settle()
    assert whole_run(tmp_path) == 1


def test_a_reader_of_a_half_replaced_run_is_told_what_finishes_it(replaced):
    (replaced.path / ".nmt-new").rename(replaced.path / ".nmt-complete")
    (replaced.path / "config.json").unlink()
    with pytest.raises(NmtError, match=r"nmt train --resume .* finishes it"):
        RunFolder(replaced.path).config()
