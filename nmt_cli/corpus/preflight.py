"""A look at the corpus before the first step, so that nothing is cut or dropped silently."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.lines import is_blank
from nmt_cli.corpus.pairs import Pair, PairList, counted
from nmt_cli.corpus.splits import Splits
from nmt_cli.corpus.spool import Places, select
from nmt_cli.errors import NmtError

_ODD_RATIO = 9.0

Fingerprints = NDArray[np.int64]
"""Hashes of pairs, eight bytes each."""


@dataclass(frozen=True)
class Limits:
    """Which training pairs are left out, beside those with an empty side."""

    max_words: int
    """A pair with a longer side, in words."""
    min_words: int = 1
    """A pair with a shorter side."""
    max_ratio: float | None = None
    """A pair of which one side has more than so many times the words of the other."""
    drop_copies: bool = False
    """A pair whose sides are the same."""
    dedupe: bool = False
    """A pair that stands there before, word for word."""


@dataclass(frozen=True)
class Preflight:
    """What was found; ``lines`` says it in words."""

    read: int
    kept: int
    dropped: dict[str, int]
    """Pairs left out, by the reason in words."""
    odd_ratio: int
    duplicates: int
    valid_dropped: int
    """Validation pairs left out, as one of their sides is empty."""
    leaked: int
    test_pairs: int
    unknown_characters: float
    """Share of the test sources' characters that no training source has."""

    def _unknown(self) -> str:
        percent = 100 * self.unknown_characters
        return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"

    def lines(self) -> list[str]:
        """Give the report, one fact a line."""
        report = [f"train: {self.kept} pairs" + (f" of {self.read}" if self.dropped else "")]
        if self.dropped:
            counts = (f"{count} {reason}" for reason, count in self.dropped.items())
            report.append(f"dropped: {', '.join(counts)}")
        if self.odd_ratio:
            report.append(f"kept, but one side is over 9 times the other: {self.odd_ratio} pairs")
        if self.duplicates:
            report.append(f"duplicates: {self.duplicates} pairs occur before, word for word")
        if self.valid_dropped:
            report.append(f"valid: dropped: {self.valid_dropped} with an empty side")
        if self.leaked:
            report.append(leak_warning(self.leaked, self.test_pairs))
        if self.unknown_characters > 0:
            report.append(
                f"unknown characters: {self._unknown()} % of the test sources' "
                "characters are in no training source"
            )
        return report


def leak_warning(leaked: int, total: int) -> str:
    """Say how many test pairs the training data has."""
    return f"warning: {leaked} of {total} test pairs occur in the training data"


def count_leaked(test: Iterable[Pair], training: Fingerprints) -> int:
    """Count test pairs whose fingerprint, or that of their normal form, is among those."""
    found = [{pair.fingerprint(), pair.normal().fingerprint()} for pair in test]
    hashes = np.array(sorted(set().union(*found)), np.int64)
    known = set(hashes[np.isin(hashes, training)].tolist())
    return sum(not known.isdisjoint(either) for either in found)


def fingerprints_of(pairs: Iterable[Pair]) -> Fingerprints:
    """Hash each pair."""
    return np.fromiter((pair.fingerprint() for pair in pairs), np.int64)


def digest(*fingerprints: Fingerprints) -> str:
    """Hash hashes of pairs, in their order, to one."""
    whole = hashlib.blake2b(digest_size=16)
    for some in fingerprints:
        whole.update(some.astype("<i8").tobytes())
    return whole.hexdigest()


def preflight(
    splits: Splits, limits: Limits, on_done: Callable[[int], None] | None = None
) -> tuple[Splits, Preflight, Fingerprints, Fingerprints]:
    """Leave out what cannot be trained on and report on the rest.

    Args:
        splits: as they were read.
        limits: which training pairs are left out.
        on_done: called with the number of training pairs just looked at.

    Returns:
        the splits without the pairs left out, the report, the fingerprints of the training pairs
        that are left, and those of their normal forms.

    Raises:
        NmtError: if no training or validation pair is left.
    """
    read = splits.train.pairs
    places, fingerprints, dropped = _filter(counted(read, on_done), limits)
    kept = select(read, places)
    if not read:
        why = "".join(f" ({note})" for note in splits.train.notes)
        raise NmtError(f"{splits.train.name}: holds no pairs{why}")
    if not kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise NmtError(
            f"{splits.train.name}: 0 of {len(read)} pairs left, --max-words {limits.max_words}: "
            f"{reasons}; give other data or wider limits"
        )
    known = fingerprints_of(pair.normal() for pair in kept)
    leaked = 0
    if splits.test.pairs is read:  # the training pairs serve, so those that are left
        splits = replace(splits, test=_with(splits.test, kept))
    else:
        leaked = count_leaked(splits.test.pairs, known)
    if splits.valid.pairs is read:
        splits = replace(splits, valid=_with(splits.valid, kept))
    valid = [p for p in splits.valid.pairs if not is_blank(p.src) and not is_blank(p.tgt)]
    report = Preflight(
        read=len(read),
        kept=len(kept),
        dropped=dropped,
        odd_ratio=sum(_ratio(pair) > _ODD_RATIO for pair in kept),
        duplicates=len(kept) - len(np.unique(fingerprints)),
        valid_dropped=len(splits.valid.pairs) - len(valid),
        leaked=leaked,
        test_pairs=len(splits.test.pairs),
        unknown_characters=_unknown_share(kept, splits.test.pairs),
    )
    if not valid:
        raise NmtError(f"{splits.valid.name}: no validation pair has text on both sides")
    if not splits.test.pairs:
        raise NmtError(f"{splits.test.name}: the test split is empty")
    usable = Splits(
        _with(splits.train, kept), _with(splits.valid, valid), splits.test, splits.notes
    )
    return usable, report, fingerprints, known


def _filter(pairs: Iterable[Pair], limits: Limits) -> tuple[Places, Fingerprints, dict[str, int]]:
    """Keep what is within the limits: where it stands and its hashes.

    The rest is counted by reason, in the order of the tests.
    """
    tests: dict[str, Callable[[Pair], bool]] = {
        "with an empty side": lambda pair: is_blank(pair.src) or is_blank(pair.tgt),
        f"with more than {limits.max_words} words (--max-words)": (
            lambda pair: _words(pair) > limits.max_words
        ),
        f"with fewer than {limits.min_words} words (--min-words)": (
            lambda pair: min(len(side.split()) for side in pair) < limits.min_words
        ),
        f"of which one side is over {limits.max_ratio} times the other (--max-ratio)": (
            lambda pair: limits.max_ratio is not None and _ratio(pair) > limits.max_ratio
        ),
        "whose sides are the same (--drop-copies)": (
            lambda pair: limits.drop_copies and pair.src == pair.tgt
        ),
    }
    counts = dict.fromkeys(tests, 0)
    kept, hashes = array("q"), array("q")
    for place, pair in enumerate(pairs):
        reason = next((why for why, fails in tests.items() if fails(pair)), None)
        if reason is not None:
            counts[reason] += 1
            continue
        kept.append(place)
        hashes.append(pair.fingerprint())
    places, fingerprints = np.array(kept, np.int64), np.array(hashes, np.int64)
    if limits.dedupe:
        first = np.sort(np.unique(fingerprints, return_index=True)[1])
        counts["that stand there before (--dedupe)"] = len(places) - len(first)
        places, fingerprints = places[first], fingerprints[first]
    return places, fingerprints, {reason: count for reason, count in counts.items() if count}


def _with(part: PairList, pairs: Sequence[Pair]) -> PairList:
    return part._replace(pairs=pairs)


def _words(pair: Pair) -> int:
    return max(len(pair.src.split()), len(pair.tgt.split()))


def _ratio(pair: Pair) -> float:
    sizes = sorted((len(pair.src.split()), len(pair.tgt.split())))
    return sizes[1] / max(sizes[0], 1)


def _unknown_share(train: Iterable[Pair], test: Sequence[Pair]) -> float:
    known: set[str] = set()
    for pair in train:
        known.update(pair.src)
    total = sum(len(pair.src) for pair in test)
    unknown = sum(char not in known for pair in test for char in pair.src)
    return unknown / total if total else 0.0
