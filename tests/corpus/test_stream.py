"""Groups of lines from files and from pipes."""

import io
import os
import sys
import threading
import time
from itertools import chain

import pytest

from nmt_cli.corpus.stream import groups_of_files, groups_of_stdin
from nmt_cli.errors import NmtError


@pytest.fixture
def writer(monkeypatch):
    """Put a pipe in the place of stdin and give the end to write to."""
    end, start = os.pipe()
    with open(end, "rb") as reader, open(start, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reader))
        yield writer


def test_files_come_in_order_and_in_growing_groups(tmp_path):
    lines = [f"line {n}" for n in range(1000)]
    for name, part in (("a.txt", lines[:700]), ("b.txt", lines[700:])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in part))
    groups = list(groups_of_files([tmp_path / "a.txt", tmp_path / "b.txt"], "strict"))
    assert list(chain(*groups)) == lines
    assert len(groups[0]) < len(groups[1])


def test_a_file_as_stdin_is_read_as_a_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert list(groups_of_stdin("strict", None)) == [["one", "two"]]


def test_a_line_from_a_pipe_comes_before_the_next_is_written(writer):
    groups = groups_of_stdin("strict", None)
    for text in ("one", "two", ""):
        writer.write(f"{text}\n".encode())
        assert next(groups) == [text]
    writer.write(b"last without an end")
    writer.close()
    assert next(groups) == ["last without an end"]
    assert list(groups) == []


def test_a_line_waits_only_a_moment_for_company_that_drips_in(writer):
    def drip():
        for _ in range(30):
            writer.write(b"word\n")
            time.sleep(0.02)
        writer.close()

    thread = threading.Thread(target=drip)
    thread.start()
    groups = list(groups_of_stdin("strict", None))
    thread.join()
    assert sum(map(len, groups)) == 30
    assert len(groups) > 3


@pytest.mark.parametrize("most", [None, 3])
def test_a_fast_writer_gets_larger_groups_up_to_a_limit(writer, most):
    count = 4000
    thread = threading.Thread(
        target=lambda: (writer.write(b"".join(b"%d\n" % n for n in range(count))), writer.close())
    )
    thread.start()
    groups = list(groups_of_stdin("strict", most))
    thread.join()
    assert list(chain(*groups)) == [str(n) for n in range(count)]
    assert max(map(len, groups)) <= (most or 1024)
    assert most or max(map(len, groups)) > 64


def test_a_bad_byte_in_a_pipe_is_named_by_its_line(writer):
    writer.write(b"fine\nca\xe9\n")
    writer.close()
    with pytest.raises(NmtError, match="stdin:2"):
        list(groups_of_stdin("strict", None))


def test_a_stdin_that_cannot_be_read_is_said(monkeypatch):
    with open(os.devnull, "wb") as unreadable:  # what nohup gives
        monkeypatch.setattr(sys, "stdin", unreadable)
        with pytest.raises(NmtError, match="stdin: cannot be read"):
            list(groups_of_stdin("strict", None))
