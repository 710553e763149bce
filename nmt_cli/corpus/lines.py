"""Lines of a file, by one rule for every reader.

A line ends at a line feed and nowhere else; one carriage return before it is dropped, and so is
a byte order mark at the start of the file. Text is UTF-8. Compression is told by the suffix.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

from nmt_cli.errors import NmtError

EncodingErrors = Literal["strict", "replace"]

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path, errors: EncodingErrors = "strict") -> Iterator[str]:
    """Yield the lines of a text file, decompressed by its suffix.

    Raises:
        NmtError: if it cannot be opened, is cut off or corrupt, or a line is not UTF-8.
    """
    opener = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            yield from decode_lines(_checked(file, path), str(path), errors)
    except OSError as error:
        raise NmtError(f"{path}: {error.strerror or error}") from None


def require_readable(path: Path) -> None:
    """Refuse what is not there or is a folder; a pipe such as ``<(zcat a.gz)`` is a file too.

    Raises:
        NmtError: naming the path.
    """
    if path.is_dir():
        raise NmtError(f"{path}: is a folder, not a file")
    if not path.exists():
        raise NmtError(f"{path}: no such file")


def decode_lines(lines: Iterable[bytes], name: str, errors: EncodingErrors) -> Iterator[str]:
    r"""Turn raw lines, each up to and with its ``\n``, into text.

    Args:
        lines: raw lines.
        name: what the error message calls the file.
        errors: ``strict`` raises at a bad byte, ``replace`` puts U+FFFD there.

    Raises:
        NmtError: naming file and line of a byte that is not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise NmtError(
                f"{name}:{number}: byte 0x{line[error.start]:02x} at position {error.start + 1} "
                "is not UTF-8; convert the file, or use --encoding-errors replace"
            ) from None


def is_blank(line: str) -> bool:
    """Tell whether a line is empty or only white space."""
    return not line or line.isspace()


def _checked(file: IO[bytes], path: Path) -> Iterator[bytes]:
    kind = path.suffix.lower().lstrip(".")
    try:
        yield from file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        name = "gzip" if kind == "gz" else kind
        raise NmtError(
            f"{path}: truncated/corrupt {name} file ({error}); fetch or make it again"
        ) from None
