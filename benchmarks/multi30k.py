"""Multi30k English-German: BLEU on test_2016_flickr after a stated number of minutes.

    python benchmarks/multi30k.py --data path/to/multi30k --out /tmp/m30k

Goes on where it was stopped; writes benchmarks/raw/multi30k.json after every run. The score is
that of the run's own final evaluation: beam 5, sacrebleu 13a, cased, detokenised.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runner import keep, row, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the Multi30k folder")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--archs", nargs="+", default=["transformer", "lstm-attn", "lstm"])
    parser.add_argument("-O", "--option", nargs="+", default=[], help="options of all of them")
    arguments = parser.parse_args()
    options = [word for option in arguments.option for word in ("-O", option)]
    threads = ("--threads", arguments.threads) if arguments.threads else ()
    results = []
    for arch in arguments.archs:
        name = "-".join([arch, *arguments.option])
        run = arguments.out / f"{name}-{arguments.seed}"
        test = arguments.data / "test_2016_flickr"
        data = ("-d", arguments.data, "-s", "en", "-t", "de", "--test", test)
        limits = ("--minutes", arguments.minutes, "--seed", arguments.seed)
        results.append(train(run, "--arch", arch, *options, *data, *limits, *threads))
        print(row(results[-1]), flush=True)
        keep("multi30k-" + "-".join([*arguments.archs, *arguments.option]), results)


if __name__ == "__main__":
    main()
