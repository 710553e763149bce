"""What is in a corpus: sizes, lengths, repeats, scripts, and lines that look wrong.

A corpus is read twice and never held: beside its vocabulary two hashes of 8 bytes a pair are kept.
The second reading compares each line with what the first one learnt about its side.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from nmt_cli.corpus.lines import is_blank
from nmt_cli.corpus.pairs import Pair, PairStream, counted, stable_hash

LONGEST_BUCKET = 100
"""Words from which all lengths share the last bucket of a histogram."""
BUCKET = 5
_BLOCK = 1 << 12
"""Pairs whose hashes are compared at once."""
EXAMPLES = 10
"""Suspicious lines that are named for each reason; all are counted."""
_MARKUP = re.compile(r"<[A-Za-z/!][^<>]*>|&(#\d+|[A-Za-z]{2,8});")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""Unicode's category Cc but the tab."""
_LATIN = "LATIN"
_ODD_RATIO = 3.0
_FEW_WORDS = 4
"""A shorter side is not judged by its ratio or direction."""
_RARE_SCRIPT = 0.02
_SWAPPED = 5.0
"""Nats by which both sides must look more like the other one."""

Open = Callable[[], PairStream]


@dataclass
class Side:
    """What is known of one side."""

    words: int = 0
    characters: int = 0
    longest: int = 0
    empty: int = 0
    vocabulary: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    """Lines by their number of words, in buckets of ``BUCKET``: the upper edge of each."""
    symbols: Counter[str] = field(default_factory=Counter)
    """Characters, each with its number."""
    composed: int = 0
    """Lines that are in form NFC and not in NFD."""
    decomposed: int = 0
    """Lines that are in NFD and not in NFC."""

    def add(self, text: str) -> None:
        """Count one line."""
        if is_blank(text):
            self.empty += 1
            return
        words = text.split()
        self.words += len(words)
        self.characters += len(text)
        self.longest = max(self.longest, len(words))
        self.vocabulary.update(words)
        self.lengths[bucket_of(len(words))] += 1
        self.symbols.update(text)
        if not text.isascii():
            is_nfc = unicodedata.is_normalized("NFC", text)
            is_nfd = unicodedata.is_normalized("NFD", text)
            self.composed += is_nfc and not is_nfd
            self.decomposed += is_nfd and not is_nfc

    def scripts(self) -> Counter[str]:
        """Count letters by script."""
        return scripts_of(self.symbols)

    def usual_scripts(self) -> set[str]:
        """Name the scripts that are no exception here."""
        scripts = self.scripts()
        return {name for name, count in scripts.items() if count >= _RARE_SCRIPT * scripts.total()}

    def as_json(self) -> dict[str, Any]:
        """Give all but the vocabulary itself."""
        return {
            "words": self.words,
            "characters": self.characters,
            "vocabulary": len(self.vocabulary),
            "longest": self.longest,
            "empty": self.empty,
            "lengths": {str(edge): self.lengths[edge] for edge in sorted(self.lengths)},
            "scripts": dict(self.scripts().most_common()),
            "nfc_lines": self.composed,
            "nfd_lines": self.decomposed,
        }


@dataclass
class Suspicion:
    """Lines that look wrong for one reason."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    """The first of them, counted from 1."""

    def add(self, number: int) -> None:
        """Note a line."""
        self.count += 1
        if len(self.lines) < EXAMPLES:
            self.lines.append(number)


@dataclass
class Info:
    """What is known of one split."""

    name: str
    src_lang: str
    tgt_lang: str
    pairs: int = 0
    src: Side = field(default_factory=Side)
    tgt: Side = field(default_factory=Side)
    duplicates: int = 0
    """Pairs that stand there before."""
    ambiguous: int = 0
    """Different sources that have several different targets."""
    suspicious: dict[str, Suspicion] = field(default_factory=dict)
    leaked: dict[str, int] = field(default_factory=dict)
    """Pairs that also stand in another split, by its name."""
    notes: list[str] = field(default_factory=list)
    hashes: Any = field(default=None, repr=False)
    """The sorted hashes of the pairs, for comparing splits."""

    @property
    def ratio(self) -> float | None:
        """Target words per source word."""
        return self.tgt.words / self.src.words if self.src.words else None

    def as_json(self) -> dict[str, Any]:
        """Give all of it."""
        return {
            "name": self.name,
            "src_lang": self.src_lang,
            "tgt_lang": self.tgt_lang,
            "pairs": self.pairs,
            "source": self.src.as_json(),
            "target": self.tgt.as_json(),
            "length_ratio": self.ratio,
            "duplicates": self.duplicates,
            "sources_with_several_targets": self.ambiguous,
            "leaked": self.leaked,
            "suspicious": {
                reason: {"count": found.count, "lines": found.lines}
                for reason, found in self.suspicious.items()
            },
            "notes": self.notes,
        }


def bucket_of(words: int) -> int:
    """Give the upper edge of a length's bucket; the last one is open."""
    return min(math.ceil(words / BUCKET) * BUCKET, LONGEST_BUCKET)


@lru_cache(maxsize=1 << 16)
def script_of(char: str) -> str | None:
    """Name the script of a letter by the first word of its Unicode name; None for no letter."""
    if not char.isalpha():
        return None
    return unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]


def scripts_of(symbols: Mapping[str, int]) -> Counter[str]:
    """Count letters by script, of characters with their numbers."""
    scripts: Counter[str] = Counter()
    for char, count in symbols.items():
        if script := script_of(char):
            scripts[script] += count
    return scripts


def describe(open_pairs: Open, on_done: Callable[[int], None] | None = None) -> Info:
    """Read a split twice and say what is in it.

    Args:
        open_pairs: opens it anew each time.
        on_done: called with the number of pairs just read, in each reading.
    """
    stream = open_pairs()
    info = Info(stream.name, stream.src_lang, stream.tgt_lang)
    hashes = array("q")
    for pair in counted(stream.pairs, on_done):
        info.pairs += 1
        info.src.add(pair.src)
        info.tgt.add(pair.tgt)
        hashes.append(stable_hash(pair.src))
        hashes.append(pair.fingerprint())
    info.notes = list(stream.notes)
    _count_repeats(info, hashes)
    judge = _Judge(info)
    for number, pair in enumerate(counted(open_pairs().pairs, on_done), start=1):
        for reason in judge.reasons(pair):
            info.suspicious.setdefault(reason, Suspicion()).add(number)
    return info


def _count_repeats(info: Info, hashes: array[int]) -> None:
    """Sort the hashes where they are, count runs of equal ones, and keep those of the pairs.

    A block at a time, and each block's result is written over what was read before: there is no
    second copy of the table.
    """
    if not hashes:
        info.hashes = np.empty(0, np.int64)
        return
    rows = np.dtype([("src", np.int64), ("pair", np.int64)])
    table, flat = np.frombuffer(hashes, rows), np.frombuffer(hashes, np.int64)
    table.sort(order=["src", "pair"])
    before, counted, kept = None, False, 0
    for begin in range(0, len(table), _BLOCK):
        src, pair = (table[name][begin : begin + _BLOCK].copy() for name in ("src", "pair"))
        new_src, new_pair = np.ones(len(src), bool), np.ones(len(src), bool)
        np.not_equal(src[1:], src[:-1], out=new_src[1:])
        np.not_equal(pair[1:], pair[:-1], out=new_pair[1:])
        if before is not None:
            new_src[0], new_pair[0] = src[0] != before[0], pair[0] != before[1]
        run = np.cumsum(new_src)  # 0: the source that the block before ended with
        several = np.unique(run[new_pair & ~new_src])
        info.ambiguous += len(several) - int(counted and 0 in several)
        counted = run[-1] in several or (run[-1] == 0 and counted)
        before = src[-1], pair[-1]
        different = pair[new_pair]
        flat[kept : kept + len(different)] = different
        kept += len(different)
    info.duplicates = len(table) - kept
    del table, flat
    del hashes[kept:]
    info.hashes = np.frombuffer(hashes, np.int64)
    info.hashes.sort()


def count_shared(info: Info, other: Info) -> int:
    """Count the different pairs that stand in both splits."""
    return int(np.isin(info.hashes, other.hashes, assume_unique=True).sum())


class _Judge:
    """Tells a line that looks wrong by what the whole of its side is like."""

    def __init__(self, info: Info) -> None:
        self._sides = (info.src, info.tgt)
        self._usual = tuple(side.usual_scripts() for side in self._sides)
        self._totals = [side.words + 0.5 * len(side.vocabulary) + 1 for side in self._sides]

    def reasons(self, pair: Pair) -> list[str]:
        """Say what is odd about a pair."""
        src, tgt = (text.split() for text in pair)
        found = []
        if is_blank(pair.src) or is_blank(pair.tgt):
            return ["empty side"]
        for text, usual, side in zip(pair, self._usual, ("source", "target"), strict=True):
            if _LATIN in usual and text.isascii():
                continue
            scripts = scripts_of(Counter(text))
            if scripts and scripts.most_common(1)[0][0] not in usual:
                found.append(f"{side} in another script than the rest")
        if any(_CONTROL.search(text) for text in pair):
            found.append("control characters")
        if any(_MARKUP.search(text) for text in pair):
            found.append("markup")
        short, long = sorted((len(src), len(tgt)))
        if long >= _FEW_WORDS and long > _ODD_RATIO * short:
            found.append(f"one side more than {_ODD_RATIO:.0f} times longer")
        if short >= _FEW_WORDS and pair.src == pair.tgt:
            found.append("target is a copy of the source")
        elif short >= _FEW_WORDS and self._looks_swapped(src, tgt):
            found.append("sides look swapped")
        return found

    def _looks_swapped(self, src: list[str], tgt: list[str]) -> bool:
        """Tell whether both sides would be likelier as the other, by their words.

        A pair's own words are counted out, or a rare word would speak for where it stands.
        """
        return (
            self._like_target(src, own=0) > _SWAPPED and self._like_target(tgt, own=1) < -_SWAPPED
        )

    def _like_target(self, words: list[str], own: int) -> float:
        """Sum log P(word | target side) / P(word | source side)."""
        total = len(words) * math.log(self._totals[0] / self._totals[1])
        for word, times in Counter(words).items():
            counts = [side.vocabulary[word] + 0.5 for side in self._sides]
            counts[own] = max(counts[own] - times, 0.5)
            total += times * math.log(counts[1] / counts[0])
        return total
