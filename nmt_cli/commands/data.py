"""``nmt data``: write corpora that are made, not collected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt_cli.errors import NmtError

app = typer.Typer(help="Make a synthetic corpus: data make toy.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Make a synthetic corpus: data make toy."""


@app.command()
def make(
    name: Annotated[str, typer.Argument(help="Which: toy.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder.  (default: data/NAME)")
    ] = None,
    train: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the grammar.")] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
) -> int:
    """Write a corpus as train, valid and test files, one a language.

    nmt data make toy -o data/toy --train 50000
    """
    from nmt_cli.corpus import toy
    from nmt_cli.files import write_whole

    if name != "toy":
        raise NmtError(f"no corpus {name!r} to make; there is: toy")
    folder = out or Path("data") / name
    targets = [
        folder / f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("en", "de")
    ]
    taken = [path for path in targets if path.exists()]
    if taken and not overwrite:
        raise NmtError(
            f"{taken[0]}: is there already; replace it with --overwrite, or give "
            "another folder with -o"
        )
    splits = toy.make(toy.ToyOptions(train, seed))
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        write_whole(folder / f"{split}.en", "".join(f"{pair.src}\n" for pair in pairs))
        write_whole(folder / f"{split}.de", "".join(f"{pair.tgt}\n" for pair in pairs))
    sizes = ", ".join(f"{split} {len(splits[split])}" for split in ("train", "valid", "test"))
    typer.echo(f"{folder}: {sizes} pairs; train on it with `nmt train -d {folder} -s en -t de`")
    return 0
