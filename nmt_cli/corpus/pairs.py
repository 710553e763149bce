"""The values that readers give: pairs, lists of them, corpora of named parts."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt_cli.corpus.lines import EncodingErrors
from nmt_cli.errors import NmtError

MOST_MADE = 10_000_000
"""Pairs that a corpus which is made, not read, may be asked for."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    src: str
    tgt: str

    def fingerprint(self) -> int:
        """Hash the pair to a signed 64-bit number, the same on every machine."""
        return stable_hash(f"{self.src}\n{self.tgt}")

    def normal(self) -> Pair:
        """Give the pair as most models read it: in Unicode's form NFC, with single spaces."""
        return Pair(*(unicodedata.normalize("NFC", " ".join(side.split())) for side in self))


Collect = Callable[[Iterable[Pair]], Sequence[Pair]]
"""What takes pairs as they are read and keeps them, such as ``list``."""


class PairList(NamedTuple):
    """Pairs of one file or split, and the languages they turned out to be in."""

    name: str
    src_lang: str
    tgt_lang: str
    pairs: Sequence[Pair]
    notes: tuple[str, ...] = ()
    """What was left out in reading, in words."""


@dataclass
class PairStream:
    """Pairs as they are read, and the languages they turned out to be in."""

    name: str
    src_lang: str
    tgt_lang: str
    pairs: Iterator[Pair]
    notes: list[str] = field(default_factory=list)
    """What was left out, in words; complete when all pairs are read."""

    def read(self, collect: Collect = list) -> PairList:
        """Read all of them, into what ``collect`` makes."""
        pairs = collect(self.pairs)
        return PairList(self.name, self.src_lang, self.tgt_lang, pairs, tuple(self.notes))


@dataclass(frozen=True)
class Request:
    """What the user said about a corpus beside its SPEC."""

    src_lang: str | None = None
    tgt_lang: str | None = None
    columns: tuple[str, str] | None = None
    errors: EncodingErrors = "strict"
    columns_of_another: bool = False
    """Whether the columns were meant for another part of the corpus; one that has none is fine."""

    def refuse_columns(self, name: str) -> None:
        """Refuse ``--columns`` for what has none.

        Raises:
            NmtError: if columns were given.
        """
        if self.columns is not None and not self.columns_of_another:
            raise NmtError(f"{name}: has no columns to choose by --columns")

    def languages(
        self, name: str, src: str | None = None, tgt: str | None = None
    ) -> tuple[str, str]:
        """Fill in what the user left out by what the data tells.

        Raises:
            NmtError: if neither tells.
        """
        src, tgt = self.src_lang or src, self.tgt_lang or tgt
        if src is None or tgt is None:
            raise NmtError(
                f"{name}: its languages are not known; give --src-lang and --tgt-lang, "
                "such as -s en -t de"
            )
        if src == tgt:
            raise NmtError(
                f"{name}: source and target are both {src!r}; give two languages, such as "
                "-s en -t de"
            )
        return src, tgt


class Corpus(NamedTuple):
    """A corpus by parts, opened when asked for: split names, or one part called ``""``."""

    name: str
    parts: Mapping[str, Callable[[], PairStream]]

    def read(self, part: str, collect: Collect = list) -> PairList:
        """Read all of a part, into what ``collect`` makes."""
        return self.parts[part]().read(collect)

    def named(self, kind: tuple[str, ...]) -> list[str]:
        """List the parts whose name begins with one of the given words, those of it alone first."""
        names = [name for name in self.parts if name and name.startswith(kind)]
        return sorted(names, key=lambda name: name not in kind)


def counted(
    pairs: Iterable[Pair], on_done: Callable[[int], None] | None, every: int = 1000
) -> Iterator[Pair]:
    """Pass pairs on, and tell how many more went by, so many at once."""
    done = 0
    for pair in pairs:
        yield pair
        done += 1
        if on_done and done == every:
            on_done(done)
            done = 0
    if on_done and done:
        on_done(done)


def stable_hash(text: str) -> int:
    """Hash text to a signed 64-bit number, the same on every machine and Python."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
