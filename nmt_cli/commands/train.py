"""``nmt train``: train a model and show its BLEU by source length."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nmt_cli.checking import LARGEST_SEED, MANY, MOST_THREADS
from nmt_cli.commands import completing
from nmt_cli.commands.configuring import as_toml, naming, options_in_file, take_from_file
from nmt_cli.commands.options import (
    Columns,
    Device,
    DeviceOption,
    Encoding,
    EncodingErrors,
    PrecisionOption,
    Quiet,
    SrcLang,
    TgtLang,
    above_zero,
    as_path,
    finite,
    given,
    parse_columns,
    refuse_both,
    typed,
    value_of,
)
from nmt_cli.commands.resuming import refuse_changes

if TYPE_CHECKING:
    from nmt_cli.runs import RunFolder
    from nmt_cli.tracking import Sink, Tracker


class Schedule(str, Enum):
    """How the learning rate falls after warm-up."""

    inverse_sqrt = "inverse-sqrt"
    cosine = "cosine"
    constant = "constant"


class OnDivergence(str, Enum):
    """What follows on a loss that stays wrong."""

    stop = "stop"
    rollback = "rollback"


class TokenizerKind(str, Enum):
    """What text is cut into."""

    unigram = "unigram"
    bpe = "bpe"
    word = "word"
    char = "char"
    byte = "byte"


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


class TrackerOption(str, Enum):
    """Packages that keep runs and show them beside each other."""

    wandb = "wandb"
    trackio = "trackio"
    mlflow = "mlflow"


def train(
    arch: Annotated[
        str,
        typer.Option(
            "--arch",
            "-a",
            help="Architecture; `nmt archs` lists them.",
            autocompletion=completing.architectures,
        ),
    ] = "lstm-attn",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            autocompletion=completing.corpora,
            help="Corpus: toy, a folder with splits, a prefix of two files, a,b, a file of pairs "
            "(.tsv .csv .jsonl .json .parquet .tmx), or hf:NAME of a data set.",
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
        typer.Option(
            "--out", "-o", parser=as_path, help="Run folder.  (default: checkpoints/ARCH)"
        ),
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
            callback=above_zero, help="Stop after so many passes.  (default: 30; on toy fewer)"
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=MANY, help="Stop after so many optimizer steps.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(callback=above_zero, help="Stop after so many minutes of training."),
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
        float | None,
        typer.Option(min=0, callback=finite, help="Largest norm of the gradient; 0: any."),
    ] = None,
    on_divergence: Annotated[
        OnDivergence,
        typer.Option(
            help="When the loss stays nan, inf or far too high: stop, or go back to the last saved "
            "state, past the batches since, at half the rate (at most 3 times)."
        ),
    ] = OnDivergence.stop,
    average: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MANY,
            help="Validate and keep the mean of the weights at the last N validations; 0: the "
            "newest weights.  (default: a running mean over about the last eighth of the steps)",
        ),
    ] = None,
    patience: Annotated[
        int,
        typer.Option(
            min=0, max=MANY, help="Stop after N validations without a better one; 0: never."
        ),
    ] = 10,
    tokenizer: Annotated[
        TokenizerKind, typer.Option(help="What text is cut into.")
    ] = TokenizerKind.bpe,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, help="Entries, at most.  (default: the distinct words, 1,000 to 6,000)"
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
    symbol: Annotated[
        list[str] | None,
        typer.Option(help="Keep this whole wherever it stands, as '<num>'; may be repeated."),
    ] = None,
    subword_sampling: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Cut training text anew in every epoch: the chance to leave out a merge of bpe "
            "(0.1 is usual), or the sharpness of unigram's draws (0.1 to 0.5); 0: always alike.",
        ),
    ] = 0.0,
    max_words: Annotated[
        int, typer.Option(min=1, max=MANY, help="Leave out training pairs with a longer side.")
    ] = 200,
    min_words: Annotated[
        int, typer.Option(min=1, max=MANY, help="Leave out training pairs with a shorter side.")
    ] = 1,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            min=1,
            callback=finite,
            help="Leave out training pairs of which one side has more than X times the words.",
        ),
    ] = None,
    drop_copies: Annotated[
        bool,
        typer.Option("--drop-copies", help="Leave out training pairs whose sides are the same."),
    ] = False,
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Leave out training pairs that stand there before.")
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            parser=as_path,
            metavar="DIR",
            help="Keep the training pairs out of memory: their ids as an Arrow file in DIR, which "
            "later runs on the same data use again.  (default: so past 500,000 pairs, in "
            "~/.cache/nmt)",
        ),
    ] = None,
    precision: Annotated[
        PrecisionOption,
        typer.Option(help="Number format; auto is the fastest that is safe here."),
    ] = PrecisionOption.auto,
    device: DeviceOption = Device.auto,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")
    ] = None,
    compile: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Use torch.compile: takes minutes at the start, and speeds up steps on CUDA.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")
    ] = 1,
    columns: Columns = None,
    encoding_errors: Encoding = EncodingErrors.strict,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            parser=as_path,
            metavar="FILE",
            is_eager=True,
            callback=take_from_file,
            help="Options from a TOML file or a run's config.json; the command line wins.",
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Write such a file to stdout instead of training."),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Write curves, samples and attention for TensorBoard too."
        ),
    ] = False,
    tracker: Annotated[
        TrackerOption | None,
        typer.Option(help="Send the same to this tracker, if its package is installed."),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            parser=as_path,
            help="Start from weights and tokenizer of another run.",
            metavar="RUN",
            autocompletion=completing.run_folders,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            parser=as_path,
            help="Go on with a run where it stopped.",
            metavar="RUN",
            autocompletion=completing.run_folders,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a run that is in the folder, once the new one has weights.",
        ),
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
    from nmt_cli.commands.following import follow
    from nmt_cli.config import Asked, End, refuse_beside_init, resolve, told_to
    from nmt_cli.display import Screen
    from nmt_cli.models.options import parse_assignments
    from nmt_cli.runs import DEFAULT_ROOT, RunFolder

    screen = Screen(quiet)
    if any(typed(ctx, name) for name in ("steps", "epochs", "minutes")):  # not a file's beside it
        steps = steps if typed(ctx, "steps") else None
        epochs = epochs if typed(ctx, "epochs") else None
        minutes = minutes if typed(ctx, "minutes") else None
    end = End(steps, epochs, minutes)
    if typed(ctx, "batch_sentences") and not typed(ctx, "batch_tokens"):
        batch_tokens = None  # the command line wins over a file
    elif typed(ctx, "batch_tokens") and not typed(ctx, "batch_sentences"):
        batch_sentences = None
    refuse_both("--batch-tokens", "--batch-sentences", bool(batch_tokens and batch_sentences))
    if resume is not None:
        folder = RunFolder(resume)
        folder.settle()
        stored = told_to(folder)
        refuse_changes(ctx, folder, stored)
        changes: dict[str, Any] = {"device": device.value} if given(ctx, "device") else {}
        if threads is not None:
            changes["threads"] = threads
        if end != End():
            changes["end"] = end
        return follow(
            lambda watcher: experiment.resume(folder, changes, cache, watcher),
            folder.path,
            screen,
            _trackers(folder, tensorboard, tracker, stored, True),
        )
    if init is not None:
        told = {name: value_of(ctx, name) for name in ctx.params if given(ctx, name)}
        refuse_beside_init(RunFolder(init), told)
    written = parse_assignments(option or []) if typed(ctx, "option") else {}
    if "dropout" in written:
        refuse_both("--dropout", "-O dropout", typed(ctx, "dropout"))
        dropout = None
    with naming(config):
        filed, replaced = options_in_file(ctx, arch, size.value if typed(ctx, "size") else None)
    if replaced:
        screen.note(
            f"note: --size {size.value} stands in place of {config}'s {', '.join(replaced)}"
        )
    asked = {name: value_of(ctx, name) for name in Asked.__annotations__ if name in ctx.params}
    asked |= {
        "columns": parse_columns(columns),
        "options": {**filed, **written},  # key by key
        "dropout": dropout,
        "epochs": epochs,
        "steps": steps,
        "minutes": minutes,
        "batch_tokens": batch_tokens,
        "batch_sentences": batch_sentences,
    }
    with naming(config):
        resolved = resolve(cast(Asked, asked))
    if print_config:
        places = {
            "out": str(out) if out else None,
            "tensorboard": tensorboard or None,
            "tracker": tracker.value if tracker else None,
        }
        also = {name: value for name, value in places.items() if value is not None}
        typer.echo(as_toml({**resolved.as_options(), **also}))
        return 0
    folder = RunFolder(out or DEFAULT_ROOT / resolved.arch)
    return follow(
        lambda watcher: experiment.start(resolved, folder, overwrite, watcher),
        folder.path,
        screen,
        _trackers(folder, tensorboard, tracker, resolved.as_options(), False),
    )


def _trackers(
    folder: RunFolder,
    tensorboard: bool,
    tracker: TrackerOption | None,
    options: dict[str, Any],
    resumed: bool,
) -> list[Tracker]:
    from nmt_cli.tracking import TRACKERS, TensorBoard, Tracker

    sinks: list[Sink] = [TensorBoard(folder.path, resumed)] if tensorboard else []
    if tracker is not None:
        sinks.append(TRACKERS[tracker.value](folder.path, options, resumed))
    return [Tracker(sink) for sink in sinks]
