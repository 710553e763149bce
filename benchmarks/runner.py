"""What the benchmark scripts share: run ``nmt train`` where it was stopped, keep the raw result."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from nmt_cli.files import write_whole

RAW = Path(__file__).parent / "raw"


def train(run: Path, *options: object) -> dict[str, Any]:
    """Train into a folder, or go on with what is there; give what the run measured.

    Args:
        run: the run folder.
        options: of ``nmt train`` for a new run.
    """
    config = run / "config.json"
    if not config.is_file():
        command = ["train", *map(str, options), "-o", str(run), "--quiet"]
    elif json.loads(config.read_text())["finished"] is None:
        command = ["train", "--resume", str(run), "--quiet"]
    else:
        return measured(run)
    print("nmt", *command, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "nmt_cli", *command], check=True, stdout=sys.stderr)
    return measured(run)


def measured(run: Path) -> dict[str, Any]:
    """Gather what a finished run says of itself."""
    config = json.loads((run / "config.json").read_text())
    evaluation = json.loads((run / "eval.json").read_text())
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    evaluation["data"] = ",".join(Path(part).name for part in evaluation["data"].split(","))
    return {
        "arch": config["arch"],
        "options": config["options"],
        "seed": config["request"]["seed"],
        "threads": config["request"]["threads"],
        "precision": config["precision"],
        "parameters": config["parameters"],
        "steps": config["step"],
        "seconds": config["seconds"],
        "tokens_per_s": statistics.median(x["tokens_per_s"] for x in log if "tokens_per_s" in x),
        "stopped": config["stopped"],
        "versions": config["versions"],
        "evaluation": evaluation,
    }


def keep(name: str, results: Any) -> None:
    """Write raw results under ``benchmarks/raw``."""
    RAW.mkdir(exist_ok=True)
    write_whole(RAW / f"{name}.json", json.dumps(results, indent=1) + "\n")


def kept(name: str) -> dict[str, Any]:
    """Read raw results, to be added to; none are an empty dict."""
    path = RAW / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def row(result: dict[str, Any]) -> str:
    """Lay out one run: steps, seconds and BLEU by bucket."""
    system = result["evaluation"]["systems"][0]
    cells = [*system["buckets"], system]
    scores = " ".join("   n/a" if c["bleu"] is None else f"{c['bleu']:6.1f}" for c in cells)
    spent = f"{result['steps']:6} steps {result['seconds']:6.0f} s"
    return f"{result['arch']:12} seed {result['seed']} {spent} {scores}"
