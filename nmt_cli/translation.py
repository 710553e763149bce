"""From lines to translations: a loaded model with its tokenizers, in batches, in order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.batches import BatchSize, cut, cut_for, deal, pad
from nmt_cli.corpus.lines import is_blank
from nmt_cli.errors import NmtError, NmtWarning, is_out_of_memory
from nmt_cli.models import Seq2Seq, Vocabulary, architecture
from nmt_cli.models.base import Uninitialised
from nmt_cli.models.ensemble import Ensemble
from nmt_cli.models.options import parse
from nmt_cli.packing import LINEARS, pack
from nmt_cli.precision import (
    Precision,
    give_back_memory,
    keep_freed_memory,
    trim_at_times,
    use_exact_kernels,
)
from nmt_cli.runs import RunFolder, same_vocabulary
from nmt_cli.search import (
    Expand,
    Hypothesis,
    SearchOptions,
    Sources,
    best_continuations,
    search_batches,
)
from nmt_cli.tokenizer import BOS, EOS, Tokenizer
from nmt_cli.workers import Workers

_TOGETHER = 4
"""Batches whose last sentences are translated together by greedy search.

More would save little more and report progress rarely; so would a beam, whose steps all are large.
"""
MAX_SOURCE_TOKENS = 1000
"""A longer source is cut, with a warning."""


def default_batch_tokens(beam: int) -> int:
    """Say how many source tokens are translated at once: more where each is one hypothesis.

    Greedy search of 4,096 was 8 % faster than of 2,048, and 3 % faster than of 6,144; a beam is not
    faster with more than 2,048.
    """
    return 4096 if beam == 1 else 2048


class Output(NamedTuple):
    """One translation of a line."""

    text: str
    score: float
    tokens: tuple[int, ...]


class Translation(NamedTuple):
    """What became of one line."""

    src_tokens: tuple[int, ...]
    """Ids read, without EOS; none for a blank line."""
    outputs: list[Output]
    """Best first; one empty output for a blank line."""
    cut_from: int | None
    """Tokens of the line before it was cut, or None if it was not."""


class Alignment(NamedTuple):
    """Attention of a translation over its source."""

    src_pieces: list[str]
    tgt_pieces: list[str]
    src_words: list[int]
    """The word, counted from 0, that each piece but EOS belongs to."""
    tgt_words: list[int]
    weights: Tensor
    """(T, S) fp32; both sides end in EOS."""


class Sentence(NamedTuple):
    """What is to be translated."""

    source: Sequence[int]
    """Ids, ending in EOS."""
    key: int
    """The number by which ``Expand`` knows it."""


@dataclass(frozen=True)
class Task:
    """Batches to search for translations of, one after the other."""

    batches: list[list[Sentence]]
    options: SearchOptions
    expand: Expand

    def __len__(self) -> int:
        """Count the sentences."""
        return sum(map(len, self.batches))

    def halves(self) -> list[Task]:
        """Divide the batches, or the only one."""
        parts: list[list[list[Sentence]]]
        if len(self.batches) > 1:
            half = len(self.batches) // 2
            parts = [self.batches[:half], self.batches[half:]]
        else:
            (batch,) = self.batches
            half = len(batch) // 2
            parts = [[batch[:half]], [batch[half:]]]
        return [replace(self, batches=part) for part in parts]


@dataclass(frozen=True)
class Searcher:
    """A model that searches one batch after the other, here or in ``workers``."""

    model: Seq2Seq
    precision: Precision

    def __call__(self, task: Task) -> list[list[Hypothesis]]:
        """Search batches; in halves, if there is no memory for all at once."""
        try:
            found = self._search(task)
            trim_at_times()
            return found
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(task) == 1:
                raise
        warnings.warn(
            f"out of memory for {len(task)} sentences: they are searched in halves; a smaller "
            "--batch-tokens saves the attempt",
            NmtWarning,
            stacklevel=2,
        )
        give_back_memory(next(self.model.parameters()).device)
        return [hypotheses for half in task.halves() for hypotheses in self(half)]

    def _search(self, task: Task) -> list[list[Hypothesis]]:
        device = next(self.model.parameters()).device
        batches = []
        for batch in task.batches:
            sources, keys = zip(*batch, strict=True)
            src, mask = pad(sources)
            batches.append(Sources(src.to(device), mask.to(device), keys))
        with self.precision.autocast(device):
            return search_batches(self.model, batches, task.options, task.expand)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """Search here, one task after the other, as ``Workers`` do side by side."""
        return enumerate(map(self, tasks))


SearchWorkers = Workers[Task, list[list[Hypothesis]]]


def search_all(
    searcher: Searcher | SearchWorkers,
    sources: Sequence[Sequence[int]],
    options: SearchOptions,
    size: BatchSize,
    expand: Expand = best_continuations,
    keys: Sequence[int] | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Search for translations of ids, batched by length; results in the order of the sources.

    Args:
        searcher: a model in eval mode, or processes that have it.
        sources: ids of each sentence, each ending in EOS.
        options: how to search.
        size: the budget of a batch.
        expand: how continuations are chosen.
        keys: the number by which ``expand`` knows each sentence; by default its place.
        on_done: called with the number of sentences just finished.
    """
    keys = range(len(sources)) if keys is None else keys
    lengths = [len(source) for source in sources]
    order = sorted(range(len(sources)), key=lengths.__getitem__, reverse=True)
    workers = len(searcher) if isinstance(searcher, Workers) else 1
    batches = cut_for(workers, order, lengths, size) if workers > 1 else cut(order, lengths, size)
    shares = deal(batches, workers, _TOGETHER if options.beam == 1 else 1)
    tasks = [
        Task([[Sentence(sources[i], keys[i]) for i in batch] for batch in share], options, expand)
        for share in shares
    ]
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for number, hypotheses in searcher.run(tasks):
        places = [i for batch in shares[number] for i in batch]
        for i, best in zip(places, hypotheses, strict=True):
            found[i] = best
        if on_done:
            on_done(len(places))
    return found


@dataclass(frozen=True)
class Translator:
    """A model, or an ensemble, ready to translate text."""

    model: Seq2Seq
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    precision: Precision
    workers: SearchWorkers | None = None
    """Processes that search in place of this one."""

    def with_workers(self, count: int) -> Translator:
        """Give this translator with so many processes to search, which are started now."""
        if count == 1:
            return self
        return replace(self, workers=Workers(Searcher(self.model, self.precision), count))

    def translate(
        self,
        lines: Sequence[str],
        options: SearchOptions,
        size: BatchSize,
        expand: Expand = best_continuations,
        first: int = 0,
        on_done: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate lines; blank ones stay blank and never meet the model.

        Args:
            lines: text, one sentence each.
            options: how to search.
            size: the budget of a batch, in source tokens.
            expand: how continuations are chosen.
            first: the number by which ``expand`` knows the first line, and so on from there.
            on_done: called with the number of lines just translated.
        """
        full = [i for i, line in enumerate(lines) if not is_blank(line)]
        ids = self.src_tokenizer.encode_all(lines[i] for i in full)
        most = min(MAX_SOURCE_TOKENS, (self.model.max_positions or math.inf) - 1)
        sources = [[*tokens[: int(most)], EOS] for tokens in ids]
        searcher = self.workers or Searcher(self.model, self.precision)
        keys = [first + i for i in full]
        found = search_all(searcher, sources, options, size, expand, keys, on_done)
        results = [Translation((), [Output("", 0.0, ())], None) for _ in lines]
        for i, tokens, source, hypotheses in zip(full, ids, sources, found, strict=True):
            outputs = [
                Output(self.tgt_tokenizer.decode(list(h.tokens)), h.score, h.tokens)
                for h in hypotheses
            ]
            cut_from = len(tokens) if len(tokens) > most else None
            results[i] = Translation(tuple(source[:-1]), outputs, cut_from)
        return results

    @torch.inference_mode()
    def align(
        self, translation: Translation, layer: int | None = None, head: int | None = None
    ) -> Alignment:
        """Compute the attention of the best output by reading it once more.

        Args:
            translation: of a line that is not blank.
            layer: attending layer counted from 1, or the mean of all.
            head: head counted from 1, or the mean of all.

        Raises:
            NmtError: if the model has no attention, or no such layer or head.
        """
        device = next(self.model.parameters()).device
        src = torch.tensor([[*translation.src_tokens, EOS]], device=device)
        written = list(translation.outputs[0].tokens)
        tgt = torch.tensor([[BOS, *written]], device=device)
        with self.precision.autocast(device):
            memory = self.model.encode(src, torch.ones_like(src, dtype=torch.bool))
            state = self.model.start(memory)
            layers = self.model.decode(tgt, memory, state, attention=True).attention
        if not layers:
            raise NmtError("the model has no attention to show or align by")
        chosen = [_numbered(layers, layer, "--layer")] if layer is not None else list(layers)
        heads = [weights[0] for weights in chosen]  # each (H, T, S)
        if head is not None:
            heads = [_numbered(list(weights), head, "--head").unsqueeze(0) for weights in heads]
        mean = torch.stack([weights.float().mean(0) for weights in heads]).mean(0)
        read = list(translation.src_tokens)
        return Alignment(
            [*self.src_tokenizer.pieces(read), "</s>"],
            [*self.tgt_tokenizer.pieces(written), "</s>"],
            self.src_tokenizer.words(read),
            self.tgt_tokenizer.words(written),
            mean.cpu(),
        )


def _numbered(items: Sequence[Tensor], number: int, option: str) -> Tensor:
    if not 1 <= number <= len(items):
        raise NmtError(f"{option} {number}: this model has {len(items)}, counted from 1")
    return items[number - 1]


def word_pairs(alignment: Alignment) -> list[tuple[int, int]]:
    """Link each target word to the source word that it attends to most: pairs (src, tgt).

    Words are those between spaces, counted from 0; the attention of a word is the sum over its
    pieces.
    """
    src_words, tgt_words = alignment.src_words, alignment.tgt_words
    if not src_words or not tgt_words:
        return []
    weights = alignment.weights[: len(tgt_words), : len(src_words)]
    table = torch.zeros(tgt_words[-1] + 1, src_words[-1] + 1)
    rows = torch.tensor(tgt_words)[:, None].expand(weights.shape)
    columns = torch.tensor(src_words).expand(weights.shape)
    table.index_put_((rows, columns), weights, accumulate=True)
    return [(int(src), tgt) for tgt, src in enumerate(table.argmax(1).tolist())]


def load_model(run: RunFolder, device: torch.device) -> Seq2Seq:
    """Build the model of a run with its best weights, in eval mode.

    Raises:
        NmtError: if its files cannot be read or do not fit each other.
    """
    config = run.config()
    try:
        arch = architecture(config["arch"])
        options: Any = parse(arch.options, config["options"], arch.name)
    except NmtError as error:
        raise NmtError(f"{run.path / 'config.json'}: {error}") from None
    sizes = config["vocab"]
    vocab = Vocabulary(sizes["src"], sizes["tgt"], bool(sizes.get("shared")))
    with Uninitialised(), torch.device("meta"):
        run.require_fit(arch.build(options, vocab))
    with Uninitialised():
        model = arch.build(options, vocab)
    run.load_weights(model)
    return model.to(device).eval()


@torch.inference_mode()
def attends(model: Seq2Seq) -> bool:
    """Tell whether a model attends to the source: found by reading one token."""
    device = next(model.parameters()).device
    src, tgt = torch.tensor([[EOS]], device=device), torch.tensor([[BOS]], device=device)
    memory = model.encode(src, torch.ones_like(src, dtype=torch.bool))
    return bool(model.decode(tgt, memory, model.start(memory), attention=True).attention)


def load_translator(
    runs: Sequence[RunFolder], device: torch.device, precision: Precision
) -> Translator:
    """Load one run, or several as an ensemble.

    Raises:
        NmtError: if a run cannot be read, or vocabularies of an ensemble differ.
    """
    sides = [run.tokenizers() for run in runs]
    for side in zip(*sides, strict=True):
        if not same_vocabulary(side):
            raise NmtError(
                f"{runs[0].path} and {runs[-1].path}: an ensemble needs equal vocabularies; "
                "train the second with --init of the first, or on the same data and settings"
            )
    keep_freed_memory()
    if precision.name == "fp32":
        use_exact_kernels(device)
    models = [load_model(run, device) for run in runs]
    if device.type == "cpu":
        for member in models:
            pack(member, LINEARS[precision.name])
        precision = Precision("fp32", "between the layers")
    model = models[0] if len(models) == 1 else Ensemble(models).to(device).eval()
    return Translator(model, *sides[0], precision)
