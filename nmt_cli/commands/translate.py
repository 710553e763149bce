"""``nmt translate``: translate text from stdin or files to stdout."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt_cli.checking import LARGEST_SEED, MANY, MOST_BEAMS, MOST_WORKERS
from nmt_cli.commands import completing
from nmt_cli.commands.options import (
    MOST_TOKENS,
    Beam,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    LengthPenalty,
    Quiet,
    TranslationPrecision,
    TranslationPrecisionOption,
    as_path,
    check_outputs,
    finite,
    given,
    refuse_both,
)
from nmt_cli.errors import NmtError
from nmt_cli.signals import raise_when_interrupted

if TYPE_CHECKING:
    import torch

    from nmt_cli.display import Screen
    from nmt_cli.runs import RunFolder
    from nmt_cli.search import Expand
    from nmt_cli.translation import Translator


def translate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(parser=as_path, help="Files to translate; none reads stdin."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            parser=as_path,
            metavar="RUN",
            autocompletion=completing.run_folders,
            help="Run folder, several make an ensemble.  (default: of those in checkpoints/ the "
            "one that finished last)",
        ),
    ] = None,
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    n_best: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_BEAMS, help="Print N lines each: number, score, text, by tabs."
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Print score, tab, text; the score is log P by length penalty."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write a JSON object a line: source, translations with score and tokens, and "
            "with --align their alignment.",
        ),
    ] = False,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Words that every translation is to begin with."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw translations instead of searching the best.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=100, callback=finite, help="With --sample: above 1 is more daring."
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, help="With --sample: only the K likeliest tokens."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=1e-6, max=1, callback=finite, help="With --sample: only the nucleus of mass P."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of --sample.")] = 1,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TOKENS, help="Most tokens of a translation.  (default: 2 x source + 20)"
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            help="Source tokens translated at once, padding included.  (default: 2048, or 4096 "
            "with --beam 1)",
        ),
    ] = None,
    batch_sentences: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Sentences at once, in place of tokens.")
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            parser=as_path,
            help="Draw the attention between subwords: .png, .svg, .pdf or .json, one file a line: "
            "map.png gives map-1.png.",
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Attending layer.  (default: mean of all)")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Attention head.  (default: mean of all)")
    ] = None,
    align: Annotated[
        bool,
        typer.Option(
            "--align",
            help="Append, after a tab, which source word each word attends to most: pairs "
            "source-target, of words between spaces, counted from 0.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_WORKERS,
            help="Processes of one thread each, on a CPU.  (default: one for each core)",
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    precision: TranslationPrecisionOption = TranslationPrecision.auto,
    encoding_errors: Encoding = EncodingErrors.strict,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=as_path, help="Write to a file instead of stdout."),
    ] = None,
    quiet: Quiet = False,
    *,
    ctx: typer.Context,
) -> int:
    """Translate text: one line in, one line out, in order.

    echo "The old man sees the dog." | nmt translate

    nmt translate -m checkpoints/mine input.en > output.de

    nmt translate --attention map.png --align < input.en
    """
    from nmt_cli.batches import BatchSize
    from nmt_cli.commands.writing import Form, Work, written_lines
    from nmt_cli.corpus.lines import require_readable
    from nmt_cli.corpus.stream import groups_of_files, groups_of_stdin
    from nmt_cli.display import Screen
    from nmt_cli.files import replace_whole
    from nmt_cli.precision import choose_device, choose_translation_precision
    from nmt_cli.runs import RunFolder, newest_run
    from nmt_cli.search import SearchOptions
    from nmt_cli.translation import default_batch_tokens, load_translator

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader has gone
    screen = Screen(quiet)
    expand = _sampler(sample, temperature, top_k, top_p, seed)
    options = SearchOptions(
        beam=n_best or 1 if sample else max(beam, n_best or 1),
        n_best=n_best or 1,
        length_penalty=length_penalty,
        max_length=max_length,
    )
    if not sample and given(ctx, "seed"):
        raise NmtError("--seed needs --sample; a search has nothing random")
    refuse_both("--json", "--scores", as_json and scores)
    refuse_both("--sample", "--beam", sample and given(ctx, "beam"))
    _check_attention(attention, layer, head, align)
    refuse_both("--batch-tokens", "--batch-sentences", bool(batch_tokens and batch_sentences))
    for path in files or []:
        if " " in path.name and not os.path.exists(path):  # false, too, of names beyond all length
            raise NmtError(
                f'{path}: no such file; text goes in by a pipe: echo "..." | nmt translate'
            )
        require_readable(path)
    check_outputs({"--attention": attention, "-o": out}, files or [])
    if not files and sys.stdin is None:
        raise NmtError("stdin is closed; give files to translate, or pipe text in")
    chosen_device = choose_device(device.value)
    chosen_precision = choose_translation_precision(precision.value, chosen_device)
    if chosen_precision.warning:
        screen.note(f"warning: {chosen_precision.warning}")
    if model:
        runs: list[RunFolder] = [RunFolder(path) for path in model]
    else:
        runs = [newest_run()]
        screen.note(f"model: {runs[0].path}")
    inputs = [*(files or []), *(file for run in runs for file in run.files())]
    check_outputs({"--attention": attention, "-o": out}, inputs)
    _check_pictures(attention, [*inputs, *([out] if out else [])])
    translator = load_translator(runs, chosen_device, chosen_precision).with_workers(
        _count_workers(workers, chosen_device)
    )
    raise_when_interrupted()
    if prefix is not None:
        options = replace(options, prefix=tuple(translator.tgt_tokenizer.encode(prefix)))
    if align or attention is not None:
        _require_attention(translator, runs, screen)
    size = BatchSize(batch_tokens or default_batch_tokens(options.beam), batch_sentences)
    work = Work(translator, options, size, expand, screen)
    form = Form(n_best, scores, align, as_json, attention, layer, head)
    if files:
        groups = groups_of_files(files, encoding_errors.value)
    else:
        if sys.stdin.isatty():
            screen.note("type a sentence and press return; Ctrl-D ends")
        groups = groups_of_stdin(encoding_errors.value, batch_sentences)
    if out is not None:

        def write(beside: Path) -> None:
            with beside.open("w", encoding="utf-8", newline="\n") as file:
                for group in groups:
                    file.writelines(written_lines(work, form, group))

        replace_whole(out, write)
        return 0
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogatepass", newline="\n")  # type: ignore[union-attr]
    for group in groups:
        sys.stdout.write("".join(written_lines(work, form, group)))
        sys.stdout.flush()
    return 0


def _sampler(
    sample: bool, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Expand:
    from nmt_cli.search import Sampler, best_continuations

    if not sample:
        if temperature is not None or top_k is not None or top_p is not None:
            raise NmtError("--temperature, --top-k and --top-p need --sample")
        return best_continuations
    return Sampler(seed, temperature or 1.0, top_k or 0, top_p or 1.0)


def _count_workers(asked: int | None, device: torch.device) -> int:
    from nmt_cli.workers import can_fork, choose_workers

    if asked is None:
        return choose_workers(device)
    if asked > 1 and device.type != "cpu":
        raise NmtError(f"--workers {asked}: {device.type} is shared by one process; leave it out")
    if asked > 1 and not can_fork():
        raise NmtError(f"--workers {asked}: only on Linux; leave it out, threads do the work here")
    return asked


def _check_pictures(attention: Path | None, others: list[Path]) -> None:
    """Keep the numbered files of --attention apart from all others."""
    if attention is None:
        return
    numbered = re.compile(rf"{re.escape(attention.stem)}-\d+{re.escape(attention.suffix)}")
    for path in others:
        beside = path.resolve().parent == attention.resolve().parent
        if beside and numbered.fullmatch(path.name):
            raise NmtError(
                f"--attention {attention}: writes {attention.stem}-1{attention.suffix} and so on, "
                f"and would overwrite {path}; choose another name"
            )


def _check_attention(path: Path | None, layer: int | None, head: int | None, align: bool) -> None:
    from nmt_cli.plots import FORMATS, check_format

    if path is not None:
        check_format(path, (*FORMATS, ".json"))
    elif not align and (layer is not None or head is not None):
        raise NmtError("--layer and --head need --attention FILE or --align")


def _require_attention(translator: Translator, runs: Sequence[RunFolder], screen: Screen) -> None:
    """Say at once which runs have no attention to show, and stop if none has."""
    from nmt_cli.models.ensemble import Ensemble
    from nmt_cli.translation import attends

    model = translator.model
    members = model.models() if isinstance(model, Ensemble) else [model]
    silent = [run for run, member in zip(runs, members, strict=True) if not attends(member)]
    if len(silent) == len(runs):
        raise NmtError(
            f"{silent[0].path}: its model ({silent[0].config()['arch']}) has no attention to the "
            "source to show or align by; give -m a run that has, such as one of lstm-attn"
        )
    for run in silent:
        screen.note(f"warning: {run.path}: has no attention; that of the others is taken")
