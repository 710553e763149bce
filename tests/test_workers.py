"""Processes that share work: results, faults, and that none outlives its maker."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nmt_cli.errors import NmtError, WorkFailed
from nmt_cli.workers import Workers, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are forked on Linux alone")


def square(number: int) -> int:
    time.sleep(0.002 * (number % 3))  # so that they are done in another order
    return number * number


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("tasks", [0, 1, 20])
def test_every_task_is_done_once(count, tasks):
    workers = Workers(square, count)
    assert len(workers) == count
    for _ in range(2):
        done = list(workers.run(range(tasks)))
        assert sorted(done) == [(n, n * n) for n in range(tasks)]


def refuse(number: int) -> int:
    raise NmtError(f"number {number} is refused")


def test_an_error_of_a_task_is_the_callers():
    with pytest.raises(NmtError, match="number 0 is refused"):
        list(Workers(refuse, 1).run([0, 1]))


def test_answers_of_a_run_that_was_left_are_not_taken_for_those_of_the_next():
    workers = Workers(square, 3)
    for _ in range(3):
        left = workers.run(range(100, 120))
        next(left)
        left.close()
        assert sorted(workers.run(range(4))) == [(n, n * n) for n in range(4)]


def test_threads_take_turns():
    workers, found = Workers(square, 2), {}

    def use(first: int) -> None:
        found[first] = sorted(workers.run(range(first, first + 30)))

    threads = [threading.Thread(target=use, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for first in (0, 100, 200):
        assert found[first] == [(n, (first + n) ** 2) for n in range(30)]


def test_a_run_that_is_left_open_does_not_disturb_the_next():
    workers = Workers(square, 2)
    left = workers.run(range(50, 60))
    next(left)
    assert sorted(workers.run(range(4))) == [(n, n * n) for n in range(4)]


def test_a_run_goes_on_after_one_that_failed():
    workers = Workers(refuse_odd, 2)
    with pytest.raises(NmtError, match="is odd"):
        list(workers.run([1, 2, 4, 6]))
    assert sorted(workers.run([8, 10, 12])) == [(0, 8), (1, 10), (2, 12)]


def refuse_odd(number: int) -> int:
    if number % 2:
        raise NmtError(f"{number} is odd")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_dies_is_an_error_that_says_what_to_do():
    with pytest.raises(WorkFailed, match="--workers 1"):
        list(Workers(die, 2).run([1, 2, 3]))


def wait_for(condition, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_processes_end_with_the_object():
    before = set(multiprocessing.active_children())
    workers = Workers(square, 2)
    started = set(multiprocessing.active_children()) - before
    assert len(started) == 2
    del workers
    assert wait_for(lambda: not any(process.is_alive() for process in started))


def test_processes_end_with_the_object_though_others_were_started_later():
    before = set(multiprocessing.active_children())
    first = Workers(square, 2)
    started = set(multiprocessing.active_children()) - before
    later = Workers(square, 2)
    del first
    assert wait_for(lambda: not any(process.is_alive() for process in started))
    assert sorted(later.run(range(3))) == [(0, 0), (1, 1), (2, 4)]


ORPHANS = """
import multiprocessing, os, signal
from nmt_cli.workers import Workers
workers = Workers(abs, 2)
list(workers.run(range(4)))
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_end_when_their_maker_is_killed():
    output = subprocess.run([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, check=False)
    pids = [int(pid) for pid in output.stdout.split()]
    assert len(pids) == 2
    assert wait_for(lambda: not any(is_alive(pid) for pid in pids))


ENDED_AT_ONCE = """
import os
from nmt_cli.signals import raise_when_interrupted
from nmt_cli.workers import Workers
raise_when_interrupted()
try:
    for _ in range(150):
        Workers(abs, 2)
finally:
    os.write(1, b"left")
"""


def test_a_process_that_is_ended_as_it_begins_does_not_do_its_makers_work():
    done = subprocess.run([sys.executable, "-c", ENDED_AT_ONCE], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"left", b"")
