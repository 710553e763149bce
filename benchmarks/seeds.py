r"""Whether bf16 costs quality: the same runs in bf16 and in fp32, by several seeds.

    python benchmarks/seeds.py --out /tmp/seeds --archs transformer lstm-attn -- \
        -d path/to/multi30k -s en -t de --test path/to/multi30k/test_2016_flickr --steps 1000

What stands after ``--`` goes to `nmt train` as it is. Prints the mean BLEU of each precision on the
test split and its standard deviation over the seeds. Goes on where it was stopped; writes
benchmarks/raw/seeds.json after every run.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from runner import keep, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--archs", nargs="+", default=["transformer", "lstm-attn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, of a thread each")
    parser.add_argument("train", nargs="+", help="after --: options of nmt train")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}

    def measure(case: tuple[str, int, str]) -> None:
        arch, seed, precision = case
        name = f"{arch}-{precision}-{seed}"
        options = ["--arch", arch, "--seed", seed, "--precision", precision, "--threads", 1]
        results[name] = train(arguments.out / name, *options, *arguments.train)
        keep("seeds", dict(sorted(results.items())))
        print(f"{name:24} {bleu(results[name]):.2f}", flush=True)

    cases = list(product(arguments.archs, arguments.seeds, ("bf16", "fp32")))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(measure, cases))
    for arch, precision in product(arguments.archs, ("bf16", "fp32")):
        scores = [bleu(results[f"{arch}-{precision}-{seed}"]) for seed in arguments.seeds]
        spread = statistics.stdev(scores) if scores[1:] else 0.0
        print(f"{arch:12} {precision} BLEU {statistics.mean(scores):.2f} +- {spread:.2f}")


def bleu(result: dict[str, Any]) -> float:
    """Give the BLEU of the whole test split."""
    return float(result["evaluation"]["systems"][0]["bleu"])


if __name__ == "__main__":
    main()
