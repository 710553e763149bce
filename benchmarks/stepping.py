"""Training steps without a run folder, for what is timed a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

import torch

from nmt_cli import models
from nmt_cli.batches import Batch, BatchSize, HeldIds, IdPair, Position, TrainingBatches
from nmt_cli.config import Config, DataConfig, End, TokenizerConfig, resolve_training
from nmt_cli.events import Score, Step
from nmt_cli.precision import Precision, PrecisionName, use_fast_kernels
from nmt_cli.training import Trainer


class Stepper:
    """Trains one architecture without end, on pairs of ids."""

    def __init__(
        self,
        arch_name: str,
        given: Mapping[str, Any],
        pairs: Sequence[IdPair],
        vocab: int,
        precision: PrecisionName,
        batch_tokens: int | None = None,
    ) -> None:
        arch = models.architecture(arch_name)
        torch.manual_seed(1)
        cpu = torch.device("cpu")
        use_fast_kernels(cpu)
        options = models.resolve_options(arch_name, "small", dict(given))
        self.model = arch.build(options, models.Vocabulary(vocab, vocab, True))
        budget = batch_tokens or arch.recipe.batch_tokens
        batches = TrainingBatches(HeldIds(pairs), BatchSize(budget), 1)
        config = Config(
            arch=arch_name, options={},
            data=DataConfig("none", None, None, None, None, None, "strict", 200),
            tokenizer=TokenizerConfig("bpe", None, False, "nfc", False),
            training={"validate_every": 10**9, "save_every": 10**9},
            batch_tokens=budget, batch_sentences=None, end=End(steps=10**9), seed=1,
            precision="auto", device="cpu", threads=None,
        )  # fmt: skip
        trainer = Trainer(
            self.model,
            batches,
            lambda *_: Score(0, 0),
            resolve_training(config, batches.per_epoch),
            Precision(precision, ""),
            vocab,
        )
        self._steps = (event for event in trainer.run(lambda: False) if isinstance(event, Step))
        self._read: Iterator[Batch] = (b for _, b in batches.start_from(Position(0, 0)))

    def take(self, steps: int) -> tuple[float, list[Batch]]:
        """Take so many steps: the seconds, reading and cutting of batches included, and those."""
        began = perf_counter()
        for _ in islice(self._steps, steps):
            pass
        return perf_counter() - began, list(islice(self._read, steps))


def target_tokens(batches: Sequence[Batch]) -> int:
    """Count what is predicted, padding left out."""
    return sum(len(batch.predicted) for batch in batches)
