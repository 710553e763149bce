"""What may be given beside ``--resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from nmt_cli.commands.options import given, value_of
from nmt_cli.errors import NmtError

if TYPE_CHECKING:
    from nmt_cli.runs import RunFolder

_WITH_RESUME = {
    "resume", "epochs", "steps", "minutes", "device", "threads", "cache", "quiet", "config",
    "tensorboard", "tracker",
}  # fmt: skip


def refuse_changes(ctx: typer.Context, folder: RunFolder, stored: dict[str, Any]) -> None:
    """With --resume only the end, the device and the logging may be given anew.

    An option that repeats what the run was begun with changes nothing and is let pass; a --size
    does not say whether it would.
    """

    def changes(name: str) -> bool:
        value = value_of(ctx, name)
        if name == "option":
            return _changed_options(stored, value)
        return bool(value != {**stored, "out": str(folder.path)}.get(name))

    others = [
        name
        for name in ctx.params
        if given(ctx, name) and name not in _WITH_RESUME and changes(name)
    ]
    if others:
        options = ", ".join(_written(name) for name in others)
        raise NmtError(
            f"{options}: cannot be changed with --resume, only --steps, --epochs, --minutes, "
            "--device, --threads and --cache; to start from the weights of a run, use --init"
        )


def _changed_options(stored: dict[str, Any], written: list[str]) -> bool:
    from nmt_cli.models import resolve_options
    from nmt_cli.models.options import parse_assignments

    arch, options = stored["arch"], stored["options"]
    asked = resolve_options(arch, "small", {**options, **parse_assignments(written)})
    return bool(asked != resolve_options(arch, "small", options))


def _written(name: str) -> str:
    """Give an option as it is typed."""
    return "-O" if name == "option" else "--" + name.replace("_", "-")
