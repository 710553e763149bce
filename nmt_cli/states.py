"""The resumable states of a run: ``last/step-N``, of which ``last/LATEST`` names the newest.

A state is written beside, flushed, and named by the one-line file only when it is whole on disk;
older ones go afterwards.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import NmtError, WorkFailed
from nmt_cli.files import flush, write_whole
from nmt_cli.untrusted import as_safetensors, read_bytes, read_json, read_tensors, require_own

_LATEST = "LATEST"
_BEST = "best.safetensors"
_NAME = re.compile(r"step-[0-9]{1,12}")


class States:
    """The states of one run.

    Args:
        folder: ``last`` of the run.
        weights: the run's best weights, whether they are there by now or not.
        mark: of the run, which all of its tensors bear.
    """

    def __init__(self, folder: Path, weights: Path, mark: str | None) -> None:
        self._folder, self._weights, self._mark = folder, weights, mark

    def step(self) -> int:
        """Give the step of the newest; 0 if there is none.

        Raises:
            NmtError: if ``LATEST`` is damaged.
        """
        newest = self._newest()
        return int(newest.name.removeprefix("step-")) if newest else 0

    def save(self, step: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write the state of a step, then drop older ones.

        The best weights of that moment are linked in, so that resuming can go back to them.

        Raises:
            WorkFailed: if it cannot be written; the state before stays the newest.
        """
        target, partial = self._folder / f"step-{step}", self._folder / f".step-{step}.part"
        if target.is_dir() and self._newest() == target:
            return  # that state already; to write it anew would leave a moment without any
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write_whole(partial / "state.safetensors", as_safetensors(tensors, self._mark))
            write_whole(partial / "state.json", json.dumps(values) + "\n")
            if self._weights.is_file():
                _link_or_copy(self._weights, partial / _BEST)
            flush(partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
            flush(self._folder)
            write_whole(self._folder / _LATEST, f"step-{step}\n")
        except OSError as error:
            raise WorkFailed(f"{target}: cannot be saved: {error.strerror or error}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        for old in self._folder.iterdir():
            if old.is_dir() and old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read the newest.

        Raises:
            NmtError: if there is none or it is corrupt.
        """
        newest = self._newest()
        if newest is None:
            raise NmtError(f"{self._folder}: has no resumable state ({_LATEST}); train it anew")
        require_own(newest / "state.safetensors", self._mark)
        tensors = read_tensors(newest / "state.safetensors")
        values = read_json(newest / "state.json")
        if not isinstance(values, dict):
            raise NmtError(f"{newest / 'state.json'}: damaged: is no table of values")
        if (newest / _BEST).is_file():
            require_own(newest / _BEST, self._mark)
        return tensors, values

    def put_best_back(self) -> None:
        """Take the best weights of the moment when the newest state was saved.

        Where nothing had been validated by then, the weights that are there stay until the
        first validation replaces them.
        """
        newest = self._newest()
        if newest is not None and (newest / _BEST).is_file():
            write_whole(self._weights, (newest / _BEST).read_bytes())

    def _newest(self) -> Path | None:
        latest = self._folder / _LATEST
        if not latest.is_file():
            return None
        name = read_bytes(latest, most=100).decode("utf-8", "replace").strip()
        if not _NAME.fullmatch(name):
            raise NmtError(f"{latest}: damaged: names no state, such as step-1")
        return self._folder / name


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        flush(target)
