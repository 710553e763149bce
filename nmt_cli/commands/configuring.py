"""``--config``: options of ``nmt train`` from a file, and ``--print-config``, which writes one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from nmt_cli.errors import NmtError, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NOT_IN_A_FILE = {
    "config", "print_config", "resume", "overwrite", "quiet", "help",
}  # fmt: skip
_LARGEST = 1 << 24
"""Bytes of a file of options; a run's config.json may have as many."""


def take_from_file(ctx: typer.Context, path: Path | None) -> Path | None:
    """Let a file stand for options that the command line leaves out: a callback of ``--config``.

    It is TOML with the names of the options, ``-O`` as the table ``[options]``; or the
    ``config.json`` of a run.

    Raises:
        NmtError: if it cannot be read, or has a name or a value that the command would not take.
    """
    if path is None:
        return None
    params = {p.name: p for p in ctx.command.params if p.name and p.name not in _NOT_IN_A_FILE}
    known = [*(name for name in params if name != "option"), "options"]
    given: dict[str, Any] = {}
    for key, value in _read(path).items():
        name = key.replace("-", "_")
        if name not in known:
            there = ", ".join(sorted(known)) + did_you_mean(name, known)
            raise NmtError(f"{path}: {key}: no option of nmt train; there are: {there}")
        if name in given or (name == "options" and "option" in given):
            raise NmtError(f"{path}: {key}: is given twice, with a dash and an underscore")
        if name == "options":
            given["option"] = _assignments(path, value)
        else:
            given[name] = _checked(ctx, path, params[name], key, value)
    ctx.default_map = given
    return path


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Let an error within say that a file of options may be to blame, if there is one."""
    try:
        yield
    except NmtError as error:
        if path is None:
            raise
        raise NmtError(f"{error} (by --config {path}, or beside it)") from None


def options_in_file(
    ctx: typer.Context, arch: str, size: str | None
) -> tuple[dict[str, str], list[str]]:
    """Give the options of the architecture that the file has.

    Args:
        ctx: of the command.
        arch: the architecture.
        size: what the command line says of it; then the file does not say what a size sets.

    Returns:
        the options that count, and the names of those that a size set in their place.
    """
    from nmt_cli.models import architecture
    from nmt_cli.models.options import parse_assignments

    filed = parse_assignments((ctx.default_map or {}).get("option", []))
    if size is None:
        return filed, []
    set_by_size = {name for values in architecture(arch).sizes.values() for name in values}
    replaced = [key for key in filed if key.replace("-", "_") in set_by_size]
    return {key: value for key, value in filed.items() if key not in replaced}, replaced


def as_toml(options: dict[str, Any]) -> str:
    """Write options as the text of such a file.

    Raises:
        NmtError: if one is no text that a file could hold.
    """
    table = options.get("options", {})
    lines = [f"{key} = {_toml(value)}" for key, value in options.items() if key != "options"]
    text = "\n".join(
        [*lines, "", "[options]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    )
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise NmtError("--print-config: an option is not UTF-8, as a file of options must be")
    return text


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(path: Path) -> dict[str, Any]:
    from nmt_cli.config import Config
    from nmt_cli.corpus.tables import parse_json

    try:
        with path.open("rb") as file:  # it may be a pipe
            raw = file.read(_LARGEST + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise NmtError(f"--config {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise NmtError(f"--config {path}: is not UTF-8 text") from None
    if len(raw) > _LARGEST:
        raise NmtError(f"--config {path}: has over {_LARGEST >> 20} MB, so it is no such file")
    if path.suffix.lower() == ".json":
        form = parse_json(str(path), text)
        if not isinstance(form, dict) or not isinstance(form.get("request"), dict):
            raise NmtError(f"{path}: is no config.json of a run; give that, or TOML")
        return Config.from_json(form["request"], str(path)).as_options()
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise NmtError(f"{path}: is not TOML: {str(error)[:100]}") from None


def _assignments(path: Path, table: Any) -> list[str]:
    if not isinstance(table, dict):
        raise NmtError(f"{path}: options: is a table, [options], with one line a key")
    written = (value if isinstance(value, str) else json.dumps(value) for value in table.values())
    return [f"{key}={value}" for key, value in zip(table, written, strict=True)]


def _checked(ctx: typer.Context, path: Path, param: Any, key: str, value: Any) -> Any:
    """Refuse a value as the command line would, but naming the file."""
    is_flag = bool(getattr(param, "is_flag", False))
    if param.multiple:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            shown = json.dumps(value, default=str)
            raise NmtError(f"{path}: {key} = {shown}: takes a list of texts")
        return value
    if isinstance(value, bool) != is_flag or isinstance(value, list | dict):
        kind = "true or false" if is_flag else "one number or text"
        raise NmtError(f"{path}: {key} = {json.dumps(value, default=str)}: takes {kind}")
    try:
        param.process_value(ctx, value if is_flag else str(value))
    except typer.BadParameter as error:
        shown = json.dumps(value, default=str)[:40]
        raise NmtError(f"{path}: {key} = {shown}: {error.message}") from None
    return value if is_flag else str(value)
