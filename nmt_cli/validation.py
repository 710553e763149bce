"""What a model in training is worth: the loss and the BLEU of pairs that it does not learn from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.nn import functional as F

from nmt_cli.batches import BatchSize, IdPair, collate, cut
from nmt_cli.events import Score
from nmt_cli.metrics import Bleu
from nmt_cli.models import Seq2Seq
from nmt_cli.models.base import full_precision
from nmt_cli.precision import Precision
from nmt_cli.search import Hypothesis, SearchOptions
from nmt_cli.teacher_forcing import LOSS_ROWS, target_hidden
from nmt_cli.tokenized import Tokenizers
from nmt_cli.tokenizer import EOS
from nmt_cli.translation import (
    MAX_SOURCE_TOKENS,
    Alignment,
    Output,
    Searcher,
    Translation,
    Translator,
    attends,
    search_all,
)

MOST_TRANSLATED = 500
"""Of the pairs; the first ones, greedily."""
_SAMPLES = 5
"""So many of the translations, always of the same sentences, are kept to be looked at."""
_BATCH = BatchSize(tokens=4096)


class Sampled(NamedTuple):
    """What the model makes of a fixed validation sentence by now."""

    number: int
    """Of the sentence, from 1."""
    source: str
    reference: str
    translation: str
    attention: Alignment | None
    """If it is wanted and there is any."""


class Validation:
    """Judges a model as often as it is asked to.

    Args:
        pairs: the reference and the ids of each.
        tokenizers: of both sides.
        bleu: of the references.
        wants_attention: whether the samples are to have it.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, IdPair]],
        tokenizers: Tokenizers,
        bleu: Bleu,
        wants_attention: bool,
    ) -> None:
        self._references, self._pairs = [], []
        for reference, ids in pairs:
            self._references.append(reference)
            self._pairs.append(ids)
        self._tokenizers = tokenizers
        self._bleu = bleu
        self._wants_attention = wants_attention
        self.samples: list[Sampled] = []
        """Of the last time."""

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self._pairs)

    @torch.inference_mode()
    def __call__(self, model: Seq2Seq, precision: Precision) -> Score:
        """Give BLEU of the first pairs and the loss of a token of all, for a model in eval mode."""
        shown = self._pairs[:MOST_TRANSLATED]
        sources = [
            pair.src if len(pair.src) <= MAX_SOURCE_TOKENS else [*pair.src[:MAX_SOURCE_TOKENS], EOS]
            for pair in shown
        ]
        found = search_all(Searcher(model, precision), sources, SearchOptions(beam=1), _BATCH)
        best = [hypotheses[0] for hypotheses in found]
        written = [self._tokenizers.tgt.decode(list(h.tokens)) for h in best]
        references = self._references[: len(written)]
        bleu = self._bleu.score(self._bleu.statistics(written, references).sum(axis=0))
        attention = self._attention(model, precision, shown, best[:_SAMPLES])
        self.samples = [
            Sampled(n + 1, self._tokenizers.src.decode(shown[n].src), references[n], written[n], it)
            for n, it in enumerate(attention)
        ]
        return Score(bleu, self._loss(model, precision))

    def _loss(self, model: Seq2Seq, precision: Precision) -> float:
        """Give the mean cross-entropy of a target token, in nats."""
        device = next(model.parameters()).device
        lengths = [max(len(pair.src), len(pair.tgt)) for pair in self._pairs]
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        losses, tokens = [], 0
        for group in cut(order, lengths, _BATCH):
            batch = collate([self._pairs[i] for i in group]).to(device)
            with precision.autocast(device):
                hidden, targets = target_hidden(model, batch)
                for some, wanted in zip(
                    hidden.split(LOSS_ROWS), targets.split(LOSS_ROWS), strict=True
                ):
                    logits = full_precision(model.project(some))
                    losses.append(F.cross_entropy(logits, wanted, reduction="sum"))
            tokens += len(targets)
        return sum(torch.stack(losses).tolist()) / tokens

    def _attention(
        self, model: Seq2Seq, precision: Precision, pairs: list[IdPair], best: list[Hypothesis]
    ) -> list[Alignment | None]:
        """Give the attention of each hypothesis, if that is wanted and there is any."""
        if not self._wants_attention or not attends(model):
            return [None] * len(best)
        translator = Translator(model, *self._tokenizers, precision)
        return [
            translator.align(
                Translation(tuple(pair.src[:-1]), [Output("", h.score, h.tokens)], None)
            )
            for pair, h in zip(pairs, best, strict=False)
        ]
