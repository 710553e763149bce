"""Batches of ids: cut by a token budget, grouped by length, shuffled from a seed.

The order of an epoch is a function of (seed, epoch) alone, so a position in it is two numbers
and a run can go on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.tokenizer import BOS, EOS, PAD

WINDOW = 1 << 17
"""Pairs that are sorted together, so that all of a smaller corpus are."""
_STRETCHES = 128
"""Of the corpus, from which a window takes its pairs."""

Lengths = NDArray[np.int32]
"""Of the two sides of pairs, (N, 2), control ids included."""


class IdPair(NamedTuple):
    """A sentence pair as ids: the source ends in EOS, the target starts in BOS and ends in EOS."""

    src: list[int]
    tgt: list[int]


class Batch(NamedTuple):
    """Padded pairs of about the same length."""

    src: Tensor
    """(B, S) int64."""
    src_mask: Tensor
    """(B, S) bool, True = a real token."""
    tgt: Tensor
    """(B, T + 1) int64, BOS first."""
    tgt_mask: Tensor
    """(B, T + 1) bool, True = a real token."""
    predicted: Tensor
    """(N,) int64, where the real targets stand among the B*T positions after BOS."""

    def to(self, device: torch.device) -> Batch:
        """Copy to a device, beside what it is doing."""
        if device.type == "cuda":
            return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in self))
        return Batch(*(tensor.to(device) for tensor in self))

    def in_parts(self, count: int) -> list[Batch]:
        """Cut into so many parts of about as many sentences, or into single ones."""
        tensors = (self.src, self.src_mask, self.tgt, self.tgt_mask)
        parts = zip(*(tensor.chunk(count) for tensor in tensors), strict=True)
        return [
            Batch(src, src_mask, tgt, tgt_mask, predicted_places(tgt_mask))
            for src, src_mask, tgt, tgt_mask in parts
        ]


class Position(NamedTuple):
    """How far training has come: batches already used of an epoch."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchSize:
    """The budget of a batch: tokens of the longer side, padding included, or sentences."""

    tokens: int
    sentences: int | None = None

    def holds(self, sentences: int, longest: int) -> bool:
        """Tell whether so many sentences of at most this length fit."""
        if self.sentences is not None:
            return sentences <= self.sentences
        return sentences * longest <= self.tokens

    def at_most(self, tokens: int) -> BatchSize:
        """Lower a budget of tokens to so many."""
        return replace(self, tokens=min(self.tokens, tokens))


def with_ends(src: list[int], tgt: list[int]) -> IdPair:
    """Add the control ids to the ids of a pair."""
    return IdPair([*src, EOS], [BOS, *tgt, EOS])


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Stack rows to (B, longest) int64 with their bool mask."""
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.full((len(rows), int(lengths.max())), PAD, dtype=torch.int64)
    for row, ids in enumerate(rows):
        padded[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]


def collate(pairs: Sequence[IdPair]) -> Batch:
    """Pad pairs to one batch."""
    tgt, tgt_mask = pad([pair.tgt for pair in pairs])
    src, src_mask = pad([pair.src for pair in pairs])
    return Batch(src, src_mask, tgt, tgt_mask, predicted_places(tgt_mask))


def predicted_places(tgt_mask: Tensor) -> Tensor:
    """Find the real targets of a (B, T + 1) mask among the B*T positions after BOS."""
    return tgt_mask[:, 1:].flatten().nonzero().squeeze(1)


def cut(order: Sequence[int], lengths: Sequence[int], size: BatchSize) -> list[list[int]]:
    """Cut an order of sentences into consecutive groups that fit the budget.

    A sentence longer than the whole budget stands in a batch of its own.
    """
    groups: list[list[int]] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if groups and size.holds(len(groups[-1]) + 1, longest):
            groups[-1].append(index)
        else:
            groups.append([index])
            longest = lengths[index]
    return groups


def cut_for(
    workers: int, order: Sequence[int], lengths: Sequence[int], size: BatchSize
) -> list[list[int]]:
    """Cut as ``cut`` does, but so that each of some workers gets as many groups of like size.

    Seven full groups would keep one of two workers waiting for the other's fourth.
    """
    groups = cut(order, lengths, size)
    wanted = -(-len(groups) // workers) * workers
    low, high = 0, size.tokens  # the smallest budget that makes no more groups
    while size.sentences is None and high - low > 1:
        middle = (low + high) // 2
        smaller = cut(order, lengths, size.at_most(middle))
        if len(smaller) <= wanted:
            groups, high = smaller, middle
        else:
            low = middle
    return groups


def deal(batches: Sequence[list[int]], workers: int, most: int) -> list[Sequence[list[int]]]:
    """Deal batches out in runs of at most so many, to all workers such of like lengths."""
    rounds = -(-len(batches) // (workers * most))
    bounds = [len(batches) * n // rounds for n in range(rounds + 1)] if rounds else [0]
    dealt = [batches[begin:end] for begin, end in pairwise(bounds)]
    return [run[n::workers] for run in dealt for n in range(min(workers, len(run)))]


def order_by_length(lengths: Lengths) -> NDArray[np.int64]:
    """Give the order in which neighbours are alike on both sides, ties as they stand.

    The longer side decides. Among pairs of one such length the sources grow as the targets
    shrink, among those of the next the other way round, so that the two meet where both have the
    same sides long.
    """
    src, tgt = lengths[:, 0], lengths[:, 1]
    longer = np.maximum(src, tgt)
    return np.lexsort((np.where(longer % 2, src - tgt, tgt - src), longer))


class IdPairs(Protocol):
    """Pairs of ids at places from 0 on."""

    @property
    def lengths(self) -> Lengths:
        """How long the sides are."""

    def __len__(self) -> int:
        """Count the pairs."""

    def __getitem__(self, place: int) -> IdPair:
        """Give one pair."""

    def keep(self, places: NDArray[np.int64]) -> None:
        """Leave out all pairs but those at ascending places."""


class HeldIds:
    """Pairs of ids in memory."""

    def __init__(self, pairs: Sequence[IdPair]) -> None:
        self._pairs = pairs
        self.lengths: Lengths = np.array(
            [(len(pair.src), len(pair.tgt)) for pair in pairs], np.int32
        ).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, place: int) -> IdPair:
        return self._pairs[place]

    def keep(self, places: NDArray[np.int64]) -> None:
        """Leave out all pairs but those at ascending places."""
        self._pairs = [self._pairs[i] for i in places]
        self.lengths = self.lengths[places]


Draw = Callable[[int, NDArray[np.int64]], Sequence[IdPair]]
"""What cuts the text of the pairs at ascending places anew, from a seed and the next number."""


class TrainingBatches:
    """Endless batches from a position on.

    Pairs are sorted by the lengths of both sides, ties and the order of the batches drawn from
    the seed, so that a batch holds hardly any padding. Of more pairs than a window that is done
    in one window after the other, each made of random stretches of the corpus, so that what is
    planned at once, and what is read of a file, stays small.

    Args:
        pairs: of every epoch.
        size: of a batch.
        seed: of the order and the draws.
        draw: if given, what gives the ids of a window's pairs in place of ``pairs``.
        window: most pairs that are sorted together.
    """

    def __init__(
        self,
        pairs: IdPairs,
        size: BatchSize,
        seed: int,
        draw: Draw | None = None,
        window: int = WINDOW,
    ) -> None:
        self._pairs = pairs
        self._size = size
        self._seed = seed
        self._draw = draw
        self._window = window
        self.per_epoch = sum(1 for _ in self._groups(0))

    def _groups(self, epoch: int) -> Iterator[tuple[Callable[[int], IdPair], list[int]]]:
        """Give each batch of an epoch, as places, and what gives the pair at a place."""
        seed = (self._seed * 1_000_003 + epoch) % 2**63
        generator = torch.Generator().manual_seed(seed)
        for number, members in enumerate(self._members(generator)):
            pairs = self._pairs
            if self._draw is not None:
                pairs = HeldIds(self._draw(seed + 2 * number, members))
                members = np.arange(len(members))
            lengths = pairs.lengths[members]
            shuffled = torch.randperm(len(members), generator=generator).numpy()
            order = shuffled[order_by_length(lengths[shuffled])]
            groups = cut(order.tolist(), lengths.max(axis=1).tolist(), self._size)
            for i in torch.randperm(len(groups), generator=generator).tolist():
                yield pairs.__getitem__, members[groups[i]].tolist()

    def _members(self, generator: torch.Generator) -> Iterator[NDArray[np.int64]]:
        """Divide the pairs among windows: stretches of the corpus, in random order."""
        count = len(self._pairs)
        if count <= self._window:
            yield np.arange(count)
            return
        stretch = max(self._window // _STRETCHES, 1)
        begins = torch.randperm(-(-count // stretch), generator=generator).numpy() * stretch
        for first in range(0, len(begins), _STRETCHES):
            some = np.sort(begins[first : first + _STRETCHES])
            yield np.concatenate([np.arange(b, min(b + stretch, count)) for b in some])

    def start_from(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """Yield each batch with the position after it."""
        epoch, skip = position
        while True:
            groups = islice(self._groups(epoch), skip, None)
            coming = next(groups, None)
            while coming is not None:
                at, group = coming
                coming, skip = next(groups, None), skip + 1
                after = Position(epoch, skip) if coming else Position(epoch + 1, 0)
                yield after, collate([at(i) for i in group])
            epoch, skip = epoch + 1, 0
