"""How a run replaces another: the old one stands until the new one can be resumed."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import nmt_cli
from nmt_cli.errors import NmtError
from nmt_cli.runs import RunFolder, find_runs

CONFIG = {
    "arch": "lstm", "options": {}, "vocab": {"src": 1, "tgt": 1}, "tokenizer": {},
    "src_lang": "en", "tgt_lang": "de", "data_hash": "", "training": {}, "request": {},
}  # fmt: skip


def write_run(folder, mark):
    folder.write_config({**CONFIG, "mark": mark})
    folder.write_fingerprints([mark])
    folder.append_log({"mark": mark})
    folder.write_weights({"x": torch.tensor(mark)})
    folder.states.save(mark, {"x": torch.tensor(mark)}, {"mark": mark})


def whole_run(path):
    """Give the mark that all parts of a run bear."""
    run = RunFolder(path)
    marks = {
        run.config()["mark"],
        *run.fingerprints().tolist(),
        json.loads(run.log_path.read_text())["mark"],
    }
    tensors, values = run.states.load()
    marks |= {int(tensors["x"]), values["mark"]}
    assert len(marks) == 1
    return marks.pop()


def test_an_evaluation_goes_with_the_weights_that_it_was_about(tmp_path):
    run = RunFolder(tmp_path)
    run.write_config({**CONFIG, "test_bleu": 31.5})
    run.write_evaluation({"systems": []})
    assert (tmp_path / "eval.json").is_file()
    run.forget_evaluation()
    assert RunFolder(tmp_path).config()["test_bleu"] is None
    assert not (tmp_path / "eval.json").exists()


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


@pytest.mark.parametrize(
    "name", ["log.jsonl", "config.json", "model.safetensors", "last", "last/LATEST", "last/step-1",
             "last/step-1/state.json", ".nmt-lock", "eval.json"],
)  # fmt: skip
def test_a_run_is_not_gone_on_with_through_a_link_out_of_it(tmp_path, name):
    write_run(RunFolder(tmp_path / "run"), 1)
    place, victim = tmp_path / "run" / name, tmp_path / "victim"
    if place.exists():
        shutil.move(place, victim)
    else:
        victim.write_text("mine")
    before = sorted((p, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())
    place.symlink_to(victim)
    refused = pytest.raises(NmtError, match=r"is a link, so training here could write elsewhere")
    with refused, RunFolder(tmp_path / "run").held():
        pass
    place.unlink()
    assert sorted((p, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file()) == before


@pytest.mark.parametrize("name", [".nmt-complete", ".nmt-moving", ".nmt-new"])
def test_a_folder_beside_that_is_a_link_is_not_moved_from_or_written_into(tmp_path, name):
    write_run(RunFolder(tmp_path / "run"), 1)
    write_run(RunFolder(tmp_path / "victim"), 2)
    (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    run = RunFolder(tmp_path / "run")
    run.settle()
    with run.held():
        run.write_beside()
        write_run(run, 3)
    assert whole_run(tmp_path / "victim") == 2
    assert whole_run(tmp_path / "run") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors"])
def test_a_named_pipe_is_not_waited_for(tmp_path, trained, name):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(NmtError, match=name):
        nmt_cli.load(tmp_path / "run")


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float8_e4m3fn])
def test_weights_of_a_type_that_none_are_is_refused(tmp_path, trained, dtype):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    save_file({k: v.to(dtype) for k, v in load_file(path).items()}, path)
    with pytest.raises(NmtError, match="which no weights are"):
        nmt_cli.load(tmp_path / "run")


@pytest.mark.parametrize("pairs", [torch.ones(3), torch.tensor(1), torch.ones(2, 2).long()])
def test_fingerprints_of_another_kind_are_refused(tmp_path, pairs):
    write_run(RunFolder(tmp_path), 1)
    save_file({"pairs": pairs}, tmp_path / "training-pairs.safetensors")
    with pytest.raises(NmtError, match="64-bit numbers"):
        RunFolder(tmp_path).fingerprints()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 50_000, "[1" + " " * (17 << 20) + "]"])
def test_json_of_absurd_depth_or_size_is_an_error(tmp_path, text):
    write_run(RunFolder(tmp_path), 1)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(NmtError, match=r"config\.json"):
        RunFolder(tmp_path).config()


def test_the_steps_of_a_run_in_training_are_those_of_its_last_save(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.write_config({**CONFIG, "step": 0})
    assert run.steps() == 0
    run.states.save(500, {"x": torch.tensor(0)}, {})
    assert RunFolder(run.path).steps() == 500
    run.update_config(step=620)
    assert RunFolder(run.path).steps() == 620
    (run.path / "last" / "LATEST").write_text("step-a lot\n")
    assert RunFolder(run.path).steps() == 620
