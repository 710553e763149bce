"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from nmt_cli.checking import MOST_BEAMS
from nmt_cli.errors import NmtError


class Device(str, Enum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class PrecisionOption(str, Enum):
    """Number format of matrix products."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class TranslationPrecision(str, Enum):
    """Number format of matrix products when nothing is trained."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"
    int8 = "int8"


class EncodingErrors(str, Enum):
    """What happens to a byte that is not UTF-8."""

    strict = "strict"
    replace = "replace"  # type: ignore[assignment]  # hides str.replace, which nobody calls


_LONGEST_NAME = 200
"""Bytes of a file's name: file systems take 255, of which what is written beside needs some."""
MOST_TOKENS = 100_000


def as_path(text: str) -> Path:
    """Take the name of a file or folder; of an empty one, as of a variable unset, make no "."."""
    if not text:
        raise typer.BadParameter("is empty; name a file or folder")
    return Path(text)


as_path.__name__ = "path"  # what --help shows


def as_result(text: str) -> str:
    """Take the name of a file to write, or ``-`` for stdout."""
    return text if text == "-" else str(as_path(text))


def file_of(result: str | None) -> Path | None:
    """Give the file that ``as_result`` has taken, if it is one."""
    return None if result in {None, "-"} else Path(str(result))


def finite(value: float | None) -> float | None:
    """Refuse nan and inf, which pass every bound."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def above_zero(value: float | None) -> float | None:
    """Refuse an end that comes before the first step, as well as nan and inf."""
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value:g} would end before it begins; give more than 0")
    return finite(value)


SrcLang = Annotated[
    str | None, typer.Option("--src-lang", "-s", help="Source language, such as en.")
]
TgtLang = Annotated[
    str | None, typer.Option("--tgt-lang", "-t", help="Target language, such as de.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of a table, by name or number from 1: SRC,TGT.", metavar="SRC,TGT"),
]
TestData = Annotated[
    str | None,
    typer.Option("--data", "-d", help="Test corpus.  (default: the test split of the runs)"),
]
Split = Annotated[str | None, typer.Option(help="Split of the corpus, such as test or valid.")]
Source = Annotated[Path | None, typer.Option(parser=as_path, help="Source file, with --ref.")]
Reference = Annotated[Path | None, typer.Option(parser=as_path, help="Reference file, with --src.")]
Buckets = Annotated[
    str | None, typer.Option(help="Upper edges of the buckets.  (default: 10,20,30,40,50)")
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", parser=as_result, metavar="FILE|-", help="Write all as JSON."),
]
Encoding = Annotated[
    EncodingErrors,
    typer.Option("--encoding-errors", help="What to do with bytes that are not UTF-8."),
]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute.")]
TranslationPrecisionOption = Annotated[
    TranslationPrecision,
    typer.Option(
        "--precision",
        help="Number format; auto is fp32 on a CPU, where bf16 and int8 are faster and rounder.",
    ),
]
Beam = Annotated[
    int,
    typer.Option("--beam", "-b", min=1, max=MOST_BEAMS, help="Beam size; 1 is greedy search."),
]
LengthPenalty = Annotated[
    float,
    typer.Option(
        min=-10,
        max=10,
        callback=finite,
        help="Divide log P by ((5 + length) / 6) ** X; 0 favours short outputs.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show nothing but results, warnings and errors.")
]


def given(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option was given, on the command line or in a file of options."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "DEFAULT_MAP"}


def typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option was given on the command line itself."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def value_of(ctx: typer.Context, name: str) -> Any:
    """Give an option's value in the form in which a run keeps it."""
    value = getattr(ctx.params[name], "value", ctx.params[name])
    return str(value) if isinstance(value, Path) else value


def parse_columns(text: str | None) -> tuple[str, str] | None:
    """Split ``--columns SRC,TGT``.

    Raises:
        NmtError: unless it names two columns.
    """
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) != 2 or not all(parts):
        raise NmtError(f"--columns {text}: takes two names or numbers, such as 1,2 or en,de")
    if any(len(part) > 9 and part.isdecimal() for part in parts):
        raise NmtError(f"--columns {text[:40]}...: no table has so many columns")
    numbers = [int(part) if part.isdecimal() else part for part in parts]
    if numbers[0] == numbers[1]:
        raise NmtError(f"--columns {text}: source and target are the same column")
    return parts[0], parts[1]


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Split a list of whole numbers such as 10,20,30.

    Raises:
        NmtError: if it is not one.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part.strip()) <= 9 for part in parts):
        raise NmtError(f"{option} {text[:40]}: takes whole numbers, such as 10,20,30")
    return tuple(int(part) for part in parts)


def refuse_both(first: str, second: str, both: bool) -> None:
    """Refuse two options of which one would be ignored.

    Raises:
        NmtError: naming both.
    """
    if both:
        raise NmtError(f"give either {first} or {second}, not both")


def write_result(file: str, text: str) -> None:
    """Write to a file, whole, or for ``-`` to stdout."""
    from nmt_cli.files import write_whole

    if file == "-":
        typer.echo(text, nl=False)
    else:
        write_whole(Path(file), text)


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse outputs that could not be written, or would overwrite each other or an input.

    Args:
        outputs: the file of each option, such as ``{"--csv": Path("a.csv")}``.
        inputs: files that are read, or that may be, whether they are there or not.

    Raises:
        NmtError: naming the option and the file.
    """
    from nmt_cli.files import require_folder

    taken = {path.resolve(): str(path) for path in inputs if path.is_file()}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir() or not path.name:
            raise NmtError(f"{option} {str(path)!r}: is a folder; name a file in it")
        require_folder(path)
        place = path.resolve()
        if len(os.fsencode(place.name)) > _LONGEST_NAME:
            raise NmtError(f"{option} {place.name[:40]}...: the name is too long; choose another")
        if place in taken and (not path.exists() or path.is_file() or path.is_fifo()):
            raise NmtError(f"{option} {path}: would overwrite {taken[place]}; choose another name")
        taken[place] = f"{option} {path}"
