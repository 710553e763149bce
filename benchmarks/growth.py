"""How time and memory grow when length, batch, vocabulary or corpus double.

    python benchmarks/growth.py --archs transformer lstm-attn mamba

Every measurement is a process of its own on one thread, so that its peak memory is its own. A
training step's memory is what it takes above that of a process that has only built the model. For
each doubling stands by what time and memory were multiplied. Writes benchmarks/raw/growth.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from runner import keep, kept

LENGTH, BATCH_TOKENS, VOCABULARY = 16, 4096, 8000
STEPS = 3


class Point(NamedTuple):
    """One measurement."""

    size: int
    seconds: float
    megabytes: float


def peak_megabytes() -> float:
    """Give the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step(arch: str, length: int, batch_tokens: int, vocabulary: int) -> tuple[float, float]:
    """Train on random sentences: seconds of a step, and megabytes above those of the model."""
    from stepping import Stepper

    from nmt_cli.batches import with_ends
    from nmt_cli.tokenizer import EOS

    torch.set_num_threads(1)
    torch.manual_seed(1)
    count = max(1, batch_tokens // (length + 2))  # one batch, with both ends of the target
    rows = torch.randint(EOS + 1, vocabulary, (2, count, length)).tolist()
    pairs = [with_ends(src, tgt) for src, tgt in zip(*rows, strict=True)]
    stepper = Stepper(arch, {}, pairs, vocabulary, "fp32", batch_tokens)
    before = peak_megabytes()
    stepper.take(1)
    return median(stepper.take(1)[0] for _ in range(STEPS)), peak_megabytes() - before


def apart(*arguments: object) -> tuple[float, float]:
    """Measure a step in a process of its own."""
    command = [sys.executable, __file__, "--step", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def process(command: Sequence[str], given: Path | None = None) -> tuple[float, float]:
    """Run nmt: seconds and megabytes at its peak."""
    script = (
        "import resource, subprocess, sys; "
        "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode; "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
    )
    began = time.perf_counter()
    with open(given or "/dev/null", "rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", script, sys.executable, "-m", "nmt_cli", *command],
            check=True, capture_output=True, text=True, stdin=stdin,
        )  # fmt: skip
    return time.perf_counter() - began, float(done.stdout)


def show(title: str, points: Sequence[Point]) -> dict[str, Any]:
    """Print a series, and how much each doubling multiplies."""
    print(f"\n{title}")
    for point in points:
        print(f"{point.size:>9,} {point.seconds:9.3f} s {point.megabytes:8.0f} MB")
    factors = [(b.seconds / a.seconds, b.megabytes / a.megabytes) for a, b in pairwise(points)]
    print("  x time  ", *(f"{by_time:5.2f}" for by_time, _ in factors))
    print("  x memory", *(f"{by_memory:5.2f}" for _, by_memory in factors), flush=True)
    return {"points": [point._asdict() for point in points], "factors": factors}


def doubled(first: int, times: int) -> list[int]:
    """Give a number and its doublings."""
    return [first << i for i in range(times + 1)]


def write_corpus(path: Path, pairs: int) -> None:
    """Write pairs of a few words, no two alike."""
    lines = (f"the man {i} sees the dog\tder Mann {i} sieht den Hund\n" for i in range(pairs))
    path.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archs", nargs="*", default=["transformer", "lstm-attn", "mamba"])
    parser.add_argument("--step", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        arch, *sizes = arguments.step
        print(json.dumps(step(arch, *map(int, sizes))))
        return
    results = kept("growth")
    for arch in arguments.archs:
        series = {
            "words a sentence, tokens a batch the same": [
                Point(n, *apart(arch, n, BATCH_TOKENS, VOCABULARY)) for n in doubled(LENGTH, 6)
            ],
            "tokens a batch": [
                Point(n, *apart(arch, LENGTH, n, VOCABULARY)) for n in doubled(1024, 4)
            ],
            "vocabulary": [
                Point(n, *apart(arch, LENGTH, BATCH_TOKENS, n)) for n in doubled(4000, 4)
            ],
        }
        results[arch] = {name: show(f"{arch}: {name}", points) for name, points in series.items()}
        keep("growth", results)
    with tempfile.TemporaryDirectory() as made:
        folder, points = Path(made), []
        run = folder / "run"
        write_corpus(folder / "few.tsv", 10)
        few = str(folder / "few.tsv")
        for size in doubled(50_000, 3):
            write_corpus(folder / "corpus.tsv", size)
            command = ["train", "-a", "lstm", "--size", "tiny", "-d", str(folder / "corpus.tsv")]
            command += ["--valid", few, "--test", few]
            command += ["-s", "en", "-t", "de", "--vocab-size", "1000", "--steps", "1"]
            command += ["-o", str(run), "--overwrite", "--quiet"]
            points.append(Point(size, *process(command)))
        results["corpus"] = show("nmt train, one step: pairs in the corpus", points)
        points = []
        for size in doubled(125_000, 3):
            (folder / "lines").write_text("dog\n" * size)
            command = ["translate", "-m", str(run), "--beam", "1", "--max-length", "2", "--quiet"]
            points.append(Point(size, *process(command, folder / "lines")))
        results["translate"] = show("nmt translate: lines of one word", points)
    keep("growth", results)


if __name__ == "__main__":
    main()
