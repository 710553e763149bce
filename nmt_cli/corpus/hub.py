"""Data sets of the Hugging Face hub, or local folders in one of its forms, by ``datasets``.

``hf:owner/name:config@split``: config and split may be left out. Rows are streamed. The network is
used for a name that is no local folder, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nmt_cli.corpus.columns import Row, numbered, read_rows
from nmt_cli.corpus.pairs import Corpus, PairStream, Request
from nmt_cli.errors import NmtError


def open_hub(spec: str, request: Request) -> Corpus:
    """Open what a SPEC after ``hf:`` names; each split is a part.

    Raises:
        NmtError: if it is not there, needs another config, or has no such split.
    """
    place, _, split = spec.partition("@")
    name, _, config = place.partition(":")
    if not name:
        raise NmtError("hf: takes a data set, such as hf:owner/name:config@split, or a folder")
    splits = _load(f"hf:{spec}", name, config or None)
    if not split:
        parts = {
            part: partial(_read, f"hf:{spec}@{part}", rows, request)
            for part, rows in splits.items()
        }
        return Corpus(f"hf:{spec}", parts)
    if split not in splits:
        raise NmtError(f"hf:{spec}: no split {split!r}; available: {', '.join(sorted(splits))}")
    return Corpus(f"hf:{spec}", {"": partial(_read, f"hf:{spec}", splits[split], request)})


def _read(name: str, rows: Any, request: Request) -> PairStream:
    def explained() -> Iterator[Row]:
        with _explained(name):
            yield from rows

    return read_rows(name, numbered(name, explained()), request)


def _load(spec: str, name: str, config: str | None) -> Mapping[str, Any]:
    import datasets

    if name.startswith((".", "/")) and not Path(name).exists():
        raise NmtError(f"{spec}: no such folder")
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    with _explained(spec):
        folder = Path(name)
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config, streaming=True)
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}


@contextmanager
def _explained(spec: str) -> Iterator[None]:
    """Turn what the library raises into one line that says what to do."""
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        yield
    except NmtError:
        raise
    except DatasetNotFoundError as error:
        raise NmtError(
            f"{spec}: no such data set on the hub that may be read, and no such folder here: "
            f"{_first_line(error)}"
        ) from None
    except (ConnectionError, OfflineModeIsEnabled) as error:
        raise NmtError(
            f"{spec}: the hub cannot be reached ({_first_line(error)}); without a network give "
            "hf: a local folder, or data that was fetched before"
        ) from None
    except Exception as error:
        reason = _first_line(error)
        if "script" in reason:
            reason += "; nmt runs no code of a data set: save its columns as files first"
        raise NmtError(f"{spec}: cannot be loaded: {reason}") from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
