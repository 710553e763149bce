"""``nmt score``: log-probability and perplexity of given translations, by source length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nmt_cli.commands import completing
from nmt_cli.commands.options import (
    Buckets,
    Columns,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    JsonFile,
    Quiet,
    Reference,
    Source,
    Split,
    SrcLang,
    TestData,
    TgtLang,
    TranslationPrecision,
    TranslationPrecisionOption,
    as_result,
    check_outputs,
    file_of,
    parse_columns,
    parse_numbers,
    write_result,
)
from nmt_cli.errors import NmtError
from nmt_cli.files import json_text
from nmt_cli.judging import judged_files, named_run, pairs_to_judge
from nmt_cli.signals import raise_when_interrupted


def score(
    run: Annotated[
        list[str],
        typer.Argument(
            help="Run folders; NAME=RUN gives one a name.", autocompletion=completing.run_folders
        ),
    ],
    data: TestData = None,
    split: Split = None,
    src: Source = None,
    ref: Reference = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    columns: Columns = None,
    buckets: Buckets = None,
    each: Annotated[
        str | None,
        typer.Option(
            parser=as_result,
            metavar="FILE|-",
            help="Write log P, tab, tokens for every pair, in order.",
        ),
    ] = None,
    json_file: JsonFile = None,
    device: DeviceOption = Device.auto,
    precision: TranslationPrecisionOption = TranslationPrecision.auto,
    encoding_errors: Encoding = EncodingErrors.strict,
    quiet: Quiet = False,
) -> int:
    """Show how likely models find given translations: perplexity by source length.

    log P is in nats and counts the end of the sentence; perplexity is exp(-log P / tokens), so it
    compares only models with one tokenizer.

    nmt score checkpoints/lstm checkpoints/lstm-attn

    nmt score checkpoints/mine --src input.en --ref output.de --each -
    """
    from nmt_cli.corpus.pairs import Request
    from nmt_cli.display import Screen, aligned
    from nmt_cli.evaluation import make_sample
    from nmt_cli.precision import choose_device, choose_translation_precision
    from nmt_cli.scoring import by_bucket, score_pairs
    from nmt_cli.translation import load_translator

    screen = Screen(quiet)
    runs = [named_run(word) for word in run]
    folders = [folder for _, (folder, *_) in runs]
    _check(runs, each, json_file, judged_files(folders, data, src, ref))
    request = Request(src_lang, tgt_lang, parse_columns(columns), encoding_errors.value)
    pairs = pairs_to_judge(folders, data, split, src, ref, request)
    for note in pairs.notes:
        screen.note(note)
    edges = None if buckets is None else parse_numbers(buckets, "--buckets")
    test = make_sample(pairs, edges=edges)
    chosen = choose_device(device.value)
    number_format = choose_translation_precision(precision.value, chosen)
    if number_format.warning:
        screen.note(f"warning: {number_format.warning}")
    raise_when_interrupted()
    systems = []
    with screen.progress("scoring", len(runs) * len(pairs.pairs)) as bar:
        for name, (folder, *_) in runs:
            translator = load_translator([folder], chosen, number_format)
            systems.append((name, score_pairs(translator, pairs.pairs, bar.advance)))
    if each is not None:
        write_result(each, "".join(f"{s.log_prob:.4f}\t{s.tokens}\n" for s in systems[0][1]))
    cells = {name: by_bucket(test, scores) for name, scores in systems}
    if json_file is not None:
        form: dict[str, Any] = {"data": test.name, "unit": test.unit, "systems": []}
        for name, (*of_buckets, overall) in cells.items():
            places = zip(test.buckets, of_buckets, strict=True)
            parts = [{"low": b.low, "high": b.high, **cell.as_json()} for b, cell in places]
            form["systems"].append({"name": name, **overall.as_json(), "buckets": parts})
        write_result(json_file, json_text(form, indent=2) + "\n")
    if "-" in {each, json_file}:
        return 0
    rows = [["", *(bucket.label for bucket in test.buckets), "all"]]
    rows.append(["sentences", *(str(cell.sentences) for cell in next(iter(cells.values())))])
    for name, found in cells.items():
        values = (cell.value for cell in found)
        rows.append([name, *("-" if value is None else f"{value:.2f}" for value in values)])
    head = f"perplexity of a token by source length in {test.unit}s: {test.name}"
    typer.echo("\n".join([head, *aligned(rows)]))
    return 0


def _check(runs: list[Any], each: str | None, json_file: str | None, inputs: list[Path]) -> None:
    """Refuse what could not be done, or not be told apart, before the work."""
    names = [name for name, _ in runs]
    for name, seeds in runs:
        if len(seeds) > 1:
            raise NmtError(f"{name}: several runs; nmt score takes one run a system")
        if names.count(name) > 1:
            raise NmtError(f"two systems are called {name!r}; name them apart, as NAME=PATH")
    if each is not None and len(runs) > 1:
        raise NmtError("--each writes the scores of one run; several were given")
    if each == "-" and json_file == "-":
        raise NmtError("give either --each - or --json -, not both")
    check_outputs({"--each": file_of(each), "--json": file_of(json_file)}, inputs)
