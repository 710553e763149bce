"""Files that may be a stranger's: read in bounded time and memory, and nothing in them is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import NmtError

_LARGEST_JSON = 16 << 20
_LARGEST_MODEL = 64 << 20
"""Of a tokenizer; one of a million entries has about 20 MB."""


def as_safetensors(tensors: dict[str, Tensor], run: str | None = None) -> bytes:
    """Give tensors as the bytes of a file that holds numbers and nothing else.

    Args:
        tensors: by name.
        run: the mark of the run that they are of.
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return bytes(save(plain, {"run": run} if run else None))


def require_own(path: Path, run: str | None) -> None:
    """Refuse such a file of another run than ``run`` marks, where both bear a mark.

    Raises:
        NmtError: if it is of another, is damaged, or no file.
    """
    found = _run_of(path)
    if run and found and run != found:
        raise NmtError(f"{path}: is of another run than config.json; put the run's own back")


def _run_of(path: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    require_plain(path)
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("run")
    except (OSError, SafetensorError) as error:
        raise NmtError(f"{path}: cannot be read ({error})") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read such a file.

    Raises:
        NmtError: if it is damaged or no file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    require_plain(path)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise NmtError(f"{path}: cannot be read ({error})") from None


def read_json(path: Path) -> Any:
    """Read JSON of a size that a run may have.

    Raises:
        NmtError: if it is too large, damaged or no file.
    """
    try:
        return json.loads(read_bytes(path, _LARGEST_JSON).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path}: cannot be read ({error})") from None


def read_bytes(path: Path, most: int = _LARGEST_MODEL) -> bytes:
    """Read a file, unless it has more than so many bytes.

    Raises:
        NmtError: if it has more, or is no file.
    """
    require_plain(path)
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise NmtError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(data) > most:
        raise NmtError(f"{path}: has over {most:,} bytes, more than any that nmt writes")
    return data


def require_plain(path: Path) -> None:
    """Refuse what would not end, such as a named pipe.

    Raises:
        NmtError: if something else than a file is there.
    """
    if path.exists() and not path.is_file():
        raise NmtError(f"{path}: is no plain file")
