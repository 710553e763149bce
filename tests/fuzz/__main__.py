"""Search for bytes that break a target: ``python -m tests.fuzz TARGET [--minutes 10]``.

With atheris (pip install atheris) the search is led by coverage and begins with ``corpus/``, a part
of what earlier ones kept. What it keeps is in ``fuzzing/TARGET/``, and what breaks the target in
``tests/fuzz/found/TARGET/``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["nmt_cli"]):
    from tests.fuzz.targets import TARGETS, corpus, seeds
FOUND = Path(__file__).parent / "found"


def main() -> None:
    """Parse the command line and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    kept, found = Path("fuzzing") / options.target, FOUND / options.target
    for folder in (kept, found):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**seeds(options.target), **corpus(options.target)}.items():
        (kept / name).write_bytes(content)
    arguments = [
        sys.argv[0], f"-max_total_time={int(60 * options.minutes)}", f"-artifact_prefix={found}/",
        "-timeout=30", "-rss_limit_mb=4096", str(kept), str(found),
    ]  # fmt: skip
    atheris.Setup(arguments, TARGETS[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
