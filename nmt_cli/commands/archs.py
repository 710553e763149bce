"""``nmt archs``: what architectures there are, and what options one has."""

from __future__ import annotations

from typing import Annotated

import typer


def archs(
    name: Annotated[str | None, typer.Argument(help="Show the options of this one.")] = None,
) -> int:
    """List the architectures, or the options, defaults and paper of one."""
    from nmt_cli.display import aligned
    from nmt_cli.models import (
        Vocabulary,
        architecture,
        architectures,
        parameter_count,
        resolve_options,
    )
    from nmt_cli.models.options import describe

    if name is None:
        rows = [["name", "parameters", "what"]]
        for arch in architectures():
            options = resolve_options(arch.name, "small", {})
            model = arch.build(options, Vocabulary(8000, 8000, True))
            rows.append([arch.name, f"{parameter_count(model) / 1e6:.1f} M", arch.summary])
        typer.echo("\n".join(aligned(rows, text_columns=(0, 2))))
        typer.echo("(parameters of --size small with a vocabulary of 8,000)")
        return 0
    arch = architecture(name)
    typer.echo(f"{arch.name}: {arch.summary}\n{arch.paper}\n\noptions (-O key=value):")
    rows = []
    for option in describe(arch.options):
        default = str(option.default).lower() if option.type is bool else str(option.default)
        rows.append([f"  {option.name}", option.values, default, option.help])
    typer.echo("\n".join(aligned([["  name", "values", "default", "what"], *rows], (0, 1, 2, 3))))
    sizes = {size: values or "the defaults" for size, values in arch.sizes.items()}
    typer.echo("\nsizes (--size):")
    for size, values in sizes.items():
        shown = (
            values if isinstance(values, str) else ", ".join(f"{k}={v}" for k, v in values.items())
        )
        typer.echo(f"  {size}: {shown}")
    return 0
