"""From a SPEC to a corpus: folders, pair files, files of pairs, and names such as ``toy``.

A format of one file is one function in ``FORMATS``; everything else (compression, line rule,
languages, splits in a folder) is shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path

from nmt_cli.corpus import tasks, toy
from nmt_cli.corpus.columns import find_columns
from nmt_cli.corpus.lines import OPENERS, is_blank, read_lines, require_readable
from nmt_cli.corpus.pairs import Corpus, Pair, PairStream, Request
from nmt_cli.corpus.tables import read_csv, read_json, read_parquet
from nmt_cli.corpus.tmx import read_tmx
from nmt_cli.errors import NmtError

_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
TRAIN, VALID, TEST = ("train",), ("valid", "val", "dev"), ("test",)


def open_corpus(spec: str, request: Request) -> Corpus:
    """Find out what a SPEC names: an existing path, else a name, else a prefix.

    Raises:
        NmtError: if nothing is there; it says what was looked for.
    """
    if not spec.strip():
        raise NmtError("the corpus has an empty name; give a file, a folder or `toy`")
    path = Path(spec)
    if path.is_dir():
        return _folder(path, request)
    if path.exists() and not path.is_file():
        raise NmtError(f"{path}: is neither a file nor a folder")
    if path.is_file():
        return Corpus(spec, {"": partial(_read_file, path, request)})
    name, _, options = spec.partition(":")
    if name == "hf":
        from nmt_cli.corpus.hub import open_hub

        return open_hub(options, request)
    if name in GENERATORS:
        request.refuse_columns(spec)
        return GENERATORS[name](options, request)
    if "," in spec:
        src, _, tgt = spec.partition(",")
        return Corpus(spec, {"": partial(read_pair_files, Path(src), Path(tgt), request)})
    return Corpus(spec, {"": partial(_read_prefix, path, request)})


def files_of(spec: str) -> list[Path]:
    """List the files that a SPEC may be read from: of a folder all, of a name none."""
    path = Path(spec)
    if path.is_dir():
        return [file for file in path.iterdir() if file.is_file()]
    if path.is_file():
        return [path]
    if "," in spec:
        return [Path(part) for part in spec.split(",", 1)]
    return [file for files in _siblings(path).values() for file in files]


def read_tsv(path: Path, request: Request) -> PairStream:
    """Read tab-separated pairs: no quoting, further columns ignored, a header row recognised.

    Raises:
        NmtError: for a line of fewer columns than are needed, or an unknown column name.
    """
    languages = request.languages(str(path))
    notes: list[str] = []
    return PairStream(str(path), *languages, _tsv_pairs(path, request, languages, notes), notes)


def _tsv_pairs(
    path: Path, request: Request, languages: tuple[str, str], notes: list[str]
) -> Iterator[Pair]:
    by_number = _numbered(request.columns) if request.columns else None
    columns = by_number or (0, 1)
    for number, line in enumerate(read_lines(path, request.errors), start=1):
        fields = line.split("\t")
        if number == 1:
            own = request.columns_of_another  # names of its own count first
            asked = None if by_number or own else request.columns
            by_name = _in_header(fields, asked, languages)
            if by_name is not None:
                columns = by_name if own else by_number or by_name
                continue
            if request.columns and not by_number:
                raise NmtError(
                    f"{path}:1: no columns {' and '.join(map(repr, request.columns))}; the first "
                    f"row is: {' | '.join(fields)}"
                )
            notes += _like_header(path, fields, columns, languages)
        if is_blank(line):
            yield Pair("", "")
            continue
        if max(columns) >= len(fields):
            raise NmtError(
                f"{path}:{number}: {len(fields)} tab-separated column(s), but column "
                f"{max(columns) + 1} is needed; complete the line or remove it"
            )
        yield Pair(fields[columns[0]], fields[columns[1]])


def _in_header(
    fields: list[str], asked: tuple[str, str] | None, languages: tuple[str, str]
) -> tuple[int, int] | None:
    """Find the columns in a first row of names; None if that is a row of texts."""
    names = [field.strip() for field in fields]
    if asked is None:
        src, tgt = find_columns(names, languages) or ("", "")
    else:
        src, tgt = asked
    if src == tgt or not {src, tgt} <= set(names):
        return None
    return names.index(src), names.index(tgt)


def _like_header(
    path: Path, fields: list[str], columns: tuple[int, int], languages: tuple[str, str]
) -> list[str]:
    """Say so of a first pair that looks like two names of columns."""
    src, tgt = (fields[n].strip() if n < len(fields) else "" for n in columns)
    if src == tgt or not (_LANGUAGE.fullmatch(src) and _LANGUAGE.fullmatch(tgt)):
        return []
    asked = " and ".join(languages)
    return [
        f"warning: {path}:1: {src!r} and {tgt!r} look like names of columns, but {asked} are asked "
        "for, so the line is read as a pair; is it the right file?"
    ]


FORMATS: dict[str, Callable[[Path, Request], PairStream]] = {
    ".tsv": read_tsv,
    ".txt": read_tsv,
    ".csv": read_csv,
    ".jsonl": read_json,
    ".json": read_json,
    ".parquet": read_parquet,
    ".tmx": read_tmx,
}
"""Readers of formats in which one file holds both sides, by suffix."""

GENERATORS: dict[str, Callable[[str, Request], Corpus]] = {
    "toy": toy.corpus,
    **{name: partial(tasks.corpus, name) for name in tasks.TASKS},
}
"""Corpora that are made, not read, by name."""


def is_generated(spec: str) -> bool:
    """Tell whether a SPEC names a corpus that is made: free of noise, one answer a source."""
    return not Path(spec).exists() and spec.partition(":")[0] in GENERATORS


def _numbered(columns: tuple[str, str]) -> tuple[int, int] | None:
    if not all(column.isdecimal() and int(column) > 0 for column in columns):
        return None
    return int(columns[0]) - 1, int(columns[1]) - 1


def _plain(path: Path) -> Path:
    """Take the suffix of a compression off."""
    return path.with_suffix("") if path.suffix.lower() in OPENERS else path


def language_of(path: Path) -> str | None:
    """Tell the language by the suffix of a file, if it looks like one."""
    suffix = _plain(path).suffix.lstrip(".")
    return suffix if _LANGUAGE.fullmatch(suffix) and f".{suffix}" not in FORMATS else None


def _read_file(path: Path, request: Request) -> PairStream:
    reader = FORMATS.get(_plain(path).suffix.lower())
    if reader is None:
        raise NmtError(
            f"{path}: cannot tell its format; a file of pairs ends in "
            f"{', '.join(FORMATS)} (.txt: tab-separated), plain or with {', '.join(OPENERS)}; "
            "two files of one language each are given as a prefix or as a,b"
        )
    return reader(path, request)


def read_pair_files(src: Path, tgt: Path, request: Request) -> PairStream:
    """Read two files of one language each.

    Raises:
        NmtError: if one is not there or their numbers of lines differ.
    """
    for path in (src, tgt):
        require_readable(path)
    name = f"{src},{tgt}"
    request.refuse_columns(name)
    src_lang, tgt_lang = request.languages(name, language_of(src), language_of(tgt))
    return PairStream(name, src_lang, tgt_lang, _pairs_of_lines(src, tgt, request))


def _pairs_of_lines(src: Path, tgt: Path, request: Request) -> Iterator[Pair]:
    count = [0, 0]
    sides = (read_lines(path, request.errors) for path in (src, tgt))
    for lines in zip_longest(*sides):
        for side, line in enumerate(lines):
            count[side] += line is not None
        if None not in lines:
            yield Pair(*lines)
    if count[0] != count[1]:
        raise NmtError(
            f"{src} has {count[0]} lines but {tgt} has {count[1]}; "
            "line n of one must translate line n of the other"
        )


def _siblings(prefix: Path) -> dict[str, list[Path]]:
    """Map language to the files ``prefix.LANGUAGE``, plain or compressed."""
    found: dict[str, list[Path]] = {}
    for path in sorted(prefix.parent.glob(f"{_escape_glob(prefix.name)}.*")):
        language = language_of(path)
        if language and _plain(path).name == f"{prefix.name}.{language}":
            found.setdefault(language, []).append(path)
    return found


def _escape_glob(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _read_prefix(prefix: Path, request: Request) -> PairStream:
    files = _siblings(prefix)
    if not files:
        raise NmtError(
            f"{prefix}: no such file or folder, no corpus of that name "
            f"({', '.join(GENERATORS)}), and no files {prefix}.LANGUAGE"
        )
    if request.src_lang is None or request.tgt_lang is None:
        raise NmtError(
            f"{prefix}: has {', '.join(sorted(files))}; say which is translated into which, "
            "such as -s en -t de"
        )
    sides = []
    for language in (request.src_lang, request.tgt_lang):
        candidates = files.get(language, [])
        if not candidates:
            raise NmtError(
                f"{prefix}.{language}: no such file; beside it are: "
                + ", ".join(path.name for paths in files.values() for path in paths)
            )
        if len(candidates) > 1:
            raise NmtError(
                f"{prefix}.{language}: there are several ({', '.join(p.name for p in candidates)});"
                " keep one"
            )
        sides.append(candidates[0])
    return read_pair_files(sides[0], sides[1], request)


def _folder(folder: Path, request: Request) -> Corpus:
    """Find the splits of a folder: files named train*, valid*/val*/dev*, test* in any format."""
    parts: dict[str, Callable[[], PairStream]] = {}
    whole: set[str] = set()
    for path in sorted(folder.iterdir()):
        stem = _plain(path).stem if path.is_file() else ""
        is_table = _plain(path).suffix.lower() in FORMATS
        if not stem.startswith(TRAIN + VALID + TEST) or not (is_table or language_of(path)):
            continue
        if stem in whole or (is_table and stem in parts):
            raise NmtError(f"{path}: there is another file for {stem!r} beside it; keep one")
        if is_table:
            whole.add(stem)
            parts[stem] = partial(_read_file, path, request)
        else:
            parts[stem] = partial(_read_prefix, folder / stem, request)
    if not parts:
        raise NmtError(
            f"{folder}: holds no split; expected files such as train.en and train.de, or "
            "train.tsv, and the same for valid (or val, dev) and test"
        )
    return Corpus(str(folder), parts)
