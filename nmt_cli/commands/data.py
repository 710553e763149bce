"""``nmt data``: write corpora that are made, not collected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt_cli.errors import NmtError

app = typer.Typer(help="Make a corpus: data make toy, copy, reverse or add.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Make a corpus: data make toy, copy, reverse or add."""


@app.command()
def make(
    name: Annotated[
        str, typer.Argument(help="Which: toy, copy, reverse or add, with options: copy:max=100.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder.  (default: data/NAME)")
    ] = None,
    train: Annotated[
        int | None, typer.Option(min=1, help="Training pairs.  (default: 20000)")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed.  (default: 1)")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
) -> int:
    """Write a corpus as train, valid and test files, one a language.

    nmt data make toy -o data/toy --train 50000

    nmt data make copy:max=50,test_max=100
    """
    from nmt_cli.corpus.pairs import Request
    from nmt_cli.corpus.readers import GENERATORS
    from nmt_cli.files import write_whole

    kind, _, options = name.partition(":")
    if kind not in GENERATORS:
        raise NmtError(f"no corpus {name!r} to make; there are: {', '.join(GENERATORS)}")
    more = [
        f"{key}={value}" for key, value in (("train", train), ("seed", seed)) if value is not None
    ]
    corpus = GENERATORS[kind](",".join(filter(None, [options, *more])), Request())
    splits = {split: corpus.read(split) for split in corpus.parts}
    folder = out or Path("data") / kind
    targets = {
        folder / f"{split}.{language}": [pair[side] for pair in pairs.pairs]
        for split, pairs in splits.items()
        for side, language in enumerate((pairs.src_lang, pairs.tgt_lang))
    }
    taken = [path for path in targets if path.exists()]
    if taken and not overwrite:
        raise NmtError(
            f"{taken[0]}: is there already; replace it with --overwrite, or give "
            "another folder with -o"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, lines in targets.items():
        write_whole(path, "".join(f"{line}\n" for line in lines))
    sizes = ", ".join(f"{split} {len(pairs.pairs)}" for split, pairs in splits.items())
    src, tgt = splits["train"].src_lang, splits["train"].tgt_lang
    typer.echo(
        f"{folder}: {sizes} pairs; train on it with `nmt train -d {folder} -s {src} -t {tgt}`"
    )
    return 0
