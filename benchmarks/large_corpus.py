"""What a corpus of millions of pairs takes in memory, to look at and to train on.

    python benchmarks/large_corpus.py MULTI30K/train --src-lang en --tgt-lang de

Real pairs are repeated and varied to 0.5, 1 and 5 million. `nmt data info` reads them, `nmt train`
reads them and takes 20 steps, and takes 20 steps again from the ids that the first left on disk.
Of memory the peak of what the processes hold themselves is given, and the peak with the pages of
files that are mapped, which the system takes back when it needs them. Linux only; writes
benchmarks/raw/large-corpus.json.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner import keep

from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.corpus.splits import load_one

SIZES = (500_000, 1_000_000, 5_000_000)
_EVERY_S = 0.1


class Peak(NamedTuple):
    """The most that a command held."""

    seconds: float
    own_megabytes: float
    with_files_megabytes: float


def held(pid: int) -> tuple[float, float]:
    """Give the memory of a process and of those it started: its own, and with mapped files."""
    own = total = 0
    tree = [pid]
    for process in tree:
        tasks = Path(f"/proc/{process}/task/{process}")
        tree += map(int, (tasks / "children").read_text().split())
        for line in (tasks / "smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
            own += int(line.split()[1]) if line.startswith("Pss_Anon:") else 0
    return own / 1024, total / 1024


def measure(command: list[str]) -> Peak:
    """Run nmt and watch its memory."""
    program = [sys.executable, "-m", "nmt_cli", *command]
    began, own, total = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                now = held(process.pid)
                own, total = max(own, now[0]), max(total, now[1])
            except OSError:  # it ended just now
                continue
            time.sleep(_EVERY_S)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Peak(time.perf_counter() - began, own, total)


def varied(pairs: list[Pair], count: int) -> Iterator[Pair]:
    """Repeat pairs in random order, most of them changed a little on both sides alike."""
    chance = random.Random(1)
    for number in range(count):
        pair, kind = chance.choice(pairs), chance.random()
        if kind < 0.4:
            mark = number % 1000
            pair = Pair(f"{mark} : {pair.src}", f"{mark} : {pair.tgt}")
        elif kind < 0.7:
            other = chance.choice(pairs)
            pair = Pair(f"{pair.src} {other.src}", f"{pair.tgt} {other.tgt}")
        yield pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="real pairs, in any form that nmt reads")
    parser.add_argument("-s", "--src-lang", required=True)
    parser.add_argument("-t", "--tgt-lang", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    languages = ["-s", arguments.src_lang, "-t", arguments.tgt_lang]
    pairs = load_one(arguments.corpus, Request(arguments.src_lang, arguments.tgt_lang), ("train",))
    results: dict[str, Any] = {}
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            corpus = str(folder / "corpus.tsv")
            with open(corpus, "w", encoding="utf-8") as file:
                file.writelines(f"{src}\t{tgt}\n" for src, tgt in varied(list(pairs.pairs), size))
            train = ["train", "-a", "lstm", "--size", "tiny", "-d", corpus, *languages]
            train += ["--cache", str(folder / "cache"), "--steps", "20", "-o", str(folder / "run")]
            commands = {
                "data info": ["data", "info", corpus, *languages],
                "train": train,
                "train again": [*train, "--overwrite"],
            }
            found = {name: measure(command) for name, command in commands.items()}
            megabytes = Path(corpus).stat().st_size / 2**20
        results[f"{size}"] = {name: peak._asdict() for name, peak in found.items()}
        for name, peak in found.items():
            memory = f"{peak.own_megabytes:6.0f} MB, with files {peak.with_files_megabytes:6.0f} MB"
            taken = f"{name:12} {peak.seconds:6.0f} s {memory}"
            print(f"{size:>9,} pairs ({megabytes:.0f} MB)  {taken}", flush=True)
        keep("large-corpus", results)


if __name__ == "__main__":
    main()
