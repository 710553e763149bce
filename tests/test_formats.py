"""Runs that earlier versions of nmt wrote are read, or refused with what to do."""

import json
import shutil
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.errors import NmtError
from nmt_cli.runs import FORMAT
from tests.conftest import PAIRS, nmt, write_pairs

FORMATS = Path(__file__).parent / "formats"
RUNS = sorted(path for path in FORMATS.iterdir() if path.is_dir())


def test_there_is_a_run_of_every_format():
    assert [path.name for path in RUNS] == [str(n) for n in range(1, FORMAT + 1)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_of_the_format_translates(run):
    found = nmt_cli.load(run).translate([src for src, _ in PAIRS])
    assert sum(t.text == tgt for t, (_, tgt) in zip(found, PAIRS, strict=True)) >= 11


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_of_the_format_can_be_gone_on_with(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    write_pairs(tmp_path)
    done = nmt("train", "--resume", "run", "--steps", 302, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    steps = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in steps if "loss" in record]
    assert len(losses) == 302
    assert max(losses[300:]) < 2 * losses[299]


def test_the_config_of_another_tool_is_not_taken_for_a_run(tmp_path):
    (tmp_path / "config.json").write_text('{"add_source_bos": false}')
    with pytest.raises(NmtError, match="is not of a run of nmt"):
        nmt_cli.load(tmp_path)


@pytest.mark.parametrize("number", [0, FORMAT + 1, "1", None, [1]])
def test_another_format_is_refused_with_what_to_do(number, tmp_path):
    shutil.copytree(RUNS[-1], tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": number}))
    with pytest.raises(NmtError, match=r"format .*, but this nmt .* reads format 1.*train it anew"):
        nmt_cli.load(tmp_path / "run")
