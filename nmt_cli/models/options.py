"""Options of an architecture: a frozen dataclass is the one declaration.

A field ``layers: Annotated[int, "stacked layers"] = 1`` gives its name, type, help and default
to ``nmt archs NAME``, ``-O layers=2``, a config file and ``config.json`` alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from nmt_cli.errors import NmtError, did_you_mean

OptionsT = TypeVar("OptionsT")

MOST_LAYERS = 256
WIDEST = 1 << 16
"""Bounds on stacked layers and on widths: an absurd config is refused before it is built."""
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Option(NamedTuple):
    """One field of an options dataclass, as the help page shows it."""

    name: str
    type: Any
    default: Any
    help: str

    @property
    def values(self) -> str:
        """What may be given: ``int``, ``true|false`` or the choices."""
        if self.type is bool:
            return "true|false"
        if get_origin(self.type) is Literal:
            return "|".join(get_args(self.type))
        return str(self.type.__name__)


def describe(options: type) -> list[Option]:
    """List the fields of an options dataclass in the order of their declaration."""
    hints = get_type_hints(options, include_extras=True)
    found = []
    for field in dataclasses.fields(options):
        kind, *notes = (
            get_args(hints[field.name])
            if get_origin(hints[field.name]) is Annotated
            else (hints[field.name],)
        )
        found.append(Option(field.name, kind, field.default, notes[0] if notes else ""))
    return found


def parse(options: type[OptionsT], given: Mapping[str, Any], owner: str) -> OptionsT:
    """Build an options dataclass from names and values, the values typed or as text.

    Args:
        options: the frozen dataclass.
        given: values by name; dashes and underscores are the same.
        owner: the name of the architecture, for the message.

    Raises:
        NmtError: for an unknown name or a value of the wrong kind; it lists the right ones.
    """
    known = {option.name: option for option in describe(options)}
    values = {}
    for raw, value in given.items():
        name = raw.replace("-", "_")
        if name not in known:
            raise NmtError(
                f"{owner} has no option {raw!r}; it has: {', '.join(sorted(known))}"
                + did_you_mean(name, known)
            )
        values[name] = _convert(known[name], value)
    return options(**values)


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """Split ``key=value`` words as given with ``-O``."""
    pairs = {}
    for word in assignments:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise NmtError(f"-O takes key=value, not {word!r}; `nmt archs NAME` lists the keys")
        pairs[key.strip()] = value.strip()
    return pairs


def _convert(option: Option, value: Any) -> Any:
    text = str(value)
    if get_origin(option.type) is Literal:
        choices = get_args(option.type)
        if text in choices:
            return text
        raise NmtError(
            f"{option.name}={text}: must be one of {', '.join(choices)}"
            + did_you_mean(text, choices)
        )
    if option.type is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise NmtError(f"{option.name}={text}: must be true or false")
    try:
        return option.type(text)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(option.type, option.values)
        raise NmtError(f"{option.name}={text}: must be {kind}") from None


def only_with(options: Any, name: str, condition: bool, what: str) -> None:
    """Raise ``NmtError`` if an option was changed that has no effect without something else."""
    default = {field.name: field.default for field in dataclasses.fields(options)}[name]
    value = getattr(options, name)
    require(condition or value == default, f"{name}={value}: has no effect without {what}")


def require(condition: bool, message: str) -> None:
    """Raise ``NmtError(message)`` unless the condition holds."""
    if not condition:
        raise NmtError(message)
