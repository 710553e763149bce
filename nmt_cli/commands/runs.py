"""``nmt runs``: list the run folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt_cli.commands.options import as_path

if TYPE_CHECKING:
    from nmt_cli.runs import RunFolder


def runs(
    root: Annotated[
        Path, typer.Argument(parser=as_path, help="Folder that holds the runs.")
    ] = Path("checkpoints"),
) -> int:
    """List run folders: architecture, data, steps, BLEU on their test, date, size on disk."""
    from nmt_cli.display import aligned
    from nmt_cli.errors import NmtError
    from nmt_cli.runs import find_runs

    rows = [["run", "arch", "data", "steps", "BLEU", "finished", "MB"]]
    for run in find_runs(root):
        try:
            rows.append(_row(run))
        except (NmtError, KeyError, TypeError, ValueError):
            rows.append([str(run.path), "damaged", *["-"] * 5])
    if len(rows) == 1:
        raise NmtError(f"{root}: no runs here; train one with `nmt train`")
    typer.echo("\n".join(aligned(rows)))
    return 0


def _row(run: RunFolder) -> list[str]:
    config = run.config()
    bleu = config.get("test_bleu")
    return [
        str(run.path),
        str(config["arch"]),
        str(config["request"]["data"]["spec"]),
        str(run.steps()),
        "-" if bleu is None else f"{bleu:.1f}",
        str(config["finished"] or "not yet")[:16].replace("T", " "),
        f"{run.size() / 1e6:.0f}",
    ]
