"""Files that may be a stranger's: read in bounded time and memory, and nothing in them is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import NmtError

_LARGEST_JSON = 16 << 20


def as_safetensors(tensors: dict[str, Tensor]) -> bytes:
    """Give tensors as the bytes of a file that holds numbers and nothing else."""
    from safetensors.torch import save

    return bytes(
        save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    )


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
    require_plain(path)
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise NmtError(f"{path}: has over {_LARGEST_JSON >> 20} MB, so it is of no run")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise NmtError(f"{path}: cannot be read ({error})") from None


def require_plain(path: Path) -> None:
    """Refuse what would not end, such as a named pipe.

    Raises:
        NmtError: if something else than a file is there.
    """
    if path.exists() and not path.is_file():
        raise NmtError(f"{path}: is no plain file")
