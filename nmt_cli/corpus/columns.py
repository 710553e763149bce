"""Which columns of a table are source and target.

A row maps names to values. Columns are found by what the user said, in a ``translation`` column
that maps languages to texts, by language code, or by a common name; when in doubt an error asks,
showing the columns and the first row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from nmt_cli.corpus.pairs import Pair, PairStream, Request
from nmt_cli.errors import NmtError

Row = Mapping[str, Any]
_NESTED = "translation"
_COMMON = (("src", "tgt"), ("source", "target"), ("src_text", "tgt_text"), ("input", "output"))
COMMON_NAMES = frozenset(chain.from_iterable(_COMMON))
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*", re.IGNORECASE)
_BREAK = re.compile(r"[^\S\n]*\r?\n\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 40


class Columns(NamedTuple):
    """Where a row keeps its two texts."""

    src: Callable[[Row], Any]
    tgt: Callable[[Row], Any]
    src_lang: str
    tgt_lang: str


def read_rows(name: str, rows: Iterable[tuple[str, Row]], request: Request) -> PairStream:
    """Make pairs of rows as they come.

    Args:
        name: of the table.
        rows: the place of each, for messages, and its values.
        request: languages and columns.

    Raises:
        NmtError: if the columns cannot be told, or a value is no text.
    """
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return PairStream(name, *request.languages(name), iter(()))
    columns = choose_columns(name, first[1], request)
    notes: list[str] = []

    def pairs() -> Iterator[Pair]:
        skipped = 0
        for place, row in chain([first], iterator):
            src, tgt = (_text(place, get(row)) for get in (columns.src, columns.tgt))
            if src is None or tgt is None:
                skipped += 1
            else:
                yield Pair(src, tgt)
        notes.extend(skipped_note(name, skipped))

    return PairStream(name, columns.src_lang, columns.tgt_lang, pairs(), notes)


def skipped_note(name: str, count: int) -> list[str]:
    """Say how many rows had no text on a side."""
    return [f"{name}: {count} rows skipped that lack one of the languages"] if count else []


def choose_columns(name: str, row: Row, request: Request) -> Columns:
    """Tell the columns from a first row and what the user said."""
    if request.columns is not None and not _has_its_own(row, request):
        return _asked_for(name, row, request)
    nested = row.get(_NESTED)
    if isinstance(nested, Mapping):
        return _from_translation(name, nested, request)
    src_lang, tgt_lang = request.src_lang, request.tgt_lang
    if found := find_columns(row, (src_lang, tgt_lang) if src_lang and tgt_lang else None):
        return _flat(*found, request.languages(name))
    languages = [key for key in row if _LANGUAGE.fullmatch(key)]
    if request.src_lang is None and request.tgt_lang is None and len(languages) == len(row) == 2:
        return _flat(languages[0], languages[1], (languages[0], languages[1]))
    raise NmtError(
        f"{name}: which columns are source and target? There are {', '.join(row)}; say so with "
        "--columns SRC,TGT, by name or number (and -s and -t for the languages). The first row: "
        + _shown(row)
    )


def _has_its_own(row: Row, request: Request) -> bool:
    """Tell whether columns that were meant for another table are not needed to read this one."""
    src_lang, tgt_lang = request.src_lang, request.tgt_lang
    told = (src_lang, tgt_lang) if src_lang and tgt_lang else None
    found = find_columns(row, told) is not None or isinstance(row.get(_NESTED), Mapping)
    return request.columns_of_another and found


def find_columns(names: Iterable[str], languages: tuple[str, str] | None) -> tuple[str, str] | None:
    """Find source and target among the names of columns: by language, else by common names."""
    there = list(names)
    if languages is not None:
        codes = [name for name in there if _LANGUAGE.fullmatch(name)]
        src, tgt = (find_language(codes, language) for language in languages)
        if src and tgt and src != tgt:
            return src, tgt
    lowered = {name.lower(): name for name in there}
    common = next((pair for pair in _COMMON if lowered.keys() >= set(pair)), None)
    return (lowered[common[0]], lowered[common[1]]) if common else None


def find_language(codes: Iterable[str], language: str) -> str | None:
    """Find a language among codes: the code itself, else the first that begins with it."""
    wanted, listed = language.lower(), list(codes)
    exact = [code for code in listed if code.lower() == wanted]
    near = [code for code in listed if re.split("[-_]", code.lower())[0] == wanted]
    return next(chain(exact, near), None)


def repeated(names: Iterable[str]) -> str | None:
    """Give the first of some names that stands there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def one_line(text: str) -> str:
    """Put a text that has line breaks on one line, a space for each."""
    return _BREAK.sub(" ", text.strip("\r\n")) if "\n" in text else text.removesuffix("\r")


def _asked_for(name: str, row: Row, request: Request) -> Columns:
    keys = list(row)
    chosen = []
    for column in request.columns or ():
        if column in row:
            chosen.append(column)
        elif column.isdecimal() and 1 <= int(column) <= len(keys):
            chosen.append(keys[int(column) - 1])
        else:
            raise NmtError(
                f"{name}: no column {column!r}; there are: {', '.join(keys)}. The first row: "
                f"{_shown(row)}"
            )
    told = [key if _LANGUAGE.fullmatch(key) and len(key) < 6 else None for key in chosen]
    return _flat(chosen[0], chosen[1], request.languages(name, *told))


def _from_translation(name: str, nested: Row, request: Request) -> Columns:
    """Take languages of a ``translation`` column; their order in it says nothing."""
    there = ", ".join(sorted(nested))
    if request.src_lang is None or request.tgt_lang is None:
        raise NmtError(
            f"{name}: has the languages {there}; say which is translated into which, such as "
            "-s en -t de"
        )
    src_lang, tgt_lang = request.languages(name)
    for language in (src_lang, tgt_lang):
        if find_language(nested, language) is None:
            raise NmtError(f"{name}: no language {language!r}; there are: {there}")

    def take(language: str) -> Callable[[Row], Any]:
        def get(row: Row) -> Any:
            texts = row.get(_NESTED)
            if not isinstance(texts, Mapping):
                return None
            key = find_language(texts, language)
            return None if key is None else texts[key]

        return get

    return Columns(take(src_lang), take(tgt_lang), src_lang, tgt_lang)


def _flat(src: str, tgt: str, languages: tuple[str, str]) -> Columns:
    return Columns(lambda row: row.get(src), lambda row: row.get(tgt), *languages)


def _text(place: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise NmtError(f"{place}: {str(value)[:_SHOWN]!r} is no text; choose others by --columns")
    if half := _SURROGATE.search(value):
        raise NmtError(f"{place}: holds half a surrogate pair ({half[0]!r}), which is no text")
    return one_line(value)


def _shown(row: Row) -> str:
    return " | ".join(str(value)[:_SHOWN] for value in row.values())


def numbered(name: str, rows: Iterable[Row], word: str = "row") -> Iterator[tuple[str, Row]]:
    """Give each row its place: the name and its number from 1."""
    for number, row in enumerate(rows, start=1):
        yield f"{name}: {word} {number}", row
