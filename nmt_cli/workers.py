"""Work shared among processes of one thread each.

On a CPU the steps of a search are so small that two processes do more than two threads. The
processes are forked, so that they share the weights of the model, and each has a pipe of its own.
They are ended with the object that started them, and end by themselves when the other side of the
pipe is gone, however that came about.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar, cast

import torch

from nmt_cli.errors import WorkFailed

Task = TypeVar("Task")
Result = TypeVar("Result")

_CHOSEN_AT_MOST = 16
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def can_fork() -> bool:
    """Tell whether processes can be forked safely from one that has loaded torch."""
    return sys.platform == "linux"


def choose_workers(device: torch.device) -> int:
    """Take a worker in place of each thread, where that is faster."""
    if device.type != "cpu" or not can_fork():
        return 1
    return min(torch.get_num_threads(), _CHOSEN_AT_MOST)


class Workers(Generic[Task, Result]):
    """Processes that do one kind of task. They start at once, and end when this object is gone."""

    def __init__(self, work: Callable[[Task], Result], count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        processes: list[BaseProcess] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            # a daemon: the interpreter ends it when it ends
            process = context.Process(target=_serve, args=(work, theirs, self._pipes), daemon=True)
            with _signals_waiting():
                process.start()
            processes.append(process)
            theirs.close()
        self._busy: set[Connection] = set()
        """Where an answer is due, be it to a run that was left, by an error or by choice."""
        self._runs = 0
        self._lock = threading.RLock()
        # closing the pipes would not do: processes forked later have them open, too
        weakref.finalize(self, _end, processes)

    def __len__(self) -> int:
        return len(self._pipes)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield the number of each task and its result, as they are done.

        Raises:
            WorkFailed: if a process died.
        """
        waiting = iter(enumerate(tasks))
        missing = len(tasks)
        with self._lock:  # of another thread
            self._runs = this = self._runs + 1

            def give(pipe: Connection) -> None:
                number, task = next(waiting, (None, None))
                if number is not None:
                    pipe.send((this, number, task))
                    self._busy.add(pipe)

            try:
                for pipe in self._pipes:
                    if pipe not in self._busy:
                        give(pipe)
                while missing:
                    for ready in wait(list(self._busy)):
                        pipe = cast(Connection, ready)
                        run, number, result = pipe.recv()
                        self._busy.remove(pipe)
                        give(pipe)
                        if run != this:
                            continue
                        if isinstance(result, Exception):
                            raise result
                        missing -= 1
                        yield number, result
            except (EOFError, ConnectionError):
                raise WorkFailed(
                    "a worker process died, perhaps for want of memory; try --workers 1 or a "
                    "smaller --batch-tokens"
                ) from None


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Let signals wait meanwhile, here and in a process that is forked.

    That process would else take the first ones as its parent does, amid its own beginning.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()


def _serve(
    work: Callable[[Task], Result], pipe: Connection, inherited: Sequence[Connection]
) -> None:
    """Answer tasks until the pipe is closed, then end without the parent's cleaning up.

    The ends that the parent holds are closed here, or no pipe would ever seem closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # that waited since before the fork
    for other in inherited:
        other.close()
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        while True:
            run, number, task = pipe.recv()
            try:
                result: Result | Exception = work(task)
            except Exception as error:
                result = error
            pipe.send((run, number, result))
    os._exit(0)
