"""Synthetic tasks whose answers are known: ``copy``, ``reverse`` and ``add``.

Copying asks a model to carry a sequence, reversing to find its way back through it, adding to carry
digits. Lengths are options, so that a model can be tested on longer ones than it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Annotated

from nmt_cli.corpus.pairs import MOST_MADE, Corpus, Pair, PairStream, Request, stable_hash
from nmt_cli.corpus.toy.grammar import Dice
from nmt_cli.errors import NmtError

_LANGUAGES = ("in", "out")
_VALID = 500
_SLOTS = 20
"""Sources are told apart by a hash: one slot in so many is for validation, one for the test."""
_TRIES = 50


@dataclass(frozen=True)
class TaskOptions:
    """Options of a task, as in ``copy:max=100,symbols=50``."""

    train: Annotated[int, "training pairs"] = 20_000
    test: Annotated[int, "test pairs"] = 1_000
    min: Annotated[int, "shortest sequence, in words"] = 1
    max: Annotated[int, "longest sequence of training and validation"] = 20
    test_max: Annotated[int, "longest sequence of the test split; 0: as max"] = 0
    symbols: Annotated[int, "different words (of copy and reverse)"] = 26
    seed: Annotated[int, "seed of the sequences"] = 1


Make = Callable[[int, TaskOptions, Dice], Pair]
"""Make a pair whose source has about so many words."""


def _sequence(length: int, options: TaskOptions, dice: Dice) -> list[str]:
    return [_symbol(dice.below(options.symbols)) for _ in range(length)]


def _symbol(number: int) -> str:
    """Name symbols a to z, then aa, ab, ..."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters


def copy(length: int, options: TaskOptions, dice: Dice) -> Pair:
    """Ask for the sequence itself."""
    words = " ".join(_sequence(length, options, dice))
    return Pair(words, words)


def reverse(length: int, options: TaskOptions, dice: Dice) -> Pair:
    """Ask for the sequence from its end."""
    words = _sequence(length, options, dice)
    return Pair(" ".join(words), " ".join(reversed(words)))


def add(length: int, options: TaskOptions, dice: Dice) -> Pair:
    """Ask for the sum of two numbers, digit by digit; both have half of the length."""
    digits = max(1, (length - 1) // 2)
    numbers = ["".join(str(dice.below(10)) for _ in range(digits)) for _ in range(2)]
    total = str(sum(map(int, numbers))).zfill(digits)
    return Pair(" + ".join(" ".join(number) for number in numbers), " ".join(total))


TASKS: dict[str, Make] = {"copy": copy, "reverse": reverse, "add": add}


def corpus(name: str, options: str, request: Request) -> Corpus:
    """Give a task with its three splits.

    Raises:
        NmtError: for unknown options or values.
    """
    chosen = parse(name, options)
    languages = (request.src_lang or _LANGUAGES[0], request.tgt_lang or _LANGUAGES[1])

    made = cache(lambda: make(name, chosen))

    def read(split: str) -> PairStream:
        return PairStream(f"{name} {split}", *languages, iter(made()[split]))

    return Corpus(name, {split: partial(read, split) for split in ("train", "valid", "test")})


def parse(name: str, options: str) -> TaskOptions:
    """Read the options after the name of a task.

    Raises:
        NmtError: for unknown options or values.
    """
    known = [field.name for field in fields(TaskOptions)]
    values = {}
    for word in filter(None, options.split(",")):
        key, _, value = word.partition("=")
        if key not in known or not value.isdecimal():
            raise NmtError(
                f"{name}:{options}: {word!r}: takes whole numbers for {', '.join(known)}, such as "
                f"{name}:max=100"
            )
        if key in values:
            raise NmtError(f"{name}:{options}: {key} is given twice")
        values[key] = int(value)
    chosen = TaskOptions(**values)
    if not 1 <= chosen.min <= chosen.max <= 1000 or chosen.test_max > 1000:
        raise NmtError(f"{name}:{options}: lengths must be from 1 to 1000, min no more than max")
    if min(chosen.train, chosen.test, chosen.symbols) < 1 or chosen.symbols > 10_000:
        raise NmtError(f"{name}:{options}: needs pairs, and 1 to 10000 symbols")
    if max(chosen.train, chosen.test) > MOST_MADE:
        raise NmtError(f"{name}:{options}: at most {MOST_MADE} pairs")
    return chosen


def make(name: str, options: TaskOptions) -> dict[str, list[Pair]]:
    """Generate the three splits, disjoint by source; all lengths are equally likely.

    Raises:
        NmtError: if there are not so many different sequences.
    """
    longest = {"train": options.max, "valid": options.max, "test": options.test_max or options.max}
    sizes = {"train": options.train, "valid": min(_VALID, options.train), "test": options.test}
    splits = {}
    for number, (split, size) in enumerate(sizes.items()):
        dice = Dice(options.seed * len(sizes) + number)
        pairs: list[Pair] = []
        for _ in range(_TRIES * _SLOTS * size):
            length = options.min + dice.below(longest[split] - options.min + 1)
            pair = TASKS[name](length, options, dice)
            if _split_of(pair) == split:
                pairs.append(pair)
            if len(pairs) == size:
                break
        else:
            raise NmtError(f"{name}: too few different sequences; raise max or symbols")
        splits[split] = pairs
    return splits


def _split_of(pair: Pair) -> str:
    return {0: "valid", 1: "test"}.get(stable_hash(pair.src) % _SLOTS, "train")
