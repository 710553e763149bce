"""From a corpus to batches: what is said on the way, in memory and from disk."""

import itertools

import pytest

from nmt_cli import config as configuration
from nmt_cli import preparation
from nmt_cli.api import _Unwatched
from nmt_cli.batches import Position
from nmt_cli.config import resolve
from nmt_cli.corpus.pairs import Pair
from nmt_cli.corpus.spool import SpooledPairs
from nmt_cli.preparation import Preparation
from tests.conftest import PAIRS, write_pairs

MANY = [(f"{src} {n}", f"{tgt} {n}") for n in range(30) for src, tgt in PAIRS]


def prepared(folder, **asked):
    """Prepare a corpus: what holds it, and the notes on the way."""
    data = str(write_pairs(folder, MANY))
    asked = {"data": data, "src_lang": "en", "tgt_lang": "fr", "vocab_size": 350, **asked}
    made = Preparation(resolve(asked), _Unwatched())
    notes = [note.text for step in (made.read(), made.learn_tokenizers()) for note in step]
    return made, notes


def batches_of(made, max_positions=None):
    """Give the first batches, and the notes on the way to them."""
    notes, steps = [], made.batches(max_positions)
    while True:
        try:
            notes.append(next(steps).text)
        except StopIteration as end:
            stream = end.value.start_from(Position(0, 0))
            rows = [(p, b.src.tolist(), b.tgt.tolist()) for p, b in itertools.islice(stream, 9)]
            return rows, notes


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte"])
def test_a_vocabulary_that_the_text_does_not_fill_is_warned_of(tmp_path, kind):
    _, notes = prepared(tmp_path, tokenizer=kind, vocab_size=7000)
    (said,) = [note for note in notes if note.startswith("warning:")]
    assert said.startswith("warning: --vocab-size 7000 is more than the shared text fills")
    assert notes[-1] == f"vocabulary: {said.split()[-1]} ({kind})"


def test_a_word_without_end_is_no_word_to_validate_by(tmp_path):
    made, _ = prepared(tmp_path, tokenizer="char", max_words=6)
    valid = [Pair("a" * 5000, "x"), Pair("a b", "y"), Pair("c", "z" * 200)]
    made.splits.valid = made.splits.valid._replace(pairs=valid)
    assert [reference for reference, _ in made.valid_pairs(None)] == ["y"]
    assert made.most_tokens(None) == 120 and made.most_tokens(50) == 50


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_words_of_many_characters_are_words(tmp_path, kind):
    made, _ = prepared(tmp_path, tokenizer=kind, max_words=6)
    longest = max(
        len(ids) for pair in made.tokenizers.encode(made.splits.train.pairs) for ids in pair
    )
    assert longest > 30 or kind == "bpe"
    assert batches_of(made)[1] == []


@pytest.mark.parametrize("sampling", [0.0, 0.2])
def test_a_corpus_past_what_is_held_gives_the_same_batches_from_disk(
    tmp_path, monkeypatch, sampling
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    asked = {"dedupe": True, "max_words": 6, "batch_tokens": 60, "subword_sampling": sampling}
    held, notes = prepared(tmp_path, **asked)
    expected, said = batches_of(held, max_positions=20)
    for module in (configuration, preparation):
        monkeypatch.setattr(module, "MOST_HELD", 100)
    stored, sampled = prepared(tmp_path, **asked)
    assert isinstance(stored.splits.train.pairs, SpooledPairs)
    assert list(stored.splits.train.pairs) == held.splits.train.pairs
    assert stored.data_hash() == held.data_hash()
    assert notes[:-1] == sampled[:-1]
    assert sampled[-1].endswith(", learnt from one pair in 2)")
    stored.tokenizers = held.tokenizers
    found, (written, *rest) = batches_of(stored, max_positions=20)
    assert found == expected
    assert rest == said
    assert said[0].startswith("dropped: ")
    assert f"wrote the corpus as ids: {tmp_path / 'caches' / 'nmt' / 'ids-'}" in written
    assert "using the corpus as ids" in batches_of(stored)[1][0]
