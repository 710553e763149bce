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
        rows = [["name", "year", "parameters", "parallel", "path", "what"]]
        for arch in architectures():
            options = resolve_options(arch.name, "small", {})
            model = arch.build(options, Vocabulary(8000, 8000, True))
            traits = arch.traits
            rows.append(
                [
                    arch.name,
                    str(traits.year),
                    f"{parameter_count(model) / 1e6:.1f} M",
                    "yes" if traits.parallel else "no",
                    traits.path,
                    arch.summary,
                ]
            )
        typer.echo("\n".join(aligned(rows, text_columns=(0, 3, 4, 5))))
        typer.echo(
            "(parameters of --size small with a vocabulary of 8,000; parallel: a sentence is "
            "trained on\nat all its positions at once; path: steps between target words that are n "
            "apart)"
        )
        return 0
    arch = architecture(name)
    traits = arch.traits
    typer.echo(
        f"{arch.name}: {arch.summary}\n{arch.paper}\n\n"
        f"training: {'all positions at once' if traits.parallel else 'one position at a time'}\n"
        f"path between words n apart: {traits.path}\n"
        f"decoding keeps: {traits.keeps}\n\noptions (-O key=value):"
    )
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
