"""``nmt train``: train a model and show its BLEU by source length."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt_cli.commands.options import (
    LARGEST_SEED,
    MANY,
    MOST_THREADS,
    Columns,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    PrecisionOption,
    Quiet,
    SrcLang,
    TgtLang,
    finite,
    parse_columns,
    refuse_both,
)
from nmt_cli.errors import NmtError

if TYPE_CHECKING:
    from nmt_cli.display import Bar, Screen
    from nmt_cli.experiment import Config, DataConfig, End
    from nmt_cli.runs import RunFolder


_GENERATED_DROPOUT = 0.0
_GENERATED_SMOOTHING = 0.0


class Schedule(str, Enum):
    """How the learning rate falls after warm-up."""

    inverse_sqrt = "inverse-sqrt"
    cosine = "cosine"
    constant = "constant"


class TokenizerKind(str, Enum):
    """Subword models."""

    unigram = "unigram"
    bpe = "bpe"


class Normalization(str, Enum):
    """Unicode form of all text."""

    nfc = "nfc"
    nfkc = "nfkc"
    identity = "identity"


class Size(str, Enum):
    """Presets of an architecture's options."""

    tiny = "tiny"
    small = "small"
    base = "base"


def train(
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="Architecture; `nmt archs` lists them.")
    ] = "lstm-attn",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            help="Corpus: toy, a folder with splits, a prefix of two files, a,b or a TSV.",
        ),
    ] = "toy",
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    valid: Annotated[
        str | None, typer.Option(help="Validation pairs, in any form of --data.")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Test pairs, in any form of --data.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder.  (default: checkpoints/ARCH)"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            metavar="KEY=VALUE",
            help="Option of the architecture, repeatable; `nmt archs ARCH` lists them.",
        ),
    ] = None,
    size: Annotated[Size, typer.Option(help="Preset of the architecture's options.")] = Size.small,
    epochs: Annotated[
        float | None,
        typer.Option(
            min=0, callback=finite, help="Stop after so many passes.  (default: 30; on toy fewer)"
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Stop after so many optimizer steps.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, help="Stop after so many minutes of training."),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, help="Tokens of a batch, longer side with padding."),
    ] = None,
    batch_sentences: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Sentences of a batch, in place of tokens.")
    ] = None,
    accumulate: Annotated[
        int, typer.Option(min=1, max=MANY, help="Batches whose gradients make one step.")
    ] = 1,
    validate_every: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, help="Steps between validations.  (default: an epoch, 100 to 500)"
        ),
    ] = None,
    save_every: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, help="Steps between resumable states.  (default: as validations)"
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(min=0, callback=finite, help="Peak learning rate.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, max=MANY, help="Steps of linear warm-up.")
    ] = None,
    schedule: Annotated[
        Schedule | None, typer.Option(help="How the rate falls after warm-up.")
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=0.99,
            callback=finite,
            help="Same as -O dropout=X.  (default: by architecture; 0 on toy)",
        ),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=0.99,
            callback=finite,
            help="Mass spread over all words.  (default: 0.1; 0 on toy)",
        ),
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(min=0, callback=finite, help="Largest norm of the gradient.")
    ] = None,
    average: Annotated[
        int,
        typer.Option(
            min=0,
            max=MANY,
            help="Keep a running average of the weights over about the last 1/N of the steps so "
            "far; 0: keep the weights themselves.",
        ),
    ] = 8,
    patience: Annotated[
        int,
        typer.Option(
            min=0, max=MANY, help="Stop after N validations without a better one; 0: never."
        ),
    ] = 10,
    tokenizer: Annotated[TokenizerKind, typer.Option(help="Subword model.")] = TokenizerKind.bpe,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, help="Entries.  (default: the distinct words, 1,000 to 6,000)"
        ),
    ] = None,
    separate_vocab: Annotated[
        bool, typer.Option("--separate-vocab", help="One vocabulary a side, not one for both.")
    ] = False,
    normalization: Annotated[
        Normalization, typer.Option(help="Unicode form that all text is brought to.")
    ] = Normalization.nfc,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Lower-case all text, when translating too.")
    ] = False,
    max_words: Annotated[
        int, typer.Option(min=1, max=MANY, help="Leave out training pairs with a longer side.")
    ] = 200,
    precision: Annotated[
        PrecisionOption,
        typer.Option(help="Number format; auto is the fastest that is safe here."),
    ] = PrecisionOption.auto,
    device: DeviceOption = Device.auto,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")
    ] = 1,
    columns: Columns = None,
    encoding_errors: Encoding = EncodingErrors.strict,
    init: Annotated[
        Path | None,
        typer.Option(help="Start from weights and tokenizer of another run.", metavar="RUN"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a run where it stopped.", metavar="RUN")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is in the folder.")
    ] = False,
    quiet: Quiet = False,
    *,
    ctx: typer.Context,
) -> int:
    """Train a model and show its BLEU by source length.

    With nothing but --arch it trains on the embedded English-German toy corpus:

        nmt train --arch lstm-attn

        nmt train --arch transformer -d corpus/ -s en -t de -o checkpoints/mine

        nmt train --resume checkpoints/mine --epochs 40
    """
    from nmt_cli import experiment
    from nmt_cli.display import Screen
    from nmt_cli.runs import DEFAULT_ROOT, RunFolder

    screen = Screen(quiet)
    end = experiment.End(steps, epochs, minutes)
    refuse_both("--batch-tokens", "--batch-sentences", bool(batch_tokens and batch_sentences))
    if resume is not None:
        folder = RunFolder(resume)
        _refuse_changes(ctx, folder.config()["request"])
        changes: dict[str, Any] = {"device": device.value} if _given(ctx, "device") else {}
        if threads is not None:
            changes["threads"] = threads
        if end != experiment.End():
            changes["end"] = end
        return _follow(
            lambda watcher: experiment.resume(folder, changes, watcher), folder.path, screen
        )
    if init is not None:
        _refuse_beside_init(ctx, RunFolder(init))
    training = {
        "accumulate": accumulate,
        "average": average,
        "patience": patience,
        "validate_every": validate_every,
        "save_every": save_every,
        "lr": lr,
        "warmup": warmup,
        "schedule": schedule.value if schedule else None,
        "label_smoothing": label_smoothing,
        "clip_norm": clip_norm,
    }
    config = _config(
        arch,
        size.value,
        option or [],
        dropout,
        init,
        data=experiment.DataConfig(
            spec=data,
            valid=valid,
            test=test,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            columns=parse_columns(columns),
            encoding_errors=encoding_errors.value,
            max_words=max_words,
        ),
        tokenizer=experiment.TokenizerConfig(
            kind=tokenizer.value,
            size=vocab_size,
            separate=separate_vocab,
            normalization=normalization.value,
            lowercase=lowercase,
        ),
        training={name: value for name, value in training.items() if value is not None},
        batch_tokens=batch_tokens,
        batch_sentences=batch_sentences,
        end=end,
        seed=seed,
        precision=precision.value,
        device=device.value,
        threads=threads,
    )
    folder = RunFolder(out or DEFAULT_ROOT / config.arch)
    return _follow(
        lambda watcher: experiment.start(config, folder, overwrite, watcher), folder.path, screen
    )


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


_WITH_RESUME = {"resume", "epochs", "steps", "minutes", "device", "threads", "quiet"}


_STORED_AS = {
    "data": "spec",
    "tokenizer": "kind",
    "vocab_size": "size",
    "separate_vocab": "separate",
}


def _refuse_changes(ctx: typer.Context, request: dict[str, Any]) -> None:
    """With --resume only the end, the device and the logging may be given anew.

    An option that repeats what the run was begun with changes nothing and is let pass.
    """
    parts = (request["data"], request["tokenizer"], request["training"], request["options"])
    stored = {**request, **{key: value for part in parts for key, value in part.items()}}

    def changes(name: str) -> bool:
        value = getattr(ctx.params[name], "value", ctx.params[name])
        return bool(value != stored.get(_STORED_AS.get(name, name)))

    others = [
        name
        for name in ctx.params
        if name not in _WITH_RESUME and _given(ctx, name) and changes(name)
    ]
    if others:
        options = ", ".join("--" + name.replace("_", "-") for name in others)
        raise NmtError(
            f"{options}: cannot be changed with --resume, only --steps, --epochs, --minutes, "
            "--device and --threads; to start from the weights of a run, use --init"
        )


_FROM_INIT = (
    "arch", "size", "tokenizer", "vocab_size", "separate_vocab", "normalization", "lowercase",
)  # fmt: skip


def _refuse_beside_init(ctx: typer.Context, parent: RunFolder) -> None:
    """With --init the architecture and the tokenizer are the parent's; others would be ignored."""
    config = parent.config()
    stored = {**config["tokenizer"], "arch": config["arch"]}
    for name in _FROM_INIT:
        value = getattr(ctx.params[name], "value", ctx.params[name])
        if _given(ctx, name) and value != stored.get(_STORED_AS.get(name, name)):
            raise NmtError(
                f"--{name.replace('_', '-')} {value}: cannot be changed with --init; architecture "
                f"and tokenizer are those of {parent.path}"
            )


def _config(
    arch: str,
    size: str,
    assignments: list[str],
    dropout: float | None,
    init: Path | None,
    *,
    data: DataConfig,
    training: dict[str, Any],
    end: End,
    batch_tokens: int | None,
    **rest: Any,
) -> Config:
    """Resolve the architecture's options and recipe.

    A generated corpus has no noise to guard against: no dropout, no label smoothing, and a few
    epochs suffice. With --init the options, the peak rate and its warm-up are the parent's where
    the user gives no others.
    """
    import dataclasses

    from nmt_cli.corpus.readers import is_generated
    from nmt_cli.experiment import Config, End
    from nmt_cli.models import architecture, resolve_options
    from nmt_cli.models.options import parse_assignments
    from nmt_cli.runs import RunFolder

    given: dict[str, Any] = dict(parse_assignments(assignments))
    if dropout is not None:
        given["dropout"] = dropout
    parent = RunFolder(init).config() if init is not None else None
    if parent is not None:
        arch = parent["arch"]
    rates = architecture(arch).size_training.get(size, {})
    if parent is not None:
        inherited = parent["request"]["training"]
        rates = {name: inherited[name] for name in ("lr", "warmup") if name in inherited}
    training = {**rates, **training}
    if is_generated(data.spec):
        given.setdefault("dropout", _GENERATED_DROPOUT)
        training = {"label_smoothing": _GENERATED_SMOOTHING, **training}
        end = end if end != End() else End(epochs=architecture(arch).recipe.generated_epochs)
    if parent is not None:
        given = {**parent["options"], **given}
    return Config(
        arch=arch,
        options=dataclasses.asdict(resolve_options(arch, size, given)),
        batch_tokens=batch_tokens or architecture(arch).recipe.batch_tokens,
        init=str(init) if init else None,
        data=data,
        training=training,
        end=end,
        **rest,
    )


class _Watcher:
    """Turns the first Ctrl-C or SIGTERM in training into a request to stop; shows progress."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._bars = ExitStack()
        self._bar: Bar | None = None
        self.code = 0
        self.armed = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        code = 128 + number
        if self.armed and not self.code:
            self.code = code
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(code)

    def interrupted(self) -> bool:
        return self.code != 0

    def translated(self, done: int, total: int) -> None:
        if self._bar is None:
            progress = self._screen.progress("translating the test split", total)
            self._bar = self._bars.enter_context(progress)
        self._bar.advance(done - self._bar.done)
        if done == total:
            self._bars.close()


def _follow(begin: Any, folder: Path, screen: Screen) -> int:
    """Show the events of a run as they come; give the exit code."""
    from nmt_cli.display import report_table
    from nmt_cli.experiment import Evaluated, Note, Prepared
    from nmt_cli.training import Step, Stopped, Validated, Warned

    watcher = _Watcher(screen)
    events = begin(watcher)
    for event in events:
        if isinstance(event, Note):
            screen.note(event.text)
        if not isinstance(event, Prepared):
            continue
        watcher.armed = True
        with screen.progress("training", event.last_step) as bar:
            bar.start_from(event.step)
            for inner in events:
                if isinstance(inner, Step):
                    bar.advance(1, f"loss {inner.loss:.3f}  {inner.tokens_per_s:,.0f} tokens/s")
                elif isinstance(inner, Validated):
                    _show_validation(inner, bar, screen)
                elif isinstance(inner, Warned):
                    screen.note(f"warning: {inner.message}")
                elif isinstance(inner, Stopped):
                    break
        watcher.armed = False
        if isinstance(inner, Stopped) and inner.interrupted:
            screen.note(f"stopped at step {inner.step}; go on by `nmt train --resume {folder}`")
            return watcher.code
        screen.note(f"stopped at step {inner.step}: {inner.reason}; translating the test split")
    if isinstance(event, Evaluated):
        typer.echo(report_table(event.report))
        screen.note(f'\nnext: echo "A sentence." | nmt translate -m {folder}')
    return 0


def _show_validation(event: Any, bar: Bar, screen: Screen) -> None:
    screen.note(
        f"step {event.step}  epoch {event.epoch}  validation: greedy BLEU {event.score.bleu:.1f}, "
        f"loss {event.score.loss:.3f}" + ("  (best so far)" if event.best else "")
    )
