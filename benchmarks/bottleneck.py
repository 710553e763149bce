"""The bottleneck: BLEU by length of ``lstm`` and ``lstm-attn`` on toy, the same steps, three seeds.

On 40,000 pairs, since the fixed vector learns 20,000 by heart before it is good at short ones.

    python benchmarks/bottleneck.py --out /tmp/bottleneck

Goes on where it was stopped; writes benchmarks/raw/bottleneck.json after every run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runner import keep, row, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        for arch in ("lstm", "lstm-attn"):
            options = ("--arch", arch, "--data", "toy:train=40000", "--seed", seed)
            end = ("--steps", arguments.steps, "--patience", 0)
            results.append(train(arguments.out / f"{arch}-{seed}", *options, *end))
            print(row(results[-1]), flush=True)
            keep("bottleneck", results)


if __name__ == "__main__":
    main()
