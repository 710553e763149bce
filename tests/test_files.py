"""Text that other programs read, and files that appear whole."""

import json
import math
import os
from pathlib import Path

import pytest

from nmt_cli.errors import WorkFailed
from nmt_cli.files import json_text, make_whole, write_whole


def strictly(text: str):
    def refuse(constant: str):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_becomes_null(value):
    form = {"score": value, "rows": [[1.5, value], (value, "nan")], "none": None}
    assert strictly(json_text(form)) == {
        "score": None, "rows": [[1.5, None], [None, "nan"]], "none": None,
    }  # fmt: skip


def test_what_is_finite_stays_to_the_last_bit():
    form = {"loss": 0.1 + 0.2, "step": 10**18, "text": "Löwe\u2028", "flag": True}
    assert strictly(json_text(form, indent=2)) == form
    assert strictly(json_text(form, ascii_only=True)) == form
    assert json_text(form, ascii_only=True).isascii()


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="has no names for open files")
def test_a_pipe_is_written_through_its_name():
    end, start = os.pipe()
    write_whole(Path(f"/dev/fd/{start}"), "figures")
    os.close(start)
    with open(end) as reader:
        assert reader.read() == "figures"


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    folder, rename = tmp_path / "model", Path.rename

    def fill(text):
        return lambda beside: (beside / "weights").write_text(text)

    def fail(path, target):
        if ".part" in path.name:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    make_whole(folder, fill("old"))
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(WorkFailed, match="No space"):
        make_whole(folder, fill("new"))
    assert (folder / "weights").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="has no names for open files")
def test_a_file_that_is_open_is_gone_on_with(tmp_path):
    with open(tmp_path / "log", "w") as file:
        file.write("kept\n")
        file.flush()
        write_whole(Path(f"/dev/fd/{file.fileno()}"), "figures\n")
    assert (tmp_path / "log").read_text() == "kept\nfigures\n"
