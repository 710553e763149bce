"""Kill `nmt train` with SIGKILL again and again, go on each time, and compare with one that lived.

    python -m tests.killing --kills 100 --folder FOLDER [--size base]

Every second kill falls at a random moment, the others while something is being written. At the
end the weights, the resumable state and the log must be those of a run that was never killed, but
for what reads a clock.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import write_pairs

CLOCKS = ("tokens_per_s", "seconds", "time")
"""Fields that differ from run to run."""
_LONGEST_WAIT_S = 1.0
_FIRST_S = 600.0
"""In which a run must have begun to save, or to end."""


def command(folder: Path, name: str, steps: int, extra: tuple[str, ...]) -> list[str]:
    """Train anew, or go on with what is there."""
    program = [str(Path(sys.executable).with_name("nmt")), "train", "--quiet"]
    if (folder / name / "last" / "LATEST").is_file():
        return [*program, "--resume", name]
    begin = ["-d", "pairs", "-s", "en", "-t", "fr", "-o", name, "--overwrite", "--threads", "1"]
    begin += ["--patience", "0"]
    often = ["--save-every", "2", "--validate-every", "4", "--batch-sentences", "4"]
    return [*program, *begin, *often, "--steps", str(steps), *extra]


def has_finished(run: Path) -> bool:
    """Tell whether a run was killed only after all was done, just before its process ended."""
    config = run / "config.json"
    return config.is_file() and bool(json.loads(config.read_text())["finished"])


def is_writing(run: Path) -> bool:
    """Tell whether a file or folder of a save is being written beside its place."""
    return any(True for pattern in (".*.part*", "last/.*.part") for _ in run.glob(pattern))


def kill_once(process: subprocess.Popen[bytes], run: Path, chance: random.Random) -> bool:
    """Kill a training at some moment after its first new state; False if it ended before."""
    latest = run / "last" / "LATEST"
    before = latest.read_bytes() if latest.is_file() else b""
    began = time.monotonic()
    while not latest.is_file() or latest.read_bytes() == before:
        if process.poll() is not None:
            return False
        assert time.monotonic() - began < _FIRST_S, "no state was saved"
        time.sleep(0.001)
    wait = time.monotonic() + chance.uniform(0, _LONGEST_WAIT_S)
    amid = chance.random() < 0.5
    while process.poll() is None:
        late = time.monotonic() > wait
        if late and (not amid or is_writing(run)):
            if amid:
                time.sleep(chance.uniform(0, 0.002))
            process.kill()
            return process.wait() == -9
    return False


def survive(folder: Path, name: str, steps: int, kills: int, extra: tuple[str, ...]) -> int:
    """Train to the end through at most so many kills; give how many there were.

    Raises:
        AssertionError: if a run cannot be gone on with.
    """
    chance, killed = random.Random(1), 0
    while True:
        started = command(folder, name, steps, extra)
        with subprocess.Popen(started, cwd=folder, stderr=subprocess.PIPE) as process:
            if killed < kills and kill_once(process, folder / name, chance):
                killed += 1
                if has_finished(folder / name):
                    return killed
                continue
            _, stderr = process.communicate()
        assert process.returncode == 0, stderr.decode()
        return killed


def log(run: Path) -> list[dict[str, object]]:
    """Read the log without what reads a clock."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k not in CLOCKS} for record in records]


def assert_alike(ours: Path, theirs: Path) -> None:
    """Compare two run folders bit for bit."""
    assert log(ours) == log(theirs)
    newest = (ours / "last" / "LATEST").read_text()
    assert newest == (theirs / "last" / "LATEST").read_text()
    state = Path("last") / newest.strip() / "state.safetensors"
    for name in (Path("model.safetensors"), Path("tokenizer.model"), state):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    assert not is_writing(ours)


def main() -> None:
    """Kill, go on, compare, and say how often."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--arch", default="lstm-attn")
    options = parser.parse_args()
    write_pairs(options.folder)
    extra = ("--size", options.size, "--arch", options.arch)
    steps = 12 * options.kills + 8
    survive(options.folder, "lived", steps, 0, extra)
    began = time.monotonic()
    killed = survive(options.folder, "killed", steps, options.kills, extra)
    assert_alike(options.folder / "killed", options.folder / "lived")
    print(f"{killed} kills survived in {time.monotonic() - began:.0f} s; all as if never killed")


if __name__ == "__main__":
    main()
