"""What ``nmt data info`` says of a corpus."""

import json
import random
import unicodedata

import pytest

from nmt_cli.corpus import info as info_module
from nmt_cli.corpus.info import bucket_of, count_shared, describe
from nmt_cli.corpus.pairs import Pair, PairStream
from tests.conftest import PAIRS, expect_error, nmt, text, write_pairs

ENGLISH = [
    "the",
    "old",
    "man",
    "sees",
    "a",
    "red",
    "house",
    "near",
    "our",
    "small",
    "town",
    "every",
    "day",
]
GERMAN = [
    "der",
    "alte",
    "Mann",
    "sieht",
    "ein",
    "rotes",
    "Haus",
    "nahe",
    "unserer",
    "kleinen",
    "Stadt",
    "jeden",
    "Tag",
]


def sentences(count):
    for n in range(count):
        size = 5 + n % 8
        src = [ENGLISH[(n * 7 + k * 3) % len(ENGLISH)] for k in range(size)]
        tgt = [GERMAN[(n * 5 + k * 2) % len(GERMAN)] for k in range(size)]
        yield Pair(f"{n} " + " ".join(src), f"{n} " + " ".join(tgt))


def info_of(pairs):
    pairs = [Pair(*pair) for pair in pairs]
    return describe(lambda: PairStream("c", "en", "de", iter(pairs), ["a note"]))


def test_everything_is_counted():
    found = info_of([("a b c", "x y"), ("a b c", "x y"), ("a b c", "z"), ("", "w"), ("d", " ")])
    assert (found.pairs, found.duplicates, found.ambiguous) == (5, 1, 1)
    assert (found.src.words, found.tgt.words) == (10, 6)
    assert (found.src.empty, found.tgt.empty) == (1, 1)
    assert (len(found.src.vocabulary), found.src.longest) == (4, 3)
    assert found.src.lengths == {5: 4}
    assert found.ratio == pytest.approx(0.6)
    assert found.notes == ["a note"]
    assert found.suspicious["empty side"].lines == [4, 5]


@pytest.mark.parametrize(
    ("words", "edge"), [(1, 5), (5, 5), (6, 10), (95, 95), (96, 100), (9999, 100)]
)
def test_buckets_hold_their_upper_edge(words, edge):
    assert bucket_of(words) == edge


def test_no_pairs_are_no_error():
    found = info_of([])
    assert (found.pairs, found.duplicates, found.ambiguous, found.ratio) == (0, 0, 0, None)


def test_lines_that_look_wrong_are_named_by_number():
    pairs = list(sentences(60))
    pairs[9] = Pair(pairs[9].tgt, pairs[9].src)
    pairs[19] = Pair(pairs[19].src, "старый человек видит дом")
    pairs[29] = Pair(pairs[29].src + " <b>bold</b>", pairs[29].tgt)
    pairs[30] = Pair(pairs[30].src, pairs[30].tgt + " &amp; 3 < 4")
    pairs[39] = Pair(pairs[39].src + " \x07", pairs[39].tgt)
    pairs[49] = Pair(pairs[49].src, "ja")
    pairs[59] = Pair(pairs[59].src, pairs[59].src)
    found = info_of(pairs)
    lines = {reason: suspicion.lines for reason, suspicion in found.suspicious.items()}
    assert lines == {
        "sides look swapped": [10],
        "target in another script than the rest": [20],
        "markup": [30, 31],
        "control characters": [40],
        "one side more than 3 times longer": [50],
        "target is a copy of the source": [60],
    }
    assert found.tgt.scripts()["CYRILLIC"] > 0


def test_mixed_normal_forms_are_seen():
    found = info_of([("Männer", "x"), (unicodedata.normalize("NFD", "Männer"), "x"), ("a", "x")])
    assert (found.src.composed, found.src.decomposed) == (1, 1)


def test_pairs_shared_by_splits_count_once():
    pairs = list(sentences(6))
    assert count_shared(info_of(pairs[:4] + pairs[:1]), info_of(pairs[3:])) == 1


def test_the_command_shows_draws_and_writes(tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    write_pairs(folder, name="train")
    write_pairs(folder, PAIRS[:3], name="test")
    shown = text(nmt("data", "info", "c", "-s", "en", "-t", "fr", "--plot", "l.png", cwd=tmp_path))
    assert f"train: {len(PAIRS)} pairs" in shown
    assert "pairs also in train: 3" in shown
    assert "1-5" in shown and "#" in shown
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")
    form = json.loads(
        text(nmt("data", "info", "c", "-s", "en", "-t", "fr", "--json", "-", cwd=tmp_path))
    )
    assert form["splits"]["train"]["pairs"] == len(PAIRS)
    assert form["splits"]["test"]["leaked"] == {"train": 3}
    expect_error(nmt("data", "info", "nothing", cwd=tmp_path), 2, "nothing")


def test_memory_is_bounded_by_the_vocabulary(tmp_path):
    """A thousand times the pairs of few words take two hashes more each, and no text."""
    import tracemalloc

    def peak(count):
        def stream():
            return PairStream("c", "en", "de", (Pair(f"a b {n % 50}", "x y") for n in range(count)))

        tracemalloc.start()
        describe(stream)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    growth = (peak(12_000) - peak(4_000)) / 8_000
    assert growth < 24


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_repeats_are_counted_as_by_dictionaries_whatever_the_block(monkeypatch, block, seed):
    monkeypatch.setattr(info_module, "_BLOCK", block)
    chance = random.Random(seed)
    pairs = [
        Pair(chance.choice("abcde"), chance.choice("xyz")) for _ in range(chance.randrange(40))
    ]
    found = describe(lambda: PairStream("c", "en", "fr", iter(pairs)))
    targets = {src: {t for s, t in pairs if s == src} for src, _ in pairs}
    assert found.duplicates == len(pairs) - len(set(pairs))
    assert found.ambiguous == sum(len(several) > 1 for several in targets.values())
    assert found.hashes.tolist() == sorted(pair.fingerprint() for pair in set(pairs))
