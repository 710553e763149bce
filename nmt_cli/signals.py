"""What Ctrl-C does: an end at once while nothing is at stake, an exception where files are open.

An exception raised while libraries load may be caught by them, or meet compiled code that cannot
pass it on, so it is not what a command begins with.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """From now on Ctrl-C ends the process there and then."""
    signal.signal(signal.SIGINT, _end)


def raise_when_interrupted() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt and SIGTERM raises SystemExit."""
    signal.signal(signal.SIGINT, _raise)
    signal.signal(signal.SIGTERM, _exit)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _say()
    os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _say()
    raise KeyboardInterrupt


def _say() -> None:
    """Tell on stderr, not by ``sys.stderr``, which may be amid a line of its own."""
    with suppress(OSError):
        os.write(2, b"interrupted\n")


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
