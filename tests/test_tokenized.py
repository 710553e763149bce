import os

import numpy as np
import pytest

from nmt_cli import tokenized
from nmt_cli.batches import BatchSize, HeldIds, Position, TrainingBatches
from nmt_cli.corpus.pairs import Pair
from nmt_cli.tokenized import Tokenizers, store
from nmt_cli.tokenizer import TextRule, Tokenizer, train

PAIRS = [Pair(f"{'a ' * (n % 9)}number {n}", f"Zahl {n} {'é ' * (n % 4)}") for n in range(100)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(tokenized, "CHUNK", 16)


@pytest.fixture(scope="module")
def tokenizers():
    trained = train(["a number Zahl é 0123456789"], TextRule(), "char", 300)
    one = Tokenizer(trained, TextRule())
    return Tokenizers(one, one)


def test_ids_on_disk_are_those_in_memory(tmp_path, tokenizers):
    held = HeldIds(tokenizers.encode(PAIRS))
    ids, path, found = store(tmp_path, PAIRS, "x", tokenizers)
    assert not found
    assert [ids[i] for i in range(len(ids))] == [held[i] for i in range(100)]
    assert (ids.lengths == held.lengths).all()
    for some in (ids, held):
        some.keep(np.arange(1, 100, 3))
    assert [ids[i] for i in range(len(ids))] == [held[i] for i in range(33)]
    assert (ids.lengths == held.lengths).all()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_both_are_trained_on_in_the_same_batches(tmp_path, tokenizers):
    ids, _, _ = store(tmp_path, PAIRS, "x", tokenizers)
    for window in (1000, 20):
        streams = [
            TrainingBatches(pairs, BatchSize(60), 1, window=window).start_from(Position(0, 0))
            for pairs in (ids, HeldIds(tokenizers.encode(PAIRS)))
        ]
        for _ in range(60):
            (place, batch), (wanted, expected) = map(next, streams)
            assert place == wanted
            assert batch.src.equal(expected.src)
            assert batch.tgt.equal(expected.tgt)


def test_a_file_is_used_again_by_the_same_pairs_and_tokenizers_alone(tmp_path, tokenizers):
    first = store(tmp_path, PAIRS, "x", tokenizers)[1]
    lowered = Tokenizer(tokenizers.src.model, TextRule(lowercase=True))
    others = [("y", tokenizers), ("x", tokenizers._replace(tgt=lowered))]
    for digest, given in others:
        _, path, found = store(tmp_path, PAIRS, digest, given)
        assert not found
        assert path != first
    assert store(tmp_path, PAIRS, "x", tokenizers)[1:] == (first, True)


@pytest.mark.parametrize("place", [0, 300, 5000, -20, -1])
def test_a_file_of_which_a_bit_has_changed_is_written_anew(tmp_path, tokenizers, place):
    _, path, _ = store(tmp_path, PAIRS, "x", tokenizers)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    assert not store(tmp_path, PAIRS, "x", tokenizers)[2]
    assert path.read_bytes() == whole


def test_what_a_killed_process_left_is_removed_after_a_while(tmp_path, tokenizers):
    old, new, other = (tmp_path / f".{name}.1.part.arrow" for name in ("ids-a", "ids-b", "mine"))
    for path in (old, new, other):
        path.write_bytes(b"")
    for path in (old, other):
        os.utime(path, (0, 0))
    store(tmp_path, PAIRS, "x", tokenizers)
    assert [path.exists() for path in (old, new, other)] == [False, True, True]


@pytest.mark.parametrize("share", [0, 0.3, 0.97])
def test_a_file_that_is_cut_off_is_written_anew(tmp_path, tokenizers, share):
    _, path, _ = store(tmp_path, PAIRS, "x", tokenizers)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    ids, _, found = store(tmp_path, PAIRS, "x", tokenizers)
    assert not found
    assert ids[99] == tokenizers.encode(PAIRS)[99]
    assert path.read_bytes() == whole


def test_the_file_is_one_that_datasets_reads(tmp_path, tokenizers):
    datasets = pytest.importorskip("datasets")
    _, path, _ = store(tmp_path, PAIRS, "x", tokenizers)
    rows = datasets.Dataset.from_file(str(path))
    assert rows[5] == {"src": tokenizers.ids(PAIRS)[0][5], "tgt": tokenizers.ids(PAIRS)[1][5]}
