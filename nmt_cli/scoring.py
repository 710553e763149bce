"""How likely a model finds given translations: log P of each, and perplexity by source length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from nmt_cli.batches import Batch, BatchSize, collate, cut, with_ends
from nmt_cli.corpus.pairs import Pair
from nmt_cli.errors import NmtError, WorkFailed
from nmt_cli.evaluation import Sample
from nmt_cli.metrics import bucket_index
from nmt_cli.models import Seq2Seq
from nmt_cli.teacher_forcing import LOSS_ROWS
from nmt_cli.translation import MAX_SOURCE_TOKENS, Translator

_BATCH = BatchSize(tokens=2048)


class Likelihood(NamedTuple):
    """What a model gives a translation."""

    log_prob: float
    """log P(target | source) in nats, the end of the sentence included."""
    tokens: int
    """Tokens of the target, EOS included."""


class Perplexity(NamedTuple):
    """Over the pairs of a bucket."""

    sentences: int
    tokens: int
    log_prob: float

    @property
    def value(self) -> float | None:
        """Exp of the mean -log P of a token; None for no pairs."""
        return math.exp(-self.log_prob / self.tokens) if self.tokens else None

    def as_json(self) -> dict[str, Any]:
        """Give all of it."""
        return {**self._asdict(), "perplexity": self.value}


def score_pairs(
    translator: Translator,
    pairs: Sequence[Pair],
    on_done: Callable[[int], None] | None = None,
) -> list[Likelihood]:
    """Read given translations by teacher forcing; results in the order of the pairs.

    Raises:
        NmtError: for a pair that is longer than a model with learnt positions can read, or than
            is read of a source when translating.
        WorkFailed: if the model overflows.
    """
    src = translator.src_tokenizer.encode_all(pair.src for pair in pairs)
    tgt = translator.tgt_tokenizer.encode_all(pair.tgt for pair in pairs)
    ids = [with_ends(*sides) for sides in zip(src, tgt, strict=True)]
    lengths = [max(len(pair.src), len(pair.tgt) - 1) for pair in ids]  # as read, with EOS or BOS
    limit = min(translator.model.max_positions or math.inf, MAX_SOURCE_TOKENS + 1)
    for number, length in enumerate(lengths, start=1):
        if length > limit:
            raise NmtError(
                f"pair {number}: {length - 1} tokens, but at most {limit - 1} are read; leave it "
                "out, or score its sentences one by one"
            )
    found: list[Likelihood] = [Likelihood(0.0, 0)] * len(ids)
    device = next(translator.model.parameters()).device
    for group in cut(sorted(range(len(ids)), key=lengths.__getitem__), lengths, _BATCH):
        batch = collate([ids[i] for i in group]).to(device)
        with translator.precision.autocast(device):
            scores = log_probs(translator.model, batch)
        for i, score in zip(group, scores, strict=True):
            if not math.isfinite(score):
                raise WorkFailed(
                    f"pair {i + 1}: log P is {score}, as the model's numbers are not finite; try "
                    "--precision fp32, or an earlier run"
                )
            found[i] = Likelihood(score, len(ids[i].tgt) - 1)
        if on_done:
            on_done(len(group))
    return found


@torch.inference_mode()
def log_probs(model: Seq2Seq, batch: Batch) -> list[float]:
    """Give log P of each row's target; no (tokens, vocabulary) tensor is held."""
    memory = model.encode(batch.src, batch.src_mask)
    hidden = model.decode(batch.tgt[:, :-1], memory, model.start(memory)).hidden.flatten(0, 1)
    targets = batch.tgt[:, 1:].flatten()
    parts = []
    for begin in range(0, len(targets), LOSS_ROWS):
        rows = slice(begin, begin + LOSS_ROWS)
        logits = model.project(hidden[rows])
        wide = torch.promote_types(logits.dtype, torch.float32)
        chosen = logits.log_softmax(-1, dtype=wide).gather(1, targets[rows, None])
        parts.append(chosen.squeeze(1).cpu().double())  # mps has no float64
    by_token = torch.cat(parts).view(len(batch.tgt), -1)
    return by_token.masked_fill(~batch.tgt_mask[:, 1:].cpu(), 0.0).sum(dim=1).tolist()


def by_bucket(test: Sample, scores: Sequence[Likelihood]) -> list[Perplexity]:
    """Add up likelihoods in each bucket, and over all at the end."""
    groups: list[list[Likelihood]] = [[] for _ in test.buckets]
    for length, score in zip(test.lengths, scores, strict=True):
        groups[bucket_index(length, test.buckets)].append(score)
    return [
        Perplexity(len(group), sum(s.tokens for s in group), math.fsum(s.log_prob for s in group))
        for group in (*groups, list(scores))
    ]
