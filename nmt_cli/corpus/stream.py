"""Lines to translate, in groups: large ones from a file, prompt ones from a pipe."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from nmt_cli.corpus.lines import EncodingErrors, decode_lines, read_lines
from nmt_cli.errors import NmtError

_FIRST_GROUP, _FILE_GROUP = 250, 4000
"""Lines of a file that are sorted by length and translated together."""
_FIRST_PIPE_GROUP, _PIPE_GROUP = 64, 1024
_PATIENCE_S = 0.05
"""How long the first line of a group from a pipe waits for company."""


def groups_of_files(files: Sequence[Path], errors: EncodingErrors) -> Iterator[list[str]]:
    """Yield the lines of files, one file after the other."""
    for path in files:
        yield from _growing(read_lines(path, errors))


def groups_of_stdin(errors: EncodingErrors, most: int | None) -> Iterator[list[str]]:
    """Yield the lines of stdin, at most so many at once, as they come unless it is a file."""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        yield from _growing(decode_lines(sys.stdin.buffer, "stdin", errors))
    else:
        yield from _decoded(_prompt(most or _PIPE_GROUP), errors)


def _growing(lines: Iterator[str]) -> Iterator[list[str]]:
    """Group the lines of a file: a few at first, so that something is seen, then ever more."""
    count = _FIRST_GROUP
    while group := list(islice(lines, count)):
        yield group
        count = min(4 * count, _FILE_GROUP)


def _prompt(most: int) -> Iterator[list[bytes]]:
    """Read stdin on a thread; a group ends when it is full or a moment has passed.

    A writer that fills a group is a fast one, and the next group may be larger.
    """
    waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=_PIPE_GROUP)
    faults: list[OSError] = []
    most = min(most, _PIPE_GROUP)
    size = min(most, _FIRST_PIPE_GROUP)

    def read() -> None:
        # not by sys.stdin, whose lock the interpreter wants when it ends, be it amid a reading
        try:
            with open(sys.stdin.fileno(), "rb", closefd=False) as stdin:
                for line in stdin:
                    waiting.put(line)
        except OSError as error:
            faults.append(error)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    line = waiting.get()
    while line is not None:
        group, deadline = [line], time.monotonic() + _PATIENCE_S
        try:
            while len(group) < size:
                line = waiting.get(timeout=max(0.0, deadline - time.monotonic()))
                if line is None:
                    break
                group.append(line)
            else:
                size = min(4 * size, most)
        except queue.Empty:
            pass
        yield group
        if line is not None:
            line = waiting.get()
    if faults:
        raise NmtError(f"stdin: cannot be read: {faults[0].strerror}")


def _decoded(groups: Iterator[list[bytes]], errors: EncodingErrors) -> Iterator[list[str]]:
    held: list[list[bytes]] = []

    def all_lines() -> Iterator[bytes]:
        for group in groups:
            held.append(group)
            yield from group

    decoded = decode_lines(all_lines(), "stdin", errors)
    for line in decoded:
        size = len(held.pop())
        yield [line, *(next(decoded) for _ in range(size - 1))]
