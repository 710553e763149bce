r"""What a plain `nmt train` reaches on a corpus in a stated number of minutes.

    python benchmarks/recipes.py multi30k --out /tmp/m30k --minutes 40 -- \
        -d path/to/multi30k -s en -t de --test path/to/multi30k/test_2016_flickr
    python benchmarks/recipes.py tatoeba --out /tmp/tatoeba -- -d fra.txt -s en -t fr --dedupe

What stands after ``--`` goes to `nmt train` as it is. Runs one architecture after the other on all
cores, or ``--jobs 2`` on one thread each. Goes on where it was stopped; writes
benchmarks/raw/recipe-NAME.json after every run. The scores are those of the runs' own final
evaluation: beam 5, sacrebleu, cased, detokenised.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner import keep, row, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("name", help="of the corpus")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--archs", nargs="+", default=["lstm", "lstm-attn", "transformer"])
    parser.add_argument("train", nargs="+", help="after --: options of nmt train")
    arguments = parser.parse_args()
    common = [*arguments.train, "--minutes", arguments.minutes, "--seed", arguments.seed]
    if arguments.jobs > 1:
        common += ["--threads", 1]
    results: dict[str, Any] = {}

    def measure(arch: str) -> None:
        run = arguments.out / f"{arch}-{arguments.seed}"
        results[arch] = train(run, "--arch", arch, *common)
        print(row(results[arch]), flush=True)
        keep(f"recipe-{arguments.name}", dict(sorted(results.items())))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(measure, arguments.archs))


if __name__ == "__main__":
    main()
