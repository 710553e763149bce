"""Translation memories: TMX 1.4b (LISA 2005), read as a stream.

Text between inline tags is kept, markup inside them (``bpt``, ``ept``, ``ph``, ``it``, ``ut``) is
not; ``hi`` only marks text. No DTD is fetched and no entity may be declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from nmt_cli.corpus.columns import find_language, one_line, skipped_note
from nmt_cli.corpus.lines import open_bytes
from nmt_cli.corpus.pairs import Pair, PairStream, Request
from nmt_cli.errors import NmtError

_MARKUP = {"bpt", "ept", "ph", "it", "ut"}
_CHUNK = 1 << 16

Unit = dict[str, str]
"""Texts of one ``tu`` by language code, the first of each."""


def read_tmx(path: Path, request: Request) -> PairStream:
    """Read the units that have both languages; codes are compared by their beginning.

    Raises:
        NmtError: for XML that is damaged or declares entities, or languages that are not there.
    """
    request.refuse_columns(str(path))
    units = read_units(path)
    first = next(units, None)
    if first is not None and (request.src_lang is None or request.tgt_lang is None):
        raise NmtError(
            f"{path}: has the languages {', '.join(sorted(first))}; say which is translated "
            "into which, such as -s en -t de"
        )
    languages = request.languages(str(path))
    notes: list[str] = []

    def pairs() -> Iterator[Pair]:
        read, kept, seen = 0, 0, dict[str, None]()
        for unit in chain([] if first is None else [first], units):
            read += 1
            seen.update(dict.fromkeys(unit))
            sides = [find_language(unit, language) for language in languages]
            texts = [unit[code] for code in sides if code is not None and unit[code]]
            if len(texts) == len(sides):
                kept += 1
                yield Pair(*texts)
        if read and not kept:
            raise NmtError(
                f"{path}: no unit has both {languages[0]!r} and {languages[1]!r}; its languages "
                f"are: {', '.join(sorted(seen))}"
            )
        notes.extend(skipped_note(str(path), read - kept))

    return PairStream(str(path), *languages, pairs(), notes)


def read_units(path: Path) -> Iterator[Unit]:
    """Yield each ``tu`` as soon as it is read."""
    parser = expat.ParserCreate()
    reader = _Reader(path)
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.refuse_entity
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK):
                parser.Parse(chunk, False)
                yield from reader.take()
        parser.Parse(b"", True)
        yield from reader.take()
    except LookupError as error:
        raise NmtError(f"{path}:1: declares an {error}") from None
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise NmtError(f"{path}:{error.lineno}: is not well-formed XML: {reason}") from None


class _Reader:
    """What has been read of the unit at hand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = False
        self._units: list[Unit] = []
        self._unit: Unit = {}
        self._language = ""
        self._parts: list[str] | None = None
        """Text of the ``seg`` at hand; None outside."""
        self._markup = 0
        """How many tags around here hold markup."""

    def take(self) -> list[Unit]:
        units, self._units = self._units, []
        return units

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._began and tag != "tmx":
            raise NmtError(f"{self._path}: is no TMX: it begins with <{tag}>, not with <tmx>")
        self._began = True
        if tag == "tu":
            self._unit = {}
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang", "")
        elif tag == "seg":
            self._parts = []
        elif tag in _MARKUP:
            self._markup += 1

    def end(self, tag: str) -> None:
        if tag == "tu":
            self._units.append(self._unit)
        elif tag == "seg" and self._parts is not None:
            self._unit.setdefault(self._language, one_line("".join(self._parts)).strip())
            self._parts = None
        elif tag in _MARKUP:
            self._markup -= 1

    def text(self, text: str) -> None:
        if self._parts is not None and not self._markup:
            self._parts.append(text)

    def refuse_entity(self, name: str, *declaration: object) -> NoReturn:
        raise NmtError(
            f"{self._path}: declares the entity {name!r}; TMX needs none, and an entity can be "
            "made to fill the memory or read other files, so it is refused"
        )
