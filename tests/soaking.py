"""Talk to `nmt translate` for a long time: every answer in its place, none late, no growth.

    python -m tests.soaking --minutes 60 RUN          # random lines, with pauses between
    python -m tests.soaking --lines 1000000 RUN       # one-word lines, as fast as they are read

What stands after ``RUN --`` goes to `nmt translate` as it is. Prints the memory of the process and
its workers over time, its least and middle value in each sixth of the run, and the slope of the
second half.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PATIENCE_S = 180.0
"""An answer that takes longer is a stall; a thousand tokens on a busy machine may take a minute."""


class Reading(NamedTuple):
    """Memory at one moment."""

    seconds: float
    lines: int
    megabytes: float

    def show(self) -> None:
        """Print it."""
        print(f"{self.seconds:7.0f} s {self.lines:10,} lines {self.megabytes:8.1f} MB", flush=True)


def own_megabytes(pid: int | str = "self") -> float:
    """Give the proportional memory of a process (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def megabytes_of(pid: int) -> float:
    """Add up the memory of a process and of those it started."""
    return sum(map(own_megabytes, (pid, *children_of(pid))))


def children_of(pid: int) -> list[int]:
    """List the processes that a process started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def random_lines(chance: random.Random) -> Iterator[str]:
    """Make lines of every kind: words, blank ones, long ones, other scripts, odd characters."""
    letters = "abcdefghijklmnopqrstuvwxyz" * 3 + "äßéñ漢字かなไทย\u200d\u2028\x85\x0c🙂<>&\"'."
    while True:
        kind = chance.random()
        count = 0 if kind < 0.05 else chance.randrange(1, 400 if kind > 0.995 else 25)
        words = ("".join(chance.choices(letters, k=chance.randrange(1, 9))) for _ in range(count))
        yield " ".join(words)


def start(run: Path, *extra: str) -> subprocess.Popen[bytes]:
    """Start `nmt translate` with pipes."""
    program = str(Path(sys.executable).with_name("nmt"))
    return subprocess.Popen(
        [program, "translate", "-m", str(run), "--quiet", *extra],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def converse(run: Path, minutes: float, *extra: str) -> list[Reading]:
    """Send bursts with pauses between, and check each answer against that of another process.

    Raises:
        AssertionError: at an answer that is late, missing or another one's.
    """
    chance, source = random.Random(1), random_lines(random.Random(2))
    process = start(run, *extra)
    assert process.stdin and process.stdout
    probe = "A man sees the dog ."
    answers: list[bytes] = []
    watchdog = threading.Timer(_PATIENCE_S, process.kill)
    began, sent, readings = time.monotonic(), 0, list[Reading]()
    while time.monotonic() - began < 60 * minutes:
        burst = [next(source) for _ in range(chance.randrange(1, 40))]
        burst[chance.randrange(len(burst))] = probe
        watchdog = threading.Timer(_PATIENCE_S, process.kill)
        watchdog.start()
        process.stdin.write("".join(f"{line}\n" for line in burst).encode())
        process.stdin.flush()
        for line in burst:
            answer = process.stdout.readline()
            assert answer.endswith(b"\n"), "the answer did not come"
            assert bool(line.strip()) or answer == b"\n", "a blank line was answered"
            if line == probe:
                answers.append(answer)
        watchdog.cancel()
        assert set(answers) == {answers[0]}, "an answer is not in its place"
        sent += len(burst)
        readings.append(Reading(time.monotonic() - began, sent, megabytes_of(process.pid)))
        if len(readings) % 20 == 1:
            readings[-1].show()
        time.sleep(chance.uniform(0, 0.3))
    process.stdin.close()
    assert process.wait(timeout=_PATIENCE_S) == 0
    return readings


def pour(run: Path, count: int, *extra: str) -> list[Reading]:
    """Send one-word lines as fast as they are taken, and count what comes back.

    Raises:
        AssertionError: if a line is lost.
    """
    process = start(run, "--beam", "1", "--max-length", "3", *extra)
    assert process.stdin and process.stdout
    pipe = process.stdin

    def write() -> None:
        for _ in range(count // 100):
            pipe.write(b"dog\n" * 100)
        pipe.close()

    writer = threading.Thread(target=write)
    writer.start()
    began, readings, received = time.monotonic(), list[Reading](), 0
    for received, _ in enumerate(process.stdout, start=1):
        if received % max(1, count // 100) == 0 and received < count:
            seconds = time.monotonic() - began
            readings.append(Reading(seconds, received, megabytes_of(process.pid)))
            if len(readings) % 10 == 1:
                readings[-1].show()
    writer.join()
    assert process.wait() == 0
    assert received == count // 100 * 100, f"{received} lines came back of {count}"
    return readings


def slope(readings: list[Reading]) -> float:
    """Fit the growth of the second half by least squares: megabytes in 100,000 lines."""
    half = readings[len(readings) // 2 :]
    x = [reading.lines / 1e5 for reading in half]
    y = [reading.megabytes for reading in half]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def sixths(readings: list[Reading]) -> Iterator[tuple[float, float]]:
    """Give the least and the middle memory of each sixth: long lines are peaks, leaks lift all."""
    for part in range(6):
        some = readings[len(readings) * part // 6 : len(readings) * (part + 1) // 6]
        sizes = [reading.megabytes for reading in some]
        if sizes:
            yield min(sizes), statistics.median(sizes)


def main() -> None:
    """Soak, and say how memory went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--lines", type=int)
    parser.add_argument("extra", nargs="*", help="after --: options of nmt translate")
    options = parser.parse_args()
    if options.lines:
        readings = pour(options.run, options.lines, *options.extra)
    else:
        readings = converse(options.run, options.minutes, *options.extra)
    for part, (least, middle) in enumerate(sixths(readings), start=1):
        print(f"sixth {part}: at least {least:.1f} MB, median {middle:.1f} MB")
    print(f"second half: {slope(readings):+.3f} MB in 100,000 lines")


if __name__ == "__main__":
    main()
