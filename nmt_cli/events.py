"""What training tells of itself: a step taken or left out, a validation, the end."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """What a validation found; the better model has the higher BLEU, then the lower loss."""

    bleu: float
    loss: float

    def beats(self, other: Score | None) -> bool:
        """Compare with the best so far."""
        return other is None or (self.bleu, -self.loss) > (other.bleu, -other.loss)


class Step(NamedTuple):
    """One optimizer step was taken."""

    step: int
    epoch: int
    loss: float
    """Cross-entropy with label smoothing, in nats per target token."""
    lr: float
    tokens_per_s: float
    """Real target tokens per second."""


class Skipped(NamedTuple):
    """An optimizer step was left out, as its loss or gradients were of no use."""

    step: int
    epoch: int
    lr: float
    why: str
    """With the batch that it was about."""


class RolledBack(NamedTuple):
    """Training goes on from an earlier state, past the batches read since, at a lower rate."""

    step: int
    """The step of that state."""
    diverged_at: int
    why: str
    lr_factor: float
    """What all rates are multiplied by from here on."""


class Validated(NamedTuple):
    """A validation is done."""

    step: int
    epoch: int
    score: Score
    best: bool
    seconds: float


class SaveDue(NamedTuple):
    """It is time to write the resumable state."""

    step: int


class Warned(NamedTuple):
    """Something the user should know."""

    message: str


class Stopped(NamedTuple):
    """Training is over."""

    step: int
    reason: str
    interrupted: bool
    """Whether it was told to stop, so that the last weights are not validated."""


Event = Step | Skipped | RolledBack | Validated | SaveDue | Warned | Stopped
