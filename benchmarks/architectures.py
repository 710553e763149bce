"""Every architecture on one corpus, of about one size, under one budget: the table of the story.

    python benchmarks/architectures.py toy --out /tmp/toy
    python benchmarks/architectures.py path/to/multi30k --out /tmp/m30k --minutes 15

Widths are chosen so that each has about ``--parameters``; all else is the preset's. ``--jobs`` runs
at a time, each on one thread. Goes on where it was stopped; writes benchmarks/raw/NAME.json after
every run, and at the end the table, in Markdown.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from runner import keep, train

from nmt_cli import models

VOCABULARY = 4000
VARIANTS = {"lstm-attn-luong": ("lstm-attn", {"attention": "luong-general"})}
"""Entries of the table that are no presets: architecture and options."""


class Entry(NamedTuple):
    """One row of the table before it is measured."""

    name: str
    arch: str
    options: dict[str, Any]


def sized(name: str, parameters: int) -> Entry:
    """Choose the width, a multiple of 16, that comes nearest to a number of parameters."""
    arch, fixed = VARIANTS.get(name, (name, {}))
    known = models.architecture(arch).options.__dataclass_fields__
    vocab = models.Vocabulary(VOCABULARY, VOCABULARY, True)

    def of_width(width: int) -> dict[str, Any]:
        scaled = {"d_model": width, "d_ffn": 4 * width}
        return {**fixed, **{key: value for key, value in scaled.items() if key in known}}

    def distance(width: int) -> int:
        options = models.resolve_options(arch, "small", of_width(width))
        with torch.device("meta"):
            model = models.architecture(arch).build(options, vocab)
        return abs(models.parameter_count(model) - parameters)

    return Entry(name, arch, of_width(min(range(64, 641, 16), key=distance)))


def words(bucket: dict[str, Any]) -> str:
    """Name a bucket of source lengths."""
    low, high = bucket["low"], bucket["high"]
    return f"{low}+" if high is None else f"{low}-{high}"


def table(results: list[dict[str, Any]]) -> str:
    """Lay the results out in Markdown, the best first."""
    first = results[0]["evaluation"]["systems"][0]["buckets"]
    head = ["`--arch`", "width", "parameters", "steps", "seconds", "training tokens/s",
            "beam 5 sentences/s", *map(words, first), "all"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for result in sorted(results, key=lambda r: -r["evaluation"]["systems"][0]["bleu"]):
        system = result["evaluation"]["systems"][0]
        scores = [cell["bleu"] for cell in (*system["buckets"], system)]
        lines.append(
            [
                f"`{result['entry']}`",
                str(result["options"]["d_model"]),
                f"{result['parameters'] / 1e6:.1f} M",
                f"{result['steps']:,}",
                f"{result['seconds']:.0f}",
                f"{result['tokens_per_s']:,.0f}",
                f"{system['sentences'] / system['seconds']:.0f}",
                *("-" if score is None else f"{score:.1f}" for score in scores),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="toy, or a Multi30k folder")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    known = [*(arch.name for arch in models.architectures()), *VARIANTS]
    parser.add_argument("--archs", nargs="+", choices=known, default=known)
    parser.add_argument("--parameters", type=int, default=2_600_000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--minutes", type=float, help="train for so long instead")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    arguments = parser.parse_args()
    common: list[object] = ["--data", arguments.data, "--seed", arguments.seed, "--threads", 1]
    common += ["--vocab-size", VOCABULARY, "--patience", 0]
    common += ["--batch-tokens", arguments.batch_tokens]
    if arguments.data.startswith("toy"):
        name = "architectures-toy"
    else:
        name = "architectures-multi30k"
        common += ["-s", "en", "-t", "de", "--test", Path(arguments.data) / "test_2016_flickr"]
    if arguments.minutes:
        common += ["--minutes", arguments.minutes]
    else:
        common += ["--steps", arguments.steps]
    results: list[dict[str, Any]] = []

    def measure(entry: Entry) -> None:
        given = [f"{key}={value}" for key, value in entry.options.items()]
        options = [word for option in given for word in ("-O", option)]
        run = arguments.out / f"{entry.name}-{arguments.seed}"
        results.append({"entry": entry.name, **train(run, "-a", entry.arch, *options, *common)})
        keep(name, sorted(results, key=lambda result: str(result["entry"])))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(measure, [sized(arch, arguments.parameters) for arch in arguments.archs]))
    print(table(results))


if __name__ == "__main__":
    main()
