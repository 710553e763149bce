"""Lines of a file, by one rule for every reader.

A line ends at a line feed and nowhere else; one carriage return before it is dropped, and so is
a byte order mark at the start of the file. Text is UTF-8. Compression is told by the suffix.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

from nmt_cli.errors import NmtError

EncodingErrors = Literal["strict", "replace"]

_CHUNK = 1 << 16
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def _open_zst(path: Path, mode: str) -> IO[bytes]:
    import pyarrow

    stream = pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")
    return cast(IO[bytes], io.BufferedReader(stream))


class _Streams(io.RawIOBase):
    """Streams of bz2 or xz one after the other, with nothing but zeros between and after them.

    The standard library takes a damaged one, from the second on, for the end of the file.
    """

    def __init__(self, path: Path, make: Callable[[], Any]) -> None:
        self._file = path.open("rb")
        self._make = make
        self._stream = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._stream.eof:
                given = self._stream.unused_data.lstrip(b"\0")
                while not given:
                    if not (chunk := self._file.read(_CHUNK)):
                        return 0
                    given = chunk.lstrip(b"\0")
                self._stream = self._make()
            else:
                given = self._file.read(_CHUNK) if self._stream.needs_input else b""
                if self._stream.needs_input and not given:
                    raise EOFError("it ends amid a stream")
            data = self._stream.decompress(given, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_bz2(path: Path, mode: str) -> IO[bytes]:
    return io.BufferedReader(_Streams(path, bz2.BZ2Decompressor))


def _open_xz(path: Path, mode: str) -> IO[bytes]:
    return io.BufferedReader(_Streams(path, lzma.LZMADecompressor))


OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": _open_bz2,
    ".xz": _open_xz,
    ".zst": _open_zst,
}
"""How a compressed file is opened, by suffix; several members one after the other are one."""


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read, decompressed by its suffix.

    Raises:
        NmtError: if it cannot be opened, or is found to be cut off or corrupt while it is read.
    """
    kind = path.suffix.lower()
    try:
        if kind in OPENERS and path.is_file() and path.stat().st_size == 0:
            raise EOFError("it has no bytes at all")
        with OPENERS.get(kind, open)(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if kind in OPENERS and error.errno is None:
            raise _damaged(path, error) from None
        raise NmtError(f"{path}: {error.strerror or error}") from None


def _damaged(path: Path, error: Exception) -> NmtError:
    kind = path.suffix.lower().lstrip(".")
    name = "gzip" if kind == "gz" else kind
    return NmtError(f"{path}: truncated/corrupt {name} file ({error}); fetch or make it again")


def read_lines(path: Path, errors: EncodingErrors = "strict") -> Iterator[str]:
    """Yield the lines of a text file, decompressed by its suffix.

    Raises:
        NmtError: if it cannot be opened, is cut off or corrupt, or a line is not UTF-8.
    """
    with open_bytes(path) as file:
        yield from decode_lines(file, str(path), errors)


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
            if line.startswith(_UTF_16):
                raise NmtError(
                    f"{name}: is UTF-16; convert it, such as by iconv -f UTF-16 -t UTF-8"
                )
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
