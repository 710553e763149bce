"""CSV, JSON, Parquet and data sets: the same pairs in every form, and what is refused."""

import bz2
import csv
import gzip
import json
import lzma

import pyarrow
import pyarrow.parquet
import pytest

from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.corpus.readers import open_corpus
from nmt_cli.corpus.splits import load_splits
from nmt_cli.errors import NmtError

EN_FR = Request("en", "fr")
TEXTS = [('A "cat", sleeping.', "Un « chat » ; il dort."), ("Two\u2028parts.", "Deux."), ("c", "d")]
WANTED = [Pair(*texts) for texts in TEXTS]


def read(spec, request=EN_FR):
    return open_corpus(str(spec), request).read("")


def flat(src="en", tgt="fr"):
    return [{"id": n, tgt: b, src: a} for n, (a, b) in enumerate(TEXTS)]


def nested():
    rows = [{"translation": {"de": "-", "en": a, "fr": b}} for a, b in TEXTS]
    rows[1]["translation"] = dict(reversed(rows[1]["translation"].items()))
    return rows


def put_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def put(path, rows):
    kind = path.suffix
    if kind == ".csv":
        put_csv(path, rows)
    elif kind == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize(
    ("columns", "request_"),
    [
        (("en", "fr"), EN_FR),
        (("en_XX", "fr-FR"), EN_FR),
        (("Source", "Target"), EN_FR),
        (("before", "after"), Request("en", "fr", ("before", "after"))),
    ],
    ids=str,
)
def test_flat_columns_are_found(tmp_path, kind, columns, request_):
    found = read(put(tmp_path / f"c.{kind}", flat(*columns)), request_)
    assert found.pairs == WANTED
    assert (found.src_lang, found.tgt_lang) == ("en", "fr")


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_columns_are_found_by_number(tmp_path, kind):
    path = put(tmp_path / f"c.{kind}", flat("before", "after"))
    assert read(path, Request("en", "fr", ("3", "2"))).pairs == WANTED


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_a_translation_column_is_read_by_language(tmp_path, kind):
    path = put(tmp_path / f"c.{kind}", nested())
    assert read(path).pairs == WANTED
    assert read(path, Request("fr", "en")).pairs == [Pair(b, a) for a, b in TEXTS]
    with pytest.raises(NmtError, match="languages de, en, fr; say which"):
        read(path, Request())
    with pytest.raises(NmtError, match="no language 'nl'; there are: de, en, fr"):
        read(path, Request("en", "nl"))


@pytest.mark.parametrize("content", ["lines", "list", "data", "one"])
def test_json_is_told_by_its_content_not_its_suffix(tmp_path, content):
    rows = flat()[:1] if content == "one" else flat()
    forms = {
        "lines": "\n".join(["", *map(json.dumps, rows), ""]),
        "list": json.dumps(rows),
        "data": json.dumps({"version": 1, "data": rows}),
        "one": json.dumps(rows[0], indent=2),
    }
    for suffix in ("json", "jsonl"):
        path = tmp_path / f"c.{suffix}"
        path.write_text(forms[content])
        assert read(path).pairs == WANTED[: len(rows)]


def test_columns_named_by_languages_tell_the_languages(tmp_path):
    rows = [{"de": "x", "en": "y"}]
    for kind in ("csv", "jsonl", "parquet"):
        found = read(put(tmp_path / f"c.{kind}", rows), Request())
        assert (found.src_lang, found.tgt_lang, found.pairs) == ("de", "en", [Pair("x", "y")])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_when_in_doubt_it_asks_and_shows_the_first_row(tmp_path, kind):
    path = put(tmp_path / f"c.{kind}", [{"before": "one", "after": "two", "who": "me"}])
    with pytest.raises(NmtError, match=r"before, after, who; .*--columns.* one \| two \| me"):
        read(path)
    with pytest.raises(NmtError, match=r"no column 'nope'; there are: before, after, who"):
        read(path, Request("en", "fr", ("nope", "after")))


def test_rows_without_a_side_are_skipped_and_counted(tmp_path):
    rows = [{"en": "a", "fr": None}, {"en": "b", "fr": "c"}]
    for kind in ("jsonl", "parquet"):
        found = read(put(tmp_path / f"c.{kind}", rows))
        assert found.pairs == [Pair("b", "c")]
        assert "1 rows skipped" in found.notes[0]
        splits = load_splits(str(tmp_path / f"c.{kind}"), None, None, EN_FR)
        assert found.notes[0] in splits.notes


def test_a_line_break_in_a_field_is_one_space(tmp_path):
    rows = [{"en": "one\n  two\r\nthree\n", "fr": "un\n\ndeux"}]
    for kind in ("csv", "jsonl", "parquet"):
        found = read(put(tmp_path / f"c.{kind}", rows))
        assert found.pairs == [Pair("one two three", "un deux")]


def test_csv_by_semicolons_and_without_names(tmp_path):
    put_csv(tmp_path / "s.csv", flat(), ";")
    assert read(tmp_path / "s.csv").pairs == WANTED
    (tmp_path / "n.csv").write_text('"a, b",x\nc,y\n')
    by_number = Request("en", "fr", ("1", "2"))
    assert read(tmp_path / "n.csv", by_number).pairs == [Pair("a, b", "x"), Pair("c", "y")]
    for header in ("Source,Target", "en,fr", "en,en"):  # names, whatever the columns are asked by
        (tmp_path / "h.csv").write_text(f"{header}\na,b\n")
        assert read(tmp_path / "h.csv", by_number).pairs == [Pair("a", "b")]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.csv", 'en,fr\na,"b\nc,d\n', "a.csv:2"),
        ("a.csv", "en,fr\na,b\nc,d,e\n", "a.csv:3"),
        ("a.csv", "en,en\na,b\n", "two columns are called 'en'"),
        ("a.csv", "en,fr,,\na,b,c,d\n", "two columns are called ''"),
        ("a.jsonl", '{"en": "a", "fr": "b"}\n{"en": \n', "a.jsonl:2"),
        ("a.jsonl", '{"en": "a", "fr": "b"}\n[1]\n', "a.jsonl:2"),
        ("a.jsonl", '{"en": "a", "fr": 3}\n', "a.jsonl:1: '3' is no text"),
        ("a.json", '[{"en": "a"},\n{"en"]', "a.json:2"),
        ("a.json", '["en"]', "object 1"),
        ("a.json", '["en"]\n', "object 1"),
        ("a.jsonl", '["a", "b"]\n["c", "d"]\n', "a.jsonl:1: is no JSON object"),
        ("a.jsonl", '{"translation": ["a", "b"]}\n{"translation": ["c", "d"]}\n', "translation"),
        ("a.jsonl", '{"en": "a", "fr": "b"}\n' + "[" * 100_000, "a.jsonl:2: is no JSON"),
        ("a.json", "[" * 100_000, "a.json: is no JSON"),
        ("a.jsonl", '{"en": ' + "9" * 6000 + "}", "a.jsonl"),
        ("a.jsonl", '{"en": "\\ud800 a", "fr": "b"}\n', "half a surrogate"),
        ("a.jsonl", '{"en": "a", "fr": "b", "en": "c"}\n', "'en' stands twice"),
        ("a.csv", "en,fr\ra,b\r", "end lines by line feeds"),
        ("a.parquet.gz", "", "unpack it"),
        ("a.parquet", "PAR1", "a.parquet: cannot be read as Parquet"),
    ],
)
def test_a_damaged_table_names_the_place(tmp_path, name, content, place):
    (tmp_path / name).write_text(content, newline="")
    with pytest.raises(NmtError) as error:
        read(tmp_path / name)
    assert place in str(error.value)


def test_one_column_is_not_both_sides(tmp_path):
    (tmp_path / "a.csv").write_text("pt-BR,notes\na,b\n")
    with pytest.raises(NmtError, match="which columns are source and target"):
        read(tmp_path / "a.csv", Request("pt", "pt-BR"))


def test_a_huge_field_is_read(tmp_path):
    put_csv(tmp_path / "a.csv", [{"en": "word " * 50_000, "fr": "mot"}])
    assert len(read(tmp_path / "a.csv").pairs[0].src) == 250_000


def zst(raw: bytes) -> bytes:
    return pyarrow.compress(raw, codec="zstd", asbytes=True)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zst)],
)
def test_compressed_files_of_several_members(tmp_path, suffix, pack):
    lines = [f"{json.dumps(row)}\n".encode() for row in flat()]
    path = tmp_path / f"c.jsonl.{suffix}"
    path.write_bytes(pack(b"".join(lines[:2])) + pack(b"".join(lines[2:])))
    assert read(path).pairs == WANTED
    whole = pack(b"".join(lines) * 50)
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(NmtError, match=r"truncated/corrupt .*fetch or make it again"):
        read(path)


def test_a_folder_may_hold_splits_in_any_format(tmp_path):
    put(tmp_path / "train.jsonl", flat())
    put(tmp_path / "valid.csv", flat())
    put(tmp_path / "test.parquet", flat())
    splits = load_splits(str(tmp_path), None, None, EN_FR)
    assert splits.train.pairs == splits.valid.pairs == splits.test.pairs == WANTED


def test_utf_16_is_told_by_its_first_bytes(tmp_path):
    (tmp_path / "a.csv").write_bytes("en,fr\na,b\n".encode("utf-16"))
    with pytest.raises(NmtError, match="is UTF-16; convert it"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("spec", ["a.en,a.fr", "m.tmx"])
def test_columns_are_refused_where_there_are_none(tmp_path, spec):
    for name in ("a.en", "a.fr", "m.tmx"):
        (tmp_path / name).write_text("x\n")
    paths = ",".join(str(tmp_path / name) for name in spec.split(","))
    with pytest.raises(NmtError, match="no columns"):
        read(paths, Request("en", "fr", ("1", "2")))


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path):
    table = pyarrow.table([["a"], ["b"], ["c"]], names=["en", "fr", "en"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(NmtError, match="two columns are called 'en'"):
        list(read(tmp_path / "a.parquet").pairs)
