"""What the Tab key proposes; it must not wait for torch, so names are listed here."""

from __future__ import annotations

import os
from pathlib import Path

ARCHITECTURES = (
    "attn-only", "convs2s", "gru", "gru-attn", "hybrid", "indrnn", "lstm", "lstm-attn", "mamba",
    "mingru", "minlstm", "qrnn", "rnn", "rnn-attn", "rwkv", "sru", "transformer",
)  # fmt: skip
_CORPORA = ("toy", "copy", "reverse", "add")
_ROOT = Path("checkpoints")


def architectures(incomplete: str) -> list[str]:
    """Propose architectures."""
    return [name for name in ARCHITECTURES if name.startswith(incomplete)]


def corpora(incomplete: str) -> list[str]:
    """Propose built-in corpora and whatever files and folders there are."""
    named = [name for name in _CORPORA if name.startswith(incomplete)]
    return named + [str(path) + (os.sep if path.is_dir() else "") for path in _there(incomplete)]


def run_folders(incomplete: str) -> list[str]:
    """Propose the runs under ``checkpoints/``, or folders where something else was begun.

    In ``NAME=RUN,RUN`` the last run is completed.
    """
    split = max(incomplete.rfind("="), incomplete.rfind(",")) + 1
    before, begun = incomplete[:split], incomplete[split:]
    runs = [str(config.parent) for config in sorted(_ROOT.glob("*/config.json"))]
    known = [run for run in runs if run.startswith(begun)]
    other = [
        str(path) + ("" if (path / "config.json").is_file() else os.sep)
        for path in _there(begun)
        if path.is_dir() and str(path) not in known and (begun or path != _ROOT)
    ]
    return [before + run for run in known + other]


def _there(incomplete: str) -> list[Path]:
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    hidden = name.startswith(".")
    return [
        Path(folder) / entry
        for entry in entries
        if entry.startswith(name) and (hidden or not entry.startswith("."))
    ]
