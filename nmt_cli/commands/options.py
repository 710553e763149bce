"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

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


class EncodingErrors(str, Enum):
    """What happens to a byte that is not UTF-8."""

    strict = "strict"
    replace = "replace"  # type: ignore[assignment]  # hides str.replace, which nobody calls


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
Encoding = Annotated[
    EncodingErrors,
    typer.Option("--encoding-errors", help="What to do with bytes that are not UTF-8."),
]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute.")]
Beam = Annotated[int, typer.Option("--beam", "-b", min=1, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[
    float,
    typer.Option(help="Divide log P by ((5 + length) / 6) ** X; 0 favours short outputs."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but results and errors.")]


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
    return parts[0], parts[1]


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Split a list of whole numbers such as 10,20,30.

    Raises:
        NmtError: if it is not one.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise NmtError(f"{option} {text}: takes whole numbers, such as 10,20,30")
    return tuple(int(part) for part in parts)
