"""Files that appear whole or not at all: written beside, flushed to disk, then renamed."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt_cli.errors import NmtError, WorkFailed


def json_text(value: Any, indent: int | None = None, ascii_only: bool = False) -> str:
    """Write a value as JSON that any program reads: a number that is not finite becomes null."""
    encode = json.JSONEncoder(ensure_ascii=ascii_only, indent=indent, allow_nan=False).encode
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file or leave the old one untouched.

    Raises:
        WorkFailed: if it cannot be written; nothing half-written stays.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data

    def write(beside: Path) -> None:
        beside.write_bytes(raw)

    replace_whole(path, write)


def replace_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path`` (of the same suffix), then put it in place.

    Raises:
        WorkFailed: if writing fails; nothing half-written stays.
    """
    stream = _open_stream(path)
    if stream is not None:
        _guarded(path, lambda: _write_to(stream, write))
        return
    if path.exists() and not path.is_file():  # /dev/null, a named pipe
        _guarded(path, lambda: write(path))
        return
    path = Path(os.path.realpath(path))  # write through a link, not over it
    mark = f"{os.getpid()}{secrets.randbelow(10**6):06}"  # two containers may have the same number
    beside = path.with_name(f".{path.stem}.{mark}.part{path.suffix}")
    try:
        _guarded(path, lambda: _write_and_flush(beside, path, write))
    finally:
        beside.unlink(missing_ok=True)


def _open_stream(path: Path) -> int | None:
    """Give the number of a file that is open already, if that is what a path names."""
    named = {"/dev/stdout": 1, "/dev/stderr": 2}.get(str(path))
    if named is None and str(path.parent) in {"/dev/fd", "/proc/self/fd"} and path.name.isdecimal():
        return int(path.name)
    return named


def _write_to(stream: int, write: Callable[[Path], None]) -> None:
    """Write where a file that is open already stands, not over what is before."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        write(whole)
        with open(stream, "ab", closefd=False) as file:
            file.write(whole.read_bytes())


def _write_and_flush(beside: Path, path: Path, write: Callable[[Path], None]) -> None:
    write(beside)
    flush(beside)
    beside.replace(path)
    flush(path.parent)


def make_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill an empty folder beside ``folder``, then put it in place.

    A folder that is there is replaced.

    Raises:
        WorkFailed: if writing fails; then the old folder stays as it was.
    """
    folder = Path(os.path.realpath(folder))
    beside, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{n}") for n in ("part", "old"))

    def make() -> None:
        beside.mkdir()
        write(beside)
        for path in (*beside.iterdir(), beside):
            flush(path)
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
        flush(folder.parent)

    try:
        _guarded(folder, make)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for path in (beside, old):
            shutil.rmtree(path, ignore_errors=True)


def require_folder(path: Path) -> None:
    """Refuse a file name in a folder that is not there, before the work is done for it.

    Raises:
        NmtError: naming the folder.
    """
    if not path.absolute().parent.is_dir():
        raise NmtError(f"{path}: the folder {path.parent} does not exist; make it first")


def flush(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _guarded(path: Path, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be written: {error.strerror or error}") from None
