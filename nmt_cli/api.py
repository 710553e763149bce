"""``import nmt_cli``: train, translate and evaluate from Python.

import nmt_cli

model = nmt_cli.load("checkpoints/lstm-attn")
(translation,) = model.translate(["The old man sees the dog."], beam=5)
translation.text, translation.score, translation.attention.shape
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from nmt_cli import experiment
from nmt_cli.batches import BatchSize
from nmt_cli.checking import MANY, MOST_BEAMS, MOST_WORKERS, fits
from nmt_cli.config import Asked, check_asked, refuse_beside_init, resolve
from nmt_cli.corpus.columns import one_line
from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.display import report_table
from nmt_cli.errors import NmtError, NmtWarning, did_you_mean
from nmt_cli.evaluation import Report, make_sample, translate_sample
from nmt_cli.evaluation import evaluate as judge
from nmt_cli.judging import pairs_to_judge
from nmt_cli.metrics import Bleu, bleu_tokenizer
from nmt_cli.plots import attention_png
from nmt_cli.precision import (
    DeviceChoice,
    TranslationPrecisionChoice,
    choose_device,
    choose_translation_precision,
)
from nmt_cli.runs import DEFAULT_ROOT, RunFolder
from nmt_cli.scoring import Likelihood, score_pairs
from nmt_cli.search import SearchOptions
from nmt_cli.translation import (
    Alignment,
    Output,
    Translation,
    Translator,
    default_batch_tokens,
    load_translator,
    word_pairs,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Translated:
    """A translation of one text; in a notebook it shows its attention as a heat map."""

    def __init__(self, source: str, translation: Translation, output: Output, by: Translator):
        self.source = source
        self.text = output.text
        self.score = output.score
        """log P divided by ((5 + length) / 6) ** length_penalty."""
        self._translation = translation._replace(outputs=[output])
        self._by = by

    def __repr__(self) -> str:
        return f"Translated({self.text!r}, score={self.score:.4f})"

    @cached_property
    def _alignment(self) -> Alignment | None:
        if not self._translation.src_tokens:
            return None
        try:
            return self._by.align(self._translation)
        except NmtError:
            return None

    @property
    def tokens(self) -> list[str]:
        """The subwords written, the end of the sentence left out."""
        return self._by.tgt_tokenizer.pieces(list(self._translation.outputs[0].tokens))

    @property
    def source_tokens(self) -> list[str]:
        """The subwords read, the end of the sentence left out."""
        return self._by.src_tokenizer.pieces(list(self._translation.src_tokens))

    @property
    def attention(self) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        """Attention (T, S) of target over source subwords, both with the end of the sentence.

        It is the mean of all attending layers and heads; None for a model without attention.
        """
        return None if self._alignment is None else self._alignment.weights.numpy()

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs (source, target) of words between spaces, counted from 0."""
        return [] if self._alignment is None else word_pairs(self._alignment)

    def _repr_html_(self) -> str:
        from html import escape

        shown = f"<p>{escape(self.source)}<br><b>{escape(self.text)}</b></p>"
        if self._alignment is None:
            return shown
        picture = base64.b64encode(attention_png(self._alignment)).decode()
        return f'{shown}<img src="data:image/png;base64,{picture}" alt="attention">'


class Model:
    """A trained run, or an ensemble of several, ready to translate."""

    def __init__(self, runs: Sequence[RunFolder], translator: Translator) -> None:
        self.runs = list(runs)
        self._translator = translator

    def __repr__(self) -> str:
        return f"Model({', '.join(str(run.path) for run in self.runs)})"

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = 5,
        length_penalty: float = 0.6,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[Translated]:
        """Translate texts, one sentence each; results in their order.

        Args:
            texts: sentences; a blank one gives an empty translation.
            beam: hypotheses kept; 1 is greedy search.
            length_penalty: the exponent of the length penalty.
            max_length: most tokens of a translation; by default twice the source's plus 20.
            batch_tokens: source tokens translated at once; by default 2,048, or 4,096 in greedy
                search.
        """
        return [
            found[0]
            for found in self.n_best(
                texts,
                1,
                beam=beam,
                length_penalty=length_penalty,
                max_length=max_length,
                batch_tokens=batch_tokens,
            )
        ]

    def n_best(
        self,
        texts: Sequence[str],
        n: int,
        *,
        beam: int = 5,
        length_penalty: float = 0.6,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[list[Translated]]:
        """Give up to n translations of each text, best first; else like ``translate``."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of sentences, not one string")
        for name, value, most in (("beam", beam, MOST_BEAMS), ("n", n, MOST_BEAMS)):
            if not fits(value, int) or not 1 <= value <= most:
                raise NmtError(f"{name}={value!r}: must be from 1 to {most}")
        options = SearchOptions(max(beam, n), n, length_penalty, max_length)
        tokens = default_batch_tokens(options.beam) if batch_tokens is None else batch_tokens
        if not fits(tokens, int) or not 1 <= tokens <= MANY:
            raise NmtError(f"batch_tokens={tokens!r}: must be from 1 to {MANY}")
        lines = [one_line(text) for text in texts]
        found = self._translator.translate(lines, options, BatchSize(tokens))
        return [
            [Translated(line, result, output, self._translator) for output in result.outputs]
            for line, result in zip(lines, found, strict=True)
        ]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """Give log P (in nats) and the number of tokens of given translations."""
        for pair in pairs:
            if isinstance(pair, str) or len(pair) != 2:
                raise TypeError("pairs is a list of (source, translation)")
        return score_pairs(self._translator, [Pair(*pair) for pair in pairs])


def _path(name: str | Path) -> Path:
    """Take the name of a folder; of an empty one make no "."."""
    if name == "":
        raise NmtError("the name of the run folder is empty")
    return Path(name)


def load(
    run: str | Path | Sequence[str | Path],
    *,
    device: DeviceChoice = "auto",
    precision: TranslationPrecisionChoice = "auto",
    workers: int = 1,
) -> Model:
    """Load a run folder, or several as an ensemble.

    Args:
        run: the folder, or folders whose vocabularies are equal.
        device: where to compute.
        precision: number format; auto is fp32 on a CPU.
        workers: processes of one thread each, on a CPU.

    Raises:
        NmtError: if a run cannot be read.
    """
    paths = [run] if isinstance(run, str | Path) else list(run)
    if not paths:
        raise NmtError("no run is named")
    for name, value, choice in (
        ("device", device, DeviceChoice),
        ("precision", precision, TranslationPrecisionChoice),
    ):
        if value not in get_args(choice):
            raise NmtError(f"{name}={value!r}: must be one of {', '.join(get_args(choice))}")
    if not fits(workers, int) or not 1 <= workers <= MOST_WORKERS:
        raise NmtError(f"workers={workers!r}: must be from 1 to {MOST_WORKERS}")
    folders = [RunFolder(_path(path)) for path in paths]
    chosen = choose_device(device)
    number_format = choose_translation_precision(precision, chosen)
    if number_format.warning:
        warnings.warn(number_format.warning, NmtWarning, stacklevel=2)
    return Model(folders, load_translator(folders, chosen, number_format).with_workers(workers))


class _Unwatched:
    """Lets a run go on to its end."""

    wants_attention = False

    def interrupted(self) -> bool:
        return False

    def save_asked(self) -> bool:
        return False

    def work(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        return nullcontext(lambda _: None)


def train(
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    on_event: Callable[[experiment.RunEvent], None] | None = None,
    **asked: Unpack[Asked],
) -> Model:
    """Train a model, as ``nmt train`` does, and load it.

    Args:
        out: the run folder; by default ``checkpoints/ARCH``.
        overwrite: whether a run that is there is replaced.
        on_event: called with every step, validation and note as it comes.
        asked: the options of ``nmt train`` by their names, ``-O`` as the mapping ``options``.

    Raises:
        NmtError: for bad input.
        TypeError: for an option that there is not.
        WorkFailed: if training diverges or the disk is full.
    """
    for name in asked:
        if name not in Asked.__annotations__:
            hint = did_you_mean(name, Asked.__annotations__)
            raise TypeError(f"train() has no option {name}{hint}")
    check_asked(asked)
    if not isinstance(overwrite, bool):
        raise NmtError(f"overwrite={overwrite!r}: is True or False")
    if asked.get("init") is not None:
        told = {name: value for name, value in asked.items() if value is not None}
        refuse_beside_init(RunFolder(Path(str(asked["init"]))), told)
    config = resolve(asked)
    folder = RunFolder(_path(out) if out is not None else DEFAULT_ROOT / config.arch)
    for event in experiment.start(config, folder, overwrite, _Unwatched()):
        if on_event is not None:
            on_event(event)
    return load(folder.path, device=config.device)


class Evaluation:
    """BLEU by source length; in a notebook and in print it shows the table."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __repr__(self) -> str:
        return report_table(self.report)

    def as_json(self) -> dict[str, Any]:
        """Give the form of ``nmt eval --json``."""
        return self.report.as_json()


def evaluate(
    *models: Model,
    data: str | None = None,
    split: str | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    buckets: tuple[int, ...] | None = None,
    metrics: Sequence[str] = ("bleu", "chrf"),
    beam: int = 5,
    length_penalty: float = 0.6,
) -> Evaluation:
    """Judge models on one test set, as ``nmt eval`` does.

    Args:
        models: those to judge; every one after the first is compared with the first.
        data: the test corpus; by default the test split that the runs recorded.
        split: of the corpus.
        src_lang: source language, where the data does not tell.
        tgt_lang: target language, where the data does not tell.
        buckets: upper edges of source lengths.
        metrics: out of bleu, chrf, chrf++, ter, exact and comet.
        beam: hypotheses kept.
        length_penalty: the exponent of the length penalty.

    Raises:
        NmtError: if there is no such data, or the runs recorded different test sets.
    """
    runs = [run for model in models for run in model.runs]
    pairs = pairs_to_judge(runs, data, split, None, None, Request(src_lang, tgt_lang))
    test = make_sample(pairs, edges=buckets)
    options = SearchOptions(beam=beam, length_penalty=length_penalty)
    outputs = [
        translate_sample("+".join(run.name for run in model.runs), model._translator, test, options)
        for model in models
    ]
    lowercase = any(run.config()["tokenizer"].get("lowercase") for run in runs)
    bleu = Bleu(bleu_tokenizer(pairs.tgt_lang)[0], lowercase)
    return Evaluation(judge(test, outputs, bleu, metrics, split))
