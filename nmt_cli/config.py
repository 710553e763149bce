"""What decides a run: all that a user may set, as ``config.json`` keeps it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

from nmt_cli.batches import BatchSize
from nmt_cli.checking import LARGEST_SEED, MANY, MOST_THREADS, fits, misfit
from nmt_cli.corpus.lines import EncodingErrors
from nmt_cli.corpus.pairs import Request
from nmt_cli.corpus.preflight import Limits
from nmt_cli.corpus.readers import is_generated
from nmt_cli.corpus.spool import Spool
from nmt_cli.errors import NmtError
from nmt_cli.models import architecture, resolve_options
from nmt_cli.precision import DeviceChoice, PrecisionChoice
from nmt_cli.runs import RunFolder
from nmt_cli.schedule import TrainingOptions
from nmt_cli.tokenizer import Kind, Normalization, TextRule, require_symbols

DEFAULT_ARCH = "lstm-attn"
MOST_HELD = 500_000
"""Training pairs that are held in memory unless the user says where else."""
_AT_LEAST_ONE = {
    "accumulate", "batch_sentences", "batch_tokens", "max_words", "save_every", "size", "steps",
    "threads", "validate_every",
}  # fmt: skip
"""Fields of a config that are counts; no other number is negative."""
_AT_MOST = {
    "seed": LARGEST_SEED, "threads": MOST_THREADS, "label_smoothing": 0.99, "subword_sampling": 1,
}  # fmt: skip
"""The largest values of some; no other whole number is above ``MANY``."""
_GENERATED_DROPOUT = 0.0
_GENERATED_SMOOTHING = 0.0


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from."""

    spec: str
    valid: str | None
    test: str | None
    src_lang: str | None
    tgt_lang: str | None
    columns: tuple[str, str] | None
    encoding_errors: EncodingErrors
    max_words: int
    min_words: int = 1
    max_ratio: float | None = None
    drop_copies: bool = False
    dedupe: bool = False
    cache: str | None = None
    """The folder of ids that are kept on disk."""

    def limits(self) -> Limits:
        """Give which training pairs are left out."""
        return Limits(self.max_words, self.min_words, self.max_ratio, self.drop_copies, self.dedupe)

    def spool(self) -> Spool:
        """Give where the training pairs are kept: all on disk if the user named a folder."""
        if self.cache is not None:
            return Spool(Path(self.cache), most_held=0)
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return Spool(caches / "nmt", MOST_HELD)

    def request(self) -> Request:
        """Give what the readers need to know."""
        return Request(self.src_lang, self.tgt_lang, self.columns, self.encoding_errors)


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes ids; no size lets the data decide."""

    kind: Kind
    size: int | None
    separate: bool
    normalization: Normalization
    lowercase: bool
    symbols: tuple[str, ...] = ()
    """What stays whole wherever it stands."""

    def rule(self) -> TextRule:
        """Give the normalisation."""
        return TextRule(self.normalization, self.lowercase)


@dataclass(frozen=True)
class End:
    """When training ends: the first that is reached; none takes the recipe's epochs."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class Config:
    """All that decides a run."""

    arch: str
    options: dict[str, Any]
    data: DataConfig
    tokenizer: TokenizerConfig
    training: dict[str, Any]
    """Fields of ``TrainingOptions`` that the user set; the rest follow from recipe and data."""
    batch_tokens: int
    batch_sentences: int | None
    end: End
    seed: int
    precision: PrecisionChoice
    device: DeviceChoice
    threads: int | None
    init: str | None = None
    compile: bool = False
    subword_sampling: float = 0.0
    """How strongly the segmentation of training text varies from epoch to epoch; 0: not."""

    def batch_size(self) -> BatchSize:
        """Give the budget of a batch."""
        return BatchSize(self.batch_tokens, self.batch_sentences)

    def as_json(self) -> dict[str, Any]:
        """Give the form that ``config.json`` holds under ``request``."""
        return dataclasses.asdict(self)

    def as_options(self) -> dict[str, Any]:
        """Give what ``nmt train`` was told, by the names of its options, but what was left open.

        The table ``options`` has those of the architecture.
        """
        data, tokenizer = self.data, self.tokenizer
        told = {
            "arch": self.arch,
            "data": data.spec,
            "src_lang": data.src_lang,
            "tgt_lang": data.tgt_lang,
            "valid": data.valid,
            "test": data.test,
            "columns": ",".join(data.columns) if data.columns else None,
            "encoding_errors": data.encoding_errors,
            "max_words": data.max_words,
            "min_words": data.min_words,
            "max_ratio": data.max_ratio,
            "drop_copies": data.drop_copies,
            "dedupe": data.dedupe,
            "cache": data.cache,
            "tokenizer": tokenizer.kind,
            "vocab_size": tokenizer.size,
            "separate_vocab": tokenizer.separate,
            "normalization": tokenizer.normalization,
            "lowercase": tokenizer.lowercase,
            "symbol": list(tokenizer.symbols) or None,
            "subword_sampling": self.subword_sampling or None,
            "batch_tokens": None if self.batch_sentences else self.batch_tokens,
            "batch_sentences": self.batch_sentences,
            **dataclasses.asdict(self.end),
            **self.training,
            "seed": self.seed,
            "precision": self.precision,
            "device": self.device,
            "threads": self.threads,
            "compile": self.compile or None,
            "init": self.init,
        }
        return {
            **{name: value for name, value in told.items() if value is not None},
            "options": self.options,
        }

    @classmethod
    def from_json(cls, values: Any, name: str = "config.json") -> Config:
        """Read what ``as_json`` gave.

        Args:
            values: the form.
            name: of the file, for the message.

        Raises:
            NmtError: if it is not that.
        """
        try:
            data = dict(values["data"])
            data["columns"] = _row(data["columns"]) if data["columns"] else None
            tokenizer = dict(values["tokenizer"])
            tokenizer["symbols"] = _row(tokenizer.get("symbols", ()))
            made = cls(
                **{
                    **values,
                    "data": DataConfig(**data),
                    "tokenizer": TokenizerConfig(**tokenizer),
                    "end": End(**values["end"]),
                }
            )
            wrong = made._wrong()
        except (KeyError, TypeError, ValueError):
            wrong = "a field"
        if wrong is not None:
            raise NmtError(
                f"{name}: damaged: {wrong} of its request is missing or not what it can be; take "
                "the config.json of another run, or train anew"
            )
        return made

    def _wrong(self) -> str | None:
        """Name a field whose value is of a wrong type, or out of all bounds."""
        parts = {
            "": (Config, vars(self)),
            "data.": (DataConfig, vars(self.data)),
            "tokenizer.": (TokenizerConfig, vars(self.tokenizer)),
            "end.": (End, vars(self.end)),
        }
        for prefix, (declared, values) in parts.items():
            if wrong := misfit(declared, values):
                return prefix + wrong
        if wrong := misfit(TrainingOptions, self.training):
            return f"training.{wrong}"
        for _, values in (*parts.values(), (TrainingOptions, self.training)):
            for field, value in values.items():
                smallest = 1 if field in _AT_LEAST_ONE else 0
                most = _AT_MOST.get(field, MANY if isinstance(value, int) else math.inf)
                if isinstance(value, int | float) and not smallest <= value <= most:
                    return field
        return None


def _row(value: list[Any] | tuple[Any, ...]) -> tuple[Any, ...]:
    """Make a tuple of what JSON has as a list."""
    if not isinstance(value, list | tuple):
        raise TypeError("is no list")
    return tuple(value)


class Asked(TypedDict, total=False):
    """Options of ``nmt train`` by their names; what is left out or None takes its default."""

    arch: str
    data: str
    src_lang: str | None
    tgt_lang: str | None
    valid: str | None
    test: str | None
    columns: tuple[str, str] | None
    encoding_errors: EncodingErrors
    max_words: int
    min_words: int
    max_ratio: float | None
    drop_copies: bool
    dedupe: bool
    cache: str | Path | None
    options: Mapping[str, Any]
    """Of the architecture, as ``-O`` gives them."""
    size: str
    epochs: float | None
    steps: int | None
    minutes: float | None
    batch_tokens: int | None
    batch_sentences: int | None
    accumulate: int
    validate_every: int | None
    save_every: int | None
    lr: float | None
    warmup: int | None
    schedule: str | None
    dropout: float | None
    label_smoothing: float | None
    clip_norm: float | None
    on_divergence: str
    average: int | None
    patience: int
    tokenizer: Kind
    vocab_size: int | None
    separate_vocab: bool
    normalization: Normalization
    lowercase: bool
    symbol: Sequence[str]
    subword_sampling: float
    precision: PrecisionChoice
    device: DeviceChoice
    threads: int | None
    compile: bool
    seed: int
    init: str | None


def check_asked(told: Mapping[str, Any]) -> None:
    """Refuse what the command line would refuse before it resolves anything.

    Args:
        told: what was asked for, by the names of options; None is as if it were left out.

    Raises:
        NmtError: naming the option.
    """
    hints = get_type_hints(Asked)
    for name, value in told.items():
        if value is not None and not fits(value, hints[name]):
            raise NmtError(f"{name}={value!r}: is not of the kind that it takes")
        if value == "":
            raise NmtError(f"{name}: is empty; leave it out or give a value")
    for name in ("steps", "epochs", "minutes"):
        if told.get(name) is not None and told[name] <= 0:
            raise NmtError(f"{name}={told[name]}: would end before it begins; give more than 0")
    if told.get("batch_tokens") is not None and told.get("batch_sentences") is not None:
        raise NmtError("give either batch_tokens or batch_sentences, not both")
    if told.get("dropout") is not None and "dropout" in (told.get("options") or {}):
        raise NmtError("give either dropout or the option dropout of the architecture, not both")


_NAMES = {"kind": "tokenizer", "size": "vocab_size", "spec": "data", "symbols": "symbol"}
"""How fields of a configuration are called as options, where it is otherwise."""
_TRAINING = (
    "accumulate", "average", "patience", "validate_every", "save_every", "lr", "warmup", "schedule",
    "label_smoothing", "clip_norm", "on_divergence",
)  # fmt: skip


def resolve(asked: Asked) -> Config:
    """Resolve what was asked for to a whole configuration, by the architecture's recipe.

    A generated corpus has no noise to guard against: no dropout, no label smoothing, and a few
    epochs suffice. With ``init`` the tokenizer is the parent's, and so are the options, the peak
    rate and its warm-up where the user gives no others.

    Raises:
        NmtError: for an unknown architecture, option or value.
    """
    told: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    init, size = told.get("init"), told.get("size", "small")
    arch, spec = told.get("arch", DEFAULT_ARCH), told.get("data", "toy")
    given = dict(told.get("options", {}))
    if "dropout" in told:
        given["dropout"] = told["dropout"]
    training = {name: told[name] for name in _TRAINING if name in told}
    end = End(told.get("steps"), told.get("epochs"), told.get("minutes"))
    tokenizer = TokenizerConfig(
        kind=told.get("tokenizer", "bpe"),
        size=told.get("vocab_size"),
        separate=told.get("separate_vocab", False),
        normalization=told.get("normalization", "nfc"),
        lowercase=told.get("lowercase", False),
        symbols=tuple(told.get("symbol", ())),
    )
    parent = RunFolder(Path(init)).config() if init is not None else None
    if parent is not None:
        arch = parent["arch"]
        tokenizer = Config.from_json(parent["request"], f"{init}/config.json").tokenizer
        inherited = parent["request"]["training"]
        rates = {name: inherited[name] for name in ("lr", "warmup") if name in inherited}
    else:
        rates = dict(architecture(arch).size_training.get(size, {}))
    require_symbols(tokenizer.symbols, tokenizer.kind, tokenizer.rule())
    sampling = told.get("subword_sampling", 0.0)
    if sampling and tokenizer.kind not in {"bpe", "unigram"}:
        raise NmtError(
            f"--subword-sampling: --tokenizer {tokenizer.kind} cuts a text in one way only; it "
            "goes with bpe and unigram"
        )
    training = {**rates, **training}
    if is_generated(spec):
        given.setdefault("dropout", _GENERATED_DROPOUT)
        training = {"label_smoothing": _GENERATED_SMOOTHING, **training}
        end = end if end != End() else End(epochs=architecture(arch).recipe.generated_epochs)
    if parent is not None:
        given = {**parent["options"], **given}
    made = Config(
        arch=arch,
        options=dataclasses.asdict(resolve_options(arch, size, given)),
        data=DataConfig(
            spec=spec,
            valid=told.get("valid"),
            test=told.get("test"),
            src_lang=told.get("src_lang"),
            tgt_lang=told.get("tgt_lang"),
            columns=told.get("columns"),
            encoding_errors=told.get("encoding_errors", "strict"),
            max_words=told.get("max_words", 200),
            min_words=told.get("min_words", 1),
            max_ratio=told.get("max_ratio"),
            drop_copies=told.get("drop_copies", False),
            dedupe=told.get("dedupe", False),
            cache=str(told["cache"]) if "cache" in told else None,
        ),
        tokenizer=tokenizer,
        training=training,
        batch_tokens=told.get("batch_tokens") or architecture(arch).recipe.batch_tokens,
        batch_sentences=told.get("batch_sentences"),
        end=end,
        seed=told.get("seed", 1),
        precision=told.get("precision", "auto"),
        device=told.get("device", "auto"),
        threads=told.get("threads"),
        init=str(init) if init else None,
        compile=told.get("compile", False),
        subword_sampling=sampling,
    )
    if wrong := made._wrong():
        name = _NAMES.get(field := wrong.rpartition(".")[2], field)
        raise NmtError(f"{name}={told.get(name)!r}: is not what it can be; see `nmt train --help`")
    return made


_FROM_INIT = (
    "arch", "size", "tokenizer", "vocab_size", "separate_vocab", "normalization", "lowercase",
    "symbol",
)  # fmt: skip


def refuse_beside_init(parent: RunFolder, told: Mapping[str, Any]) -> None:
    """Refuse another architecture or tokenizer than that of a run that is trained on.

    Args:
        parent: the run.
        told: what the user gave, by the names of options.

    Raises:
        NmtError: naming an option that would be ignored.
    """
    stored = told_to(parent)
    for name in _FROM_INIT:
        if name in told and told[name] != stored.get(name):
            value = told[name]
            shown = " ".join(value) if isinstance(value, list) else value
            raise NmtError(
                f"--{name.replace('_', '-')} {shown}: cannot be changed with --init; architecture "
                f"and tokenizer are those of {parent.path}"
            )


def told_to(run: RunFolder) -> dict[str, Any]:
    """Give what a run was told, by the names of options, and the languages that it found."""
    config = run.config()
    told = Config.from_json(config["request"], str(run.path / "config.json")).as_options()
    return {**told, "src_lang": config["src_lang"], "tgt_lang": config["tgt_lang"]}


def resolve_training(config: Config, per_epoch: int) -> TrainingOptions:
    """Fill in what the user left open from the recipe and the size of the data.

    Raises:
        NmtError: if the cosine schedule is to run without a last step.
    """
    recipe = architecture(config.arch).recipe
    end = config.end
    if end.steps is None and end.epochs is None and end.minutes is None:
        end = End(epochs=recipe.epochs)
    bounds = [bound for bound in (end.steps, _steps_of(end.epochs, per_epoch)) if bound is not None]
    chosen = dict(config.training)
    every = chosen.pop("validate_every", None) or min(max(per_epoch, 100), 500)
    defaults = {
        "lr": recipe.lr,
        "warmup": min(recipe.warmup, max(50, 2 * per_epoch)),
        "schedule": recipe.schedule,
        "accumulate": 1,
        "label_smoothing": recipe.label_smoothing,
        "clip_norm": recipe.clip_norm,
        "weight_decay": recipe.weight_decay,
        "betas": recipe.betas,
        "validate_every": every,
        "save_every": every,
        "average": None,
        "patience": 10,
        "last_step": min(bounds) if bounds else None,
        "minutes": end.minutes,
    }
    options = TrainingOptions(**{**defaults, **chosen})
    if options.schedule == "cosine" and options.last_step is None:
        raise NmtError("--schedule cosine needs to know its end: give --steps or --epochs")
    return options


def _steps_of(epochs: float | None, per_epoch: int) -> int | None:
    return None if epochs is None else max(1, math.ceil(epochs * per_epoch))
