"""Tables in one file: CSV, JSON, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli.corpus.columns import Row, numbered, read_rows
from nmt_cli.corpus.lines import is_blank, read_lines
from nmt_cli.corpus.pairs import PairStream, Request
from nmt_cli.errors import NmtError

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
        raise NmtError(f"{path}:{began}: {error}; is a quote in the text not doubled?") from None


def _again(first: str, lines: Iterable[str]) -> Iterator[str]:
    if first:
        yield first
    yield from lines


def _names(path: Path, fields: list[str], request: Request) -> tuple[list[str], bool]:
    """Name the columns, and tell whether the first row does.

    It does unless columns are asked for by number and it has none of the languages.
    """
    asked = request.columns
    by_number = asked is not None and all(c.isdecimal() and c not in fields for c in asked)
    languages = {request.src_lang, request.tgt_lang} - {None}
    if by_number and not languages & {field.lower() for field in fields}:
        return [str(n) for n in range(1, len(fields) + 1)], False
    twice = sorted({name for name in fields if fields.count(name) > 1})
    if twice:
        raise NmtError(
            f"{path}:1: two columns are called {twice[0]!r}; give --columns by number, such as 1,2"
        )
    return fields, True


def read_json(path: Path, request: Request) -> PairStream:
    """Read a list of objects, an object that holds one, or an object a line, whatever the suffix.

    Raises:
        NmtError: for what is not JSON, naming the line.
    """
    return read_rows(str(path), _json_rows(path, request), request)


def _json_rows(path: Path, request: Request) -> Iterator[tuple[str, Row]]:
    lines = read_lines(path, request.errors)
    is_first = True
    for number, line in enumerate(lines, start=1):
        if is_blank(line):
            continue
        may_be_whole, is_first = is_first, False
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if line.lstrip()[0] in "[{" and may_be_whole:  # not one object a line
                yield from _whole(path, "\n".join(_again(line, lines)))
                return
            raise _not_json(path, number, error) from None
        if may_be_whole and (isinstance(value, list) or _list_in(value) is not None):
            yield from _whole(path, "\n".join(_again(line, lines)))
            return
        yield f"{path}:{number}", _object(f"{path}:{number}", value)


def _whole(path: Path, text: str) -> Iterator[tuple[str, Row]]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _not_json(path, error.lineno, error) from None
    rows = value if isinstance(value, list) else _list_in(value)
    if rows is None:
        rows = [value]
    for place, row in numbered(str(path), rows, "object"):
        yield place, _object(place, row)


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


def _not_json(path: Path, line: int, error: json.JSONDecodeError) -> NmtError:
    return NmtError(f"{path}:{line}: is not JSON: {error.msg} at column {error.colno}")


def read_parquet(path: Path, request: Request) -> PairStream:
    """Read a Parquet file, flat columns or a struct of languages, a batch of rows at a time.

    Raises:
        NmtError: if it is none, or is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    def rows() -> Iterator[Row]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise NmtError(f"{path}: cannot be read as Parquet: {error}") from None

    return read_rows(str(path), numbered(str(path), rows()), request)
