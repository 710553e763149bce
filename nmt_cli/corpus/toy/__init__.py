"""The embedded English-German corpus, generated from a synchronous grammar.

One random tree is read off in both languages, so every source has exactly one translation and
BLEU can reach 100. German marks gender and case, puts the verb second in main clauses and last
in subordinate ones, and closes its bracket with participles, infinitives and separable prefixes
far from where English has them. The same seed gives the same corpus on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, NamedTuple

from nmt_cli.corpus.pairs import MOST_MADE, Corpus, Pair, PairStream, Request
from nmt_cli.corpus.toy import english, german
from nmt_cli.corpus.toy.grammar import Dice, Grammar
from nmt_cli.errors import NmtError


class Share(NamedTuple):
    """A range of source lengths in words and its part of a split."""

    low: int
    high: int
    weight: float


TRAINING_LENGTHS = (
    Share(3, 10, 0.66),
    Share(11, 20, 0.14),
    Share(21, 30, 0.05),
    Share(31, 40, 0.05),
    Share(41, 50, 0.05),
    Share(51, 60, 0.05),
)
TEST_LENGTHS = tuple(Share(low, high, 1 / 6) for low, high, _ in TRAINING_LENGTHS)
VALID_SIZE, TEST_SIZE = 500, 1200
_NO_SPACE_BEFORE = {",", ".", "?"}
_NO_COMMA_AFTER = {"", "und", "aber"}
_MAIN_CLAUSE_WORDS = 13
"""About how long a main clause with all that hangs on it is, at full richness."""


@dataclass(frozen=True)
class ToyOptions:
    """Options of ``toy``, as in ``toy:train=50000,seed=7``."""

    train: Annotated[int, "training pairs"] = 20_000
    seed: Annotated[int, "seed of the grammar; 1 is the corpus that results are quoted on"] = 1


def corpus(options: str, request: Request) -> Corpus:
    """Give the toy corpus with its three splits.

    Raises:
        NmtError: for unknown options, or languages other than English and German.
    """
    src_lang, tgt_lang = request.src_lang or "en", request.tgt_lang or "de"
    if {src_lang, tgt_lang} != {"en", "de"}:
        raise NmtError(f"toy: has en and de, not {src_lang} and {tgt_lang}")
    chosen = _parse(options)
    made = cache(lambda: make(chosen))

    def read(split: str) -> PairStream:
        pairs = made()[split]
        if src_lang == "de":
            pairs = [Pair(pair.tgt, pair.src) for pair in pairs]
        return PairStream(f"toy {split}", src_lang, tgt_lang, iter(pairs))

    return Corpus("toy", {split: partial(read, split) for split in ("train", "valid", "test")})


def _parse(options: str) -> ToyOptions:
    values = {}
    for word in filter(None, options.split(",")):
        key, _, value = word.partition("=")
        if key not in {"train", "seed"} or not value.isdecimal():
            raise NmtError(f"toy:{options}: takes train=N and seed=N, such as toy:train=50000")
        if key in values:
            raise NmtError(f"toy:{options}: {key} is given twice")
        values[key] = int(value)
    if not 1 <= values.get("train", 1) <= MOST_MADE:
        raise NmtError(f"toy:{options}: train must be from 1 to {MOST_MADE}")
    return ToyOptions(**values)


def make(options: ToyOptions) -> dict[str, list[Pair]]:
    """Generate the three splits, disjoint by source; the size of one does not change another."""
    seen: set[str] = set()
    sizes = {"test": TEST_SIZE, "valid": VALID_SIZE, "train": options.train}
    splits = {}
    for number, (split, size) in enumerate(sizes.items()):
        lengths = TEST_LENGTHS if split == "test" else TRAINING_LENGTHS
        dice = Dice(options.seed * len(sizes) + number)
        splits[split] = list(_generate(size, lengths, dice, seen))
    return splits


def _generate(size: int, lengths: tuple[Share, ...], dice: Dice, seen: set[str]) -> Iterator[Pair]:
    grammar = Grammar(dice)
    missing = _counts(size, lengths)
    while sum(missing) > 0:
        share = _draw(missing, dice)
        pair = _pair_between(lengths[share].low, lengths[share].high, grammar)
        if pair.src not in seen:
            seen.add(pair.src)
            missing[share] -= 1
            yield pair


def _counts(size: int, lengths: tuple[Share, ...]) -> list[int]:
    counts = [int(size * share.weight) for share in lengths]
    counts[0] += size - sum(counts)
    return counts


def _draw(missing: list[int], dice: Dice) -> int:
    place = dice.below(sum(missing))
    for share, count in enumerate(missing):
        if place < count:
            return share
        place -= count
    raise AssertionError("the counts sum to less than was drawn from")


def _pair_between(low: int, high: int, grammar: Grammar) -> Pair:
    """Draw sentences until one has so many source words."""
    while True:
        wanted = low + grammar.dice.below(high - low + 1)
        units = max(1, round(wanted / _MAIN_CLAUSE_WORDS))
        richness = min(1.0, max(0.0, (wanted / units - 4) / 8))
        tree = grammar.sentence(units, richness)
        src = written(english.sentence(tree))
        if low <= len(src.split()) <= high:
            return Pair(src, written(german.sentence(tree)))


def written(words: list[str]) -> str:
    """Join words as people write: a capital first, marks attached, one comma where two meet."""
    text = ""
    before = ""
    for word in words:
        if word not in _NO_SPACE_BEFORE:
            text += f" {word}" if text else word
        elif word != "," or before not in _NO_COMMA_AFTER:
            text = text.rstrip(",") + word
        before = word
    return text[0].upper() + text[1:]
