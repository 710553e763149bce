"""The one exception and the one warning that a user sees, each as one line on stderr."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NmtError(Exception):
    """Bad usage or bad input: shown as ``error: message`` with exit code 2.

    The message says what is wrong, where (file and line), and what to do.
    """

    exit_code = 2


class WorkFailed(NmtError):
    """The input was good but the work failed (diverged, disk full): exit code 1."""

    exit_code = 1


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give what a message ends in when a name is unknown: the nearest of those known, if any."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class NmtWarning(UserWarning):
    """Something the user should know, told from deep within the work: ``warning: message``."""


_NO_MEMORY = (
    "can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED",
    "could not create a",  # primitive or memory object: what oneDNN says
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Recognise torch's RuntimeError for memory by its words; it has no class on a CPU."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY)
