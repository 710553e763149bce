"""Putting a new run in the place of an old one, so that at every moment there is one to go on with.

The new run is written into a hidden folder within the old one's. One rename, once it has weights,
decides that it is to take the place; whatever is cut short after that, ``finish`` finishes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from nmt_cli.files import flush

_BESIDE, _COMPLETE, _MOVING = ".nmt-new", ".nmt-complete", ".nmt-moving"
"""Where a run stands: until it has weights; while the old one goes; while it moves up."""


def beside(folder: Path) -> Path:
    """Give the folder in which the new run is written."""
    return folder / _BESIDE


def is_cut_short(folder: Path) -> bool:
    """Tell whether a replacement was decided on and not finished."""
    return any(_is_folder(folder / name) for name in (_COMPLETE, _MOVING))


def decide(folder: Path) -> None:
    """Make the run written beside the one that counts."""
    beside(folder).rename(folder / _COMPLETE)


def finish(folder: Path, weights: str, clear: Callable[[], None]) -> None:
    """Do what is left of a replacement that was decided on.

    Args:
        folder: of both runs.
        weights: the name of a file without which a run does not count.
        clear: removes the old one.
    """
    _move_up(folder)
    complete = folder / _COMPLETE
    if _is_folder(complete) and (complete / weights).is_file():
        clear()
        complete.rename(folder / _MOVING)
        _move_up(folder)


def _move_up(folder: Path) -> None:
    moving = folder / _MOVING
    if _is_folder(moving):
        for entry in sorted(moving.iterdir(), key=lambda entry: entry.name == "config.json"):
            entry.rename(folder / entry.name)
        moving.rmdir()
        flush(folder)


def _is_folder(path: Path) -> bool:
    """Tell a folder from a link to one."""
    return path.is_dir() and not path.is_symlink()


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it; of a link the link alone."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
