import pytest

from nmt_cli.corpus.pairs import Pair, PairList
from nmt_cli.corpus.preflight import Limits, count_leaked, fingerprints_of, preflight
from nmt_cli.corpus.splits import Splits
from nmt_cli.errors import NmtError


def run(train, test, limit=5, **limits):
    parts = [PairList(n, "en", "fr", p) for n, p in (("t", train), ("v", train), ("s", test))]
    return preflight(Splits(*parts), Limits(limit, **limits))


TRAIN = [
    Pair("a b", "x"),
    Pair("", "x"),
    Pair("a", " \u3000"),
    Pair("a b", "x"),
    Pair("1 2 3 4 5 6", "x"),
    Pair("c", "y"),
]


def test_every_dropped_pair_is_counted_with_its_reason():
    splits, report, fingerprints, _ = run(TRAIN, [Pair("c", "y"), Pair("C", "y"), Pair("é", "")])
    assert [pair.src for pair in splits.train.pairs] == ["a b", "a b", "c"]
    assert len(splits.test.pairs) == 3
    assert fingerprints.tolist() == [pair.fingerprint() for pair in splits.train.pairs]
    text = "\n".join(report.lines())
    assert "train: 3 pairs of 6" in text
    assert "dropped: 2 with an empty side, 1 with more than 5 words (--max-words)" in text
    assert "duplicates: 1 pairs" in text
    assert "1 of 3 test pairs occur in the training data" in text
    assert "unknown characters: 67 %" in text


def test_a_clean_corpus_needs_one_line():
    assert run([Pair("a", "x")], [Pair("aa", "x")])[1].lines() == ["train: 1 pairs"]


def test_validation_pairs_without_text_are_counted():
    train = PairList("train", "en", "fr", [Pair("a", "x")])
    valid = PairList("valid", "en", "fr", [Pair("b", "y"), Pair("", "y"), Pair("c", " ")])
    splits, report, *_ = preflight(
        Splits(train, valid, train._replace(pairs=[Pair("a", "z")])), Limits(9)
    )
    assert splits.valid.pairs == [Pair("b", "y")]
    assert "valid: dropped: 2 with an empty side" in report.lines()


def test_nothing_left_says_why():
    with pytest.raises(NmtError, match="0 of 6 pairs left, --max-words 1"):
        run([Pair("a b", "x")] * 6, [Pair("a", "x")], limit=1)


@pytest.mark.parametrize(
    ("limits", "kept", "said"),
    [
        ({"min_words": 2}, ["a b c", "d d", "d d"], "1 with fewer than 2 words (--min-words)"),
        ({"max_ratio": 2.5}, ["e", "d d", "d d"], "1 of which one side is over 2.5 times"),
        ({"drop_copies": True}, ["a b c", "e"], "2 whose sides are the same (--drop-copies)"),
        ({"dedupe": True}, ["a b c", "e", "d d"], "1 that stand there before (--dedupe)"),
    ],
    ids=str,
)
def test_filters_leave_out_what_they_say(limits, kept, said):
    pairs = [Pair("a b c", "x y z"), Pair("e", "f"), Pair("d d", "d d"), Pair("d d", "d d")]
    if "max_ratio" in limits:
        pairs[0] = Pair("a b c", "x")
    splits, report, *_ = run(pairs, [Pair("q", "r")], **limits)
    assert sorted(pair.src for pair in splits.train.pairs) == sorted(kept)
    assert said in "\n".join(report.lines())


def test_an_empty_corpus_is_named():
    with pytest.raises(NmtError, match="t: holds no pairs"):
        run([], [Pair("a", "x")])


def test_splits_that_are_the_training_pairs_are_filtered_with_them():
    pairs = [Pair("a", "x"), Pair("1 2 3 4 5 6", "x")]
    train = PairList("t", "en", "fr", pairs)
    splits, report, *_ = preflight(Splits(train, train, train), Limits(5))
    assert splits.valid.pairs == splits.test.pairs == splits.train.pairs == pairs[:1]
    assert report.leaked == 0


@pytest.mark.parametrize(
    "pair", [Pair("cafe\u0301  noir", "x"), Pair("café noir ", "x"), Pair("café\u00a0noir", "x")]
)
def test_a_test_pair_that_is_the_same_to_the_model_is_found(pair):
    train = [Pair("café noir", "x"), Pair("a", "b")]
    assert run(train, [pair, Pair("café noire", "x")])[1].leaked == 1
    assert run([pair], [Pair("café noir", "x")])[1].leaked == 1


def test_fingerprints_of_the_text_as_it_stands_are_known_too():
    raw = fingerprints_of([Pair("a  b", "x"), Pair("q", "r")])
    assert count_leaked([Pair("a  b", "x"), Pair("a b", "x")], raw) == 1
