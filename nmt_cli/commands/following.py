"""A run on the screen: its events as they come, and Ctrl-C as a request to save and stop."""

from __future__ import annotations

import shlex
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING

import typer

from nmt_cli.display import Bar, Screen, report_table
from nmt_cli.events import RolledBack, Skipped, Step, Stopped, Validated, Warned
from nmt_cli.experiment import Evaluated, Prepared, RunEvent
from nmt_cli.signals import raise_when_interrupted
from nmt_cli.validation import Sampled
from nmt_cli.watching import Note, Watcher

if TYPE_CHECKING:
    from nmt_cli.tracking import Tracker

_SHOWN_STEPS = 50
"""What a step costs and gains jumps with the batch, so the mean of so many is shown."""


class _Watcher:
    """Turns signals into requests, the first Ctrl-C into one to stop; shows progress."""

    def __init__(self, screen: Screen, wants_attention: bool) -> None:
        self._screen = screen
        self.wants_attention = wants_attention
        self.code = 0
        self._save = False

    def arm(self) -> None:
        """From now on the first Ctrl-C or SIGTERM asks for a stop; a second one ends at once.

        SIGUSR1, where there is one, asks to save and go on.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, self._ask_to_save)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.code = 128 + number
        raise_when_interrupted()

    def _ask_to_save(self, number: int, frame: FrameType | None) -> None:
        self._save = True

    def save_asked(self) -> bool:
        asked, self._save = self._save, False
        return asked

    def interrupted(self) -> bool:
        return self.code != 0

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        with self._screen.progress(what, total) as bar:
            yield bar.advance


def follow(
    begin: Callable[[Watcher], Iterator[RunEvent]],
    folder: Path,
    screen: Screen,
    trackers: Sequence[Tracker] = (),
) -> int:
    """Show the events of a run as they come; give the exit code."""
    watcher = _Watcher(screen, wants_attention=bool(trackers))
    events, code = _tracked(begin(watcher), trackers), 0
    is_testing = False
    try:
        for event in events:
            if isinstance(event, Note):
                screen.note(event.text)
            elif isinstance(event, Prepared):
                watcher.arm()
                with screen.progress("training", event.last_step) as bar:
                    bar.start_from(event.step)
                    stopped = _show_training(events, event.per_epoch, bar, screen)
                raise_when_interrupted()
                if stopped.interrupted:
                    code = watcher.code
                else:
                    is_testing = True
                    screen.note(
                        f"stopped at step {stopped.step}: {stopped.reason}; "
                        "translating the test split"
                    )
            elif isinstance(event, Evaluated):
                typer.echo(report_table(event.report))
                example = shlex.quote(event.example or "A sentence.")
                screen.note(f"\nnext: echo {example} | nmt translate -m {shlex.quote(str(folder))}")
    except (KeyboardInterrupt, SystemExit):
        if is_testing:
            screen.note(f"the model is trained and saved; test it by `nmt train --resume {folder}`")
        raise
    return code


def _tracked(events: Iterator[RunEvent], trackers: Sequence[Tracker]) -> Iterator[RunEvent]:
    for event in events:
        for tracker in trackers:
            tracker.take(event)
        yield event


def _show_training(events: Iterator[RunEvent], per_epoch: int, bar: Bar, screen: Screen) -> Stopped:
    """Show steps, as means of the last ones, and validations."""
    last: deque[Step] = deque(maxlen=_SHOWN_STEPS)
    for event in events:
        if isinstance(event, Step):
            last.append(event)
            loss = fmean(step.loss for step in last)
            speed = fmean(step.tokens_per_s for step in last)
            bar.advance(1, f"loss {loss:.3f}  {speed:,.0f} tokens/s")
        elif isinstance(event, Validated):
            screen.note(
                f"step {event.step}  epoch {event.step / per_epoch:.1f}  validation: "
                f"greedy BLEU {event.score.bleu:.1f}, loss {event.score.loss:.3f}"
                + ("  (best so far)" if event.best else "")
            )
        elif isinstance(event, Sampled) and event.number == 1:
            screen.note(f"  {event.source}  ->  {event.translation}")
        elif isinstance(event, Skipped):
            bar.advance(1)
            screen.note(f"warning: step {event.step}: {event.why}")
        elif isinstance(event, RolledBack):
            bar.start_from(event.step)
            screen.note(
                f"warning: {event.why.partition(';')[0]}: going on from the state of step "
                f"{event.step}, past the batches since, at {event.lr_factor:g} of the rate"
            )
        elif isinstance(event, Warned):
            screen.note(f"warning: {event.message}")
        elif isinstance(event, Stopped):
            return event
    raise AssertionError("training ends with Stopped")
