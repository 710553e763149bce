"""``nmt export``: write a model for another engine."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from nmt_cli.commands import completing
from nmt_cli.commands.options import Quiet, as_path
from nmt_cli.errors import NmtError


class Engine(str, Enum):
    """What a model can be written for."""

    ctranslate2 = "ctranslate2"
    onnx = "onnx"


class Weights(str, Enum):
    """How the weights are stored."""

    fp32 = "fp32"
    int8 = "int8"


def export(
    run: Annotated[
        Path,
        typer.Argument(parser=as_path, help="Run folder.", autocompletion=completing.run_folders),
    ],
    folder: Annotated[Path, typer.Argument(parser=as_path, metavar="DIR", help="Folder to make.")],
    to: Annotated[Engine, typer.Option("--to", help="The engine.")],
    weights: Annotated[Weights, typer.Option(help="Number format of the weights.")] = Weights.fp32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    quiet: Quiet = False,
) -> int:
    """Write a trained model for another engine, which needs no nmt and no torch.

    nmt export checkpoints/transformer fast --to ctranslate2 --weights int8

    nmt export checkpoints/lstm-attn graphs --to onnx
    """
    from nmt_cli.display import Screen
    from nmt_cli.files import make_whole, require_folder

    require_folder(folder)
    _check_place(folder, overwrite)
    if to is Engine.onnx and weights is not Weights.fp32:
        raise NmtError(f"--weights {weights.value}: --to onnx writes fp32; leave --weights out")
    make_whole(folder, lambda beside: _write(to, run, beside, weights))
    Screen(quiet).note(f"written: {folder}, with source.spm and target.spm for sentencepiece")
    return 0


def _write(to: Engine, run: Path, folder: Path, weights: Weights) -> None:
    from nmt_cli.runs import RunFolder

    if to is Engine.onnx:
        from nmt_cli.export.onnx import write_onnx

        write_onnx(RunFolder(run), folder)
    else:
        from nmt_cli.export.ctranslate2 import write_ctranslate2

        write_ctranslate2(RunFolder(run), folder, weights.value)


def _check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a place that is taken, unless by an export that may be replaced."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise NmtError(f"{folder}: is there already and no folder; choose another name")
    entries = sorted(path.name for path in folder.iterdir())
    if not entries:
        return
    written = {"model.bin", "decoder.onnx"}.intersection(entries)
    if not written or "source.spm" not in entries:
        raise NmtError(f"{folder}: holds {entries[0]}, which is no export; choose another folder")
    if not overwrite:
        raise NmtError(f"{folder}: holds an export; replace it with --overwrite, or choose another")
