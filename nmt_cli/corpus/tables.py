"""Tables in one file: CSV, JSON, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli.corpus.columns import COMMON_NAMES, Row, numbered, read_rows, repeated
from nmt_cli.corpus.lines import OPENERS, is_blank, read_lines
from nmt_cli.corpus.pairs import PairStream, Request
from nmt_cli.errors import NmtError

_SHOWN = 40
_LONGEST_FIELD = 1 << 24


def read_csv(path: Path, request: Request) -> PairStream:
    """Read comma-separated values with quotes (RFC 4180) and a row of names.

    Without that row, columns are given by number.

    Raises:
        NmtError: for a quote that is never closed, a row of another width, or unknown columns.
    """
    return read_rows(str(path), _csv_rows(path, request), request)


def _csv_rows(path: Path, request: Request) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(_LONGEST_FIELD)
    lines = (f"{line}\n" for line in read_lines(path, request.errors))
    first = next(lines, "")
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(_again(first, lines), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    began = 1
    try:
        for fields in reader:
            if names is None:
                names, is_header = _names(path, fields, request)
                if is_header:
                    began = reader.line_num + 1
                    continue
            if fields:
                if len(fields) != len(names):
                    raise NmtError(
                        f"{path}:{began}: {len(fields)} fields, but the first row has "
                        f"{len(names)}; a field that holds a comma, a quote or a line break "
                        "stands in quotes"
                    )
                yield f"{path}:{began}", dict(zip(names, fields, strict=True))
            began = reader.line_num + 1
    except csv.Error as error:
        reason = f"{error}; is a quote in the text not doubled?"
        if "new-line" in str(error):
            reason = "a carriage return outside quotes; end lines by line feeds"
        raise NmtError(f"{path}:{began}: {reason}") from None


def _again(first: str, lines: Iterable[str]) -> Iterator[str]:
    if first:
        yield first
    yield from lines


def _names(path: Path, fields: list[str], request: Request) -> tuple[list[str], bool]:
    """Name the columns, and tell whether the first row does.

    It does unless columns are asked for by number and it has no language or common name.
    """
    asked = request.columns
    by_number = asked is not None and all(c.isdecimal() and c not in fields for c in asked)
    known = {request.src_lang, request.tgt_lang, *COMMON_NAMES}
    is_header = not by_number or bool(known & {field.strip().lower() for field in fields})
    twice = repeated(fields)
    if by_number and (twice is not None or not is_header):
        return [str(n) for n in range(1, len(fields) + 1)], is_header
    if twice is not None:
        raise NmtError(
            f"{path}:1: two columns are called {twice!r}; give --columns by number, such as 1,2"
        )
    return fields, True


def read_json(path: Path, request: Request) -> PairStream:
    """Read a list of objects, an object that holds one, or an object a line, whatever the suffix.

    Raises:
        NmtError: for what is not JSON, naming the line.
    """
    return read_rows(str(path), _json_rows(path, request), request)


def _json_rows(path: Path, request: Request) -> Iterator[tuple[str, Row]]:
    """Yield the objects: one a line, unless the file is one value over several lines or in one."""
    lines = enumerate(read_lines(path, request.errors), start=1)
    full = ((number, line) for number, line in lines if not is_blank(line))
    number, first = next(full, (0, ""))
    if not first:
        return
    following = next(full, None)
    rest = [] if following is None else [following]
    try:
        value = parse_json(f"{path}:{number}", first)
    except NmtError:
        if first.lstrip()[0] not in "[{":
            raise
        whole = "\n".join([first, *(line for _, line in chain(rest, full))])
        yield from _objects(path, parse_json(str(path), whole, first_line=number))
        return
    if following is None and (isinstance(value, list) or _list_in(value) is not None):
        yield from _objects(path, value)
        return
    yield f"{path}:{number}", _object(f"{path}:{number}", value)
    for number, line in chain(rest, full):
        place = f"{path}:{number}"
        yield place, _object(place, parse_json(place, line))


def _objects(path: Path, value: Any) -> Iterator[tuple[str, Row]]:
    rows = value if isinstance(value, list) else _list_in(value)
    for place, row in numbered(str(path), [value] if rows is None else rows, "object"):
        yield place, _object(place, row)


def parse_json(place: str, text: str, first_line: int | None = None) -> Any:
    """Parse JSON.

    Args:
        place: file, and line if the text is one.
        text: the JSON.
        first_line: the line of the file that a text of several begins at.

    Raises:
        NmtError: for what is none, or is nested or has numbers beyond all measure.
    """
    try:
        return json.loads(text, object_pairs_hook=_of_different_names)
    except json.JSONDecodeError as error:
        where = place if first_line is None else f"{place}:{first_line + error.lineno - 1}"
        raise NmtError(f"{where}:{error.colno}: is not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise NmtError(f"{place}: is no JSON that can be read: {str(error)[:80]}") from None


def _of_different_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, of which no value hides another."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = repeated(name for name, _ in pairs) or ""
        raise ValueError(f"{twice[:_SHOWN]!r} stands twice in an object")
    return made


def _list_in(value: Any) -> list[Any] | None:
    """Give the list that an object such as ``{"data": [...]}`` holds."""
    if not isinstance(value, dict):
        return None
    held = value.get("data", next(iter(value.values())) if len(value) == 1 else None)
    return held if isinstance(held, list) else None


def _object(place: str, value: Any) -> Row:
    if not isinstance(value, Mapping):
        raise NmtError(f'{place}: is no JSON object such as {{"en": "...", "de": "..."}}')
    return value


def read_parquet(path: Path, request: Request) -> PairStream:
    """Read a Parquet file, flat columns or a struct of languages, a batch of rows at a time.

    Raises:
        NmtError: if it is none, or is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    if path.suffix.lower() in OPENERS:
        raise NmtError(
            f"{path}: Parquet compresses itself and cannot be read inside {path.suffix}; unpack it"
        )

    def rows() -> Iterator[Row]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                twice = repeated(file.schema_arrow.names)
                if twice is not None:
                    raise NmtError(f"{path}: two columns are called {twice!r}; rename one")
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise NmtError(f"{path}: cannot be read as Parquet: {error}") from None

    return read_rows(str(path), numbered(str(path), rows()), request)
