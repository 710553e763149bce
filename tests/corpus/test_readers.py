import gzip

import pytest

from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.corpus.readers import is_generated, open_corpus
from nmt_cli.corpus.splits import load_one, load_splits
from nmt_cli.errors import NmtError
from tests.conftest import PAIRS, write_pairs

EN_FR = Request("en", "fr")


def only(spec, request=EN_FR):
    return open_corpus(str(spec), request).read("")


def put(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8", newline="")
    return path


def test_a_prefix_and_two_names_give_the_same_pairs(tmp_path):
    prefix = write_pairs(tmp_path)
    by_prefix = only(prefix)
    by_names = only(f"{prefix}.en,{prefix}.fr", Request())
    assert by_prefix.pairs == by_names.pairs == [Pair(*pair) for pair in PAIRS]
    assert (by_names.src_lang, by_names.tgt_lang) == ("en", "fr")


def test_the_direction_follows_the_languages(tmp_path):
    prefix = write_pairs(tmp_path)
    assert only(prefix, Request("fr", "en")).pairs[0] == Pair(*reversed(PAIRS[0]))


def test_a_prefix_without_languages_asks_for_them(tmp_path):
    prefix = write_pairs(tmp_path)
    with pytest.raises(NmtError, match=r"has en, fr; say which .* -s en -t de"):
        only(prefix, Request())


def test_a_prefix_finds_compressed_files(tmp_path):
    put(tmp_path / "c.en.gz", "a\nb\n")
    put(tmp_path / "c.fr", "x\ny\n")
    assert only(tmp_path / "c").pairs == [Pair("a", "x"), Pair("b", "y")]


def test_two_files_for_one_side_are_an_error(tmp_path):
    put(tmp_path / "c.en.gz", "a\n")
    put(tmp_path / "c.en", "a\n")
    put(tmp_path / "c.fr", "x\n")
    with pytest.raises(NmtError, match="several"):
        only(tmp_path / "c")


def test_different_numbers_of_lines_name_both_files_and_counts(tmp_path):
    put(tmp_path / "a.en", "1\n2\n3\n")
    put(tmp_path / "a.fr", "1\n2\n")
    with pytest.raises(NmtError, match=r"a\.en has 3 lines but .*a\.fr has 2"):
        only(tmp_path / "a")


def test_a_spec_that_names_nothing_says_what_was_looked_for(tmp_path):
    with pytest.raises(
        NmtError,
        match=r"no such file or folder, no corpus of that name \(toy, copy, reverse, add\)",
    ):
        only(tmp_path / "nothing")


def test_tsv_has_no_quotes_and_ignores_further_columns(tmp_path):
    path = put(tmp_path / "t.tsv", '"a\tx\tCC-BY\nb "q" c\ty"\n')
    assert only(path).pairs == [Pair('"a', "x"), Pair('b "q" c', 'y"')]


def test_txt_with_tabs_is_tsv(tmp_path):
    assert only(put(tmp_path / "t.txt", "a\tx\n")).pairs == [Pair("a", "x")]


def test_a_header_tells_the_columns(tmp_path):
    path = put(tmp_path / "t.tsv", "id\tfr\ten\n1\tx\ta\n")
    assert only(path).pairs == [Pair("a", "x")]


def test_a_header_of_other_languages_is_read_with_a_warning(tmp_path):
    path = put(tmp_path / "t.tsv", "de\ten\na b\tx y\n")
    read = only(path)
    assert [pair.src for pair in read.pairs] == ["de", "a b"]
    (note,) = read.notes
    assert note.startswith("warning: ") and "t.tsv:1: 'de' and 'en' look like" in note
    plain = put(tmp_path / "p.tsv", "Go.\tVa !\n")
    assert only(plain).notes == ()


@pytest.mark.parametrize(
    "header", ["id\tfr-FR\ten-GB", "id\tFR\tEN", "id\ttarget\tsource", "id\ttgt \tsrc"]
)
def test_a_header_may_have_regions_or_common_names(tmp_path, header):
    path = put(tmp_path / "t.tsv", f"{header}\n1\tx\ta\n")
    assert only(path).pairs == [Pair("a", "x")]
    numbered = only(path, Request("en", "fr", ("3", "2")))
    assert numbered.pairs == [Pair("a", "x")]


@pytest.mark.parametrize("first", ["en\tun", "en-tête\ten retard", "source\tSource", "src\tx"])
def test_a_first_row_of_texts_is_no_header(tmp_path, first):
    path = put(tmp_path / "t.tsv", f"{first}\na\tx\n")
    assert only(path).pairs == [Pair(*first.split("\t")), Pair("a", "x")]


@pytest.mark.parametrize("columns", [("3", "2"), ("english", "french")])
def test_columns_by_number_or_name(tmp_path, columns):
    header = "" if columns[0].isdecimal() else "id\tfrench\tenglish\n"
    path = put(tmp_path / "t.tsv", header + "1\tx\ta\n")
    assert only(path, Request("en", "fr", columns)).pairs == [Pair("a", "x")]


def test_unknown_column_names_show_the_first_row(tmp_path):
    path = put(tmp_path / "t.tsv", "id\tfrench\n1\tx\n")
    with pytest.raises(NmtError, match=r"no columns 'en' and 'de'; the first row is: id \| french"):
        only(path, Request("en", "de", ("en", "de")))


def test_a_line_of_too_few_columns_is_named(tmp_path):
    path = put(tmp_path / "t.tsv", "a\tx\nonly one\n")
    with pytest.raises(NmtError, match=r"t\.tsv:2: 1 tab-separated column"):
        only(path)


def test_an_unknown_suffix_lists_the_known_ones(tmp_path):
    with pytest.raises(NmtError, match=r"cannot tell its format; .*\.tsv"):
        only(put(tmp_path / "t.docx", "a\tx\n"))


def test_a_folder_has_splits_in_any_format(tmp_path):
    put(tmp_path / "train.en.gz", "a\n")
    put(tmp_path / "train.fr.gz", "x\n")
    put(tmp_path / "val.tsv", "b\ty\n")
    put(tmp_path / "test_2016.en", "c\n")
    put(tmp_path / "test_2016.fr", "z\n")
    put(tmp_path / "test_2017.tsv", "d\tw\n")
    put(tmp_path / "notes.md", "nothing")
    splits = load_splits(str(tmp_path), None, None, EN_FR)
    assert [p.pairs[0].src for p in (splits.train, splits.valid, splits.test)] == ["a", "b", "c"]
    assert "test_2016, test_2017; using test_2016" in splits.notes[0]
    assert load_one(str(tmp_path), EN_FR, ("test_2017",)).pairs == [Pair("d", "w")]
    one = load_one(str(tmp_path), EN_FR)
    assert one.pairs == [Pair("c", "z")] and "using test_2016" in one.notes[0]
    put(tmp_path / "test_20.tsv", "e\tv\n")
    exact = load_one(str(tmp_path), EN_FR, ("test_20",), by_name=True)
    assert exact.pairs == [Pair("e", "v")] and not exact.notes


def test_of_several_training_files_the_plain_name_is_taken_and_said(tmp_path):
    for name, text in (("train.bpe", "a@@ b"), ("train", "ab"), ("test-a", "c"), ("test", "d")):
        put(tmp_path / f"{name}.en", f"{text}\n")
        put(tmp_path / f"{name}.fr", "x\n")
    splits = load_splits(str(tmp_path), None, None, EN_FR)
    assert splits.train.pairs == [Pair("ab", "x")]
    assert splits.test.pairs == load_one(str(tmp_path), EN_FR).pairs == [Pair("d", "x")]
    assert "train, train.bpe; using train" in splits.notes[0]


@pytest.mark.parametrize("table", ["train.csv", "train.tsv"])
def test_no_file_hides_another_of_the_same_split(tmp_path, table):
    put(tmp_path / "train.en", "a\n")
    put(tmp_path / "train.fr", "x\n")
    put(tmp_path / table, "en,fr\nb,y\n")
    with pytest.raises(NmtError, match="another file for 'train'"):
        load_splits(str(tmp_path), None, None, EN_FR)


def test_columns_of_the_data_are_not_asked_of_pair_files(tmp_path):
    put(tmp_path / "t.tsv", "1\ta\tx\n")
    put(tmp_path / "dev.en", "b\n")
    put(tmp_path / "dev.fr", "y\n")
    request = Request("en", "fr", ("2", "3"))
    splits = load_splits(str(tmp_path / "t.tsv"), str(tmp_path / "dev"), None, request)
    assert splits.train.pairs == [Pair("a", "x")] and splits.valid.pairs == [Pair("b", "y")]
    for spec in ("toy", "copy", str(tmp_path / "dev")):
        with pytest.raises(NmtError, match="has no columns"):
            load_splits(spec, None, None, request)


def test_other_tables_have_columns_of_their_own(tmp_path):
    put(tmp_path / "t.tsv", "1\t-\ta\tx\n")
    put(tmp_path / "valid.tsv", "fr\ten\ny\tb\n")
    put(tmp_path / "test.csv", "source,target\nc,z\n")
    paths = (str(tmp_path / name) for name in ("t.tsv", "valid.tsv", "test.csv"))
    splits = load_splits(*paths, Request("en", "fr", ("3", "4")))
    assert [p.pairs for p in (splits.train, splits.valid, splits.test)] == [
        [Pair("a", "x")], [Pair("b", "y")], [Pair("c", "z")],
    ]  # fmt: skip


def test_a_missing_split_lists_what_there_is(tmp_path):
    put(tmp_path / "train.tsv", "a\tx\n")
    with pytest.raises(NmtError, match="no split 'test'; available: train"):
        load_one(str(tmp_path), EN_FR)


def test_a_folder_without_splits_says_what_was_expected(tmp_path):
    with pytest.raises(NmtError, match=r"holds no split; expected files such as train\.en"):
        open_corpus(str(tmp_path), EN_FR)


def many(count):
    return "".join(f"source {n % (count - 50)}\ttarget {n}\n" for n in range(count))


def test_held_out_pairs_share_no_source_with_training(tmp_path):
    path = put(tmp_path / "t.tsv", many(1000))
    splits = load_splits(str(path), None, None, EN_FR)
    sources = [
        {pair.src for pair in part.pairs} for part in (splits.train, splits.valid, splits.test)
    ]
    assert all(a.isdisjoint(b) for a, b in zip(sources, sources[1:] + sources[:1], strict=True))
    sizes = [len(part.pairs) for part in (splits.train, splits.valid, splits.test)]
    assert sum(sizes) == 1000
    assert all(20 < size < 90 for size in sizes[1:])
    again = load_splits(str(path), None, None, EN_FR)
    assert again.test.pairs == splits.test.pairs


def test_few_pairs_are_validated_on_themselves_and_it_is_said(tmp_path):
    splits = load_splits(str(put(tmp_path / "t.tsv", many(199))), None, None, EN_FR)
    assert splits.valid.pairs == splits.test.pairs == splits.train.pairs
    assert "nothing is held out" in splits.notes[0]


def test_only_generated_corpora_are_generated(tmp_path, monkeypatch):
    assert is_generated("toy") and is_generated("toy:train=5")
    assert len(open_corpus("toy:train=5,seed=7", Request("en", "de")).read("train").pairs) == 5
    assert not is_generated("data/toy")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    assert not is_generated("toy")
