import subprocess
import sys
from pathlib import Path

from nmt_cli import models
from nmt_cli.commands import completing


def test_every_architecture_of_ours_is_proposed():
    assert set(completing.ARCHITECTURES) == {arch.name for arch in models.architectures()}
    assert completing.architectures("min") == ["mingru", "minlstm"]


def make_run(path):
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")


def test_runs_and_folders_are_proposed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(Path("checkpoints/lstm"))
    make_run(Path("checkpoints/lstm-attn"))
    make_run(Path("elsewhere/run"))
    assert completing.run_folders("") == ["checkpoints/lstm", "checkpoints/lstm-attn", "elsewhere/"]
    assert completing.run_folders("checkpoints/lstm-") == ["checkpoints/lstm-attn"]
    assert completing.run_folders("elsewhere/") == ["elsewhere/run"]
    assert completing.run_folders("mine=checkpoints/lstm,else") == [
        "mine=checkpoints/lstm,elsewhere/"
    ]
    assert completing.run_folders("no/such/") == []


def test_corpora_are_names_files_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.tsv").touch()
    Path("tests").mkdir()
    assert completing.corpora("t") == ["toy", "tests/", "text.tsv"]


def test_the_shell_is_answered_without_torch(tmp_path):
    code = (
        "import atexit, sys; from nmt_cli import cli; "
        "atexit.register(lambda: print('torch' in sys.modules)); "
        "cli.app(prog_name='nmt', standalone_mode=False)"
    )
    environment = {
        "_NMT_COMPLETE": "complete_bash",
        "COMP_WORDS": "nmt train --arch lst",
        "COMP_CWORD": "3",
    }
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert found.stdout.decode().split() == ["lstm", "lstm-attn", "False"], found
