"""Pairs that are too many to hold: kept in a file that has no name, and read by memory map."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.pairs import Pair
from nmt_cli.errors import NmtError, WorkFailed

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 8192
"""Pairs of a file that are read at once."""

Places = NDArray[np.int64]
"""Indices of pairs, ascending."""


@dataclass(frozen=True)
class Spool:
    """Where pairs are kept while they are worked on.

    Args:
        folder: of the file that takes what is not held in memory.
        most_held: pairs of one corpus that are held in memory.
    """

    folder: Path
    most_held: int

    def collect(self, pairs: Iterable[Pair]) -> Sequence[Pair]:
        """Read all pairs: to a list, or past ``most_held`` to a file that goes with its reader.

        Raises:
            NmtError: if the folder cannot be made.
            WorkFailed: if the file cannot be written.
        """
        stream = iter(pairs)
        held = list(islice(stream, self.most_held + 1))
        if len(held) <= self.most_held:
            return held
        make_folder(self.folder)
        stream = chain(held, stream)
        del held  # it goes as soon as the stream is past it
        try:
            return _spooled(self.folder, stream)
        except OSError as error:
            reason = error.strerror or error
            raise WorkFailed(
                f"{self.folder}: the corpus cannot be written: {reason}; give another folder by "
                "--cache"
            ) from None


class SpooledPairs(Sequence[Pair]):
    """Pairs in an Arrow file, or some of them."""

    def __init__(self, table: pa.Table, places: Places | None = None) -> None:
        self._table = table
        self._batches = table.to_batches()
        self._places = places

    def __len__(self) -> int:
        return self._table.num_rows if self._places is None else len(self._places)

    @overload
    def __getitem__(self, place: int) -> Pair: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Pair]: ...

    def __getitem__(self, place: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        chunk, row = divmod(at if self._places is None else int(self._places[at]), CHUNK)
        return Pair(*(_text(column[row].as_py()) for column in self._batches[chunk].columns))

    def __iter__(self) -> Iterator[Pair]:
        for number, batch in enumerate(self._batches):
            if self._places is not None:
                begin, end = np.searchsorted(self._places, [number * CHUNK, (number + 1) * CHUNK])
                batch = batch.take(self._places[begin:end] - number * CHUNK)
            sides = (map(_text, column.to_pylist()) for column in batch.columns)
            yield from map(Pair, *sides)

    def select(self, places: Places) -> SpooledPairs:
        """Give a view of some of the pairs."""
        return SpooledPairs(self._table, places if self._places is None else self._places[places])


def select(pairs: Sequence[Pair], places: Places) -> Sequence[Pair]:
    """Give the pairs at ascending places, in the form that they have."""
    if len(places) == len(pairs):
        return pairs
    if isinstance(pairs, SpooledPairs):
        return pairs.select(places)
    return [pairs[i] for i in places]


def make_folder(folder: Path) -> None:
    """Make a folder for files that are kept between runs, unless it is there.

    Raises:
        NmtError: if that cannot be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NmtError(
            f"--cache {folder}: cannot be made: {error.strerror or error}; give another folder"
        ) from None


def _spooled(folder: Path, pairs: Iterator[Pair]) -> SpooledPairs:
    import pyarrow as pa

    # bytes, as text may hold half a surrogate pair, which Arrow's strings cannot
    schema = pa.schema([("src", pa.binary()), ("tgt", pa.binary())])
    # without a name, where the system can do that, so that nothing stays however this ends
    with tempfile.TemporaryFile(dir=folder, prefix="reading-") as file:
        with pa.ipc.new_stream(file, schema) as writer:
            while some := list(islice(pairs, CHUNK)):
                writer.write(_batch(some, schema))
        file.flush()
        return SpooledPairs(mapped(file.fileno()))


def mapped(file: int) -> pa.Table:
    """Read an Arrow stream from an open file by memory map; what stands behind it is let be.

    Raises:
        OSError: if it is none, or is cut off.
        ValueError: if it is empty.
    """
    import pyarrow as pa

    pages = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_stream(pa.py_buffer(pages)).read_all()


def _batch(pairs: list[Pair], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    sides = [[_bytes(pair.src) for pair in pairs], [_bytes(pair.tgt) for pair in pairs]]
    columns = [pa.array(side, pa.binary()) for side in sides]
    return pa.record_batch(columns, schema=schema)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
