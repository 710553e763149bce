"""``nmt eval``: BLEU and its kin by source length, for models and for files."""

from __future__ import annotations

import csv
import io
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt_cli.checking import MANY
from nmt_cli.commands import completing
from nmt_cli.commands.options import (
    Beam,
    Buckets,
    Columns,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    JsonFile,
    LengthPenalty,
    Quiet,
    Reference,
    Source,
    Split,
    SrcLang,
    TestData,
    TgtLang,
    TranslationPrecision,
    TranslationPrecisionOption,
    as_path,
    as_result,
    check_outputs,
    file_of,
    given,
    parse_columns,
    parse_numbers,
    refuse_both,
    write_result,
)
from nmt_cli.errors import NmtError
from nmt_cli.judging import judged_files, named_run, pairs_to_judge
from nmt_cli.signals import raise_when_interrupted

if TYPE_CHECKING:
    from nmt_cli.corpus.pairs import PairList, Request
    from nmt_cli.display import Screen
    from nmt_cli.evaluation import Report, Sample, SystemOutput
    from nmt_cli.metrics import Bleu
    from nmt_cli.runs import RunFolder


class LengthUnit(str, Enum):
    """What a source is measured in."""

    word = "word"
    token = "token"
    char = "char"


def evaluate(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders; NAME=RUN gives one a name, NAME=RUN,RUN,RUN is the mean of seeds.",
            autocompletion=completing.run_folders,
        ),
    ] = None,
    data: TestData = None,
    split: Split = None,
    src: Source = None,
    ref: Reference = None,
    hyp: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Output of any other system, repeatable."),
    ] = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    columns: Columns = None,
    buckets: Buckets = None,
    quantiles: Annotated[
        int | None,
        typer.Option(min=2, max=1000, help="So many buckets of about equal size instead."),
    ] = None,
    unit: Annotated[
        LengthUnit | None, typer.Option(help="Unit of source length.  (default: by language)")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="Out of bleu, chrf, chrf++, ter, exact, and comet, which the package "
            "unbabel-comet gives (comet=MODEL: another of its models, or a checkpoint file)."
        ),
    ] = "bleu,chrf",
    bleu_tokenize: Annotated[
        str | None, typer.Option(help="sacrebleu tokenizer.  (default: by language)")
    ] = None,
    ci: Annotated[bool, typer.Option("--ci", help="Show 95 % bootstrap intervals.")] = False,
    worst: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, help="Show the N sentences on which the first two differ most."
        ),
    ] = None,
    json_file: JsonFile = None,
    csv_file: Annotated[
        str | None,
        typer.Option("--csv", parser=as_result, metavar="FILE|-", help="Write the table as CSV."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(parser=as_path, help="Draw the length curve: .png, .svg or .pdf.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(parser=as_path, help="Write source, reference and outputs into a folder."),
    ] = None,
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    device: DeviceOption = Device.auto,
    precision: TranslationPrecisionOption = TranslationPrecision.auto,
    encoding_errors: Encoding = EncodingErrors.strict,
    quiet: Quiet = False,
    *,
    ctx: typer.Context,
) -> int:
    """Show BLEU by source length for one or many models, or for output of other systems.

    nmt eval checkpoints/lstm checkpoints/lstm-attn --plot length.png

    nmt eval lstm=runs/a,runs/b,runs/c attn=runs/d,runs/e,runs/f

    nmt eval checkpoints/mine -d test.tsv

    nmt eval --src test.en --ref test.de --hyp other=output.de -t de
    """
    from nmt_cli import plots
    from nmt_cli.corpus.lines import require_readable
    from nmt_cli.corpus.pairs import Request
    from nmt_cli.display import Screen, metrics_table, printable, report_table
    from nmt_cli.evaluation import check_metrics, make_sample
    from nmt_cli.evaluation import evaluate as judge

    screen = Screen(quiet)
    names = list(dict.fromkeys(name.strip() for name in metrics.split(",")))
    check_metrics(names)
    if plot:
        plots.check_format(plot)
    refuse_both("--buckets", "--quantiles", bool(buckets and quantiles))
    refuse_both("--json -", "--csv -", json_file == "-" and csv_file == "-")
    outputs = {
        "--json": file_of(json_file),
        "--csv": file_of(csv_file),
        "--plot": plot,
    }
    check_outputs(outputs, [path for path in (src, ref) if path])
    runs = [named_run(word) for word in run or []]
    files = [_named_file(word) for word in hyp or []]
    inputs = judged_files([folder for _, seeds in runs for folder in seeds], data, src, ref)
    inputs += [path for _, path in files]
    check_outputs(outputs, inputs)
    if not runs and not files:
        raise NmtError("nothing to evaluate: give run folders, or --src, --ref and --hyp files")
    if not runs:
        for name in ("beam", "length_penalty", "device", "precision"):
            if given(ctx, name):
                option = f"--{name.replace('_', '-')}"
                raise NmtError(f"{option}: no run is given, so nothing is translated; leave it out")
    refuse_both("--worst", "--json - or --csv -", bool(worst) and "-" in {json_file, csv_file})
    if worst and len(runs) + len(files) < 2:
        raise NmtError("--worst compares two systems; only one was given")
    for _, path in files:
        require_readable(path)
    of_seeds = [f"{name}-{n + 1}" for name, seeds in runs for n in range(len(seeds)) if seeds[1:]]
    names_of_systems = [*(name for name, _ in runs), *of_seeds, *(name for name, _ in files)]
    _check_names(names_of_systems)
    if save is not None and save.is_dir():
        saved = (save / f"{name}.txt" for name in ("source", "reference", *names_of_systems))
        check_outputs({f"--save, {path.name}": path for path in saved}, inputs)
    _check_save(save)
    folders = [folder for _, seeds in runs for folder in seeds]
    request = Request(src_lang, tgt_lang, parse_columns(columns), encoding_errors.value)
    pairs = pairs_to_judge(folders, data, split, src, ref, request)
    for note in pairs.notes:
        screen.note(note)
    test = make_sample(
        pairs,
        edges=None if buckets is None else parse_numbers(buckets, "--buckets"),
        quantiles=quantiles,
        unit=unit.value if unit else None,
        src_tokenizer=folders[0].tokenizers()[0] if folders and unit is LengthUnit.token else None,
    )
    bleu = _bleu(bleu_tokenize, pairs.tgt_lang, folders, screen)
    _warn_of_leaks(folders, pairs, screen)
    raise_when_interrupted()
    systems = [
        _translate(name, seeds, test, beam, length_penalty, device.value, precision.value, screen)
        for name, seeds in runs
    ]
    systems += [_read_output(name, path, request) for name, path in files]
    report = judge(test, systems, bleu, names, split)
    _write(report, test, systems, json_file, csv_file, plot, save)
    for option, place in {**outputs, "--save": save}.items():
        if place is not None:
            screen.note(f"{option}: wrote {place}")
    if "-" in {json_file, csv_file}:
        return 0
    typer.echo(report_table(report, ci))
    others = [name for name in names if name != "bleu"]
    if others:
        typer.echo(f"\n{', '.join(others)} in the same buckets\n" + metrics_table(report, others))
    if worst:
        typer.echo("\n" + printable(_worst(test, systems, worst)))
    return 0


def _check_save(folder: Path | None) -> None:
    """Refuse a folder of other files: what is written there has names that they may have, too."""
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise NmtError(f"--save {folder}: is a file; name a folder")
    ours = all((folder / name).is_file() for name in ("source.txt", "reference.txt"))
    if any(folder.iterdir()) and (not ours or (folder / "config.json").exists()):
        raise NmtError(f"--save {folder}: holds other files than --save writes; name a new folder")


def _named_file(word: str) -> tuple[str, Path]:
    name, equals, path = word.partition("=")
    if equals and not Path(word).exists():
        return name, Path(path)
    return Path(word).name, Path(word)


def _check_names(names: list[str]) -> None:
    for name in names:
        if not name or "/" in name or name in {".", "..", "source", "reference"}:
            raise NmtError(f"a system cannot be called {name!r}: its name is a file with --save")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NmtError(f"two systems are called {twice[0]!r}; name them apart, as NAME=PATH")


def _bleu(forced: str | None, tgt_lang: str, runs: list[RunFolder], screen: Screen) -> Bleu:
    from nmt_cli.metrics import Bleu, bleu_tokenizer

    wanted, warning = bleu_tokenizer(tgt_lang)
    if forced is not None and forced != wanted:
        screen.note(
            f"warning: BLEU tokenizer {forced} was forced; for {tgt_lang} it would be {wanted}"
        )
    elif warning:
        screen.note(f"warning: {warning}")
    lowercase = any(run.config()["tokenizer"].get("lowercase") for run in runs)
    return Bleu(forced or wanted, lowercase)


def _warn_of_leaks(runs: list[RunFolder], pairs: PairList, screen: Screen) -> None:
    from nmt_cli.corpus.preflight import count_leaked, leak_warning

    for run in runs:
        leaked = count_leaked(pairs.pairs, run.fingerprints())
        if leaked:
            screen.note(f"{leak_warning(leaked, len(pairs.pairs))} of {run.name}")


def _translate(
    name: str,
    runs: list[RunFolder],
    test: Sample,
    beam: int,
    length_penalty: float,
    device: str,
    precision: str,
    screen: Screen,
) -> SystemOutput:
    from nmt_cli.evaluation import SystemOutput, translate_sample
    from nmt_cli.precision import choose_device, choose_translation_precision
    from nmt_cli.search import SearchOptions
    from nmt_cli.translation import load_translator
    from nmt_cli.workers import choose_workers

    chosen = choose_device(device)  # type: ignore[arg-type]
    number_format = choose_translation_precision(precision, chosen)  # type: ignore[arg-type]
    if number_format.warning:
        screen.note(f"warning: {number_format.warning}")
    options = SearchOptions(beam=beam, length_penalty=length_penalty)
    outputs = []
    with screen.progress(name, len(runs) * len(test.sources)) as bar:
        for run in runs:
            translator = load_translator([run], chosen, number_format).with_workers(
                choose_workers(chosen)
            )
            outputs.append(translate_sample(name, translator, test, options, on_done=bar.advance))
            del translator  # its processes end before the next run's begin
    for output in outputs:
        for fault in output.faults():
            screen.note(f"warning: {name}: {fault}")
    seconds = sum(output.seconds or 0.0 for output in outputs)
    return SystemOutput(name, [output.runs[0] for output in outputs], seconds)


def _read_output(name: str, path: Path, request: Request) -> SystemOutput:
    from nmt_cli.corpus.lines import read_lines
    from nmt_cli.evaluation import SystemOutput

    return SystemOutput(name, [list(read_lines(path, request.errors))], None)


def _write(
    report: Report,
    test: Sample,
    systems: list[SystemOutput],
    json_file: str | None,
    csv_file: str | None,
    plot: Path | None,
    save: Path | None,
) -> None:
    from nmt_cli.files import json_text, write_whole
    from nmt_cli.plots import plot_length_curve

    if json_file is not None:
        text = json_text(report.as_json(), indent=2) + "\n"
        write_result(json_file, text)
    if csv_file is not None:
        write_result(csv_file, _as_csv(report))
    if plot is not None:
        plot_length_curve(report, plot)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        write_whole(save / "source.txt", _as_lines(test.sources))
        write_whole(save / "reference.txt", _as_lines(test.references))
        for system in systems:
            for number, run in enumerate(system.runs, start=1):
                name = system.name if len(system.runs) == 1 else f"{system.name}-{number}"
                write_whole(save / f"{name}.txt", _as_lines(run))


def _as_lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _as_csv(report: Report) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metrics = list(report.systems[0].overall.others)
    writer.writerow(
        ["system", "bucket", "sentences", "bleu", "bleu_low", "bleu_high", *metrics,
         "length_ratio", "difference", "p"]
    )  # fmt: skip
    for system in report.systems:
        labels = [*(bucket.label for bucket in report.buckets), "all"]
        for label, cell in zip(labels, [*system.cells, system.overall], strict=True):
            values = cell.as_json()
            for name in ("note", "bleu_runs", "bleu_std"):
                values.pop(name, None)
            writer.writerow([system.name, label, *values.values()])
    return text.getvalue()


def _worst(test: Sample, systems: list[SystemOutput], count: int) -> str:
    """Lay out the sentences on which the first two systems differ most in sentence chrF."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    first, second = systems[0], systems[1]

    def score(hypothesis: str, reference: str) -> float:
        return float(chrf.sentence_score(hypothesis, [reference]).score)

    rows = [
        (score(a, reference) - score(b, reference), n)
        for n, (a, b, reference) in enumerate(
            zip(first.runs[0], second.runs[0], test.references, strict=True)
        )
    ]
    rows.sort(key=lambda row: -abs(row[0]))
    blocks = []
    for difference, n in rows[:count]:
        blocks.append(
            f"line {n + 1}, chrF {difference:+.1f} for {first.name}\n"
            f"  source:    {test.sources[n]}\n  reference: {test.references[n]}\n"
            f"  {first.name}: {first.runs[0][n]}\n  {second.name}: {second.runs[0][n]}"
        )
    return "\n".join(blocks)
