"""A look at the corpus before the first step, so that nothing is cut or dropped silently."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from nmt_cli.corpus.lines import is_blank
from nmt_cli.corpus.pairs import Pair, PairList
from nmt_cli.corpus.splits import Splits
from nmt_cli.errors import NmtError

_ODD_RATIO = 9.0


@dataclass(frozen=True)
class Limits:
    """Which training pairs are left out."""

    max_words: int
    """A pair with a longer side, in words, is left out of training."""


@dataclass(frozen=True)
class Preflight:
    """What was found; ``lines`` says it in words."""

    read: int
    kept: int
    empty: int
    too_long: int
    odd_ratio: int
    duplicates: int
    leaked: int
    test_pairs: int
    unknown_characters: float
    """Share of the test sources' characters that no training source has."""
    max_words: int

    def lines(self) -> list[str]:
        """Give the report, one fact a line."""
        dropped = [
            f"{count} with {why}"
            for count, why in (
                (self.empty, "an empty side"),
                (self.too_long, f"more than {self.max_words} words (--max-words)"),
            )
            if count
        ]
        report = [f"train: {self.kept} pairs" + (f" of {self.read}" if dropped else "")]
        if dropped:
            report.append(f"dropped: {', '.join(dropped)}")
        if self.odd_ratio:
            report.append(f"kept, but one side is over 9 times the other: {self.odd_ratio} pairs")
        if self.duplicates:
            report.append(f"duplicates: {self.duplicates} pairs occur before, word for word")
        if self.leaked:
            report.append(leak_warning(self.leaked, self.test_pairs))
        if self.unknown_characters > 0:
            report.append(
                f"unknown characters: {100 * self.unknown_characters:.2g} % of the test sources' "
                "characters are in no training source"
            )
        return report


def leak_warning(leaked: int, total: int) -> str:
    """Say how many test pairs the training data has."""
    return f"warning: {leaked} of {total} test pairs occur in the training data"


def count_leaked(test: Iterable[Pair], training: Collection[int]) -> int:
    """Count test pairs whose fingerprint is among those of the training pairs."""
    return sum(pair.fingerprint() in training for pair in test)


def preflight(splits: Splits, limits: Limits) -> tuple[Splits, Preflight, list[int]]:
    """Leave out what cannot be trained on and report on the rest.

    Returns:
        the splits without the pairs left out, the report, and the fingerprints of the training
        pairs, sorted, for the leak check of later test sets.

    Raises:
        NmtError: if no training or validation pair is left.
    """
    read = splits.train.pairs
    full = [pair for pair in read if not is_blank(pair.src) and not is_blank(pair.tgt)]
    kept = [pair for pair in full if _words(pair) <= limits.max_words]
    if not kept:
        raise NmtError(
            f"0 of {len(read)} pairs left, --max-words {limits.max_words}: {len(read) - len(full)} "
            f"have an empty side, {len(full)} are longer; give other data or a higher limit"
        )
    fingerprints = {pair.fingerprint() for pair in kept}
    leaked = 0 if splits.test.pairs is read else count_leaked(splits.test.pairs, fingerprints)
    report = Preflight(
        read=len(read),
        kept=len(kept),
        empty=len(read) - len(full),
        too_long=len(full) - len(kept),
        odd_ratio=sum(_ratio(pair) > _ODD_RATIO for pair in kept),
        duplicates=len(kept) - len(fingerprints),
        leaked=leaked,
        test_pairs=len(splits.test.pairs),
        unknown_characters=_unknown_share(kept, splits.test.pairs),
        max_words=limits.max_words,
    )
    valid = [p for p in splits.valid.pairs if not is_blank(p.src) and not is_blank(p.tgt)]
    if not valid:
        raise NmtError(f"{splits.valid.name}: no validation pair has text on both sides")
    if not splits.test.pairs:
        raise NmtError(f"{splits.test.name}: the test split is empty")
    usable = Splits(
        _with(splits.train, kept), _with(splits.valid, valid), splits.test, splits.notes
    )
    return usable, report, sorted(fingerprints)


def _with(part: PairList, pairs: list[Pair]) -> PairList:
    return part._replace(pairs=pairs)


def _words(pair: Pair) -> int:
    return max(len(pair.src.split()), len(pair.tgt.split()))


def _ratio(pair: Pair) -> float:
    sizes = sorted((len(pair.src.split()), len(pair.tgt.split())))
    return sizes[1] / max(sizes[0], 1)


def _unknown_share(train: list[Pair], test: list[Pair]) -> float:
    known = set().union(*(pair.src for pair in train))
    total = sum(len(pair.src) for pair in test)
    unknown = sum(char not in known for pair in test for char in pair.src)
    return unknown / total if total else 0.0
