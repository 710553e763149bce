"""Does depth train? Every architecture with residuals at 12 layers a side, on toy.

    python benchmarks/depth.py --out /tmp/depth

Beside them a recurrent stack of 8 layers, without residuals and with. The loss is the median of
the last 50 steps; guessing among the words as often as they occur costs about 5 nats. Goes on where
it was stopped; writes benchmarks/raw/depth.json after every run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner import keep, train

from nmt_cli import models
from nmt_cli.corpus import toy

LAST = 50
SENTENCES = 50
RECURRENT: dict[str, dict[str, Any]] = {
    "lstm-8": {"layers": 8},
    "lstm-8-residual": {"layers": 8, "residual": True, "layer_norm": True},
}


def deep(arch: str, layers: int) -> dict[str, Any] | None:
    """Give the options that make an architecture deep; None where it has no residuals."""
    known = models.architecture(arch).options.__dataclass_fields__
    if "pattern" in known:
        return {"pattern": ",".join(["mamba", "attention"] * (layers // 2))}
    if "encoder_layers" in known:
        return {"encoder_layers": layers, "decoder_layers": layers}
    if "residual" in known:
        return {"layers": layers, "residual": True, "layer_norm": True}
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    known = [arch.name for arch in models.architectures() if deep(arch.name, 2) is not None]
    parser.add_argument("--archs", nargs="+", choices=[*known, *RECURRENT], default=None)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    test = arguments.out / "test.tsv"  # a short one: what counts here is the loss
    pairs = toy.make(toy.ToyOptions())["test"][:SENTENCES]
    test.write_text("".join(f"{pair.src}\t{pair.tgt}\n" for pair in pairs))

    def measure(name: str) -> None:
        arch = "lstm" if name in RECURRENT else name
        options = RECURRENT.get(name) or deep(name, arguments.layers) or {}
        words = [w for key, value in options.items() for w in ("-O", f"{key}={value}")]
        run = arguments.out / name
        end = ("--steps", arguments.steps, "--patience", 0, "--threads", 1, "--size", "tiny")
        result = train(run, "-a", arch, *words, "-d", "toy", "--test", test, *end)
        log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        loss = statistics.median([line["loss"] for line in log if "loss" in line][-LAST:])
        results.append({"entry": name, "loss": loss, **result})
        print(f"{name:18} {options}  loss {loss:.3f}", flush=True)
        keep("depth", sorted(results, key=lambda result: str(result["entry"])))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(measure, arguments.archs or [*known, *RECURRENT]))


if __name__ == "__main__":
    main()
