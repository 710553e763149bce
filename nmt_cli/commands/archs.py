"""``nmt archs``: what architectures there are, and what options one has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt_cli.commands import completing

if TYPE_CHECKING:
    from nmt_cli.models.base import Architecture


def archs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the options of this one.", autocompletion=completing.architectures
        ),
    ] = None,
) -> int:
    """List the architectures, or the options, defaults and paper of one."""
    from nmt_cli.display import aligned, terminal_width
    from nmt_cli.models import architecture, architectures, resolve_options
    from nmt_cli.models.options import describe

    if name is None:
        rows = [["name", "year", "params", "parallel", "source", "path", "what"]]
        for arch in architectures():
            traits = arch.traits
            rows.append(
                [
                    arch.name,
                    str(traits.year),
                    _parameters(arch),
                    "yes" if traits.parallel else "no",
                    traits.reads,
                    traits.path,
                    arch.summary,
                ]
            )
        typer.echo("\n".join(aligned(rows, (0, 3, 4, 5, 6), terminal_width())))
        typer.echo(
            "(params: parameters of --size small with a vocabulary of 8,000; parallel: a sentence "
            "is trained on\nat all its positions at once; source: what the decoder reads it from; "
            "path: steps between\ntarget words that are n apart)"
        )
        return 0
    arch = architecture(name)
    traits = arch.traits
    typer.echo(
        f"{arch.name}: {arch.summary}\n{arch.paper}\n\n"
        f"year: {traits.year}\n"
        f"parameters: {_parameters(arch)} (--size small, a vocabulary of 8,000)\n"
        f"training: {'all positions at once' if traits.parallel else 'one position at a time'}\n"
        f"the decoder reads the source from: {traits.reads}\n"
        f"path between target words n apart: {traits.path}\n"
        f"decoding keeps, beside that: {traits.keeps}\n\noptions, with defaults (-O key=value):"
    )
    preset = resolve_options(arch.name, "small", {})
    rows = []
    for option in describe(arch.options):
        default = getattr(preset, option.name)
        shown = str(default).lower() if option.type is bool else str(default)
        choice = "" if option.values in {"int", "float", "true|false"} else f" ({option.values})"
        rows.append([f"{option.name}={shown}", f"{option.help}{choice.replace('|', ' | ')}"])
    typer.echo("\n".join(aligned(rows, (0, 1), terminal_width())))
    typer.echo("\nsizes (--size):")
    for size, values in arch.sizes.items():
        shown = ", ".join(f"{key}={value}" for key, value in values.items() if size != "small")
        typer.echo(f"  {size}: {shown or 'the defaults'}")
    recipe = arch.recipe
    names = ("lr", "warmup", "schedule", "batch_tokens", "epochs", "label_smoothing", "clip_norm")
    typer.echo("\ntraining, where nothing else is said (no more than two epochs of --warmup):")
    typer.echo(f"  {_flags({name: getattr(recipe, name) for name in names})}")
    for size, rates in arch.size_training.items():
        typer.echo(f"  with --size {size}: {_flags(rates)}")
    generated = {"epochs": recipe.generated_epochs, "dropout": 0, "label_smoothing": 0}
    typer.echo(f"  on a generated corpus, such as toy: {_flags(generated)}")
    return 0


def _flags(values: Mapping[str, Any]) -> str:
    """Write options as they are typed."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())


def _parameters(arch: Architecture) -> str:
    """Count the parameters of the preset."""
    import torch

    from nmt_cli.models import Vocabulary, parameter_count, resolve_options
    from nmt_cli.models.base import Uninitialised

    options = resolve_options(arch.name, "small", {})
    with Uninitialised(), torch.device("meta"):
        model = arch.build(options, Vocabulary(8000, 8000, True))
    return f"{parameter_count(model) / 1e6:.1f} M"
