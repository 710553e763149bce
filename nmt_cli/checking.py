"""Bounds of what a user may give, and whether values from a file are of the declared types."""

from __future__ import annotations

import math
import types
from collections import abc
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MANY = 10**9
"""A bound on whole numbers: more is a slip of the hand, and no library would take it."""
MOST_THREADS = 1024
MOST_WORKERS = 64
MOST_BEAMS = 1000
LARGEST_SEED = 2**63 - 1


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type; a number must be finite, and may be whole for a float."""
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(known) and value == known for known in inner)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(kinds) and all(map(fits, value, kinds))
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(held, inner[1]) for key, held in value.items()
        )
    if origin in (abc.Sequence, list):
        return isinstance(value, list | tuple) and all(fits(held, inner[0]) for held in value)
    if origin is abc.Mapping:
        return isinstance(value, abc.Mapping) and all(
            fits(key, inner[0]) and fits(held, inner[1]) for key, held in value.items()
        )
    if hint is Path:
        return isinstance(value, Path)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def misfit(declared: type, values: dict[str, Any]) -> str | None:
    """Name the first of some fields that a class of fields does not have, or that does not fit."""
    hints = get_type_hints(declared)
    for name, value in values.items():
        if name not in hints or not fits(value, hints[name]):
            return name
    return None
