"""How long, how fast and by what rule a model is trained; the learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainingOptions:
    """How to train. Times and intervals are in optimizer steps."""

    lr: float
    warmup: int
    schedule: Literal["inverse-sqrt", "cosine", "constant"]
    accumulate: int
    label_smoothing: float
    clip_norm: float
    """Largest global norm of the gradients; 0 does not clip."""
    weight_decay: float
    betas: tuple[float, float]
    validate_every: int
    save_every: int
    average: int | None
    """The mean at the last so many validations is validated and kept; 0: the newest weights;
    None: a running average over the steps."""
    patience: int
    """Validations without improvement before training stops; 0 never stops early."""
    last_step: int | None
    minutes: float | None
    """Wall-clock bound on training, validations included."""
    on_divergence: Literal["stop", "rollback"] = "stop"
    """What follows on a loss that stays wrong."""


def learning_rate(step: int, options: TrainingOptions) -> float:
    """Give the rate of a step, counted from 1."""
    if step <= options.warmup:
        return options.lr * step / options.warmup
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "inverse-sqrt":
        return options.lr * math.sqrt(max(options.warmup, 1) / step)
    assert options.last_step is not None
    done = (step - options.warmup) / max(options.last_step - options.warmup, 1)
    return options.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
