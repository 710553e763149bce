"""``nmt data``: look at a corpus, and write corpora that are made, not collected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt_cli.checking import MANY
from nmt_cli.commands.options import (
    Columns,
    Encoding,
    EncodingErrors,
    JsonFile,
    Quiet,
    SrcLang,
    TgtLang,
    as_path,
    check_outputs,
    file_of,
    parse_columns,
    write_result,
)
from nmt_cli.errors import NmtError

app = typer.Typer(help="Look at a corpus: data info; make one: data make.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Look at a corpus: data info; make one: data make."""


@app.command()
def info(
    spec: Annotated[str, typer.Argument(help="Corpus, in any form of nmt train --data.")],
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    columns: Columns = None,
    json_file: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option(parser=as_path, help="Draw the lengths: .png, .svg or .pdf.")
    ] = None,
    encoding_errors: Encoding = EncodingErrors.strict,
    quiet: Quiet = False,
) -> int:
    """Say what is in a corpus: sizes, lengths, repeats, scripts, lines that look wrong.

    It is read twice and never held in memory, so it may be large.

    nmt data info corpus/ -s en -t de --plot lengths.png
    """
    from nmt_cli.corpus.info import count_shared, describe
    from nmt_cli.corpus.pairs import Request
    from nmt_cli.corpus.readers import files_of, open_corpus
    from nmt_cli.display import Screen, info_text
    from nmt_cli.files import json_text
    from nmt_cli.plots import check_format, plot_lengths
    from nmt_cli.signals import raise_when_interrupted

    screen = Screen(quiet)
    if plot:
        check_format(plot)
    check_outputs({"--json": file_of(json_file), "--plot": plot}, files_of(spec))
    request = Request(src_lang, tgt_lang, parse_columns(columns), encoding_errors.value)
    corpus = open_corpus(spec, request)
    raise_when_interrupted()
    found = {}
    for split, open_pairs in corpus.parts.items():
        with screen.progress(f"reading {split or spec} twice", None) as bar:
            found[split or "all"] = describe(open_pairs, bar.advance)
    for split, one in found.items():
        others = ((name, other) for name, other in found.items() if name != split)
        one.leaked = {name: count_shared(one, other) for name, other in others}
    if plot:
        plot_lengths(found, plot)
        screen.note(f"--plot: wrote {plot}")
    if json_file is not None:
        form = {"data": spec, "splits": {split: one.as_json() for split, one in found.items()}}
        write_result(json_file, json_text(form, indent=2) + "\n")
        if json_file == "-":
            return 0
        screen.note(f"--json: wrote {json_file}")
    typer.echo("\n\n".join(info_text(split, one) for split, one in found.items()))
    return 0


@app.command()
def make(
    name: Annotated[
        str, typer.Argument(help="Which: toy, copy, reverse or add, with options: copy:max=100.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=as_path, help="Folder.  (default: data/NAME)"),
    ] = None,
    train: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, help="Training pairs.  (default: 20000)"),
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
    for key, value in (("train", train), ("seed", seed)):
        if value is not None and f"{key}=" in options:
            raise NmtError(f"{name} --{key} {value}: {key} is given twice")
    more = [
        f"{key}={value}" for key, value in (("train", train), ("seed", seed)) if value is not None
    ]
    corpus = GENERATORS[kind](",".join(filter(None, [options, *more])), Request())
    folder = out or Path("data") / kind
    if folder.exists() and not folder.is_dir():
        raise NmtError(f"{folder}: is a file; name a folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    splits = {split: corpus.read(split) for split in corpus.parts}
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
    for path, lines in targets.items():
        write_whole(path, "".join(f"{line}\n" for line in lines))
    sizes = ", ".join(f"{split} {len(pairs.pairs)}" for split, pairs in splits.items())
    src, tgt = splits["train"].src_lang, splits["train"].tgt_lang
    typer.echo(
        f"{folder}: {sizes} pairs; train on it with `nmt train -d {folder} -s {src} -t {tgt}`"
    )
    return 0
