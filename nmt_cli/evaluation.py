"""One evaluation for all systems: every metric over all sentences and by source length."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.batches import BatchSize
from nmt_cli.corpus.pairs import PairList
from nmt_cli.errors import NmtError
from nmt_cli.metrics import (
    METRICS,
    Bleu,
    Bucket,
    Comparison,
    Floats,
    Interval,
    Unit,
    bucket_index,
    buckets_of,
    chrf,
    chrf_plus_plus,
    compare,
    exact,
    interval,
    length_unit,
    quantile_edges,
    resamples,
    ter,
    text_lengths,
)
from nmt_cli.neural import comet_scores, is_comet, require_comet
from nmt_cli.search import SearchOptions
from nmt_cli.tokenizer import Tokenizer
from nmt_cli.translation import Translator, default_batch_tokens

FEW_SENTENCES = 30
"""A bucket under this many sentences is marked: its score is hardly more than chance."""

FEWEST_TO_RESAMPLE = 10
"""Under this many sentences a bootstrap interval or p-value would only mislead."""

DEFAULT_EDGES = (10, 20, 30, 40, 50)

_OTHER_METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "chrf": chrf,
    "chrf++": chrf_plus_plus,
    "ter": ter,
    "exact": exact,
}


class Sample(NamedTuple):
    """What the systems are judged on."""

    name: str
    sources: list[str]
    references: list[str]
    lengths: list[int]
    """Source lengths in ``unit``."""
    unit: Unit
    buckets: list[Bucket]


class SystemOutput(NamedTuple):
    """What one system wrote, in one run or in several that differ by seed."""

    name: str
    runs: list[list[str]]
    """The hypotheses of each run."""
    seconds: float | None
    """None for a file that was only read."""
    cut: int = 0
    """Sources of which only the beginning was read, as they have more tokens than a model takes."""
    failed: int = 0
    """Sources without a translation, as the model's numbers were not finite."""

    def faults(self) -> list[str]:
        """Say what the reader of the scores should know."""
        said = []
        if self.cut:
            said.append(f"{self.cut} sources were cut to as many tokens as are read")
        if self.failed:
            said.append(
                f"{self.failed} sources have no translation, as the model's numbers are not "
                "finite; try --precision fp32, or an earlier run"
            )
        return said


@dataclass(frozen=True)
class Cell:
    """Scores of one system over some of the sentences."""

    sentences: int
    bleu: float | None
    """None where the references are too short for a 4-gram, or there are no sentences."""
    interval: Interval | None
    others: dict[str, float | None]
    length_ratio: float | None
    """Words written per word of the references."""
    comparison: Comparison | None
    note: str | None
    runs: tuple[float, ...] = ()
    """BLEU of each run, where there are several: ``bleu`` is their mean."""

    @property
    def spread(self) -> float | None:
        """Standard deviation of BLEU over several runs."""
        return float(np.std(self.runs, ddof=1)) if self.runs else None

    def as_json(self) -> dict[str, Any]:
        """Give the fields of the contract."""
        values: dict[str, Any] = {
            "sentences": self.sentences,
            "bleu": self.bleu,
            "bleu_low": self.interval.low if self.interval else None,
            "bleu_high": self.interval.high if self.interval else None,
            **self.others,
            "length_ratio": self.length_ratio,
            "difference": self.comparison.difference if self.comparison else None,
            "p": self.comparison.p if self.comparison else None,
        }
        if self.runs:
            values |= {"bleu_runs": list(self.runs), "bleu_std": self.spread}
        return {**values, "note": self.note} if self.note else values


@dataclass(frozen=True)
class SystemReport:
    """One row of the table."""

    name: str
    signature: str
    seconds: float | None
    overall: Cell
    cells: list[Cell]


@dataclass(frozen=True)
class Report:
    """The whole table."""

    data: str
    split: str | None
    unit: Unit
    buckets: list[Bucket]
    systems: list[SystemReport]

    def as_json(self) -> dict[str, Any]:
        """Give the JSON form of the contract."""
        return {
            "data": self.data,
            "split": self.split,
            "unit": self.unit,
            "edges": [bucket.high for bucket in self.buckets if bucket.high is not None],
            "systems": [
                {
                    "name": system.name,
                    "signature": system.signature,
                    "seconds": system.seconds,
                    **system.overall.as_json(),
                    "buckets": [
                        {**asdict(bucket), **cell.as_json()}
                        for bucket, cell in zip(self.buckets, system.cells, strict=True)
                    ],
                }
                for system in self.systems
            ],
        }


class _Scored(NamedTuple):
    """What comparing with a later system needs of the first."""

    cell: Cell
    samples: Floats | None


def make_sample(
    pairs: PairList,
    edges: tuple[int, ...] | None = None,
    quantiles: int | None = None,
    unit: Unit | None = None,
    src_tokenizer: Tokenizer | None = None,
) -> Sample:
    """Measure the sources of a test set and choose its buckets.

    Raises:
        NmtError: if it is empty, or is to be measured in tokens without a tokenizer.
    """
    if not pairs.pairs:
        raise NmtError(f"{pairs.name}: holds no pairs, so there is nothing to judge by")
    sources = [pair.src for pair in pairs.pairs]
    unit = unit or length_unit(pairs.src_lang)
    if unit == "token":
        if src_tokenizer is None:
            raise NmtError("--unit token needs a run, whose tokenizer counts")
        lengths = [len(ids) for ids in src_tokenizer.encode_all(sources)]
    else:
        lengths = text_lengths(sources, unit)
    chosen = quantile_edges(lengths, quantiles) if quantiles else edges or DEFAULT_EDGES
    return Sample(
        pairs.name,
        sources,
        [pair.tgt for pair in pairs.pairs],
        lengths,
        unit,
        buckets_of(list(chosen)),
    )


def translate_sample(
    name: str,
    translator: Translator,
    test: Sample,
    options: SearchOptions,
    on_done: Callable[[int], None] | None = None,
) -> SystemOutput:
    """Translate a test set, timed."""
    began = time.perf_counter()
    size = BatchSize(default_batch_tokens(options.beam))
    results = translator.translate(test.sources, options, size, on_done=on_done)
    seconds = time.perf_counter() - began
    cut = sum(result.cut_from is not None for result in results)
    failed = sum(result.outputs[0].score == -math.inf for result in results)
    written = [result.outputs[0].text for result in results]
    return SystemOutput(name, [written], seconds, cut, failed)


def check_metrics(names: Iterable[str]) -> None:
    """Refuse a metric that there is not.

    Raises:
        NmtError: naming it and those there are, or the package that it needs.
    """
    for name in names:
        if is_comet(name):
            require_comet(name)
        elif name not in METRICS:
            raise NmtError(
                f"--metrics {name or repr(name)}: unknown; there are: {', '.join(METRICS)}, comet"
            )


def evaluate(
    test: Sample,
    systems: Sequence[SystemOutput],
    bleu: Bleu,
    metrics: Sequence[str] = ("bleu", "chrf"),
    split: str | None = None,
) -> Report:
    """Judge systems on one test set; every one after the first is compared with the first.

    Args:
        test: sources, references and buckets.
        systems: outputs, each as long as the references.
        bleu: the BLEU to use.
        metrics: names out of ``METRICS``, or ``comet``; BLEU is always there.
        split: name of the split, for the JSON.

    Raises:
        NmtError: if an output has another number of lines, or a metric is unknown.
    """
    check_metrics(metrics)
    for system in systems:
        for hypotheses in system.runs:
            if len(hypotheses) != len(test.references):
                raise NmtError(
                    f"{system.name}: {len(hypotheses)} lines, but there are "
                    f"{len(test.references)} references; line n must translate source n"
                )
    places = [bucket_index(length, test.buckets) for length in test.lengths]
    groups = [[i for i, place in enumerate(places) if place == n] for n in range(len(test.buckets))]
    groups.append(list(range(len(places))))
    draws = [resamples(len(group)) if group else None for group in groups]
    others = [name for name in metrics if name != "bleu"]
    baseline: list[_Scored | None] = [None] * len(groups)
    reports = []
    for system in systems:
        statistics = [bleu.statistics(run, test.references) for run in system.runs]
        measures = {name: _measure(name, system, test, bleu.lowercase) for name in others}
        scored = [
            _score(group, draw, statistics, test, bleu, measures, first)
            for group, draw, first in zip(groups, draws, baseline, strict=True)
        ]
        if system is systems[0]:
            baseline = [*scored]
        *cells, overall = [each.cell for each in scored]
        reports.append(SystemReport(system.name, bleu.signature, system.seconds, overall, cells))
    return Report(test.name, split, test.unit, list(test.buckets), reports)


_Measure = Callable[[list[int]], float]
"""Gives a metric over some of the sentences: its mean over the runs of a system."""


def _measure(name: str, system: SystemOutput, test: Sample, lowercase: bool) -> _Measure:
    if is_comet(name):
        scores = [comet_scores(name, test.sources, run, test.references) for run in system.runs]
        return lambda group: _mean(float(of_run[group].mean()) for of_run in scores)
    metric = _OTHER_METRICS[name]

    def of(lines: list[str], group: list[int]) -> list[str]:
        return [lines[i].lower() if lowercase else lines[i] for i in group]

    return lambda group: _mean(
        metric(of(run, group), of(test.references, group)) for run in system.runs
    )


def _score(
    group: list[int],
    draws: Any,
    statistics: list[Floats],
    test: Sample,
    bleu: Bleu,
    measures: dict[str, _Measure],
    first: _Scored | None,
) -> _Scored:
    if not group:
        nothing: dict[str, float | None] = dict.fromkeys(measures)
        return _Scored(Cell(0, None, None, nothing, None, None, "no sentences"), None)
    references = [test.references[i] for i in group]
    values: dict[str, float | None] = {name: value(group) for name, value in measures.items()}
    rows = [of_run[group] for of_run in statistics]
    sums = [of_run.sum(axis=0) for of_run in rows]
    ratio = _mean(float(summed[-2] / summed[-1]) for summed in sums) if sums[0][-1] else None
    if not _has_4gram(references, bleu):
        note = "the references are too short for a 4-gram"
        return _Scored(Cell(len(group), None, None, values, ratio, None, note), None)
    scores = tuple(bleu.score(summed) for summed in sums)
    score, of_runs = _mean(scores), scores if len(scores) > 1 else ()
    if len(group) < FEWEST_TO_RESAMPLE:
        return _Scored(Cell(len(group), score, None, values, ratio, None, None, of_runs), None)
    samples = np.mean([[bleu.score(row) for row in draws @ of_run] for of_run in rows], axis=0)
    comparison = None
    if first is not None and first.samples is not None and first.cell.bleu is not None:
        comparison = compare(samples, first.samples, score - first.cell.bleu)
    cell = Cell(len(group), score, interval(samples), values, ratio, comparison, None, of_runs)
    return _Scored(cell, samples)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _has_4gram(references: Sequence[str], bleu: Bleu) -> bool:
    """Tell whether a perfect output would have 4-grams to match."""
    return bool(bleu.statistics(references, references)[:, 7].sum() > 0)
