"""``nmt translate``: translate text from stdin or files to stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt_cli.commands.options import (
    LARGEST_SEED,
    MANY,
    MOST_BEAMS,
    MOST_TOKENS,
    Beam,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    LengthPenalty,
    PrecisionOption,
    Quiet,
    check_outputs,
    finite,
    refuse_both,
)
from nmt_cli.errors import NmtError
from nmt_cli.signals import raise_when_interrupted

if TYPE_CHECKING:
    from nmt_cli.batches import BatchSize
    from nmt_cli.display import Screen
    from nmt_cli.runs import RunFolder
    from nmt_cli.search import Expand, SearchOptions
    from nmt_cli.translation import Translation, Translator


def translate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to translate; none reads stdin.")
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="RUN",
            help="Run folder, several make an ensemble.  (default: the newest in checkpoints/)",
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
            help="Source tokens translated at once, padding included.  (default: 2048)",
        ),
    ] = None,
    batch_sentences: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Sentences at once, in place of tokens.")
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Draw the attention between subwords: .png, .svg, .pdf or .json, one file a line: "
            "map.png gives map-1.png."
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
    device: DeviceOption = Device.auto,
    precision: Annotated[
        PrecisionOption, typer.Option(help="Number format; auto is fp32 on a CPU.")
    ] = PrecisionOption.auto,
    encoding_errors: Encoding = EncodingErrors.strict,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to a file instead of stdout.")
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Translate text: one line in, one line out, in order.

    echo "The old man sees the dog." | nmt translate

    nmt translate -m checkpoints/mine input.en > output.de

    nmt translate --attention map.png --align < input.en
    """
    from nmt_cli.batches import BatchSize
    from nmt_cli.corpus.lines import require_readable
    from nmt_cli.display import Screen
    from nmt_cli.files import write_whole
    from nmt_cli.precision import choose_device, choose_translation_precision
    from nmt_cli.runs import RunFolder, newest_run
    from nmt_cli.search import SearchOptions
    from nmt_cli.translation import load_translator

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader has gone
    screen = Screen(quiet)
    expand = _sampler(sample, temperature, top_k, top_p, seed)
    options = SearchOptions(
        beam=n_best or 1 if sample else max(beam, n_best or 1),
        n_best=n_best or 1,
        length_penalty=length_penalty,
        max_length=max_length,
    )
    _check_attention(attention, layer, head, align)
    refuse_both("--batch-tokens", "--batch-sentences", bool(batch_tokens and batch_sentences))
    check_outputs({"--attention": attention, "-o": out}, files or [])
    for path in files or []:
        require_readable(path)
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
    translator = load_translator(runs, chosen_device, chosen_precision)
    raise_when_interrupted()
    if align or attention is not None:
        _require_attention(translator, runs, screen)
    size = BatchSize(batch_tokens or _BATCH_TOKENS, batch_sentences)
    work = _Work(translator, options, size, expand, screen)
    form = _Form(n_best, scores, align, attention, layer, head)
    groups = _groups(files or [], encoding_errors.value, screen, size)
    if out is not None:
        text = "".join(line for group in groups for line in _lines(work, form, group))
        write_whole(out, text)
        return 0
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogatepass", newline="\n")  # type: ignore[union-attr]
    for group in groups:
        sys.stdout.write("".join(_lines(work, form, group)))
        sys.stdout.flush()
    return 0


class _Form:
    """What a line of output looks like."""

    def __init__(
        self,
        n_best: int | None,
        scores: bool,
        align: bool,
        attention: Path | None,
        layer: int | None,
        head: int | None,
    ) -> None:
        self.n_best = n_best
        self.scores = scores
        self.align = align
        self.attention = attention
        self.layer = layer
        self.head = head


class _Work:
    """A translator with its settings, and the number of the next line."""

    def __init__(
        self,
        translator: Translator,
        options: SearchOptions,
        size: BatchSize,
        expand: Expand,
        screen: Screen,
    ) -> None:
        self.translator = translator
        self.options = options
        self.size = size
        self.expand = expand
        self.screen = screen
        self.line = 1


def _sampler(
    sample: bool, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Expand:
    import torch

    from nmt_cli.search import SamplingOptions, best_continuations, sampler

    if not sample:
        if temperature is not None or top_k is not None or top_p is not None:
            raise NmtError("--temperature, --top-k and --top-p need --sample")
        return best_continuations
    settings = SamplingOptions(temperature or 1.0, top_k or 0, top_p or 1.0)
    return sampler(settings, torch.Generator().manual_seed(seed))


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


def _lines(work: _Work, form: _Form, group: Sequence[str]) -> Iterator[str]:
    """Translate a group of lines and yield what is printed for each."""
    with work.screen.progress("translating", len(group)) as bar:
        results = work.translator.translate(
            group, work.options, work.size, work.expand, on_done=bar.advance
        )
    for result in results:
        number = work.line
        work.line += 1
        if result.cut_from is not None:
            work.screen.note(
                f"warning: line {number}: cut from {result.cut_from} to "
                f"{len(result.src_tokens)} tokens, the limit"
            )
        for rank, output in enumerate(result.outputs[: form.n_best or 1]):
            alone = result._replace(outputs=[output])
            suffix = _attend(work, form, alone, number if rank == 0 else None)
            if form.n_best is not None:
                yield f"{number}\t{output.score:.4f}\t{output.text}{suffix}\n"
            elif form.scores:
                yield f"{output.score:.4f}\t{output.text}{suffix}\n"
            else:
                yield f"{output.text}{suffix}\n"


def _attend(work: _Work, form: _Form, result: Translation, number: int | None) -> str:
    """Draw and align one output; gives the tab and alignment that follow its text.

    Args:
        work: what translates.
        form: what is wanted.
        result: a translation with this output alone.
        number: of the line, if a picture of it may be wanted.
    """
    from nmt_cli.translation import word_pairs

    pictured = form.attention is not None and number is not None
    if not result.src_tokens or not (form.align or pictured):
        return "\t" if form.align else ""
    alignment = work.translator.align(result, form.layer, form.head)
    if form.attention is not None and number is not None:
        _draw(form.attention.with_stem(f"{form.attention.stem}-{number}"), alignment, work.screen)
    if not form.align:
        return ""
    return "\t" + " ".join(f"{src}-{tgt}" for src, tgt in word_pairs(alignment))


def _draw(path: Path, alignment: object, screen: Screen) -> None:
    import json

    from nmt_cli.files import write_whole
    from nmt_cli.plots import plot_attention
    from nmt_cli.translation import Alignment

    assert isinstance(alignment, Alignment)
    if path.suffix.lower() == ".json":
        form = {
            "source": alignment.src_pieces,
            "target": alignment.tgt_pieces,
            "attention": alignment.weights.tolist(),
        }
        write_whole(path, json.dumps(form, ensure_ascii=False) + "\n")
    elif missing := plot_attention(alignment, path):
        screen.note(
            f"warning: {path}: no installed font has {', '.join(missing)}; install one that has "
            "(such as Noto), or write .json"
        )
    screen.note(f"attention: {path}")


_BATCH_TOKENS = 2048
_FIRST_GROUP, _FILE_GROUP = 125, 2000
"""Lines of a file that are sorted by length and translated together."""
_PIPE_GROUP = 64
_PATIENCE_S = 0.05
"""How long a line from a pipe waits for company."""


def _groups(
    files: Sequence[Path], errors: str, screen: Screen, size: BatchSize
) -> Iterator[list[str]]:
    """Yield lines in groups: large ones from files, small and prompt ones from a pipe."""
    import os
    import stat

    from nmt_cli.corpus.lines import decode_lines, read_lines

    if files:
        for path in files:
            yield from _chunks(read_lines(path, errors))  # type: ignore[arg-type]
        return
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        lines = decode_lines(sys.stdin.buffer, "stdin", errors)  # type: ignore[arg-type]
        yield from _chunks(lines)
        return
    if sys.stdin.isatty():
        screen.note("type a sentence and press return; Ctrl-D ends")
    raw = _raw_groups(min(_PIPE_GROUP, size.sentences or _PIPE_GROUP))
    yield from _decoded_groups(raw, errors)


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Group the lines of a file: a few at first, so that something is seen, then ever more."""
    from itertools import islice

    count = _FIRST_GROUP
    while group := list(islice(lines, count)):
        yield group
        count = min(2 * count, _FILE_GROUP)


def _raw_groups(most: int) -> Iterator[list[bytes]]:
    """Read stdin on a thread; a group ends when it is full or nothing more comes for a moment."""
    import queue
    import threading

    waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=4 * most)

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (first := waiting.get()) is not None:
        group, ended = [first], False
        while len(group) < most and not ended:
            try:
                line = waiting.get(timeout=_PATIENCE_S)
            except queue.Empty:
                break
            if line is None:
                ended = True
            else:
                group.append(line)
        yield group
        if ended:
            return


def _decoded_groups(groups: Iterator[list[bytes]], errors: str) -> Iterator[list[str]]:
    from nmt_cli.corpus.lines import decode_lines

    held: list[list[bytes]] = []

    def all_lines() -> Iterator[bytes]:
        for group in groups:
            held.append(group)
            yield from group

    decoded = decode_lines(all_lines(), "stdin", errors)  # type: ignore[arg-type]
    for line in decoded:
        size = len(held.pop())
        yield [line, *(next(decoded) for _ in range(size - 1))]
