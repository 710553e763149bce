"""What a run says beside its results, and whom it asks and tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Note(NamedTuple):
    """A line for the log on the screen."""

    text: str


class Watcher(Protocol):
    """What a run asks and tells while it goes on."""

    wants_attention: bool
    """Whether validations are to give the attention of their samples."""

    def interrupted(self) -> bool:
        """Tell whether to save and stop; asked after each step."""

    def save_asked(self) -> bool:
        """Tell whether to save and go on; asked after each step, and true once for each wish."""

    def work(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Hear that work other than training begins, and by calls how much more of it is done."""
