"""Batches of ids: cut by a token budget, grouped by length, shuffled from a seed.

The order of an epoch is a function of (seed, epoch) alone, so a position in it is two numbers
and a run can go on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.tokenizer import BOS, EOS, PAD


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


def place_by_length(pair: IdPair) -> tuple[int, int]:
    """Give the longer side's length, and a key that keeps neighbours alike on both sides.

    Among pairs of one such length the sources grow as the targets shrink, among those of the next
    the other way round, so that the two meet where both have the same sides long.
    """
    src, tgt = len(pair.src), len(pair.tgt)
    longer = max(src, tgt)
    return longer, src - tgt if longer % 2 else tgt - src


class TrainingBatches:
    """Endless batches from a position on.

    Pairs are sorted by the lengths of both sides, ties and the order of the batches drawn from
    the seed, so that a batch holds hardly any padding.

    Args:
        pairs: of every epoch, or a function that draws those of an epoch from a seed.
        size: of a batch.
        seed: of the order and the draws.
    """

    def __init__(
        self,
        pairs: Sequence[IdPair] | Callable[[int], Sequence[IdPair]],
        size: BatchSize,
        seed: int,
    ) -> None:
        self._draw = pairs if callable(pairs) else lambda _: pairs
        self._size = size
        self._seed = seed
        self.per_epoch = len(self._plan(0)[1])

    def _plan(self, epoch: int) -> tuple[Sequence[IdPair], list[list[int]]]:
        """Give the pairs of an epoch and its batches, as places among them."""
        seed = (self._seed * 1_000_003 + epoch) % 2**63
        pairs = self._draw(seed)
        keys = [place_by_length(pair) for pair in pairs]
        generator = torch.Generator().manual_seed(seed)
        shuffled = torch.randperm(len(pairs), generator=generator).tolist()
        order = sorted(shuffled, key=keys.__getitem__)
        groups = cut(order, [longer for longer, _ in keys], self._size)
        shuffled = torch.randperm(len(groups), generator=generator).tolist()
        return pairs, [groups[i] for i in shuffled]

    def start_from(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """Yield each batch with the position after it."""
        epoch, skip = position
        while True:
            pairs, groups = self._plan(epoch)
            for done, group in enumerate(groups[skip:], start=skip + 1):
                after = Position(epoch, done) if done < len(groups) else Position(epoch + 1, 0)
                yield after, collate([pairs[i] for i in group])
            epoch, skip = epoch + 1, 0
