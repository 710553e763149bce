import math
from collections import Counter
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.subwords import Lattice, SubwordSampler, merge
from nmt_cli.tokenizer import TextRule, Tokenizer, train
from tests.test_tokenizer import LINES

KINDS = ["bpe", "unigram"]
DRAWS = 20_000
TEXT = st.text(st.sampled_from("The dog▁▅\0\ue0001é日<s>\u00a0 "), max_size=30)


@cache
def make(kind, symbols=()):
    model = train(LINES, TextRule(), kind, 310, symbols)
    return Tokenizer(model, TextRule())


def within(count, probability):
    """Whether a count of DRAWS is within four standard deviations."""
    spread = math.sqrt(DRAWS * probability * (1 - probability))
    return abs(count - DRAWS * probability) <= 4 * spread + 1


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_of_the_same_text_and_follow_from_the_seed(kind):
    text = make(kind)
    sampler = SubwordSampler(text, kind, (), 0.3)
    drawn = [sampler.encode_all(LINES, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for ids in drawn:
        assert [text.decode(row) for row in ids] == [text.rule(line) for line in LINES]


@settings(max_examples=200, deadline=None)
@given(line=TEXT)
def test_bpe_that_leaves_out_no_merge_is_sentencepieces(line):
    tokenizer = make("bpe")
    assert SubwordSampler(tokenizer, "bpe", (), 0.0).encode_all([line], 1) == [
        tokenizer.encode(line)
    ]


@settings(max_examples=200, deadline=None)
@given(line=TEXT)
def test_a_high_power_of_unigram_is_sentencepieces_best(line):
    tokenizer = make("unigram")
    drawn = SubwordSampler(tokenizer, "unigram", (), 1e4).encode_all([line], 1)[0]
    best = tokenizer.encode(line)

    def score(ids):
        pieces, scores = tokenizer.raw_pieces(), tokenizer.scores()
        least = min(scores.values()) - 10
        return sum(scores.get(pieces[i], least if i >= 260 else 0.0) for i in ids)

    assert tokenizer.decode(drawn) == tokenizer.decode(best)
    assert score(drawn) == pytest.approx(score(best), abs=1e-3)


def test_bpe_that_leaves_out_every_merge_gives_characters():
    tokenizer = make("bpe")
    (ids,) = SubwordSampler(tokenizer, "bpe", (), 1.0).encode_all(LINES[:1], 1)
    assert tokenizer.pieces(ids) == list("▁" + LINES[0].replace(" ", "▁"))


def test_merges_are_left_out_by_their_chance():
    # "abc" with merges ab, then abc: whole if neither is left out, a|bc never
    scores, random = {"ab": -1.0, "abc": -2.0}, Random(1)
    counts = Counter(tuple(merge(list("abc"), scores, 0.2, random)) for _ in range(DRAWS))
    assert within(counts[("abc",)], 0.8 * 0.8)
    assert within(counts[("ab", "c")], 0.8 * 0.2)
    assert within(counts[("a", "b", "c")], 0.2)


@pytest.mark.parametrize("power", [0.2, 1.0])
def test_a_lattice_draws_each_segmentation_by_its_probability(power):
    scores = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -1.8, "bc": -3.5, "abc": -4.0}
    ways = [("a", "b", "c"), ("ab", "c"), ("a", "bc"), ("abc",)]
    weights = [math.exp(power * sum(scores[piece] for piece in way)) for way in ways]
    lattice, random = Lattice("abc", scores, power, -14.0, 3), Random(1)
    counts = Counter(tuple(lattice.draw(random)) for _ in range(DRAWS))
    assert set(counts) == set(ways)
    for way, weight in zip(ways, weights, strict=True):
        assert within(counts[way], weight / sum(weights))


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_stay_whole(kind):
    tokenizer = make(kind, ("<num>",))
    sampler = SubwordSampler(tokenizer, kind, ["<num>"], 1.0 if kind == "bpe" else 0.0)
    (ids,) = sampler.encode_all(["The <num> dogs"], 1)
    assert "<num>" in tokenizer.pieces(ids)
    assert tokenizer.decode(ids) == "The <num> dogs"
