import itertools

import numpy as np
import pytest
import torch

from nmt_cli.batches import (
    BatchSize,
    HeldIds,
    Position,
    TrainingBatches,
    collate,
    cut,
    cut_for,
    deal,
    pad,
    with_ends,
)
from nmt_cli.tokenizer import BOS, EOS


def make_pairs(count=50):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 12, (count, 2), generator=generator).tolist()
    return [with_ends([5 + n] * s, [5 + n] * t) for n, (s, t) in enumerate(sizes)]


def made(pairs):
    return TrainingBatches(HeldIds(pairs), BatchSize(40), seed=3)


def test_padding_and_masks():
    batch = collate([with_ends([7], [8, 9]), with_ends([7, 7, 7], [8])])
    assert batch.src.tolist() == [[7, EOS, 0, 0], [7, 7, 7, EOS]]
    assert batch.tgt.tolist() == [[BOS, 8, 9, EOS], [BOS, 8, EOS, 0]]
    assert batch.src_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.tgt_mask.sum().item() == 7


def test_a_batch_keeps_its_budget_padding_included():
    lengths = [3, 5, 9, 2, 8, 30, 4]
    for group in cut(range(7), lengths, BatchSize(tokens=20)):
        longest = max(lengths[i] for i in group)
        assert len(group) == 1 or len(group) * longest <= 20


def test_sentences_can_be_the_budget():
    groups = cut(range(10), [50] * 10, BatchSize(tokens=1, sentences=4))
    assert [len(group) for group in groups] == [4, 4, 2]


@pytest.mark.parametrize("window", [1000, 50, 33, 7, 1])
@pytest.mark.parametrize("count", [50, 301])
def test_an_epoch_has_every_pair_once(window, count):
    pairs = make_pairs(count)
    batches = TrainingBatches(HeldIds(pairs), BatchSize(40), seed=3, window=window)
    stream = itertools.islice(batches.start_from(Position(0, 0)), batches.per_epoch)
    seen = sorted(batch.src[row, 0].item() for _, batch in stream for row in range(len(batch.src)))
    assert seen == sorted(pair.src[0] for pair in pairs)


def test_epochs_have_different_orders_and_the_same_number_of_batches():
    stream = made(make_pairs()).start_from(Position(0, 0))
    count = made(make_pairs()).per_epoch
    plans = [[batch.src.tolist() for _, batch in itertools.islice(stream, count)] for _ in "ab"]
    assert plans[0] != plans[1]
    assert next(stream)[0] == Position(2, 1)


@pytest.mark.parametrize("window", [1000, 30])
def test_going_on_from_a_position_equals_never_having_stopped(window):
    batches = TrainingBatches(HeldIds(make_pairs()), BatchSize(40), seed=3, window=window)
    whole = list(itertools.islice(batches.start_from(Position(0, 0)), 2 * batches.per_epoch + 3))
    for stop in (0, 1, batches.per_epoch - 1, batches.per_epoch, batches.per_epoch + 2):
        position = whole[stop][0]
        following = next(batches.start_from(position))
        assert following[0] == whole[stop + 1][0]
        assert torch.equal(following[1].src, whole[stop + 1][1].src)


@pytest.mark.parametrize("window", [1000, 30])
def test_pairs_drawn_anew_in_each_epoch_follow_from_the_seed_and_the_position(window):
    def draw(seed, places):
        assert (np.diff(places) > 0).all()
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.randint(1, 12, (50, 2), generator=generator).tolist()
        return [with_ends([5 + n] * sizes[n][0], [5 + n] * sizes[n][1]) for n in places.tolist()]

    plain = HeldIds(make_pairs(50))
    batches = TrainingBatches(plain, BatchSize(40), seed=3, draw=draw, window=window)
    whole = list(itertools.islice(batches.start_from(Position(0, 0)), 3 * batches.per_epoch))
    lengths = [set(), set()]
    for position, batch in whole:
        epoch = position.epoch if position.batch else position.epoch - 1
        if epoch < 2:
            rows = zip(batch.src[:, 0].tolist(), batch.src_mask.sum(1).tolist(), strict=True)
            lengths[epoch] |= set(rows)
    assert [len(seen) for seen in lengths] == [50, 50]
    assert lengths[0] != lengths[1]
    for stop in (0, batches.per_epoch - 1, batches.per_epoch + 1, 2 * batches.per_epoch):
        following = next(batches.start_from(whole[stop][0]))
        assert following[0] == whole[stop + 1][0]
        assert torch.equal(following[1].tgt, whole[stop + 1][1].tgt)


@pytest.mark.parametrize(("window", "share"), [(4000, 0.95), (900, 0.9)])
def test_batches_hold_hardly_any_padding(window, share):
    batches = TrainingBatches(HeldIds(make_pairs(2000)), BatchSize(200), 1, window=window)
    stream = itertools.islice(batches.start_from(Position(0, 0)), batches.per_epoch)
    masks = [mask for _, batch in stream for mask in (batch.src_mask, batch.tgt_mask)]
    assert sum(m.sum().item() for m in masks) > share * sum(m.numel() for m in masks)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_follows_from_the_seed(seed):
    def first(seed):
        batches = TrainingBatches(HeldIds(make_pairs()), BatchSize(40), seed)
        return next(batches.start_from(Position(0, 0)))[1].src.tolist()

    assert first(seed) == first(seed)
    assert first(seed) != first(seed + 1)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8, 9, 40])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_are_dealt_out_evenly(count, workers):
    batches = [[n] for n in range(count)]
    runs = deal(batches, workers, most=4)
    assert sorted(batch for run in runs for batch in run) == batches
    sizes = [len(run) for run in runs]
    assert all(1 <= size <= 4 for size in sizes)
    if count >= workers:
        assert len(runs) % workers == 0 and max(sizes) - min(sizes) <= 1 + count % workers


def test_pad_keeps_rows_apart():
    rows, mask = pad([[1, 2], [3]])
    assert rows.tolist() == [[1, 2], [3, 0]]
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("count", [1, 2, 3, 64, 999, 1000, 4000])
@pytest.mark.parametrize("workers", [2, 3])
def test_each_worker_gets_as_many_groups_of_like_size(count, workers):
    lengths = np.random.default_rng(1).integers(2, 40, count).tolist()
    order = sorted(range(count), key=lengths.__getitem__, reverse=True)
    size = BatchSize(tokens=2048)
    groups = cut_for(workers, order, lengths, size)
    assert [index for group in groups for index in group] == order
    tokens = [len(group) * lengths[group[0]] for group in groups]
    assert max(tokens) <= max(2048, max(lengths))
    if count > 10:
        assert len(groups) % workers == 0 and min(tokens[:-1]) > 0.9 * max(tokens)
    assert len(groups) <= -(-len(cut(order, lengths, size)) // workers) * workers
