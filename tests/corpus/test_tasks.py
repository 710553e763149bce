"""Synthetic tasks: right answers, lengths as asked, splits apart."""

import pytest

from nmt_cli.corpus.pairs import Request
from nmt_cli.corpus.readers import is_generated, open_corpus
from nmt_cli.corpus.splits import load_splits
from nmt_cli.errors import NmtError

ANSWERS = {
    "copy": lambda words: words,
    "reverse": lambda words: words[::-1],
    "add": lambda words: list(
        str(sum(int("".join(n.split())) for n in " ".join(words).split("+"))).zfill(len(words) // 2)
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_lengths_and_splits(name):
    splits = load_splits(
        f"{name}:train=400,test=100,min=3,max=9,test_max=15", None, None, Request()
    )
    assert [len(s.pairs) for s in (splits.train, splits.valid, splits.test)] == [400, 400, 100]
    for split, longest in ((splits.train, 9), (splits.valid, 9), (splits.test, 15)):
        lengths = {len(pair.src.split()) for pair in split.pairs}
        assert min(lengths) >= 3
        assert max(lengths) == longest
        for pair in split.pairs:
            assert pair.tgt.split() == ANSWERS[name](pair.src.split())
    sources = [{pair.src for pair in s.pairs} for s in (splits.train, splits.valid, splits.test)]
    assert not sources[0] & sources[1] | sources[0] & sources[2] | sources[1] & sources[2]
    assert is_generated(f"{name}:max=5")


def test_the_same_seed_gives_the_same_pairs():
    def pairs(spec):
        return open_corpus(spec, Request()).read("train").pairs

    assert pairs("copy:train=50") == pairs("copy:train=50") != pairs("copy:train=50,seed=2")
    words = {w for pair in pairs("copy:train=500,symbols=30") for w in pair.src.split()}
    assert len(words) == 30
    assert {"a", "z", "aa", "ad"} <= words


@pytest.mark.parametrize(
    "spec", ["copy:longest=3", "copy:max=x", "reverse:min=9,max=3", "add:max=2000", "copy:train=0"]
)
def test_wrong_options_say_what_is_right(spec):
    with pytest.raises(NmtError, match=spec.partition(":")[0]):
        open_corpus(spec, Request())


def test_too_few_sequences_are_an_error():
    with pytest.raises(NmtError, match="too few"):
        open_corpus("copy:max=1,symbols=1,train=3", Request()).read("test")
