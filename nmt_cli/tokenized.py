"""The training pairs as ids: in memory, or in an Arrow file that later runs use again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.batches import IdPair, Lengths, with_ends
from nmt_cli.corpus.pairs import Pair, counted
from nmt_cli.corpus.spool import CHUNK, Places, make_folder, mapped
from nmt_cli.files import replace_whole
from nmt_cli.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = b"nmt-ids-1"
_HASH_SIZE = 16
_FORGOTTEN_S = 3600.0
"""A file that is being written changes more often."""
_ENDS = (1, 2)
"""Ids that ``with_ends`` adds to the source and to the target."""


class Tokenizers(NamedTuple):
    """Those of both sides; one, if they share it."""

    src: Tokenizer
    tgt: Tokenizer

    def ids(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]]]:
        """Encode both sides, without control ids."""
        src = self.src.encode_all(pair.src for pair in pairs)
        return src, self.tgt.encode_all(pair.tgt for pair in pairs)

    def encode(self, pairs: Sequence[Pair]) -> list[IdPair]:
        """Encode both sides, with control ids."""
        return [with_ends(*sides) for sides in zip(*self.ids(pairs), strict=True)]


class StoredIds:
    """Pairs of ids in an Arrow file, read by memory map, or some of them.

    Its columns ``src`` and ``tgt`` are lists of ids without control ids, a batch of rows each
    ``CHUNK`` pairs but the last; ``datasets.Dataset.from_file`` reads it, too. Behind the Arrow
    stream stands a hash of it.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not as it was written.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if _hash(file, path.stat().st_size - _HASH_SIZE) != file.read():
                raise ValueError(f"{path}: is damaged")
            table = mapped(file.fileno())
        self._sides = [_flat(table.column(name)) for name in ("src", "tgt")]
        lengths = [np.concatenate([np.diff(begins) for begins, _ in side]) for side in self._sides]
        self.lengths: Lengths = np.stack(lengths, axis=1) + np.array(_ENDS, np.int32)
        self._places: Places | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: int) -> IdPair:
        chunk, row = divmod(place if self._places is None else int(self._places[place]), CHUNK)
        sides = []
        for side in self._sides:
            begins, ids = side[chunk]
            sides.append(ids[begins[row] : begins[row + 1]].tolist())
        return with_ends(*sides)

    def keep(self, places: Places) -> None:
        """Leave out all pairs but those at ascending places."""
        self._places = places
        self.lengths = self.lengths[places]


def store(
    folder: Path,
    pairs: Sequence[Pair],
    digest: str,
    tokenizers: Tokenizers,
    on_done: Callable[[int], None] | None = None,
) -> tuple[StoredIds, Path, bool]:
    """Encode pairs to a file in a folder, or find the one that an earlier run left there.

    Args:
        folder: made if it is not there.
        pairs: what is encoded.
        digest: of the pairs.
        tokenizers: of both sides.
        on_done: called with the number of pairs just encoded.

    Returns:
        the ids, the file, and whether it was there.

    Raises:
        NmtError: if the folder cannot be made.
        WorkFailed: if the file cannot be written.
    """
    make_folder(folder)
    key = hashlib.blake2b(_FORMAT, digest_size=12)
    for part in (digest.encode(), *(_identity(tokenizer) for tokenizer in tokenizers)):
        key.update(len(part).to_bytes(8, "little") + part)
    path = folder / f"ids-{key.hexdigest()}.arrow"
    _sweep(folder)
    found = _opened(path)
    if found is not None:
        return found, path, True
    replace_whole(path, lambda beside: _write(beside, counted(pairs, on_done), tokenizers))
    return StoredIds(path), path, False


def _opened(path: Path) -> StoredIds | None:
    """Read the file of an earlier run; none if it is not there or not as it was written."""
    if not path.is_file():
        return None
    try:
        return StoredIds(path)
    except (OSError, ValueError):
        return None


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left half-written."""
    for path in folder.glob(".ids-*.part.arrow"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN_S:
                path.unlink()


def _identity(tokenizer: Tokenizer) -> bytes:
    return repr(tokenizer.rule).encode() + tokenizer.model


def _write(path: Path, pairs: Iterator[Pair], tokenizers: Tokenizers) -> None:
    import pyarrow as pa

    schema = pa.schema([(name, pa.list_(pa.int32())) for name in ("src", "tgt")])
    with path.open("w+b") as file:
        with pa.ipc.new_stream(file, schema) as writer:
            while some := list(islice(pairs, CHUNK)):
                columns = [pa.array(side, pa.list_(pa.int32())) for side in tokenizers.ids(some)]
                writer.write(pa.record_batch(columns, schema=schema))
        file.seek(0)
        file.write(_hash(file, path.stat().st_size))


def _hash(file: BinaryIO, size: int) -> bytes:
    """Hash so many bytes of a file from where it stands, and leave it behind them."""
    digest = hashlib.blake2b(digest_size=_HASH_SIZE)
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest.digest()


def _flat(column: pa.ChunkedArray) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Give where each list of a chunk begins, one place more for the end, and all its ids."""
    return [
        (chunk.offsets.to_numpy(), chunk.values.to_numpy(zero_copy_only=False))
        for chunk in column.chunks
    ]
