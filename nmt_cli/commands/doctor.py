"""``nmt doctor``: what nmt finds on this machine, and what it makes of it."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import typer

_NEEDED = ("torch", "sentencepiece", "sacrebleu", "datasets", "safetensors", "matplotlib")
_OPTIONAL = {
    "ctranslate2": "nmt export --to ctranslate2",
    "onnx": "nmt export --to onnx",
    "onnxruntime": "running what that wrote",
    "mecab-python3": "BLEU of Japanese by words",
    "mecab-ko": "BLEU of Korean by words",
}
_SCRIPTS = {"Chinese and Japanese": "語", "Arabic": "ع", "Devanagari": "अ", "Thai": "ก"}


def doctor() -> int:
    """Say what is here: devices, number formats and why, versions, disk, fonts, packages."""
    import torch

    from nmt_cli import __version__
    from nmt_cli.precision import (
        choose_device,
        choose_training_precision,
        choose_translation_precision,
        cpu_has_bf16,
    )
    from nmt_cli.workers import choose_workers

    device = choose_device("auto")
    training = choose_training_precision("auto", device, bf16_pays_on_cpu=True)
    translating = choose_translation_precision("auto", device)
    where = Path.cwd()
    rows = [
        ("nmt", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"),
        ("device", _describe(device)),
        ("cores", f"{_cores()} for this process; {torch.get_num_threads()} threads in training, "
                  f"{choose_workers(device)} workers in translating"),
        ("bf16 on CPU", "native" if cpu_has_bf16() else "not native, so fp32 is used"),
        ("training", f"{training.name}: {training.reason}{_but(device, training.name)}"),
        ("translating", f"{translating.name}: {translating.reason}"),
        ("free disk", f"{shutil.disk_usage(where).free / 2**30:.1f} GiB in {where}"),
        ("fonts", _fonts()),
        *((name, _version(name) or "missing") for name in _NEEDED),
        *((name, _version(name) or f"not installed; it is for {use}")
          for name, use in _OPTIONAL.items()),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    typer.echo("\n".join(f"{name.ljust(width)}  {found}" for name, found in rows))
    return 0


def _but(device: object, precision: str) -> str:
    """Say for which architectures bf16 does not pay on a CPU."""
    from nmt_cli.models import architectures

    if str(device) != "cpu" or precision != "bf16":
        return ""
    slow = [arch.name for arch in architectures() if not arch.bf16_on_cpu]
    return f"; fp32 for {', '.join(slow)}"


def _describe(device: object) -> str:
    import torch

    chosen = torch.device(str(device))
    if chosen.type == "cuda":
        found = torch.cuda.get_device_properties(chosen)
        return f"cuda: {found.name}, {found.total_memory / 2**30:.0f} GiB"
    return f"{chosen.type}; CUDA: {'yes' if torch.cuda.is_available() else 'none'}"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fonts() -> str:
    """Say for which scripts a picture of attention has letters."""
    from nmt_cli.plots import can_draw

    lacking = [script for script, letter in _SCRIPTS.items() if not can_draw(letter)]
    if not lacking:
        return "for all scripts tried"
    return f"none for {', '.join(lacking)}; Noto fonts have them"


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
