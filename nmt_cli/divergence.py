"""When training goes wrong: which steps are not taken, and when it has diverged.

A step is left out whose loss or gradients are not finite, or whose loss stands far above those
before it. Training has diverged when loss or gradients are not finite again and again, or when the
loss is absurd for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt_cli.errors import WorkFailed

MOST_SKIPPED = 5
"""So many steps in a row may be left out."""
MOST_ROLLBACKS = 3
_HOPELESS_FACTOR = 10.0
_HOPELESS_STEPS = 20
_MEMORY = 0.98
"""What the running mean of the loss keeps at a step."""
_SETTLED = 200
"""Steps after which the loss is known well enough to tell a spike."""
_SPIKE_DEVIATIONS = 6.0
_SPIKE_FACTOR = 2.0
_SPIKE_SHARE = 0.1
"""Of the loss of guessing: a loss near 0 may double without harm."""


class Diverged(WorkFailed):
    """Training cannot go on from here."""


@dataclass
class Health:
    """What the losses so far say; it is saved and resumed with the rest of the training."""

    skipped: int = 0
    """Steps in a row that were left out."""
    hopeless: int = 0
    """Steps in a row whose loss was absurdly high."""
    seen: int = 0
    """Steps that were taken."""
    mean: float = 0.0
    """Running mean of their losses."""
    square: float = 0.0
    """Running mean of the squares."""

    @property
    def sound(self) -> bool:
        """Whether the weights may be judged and kept."""
        return self.hopeless == 0

    def fault(self, loss: float, norm: float, guessing: float) -> str | None:
        """Say why a step must not be taken, or None.

        A spike that lasts for ``MOST_SKIPPED`` steps is taken to be a new level.

        Args:
            loss: nats per target token.
            norm: of the gradients.
            guessing: the loss of giving every token the same probability.
        """
        if not math.isfinite(loss):
            return f"the loss {loss:g} is not finite (nan or inf)"
        if not math.isfinite(norm):
            return f"the gradient norm {norm:g} is not finite (nan or inf)"
        deviation = math.sqrt(max(self.square - self.mean**2, 0.0))
        usual = max(
            self.mean + _SPIKE_DEVIATIONS * deviation,
            _SPIKE_FACTOR * self.mean,
            self.mean + _SPIKE_SHARE * guessing,
        )
        if self.seen >= _SETTLED and loss > usual and self.skipped < MOST_SKIPPED:
            return f"the loss {loss:.4g} stands far above the usual {self.mean:.4g}"
        return None

    def absurd(self, loss: float, guessing: float) -> bool:
        """Tell whether a loss is one that no model can have that has learnt anything."""
        return not loss <= _HOPELESS_FACTOR * guessing

    def leave_out(self, fault: str) -> None:
        """Count a step that is not taken.

        Raises:
            Diverged: if there were too many in a row.
        """
        self.skipped += 1
        if self.skipped > MOST_SKIPPED:
            raise Diverged(f"{fault}, after {MOST_SKIPPED} steps in a row that were left out")

    def take(self, loss: float, guessing: float) -> None:
        """Count a step that is taken.

        Args:
            loss: nats per target token, finite.
            guessing: the loss of giving every token the same probability.

        Raises:
            Diverged: if the loss has been absurd for too long.
        """
        self.skipped = 0
        memory = min(_MEMORY, self.seen / (self.seen + 1))  # at first the plain mean
        self.seen += 1
        self.mean = memory * self.mean + (1 - memory) * loss
        self.square = memory * self.square + (1 - memory) * loss**2
        self.hopeless = self.hopeless + 1 if self.absurd(loss, guessing) else 0
        if self.hopeless >= _HOPELESS_STEPS:
            raise Diverged(
                f"the loss {loss:.4g} is not nan or inf yet, but has been above "
                f"{_HOPELESS_FACTOR * guessing:.4g}, ten times that of guessing, for "
                f"{_HOPELESS_STEPS} steps"
            )
