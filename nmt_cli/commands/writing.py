"""What ``nmt translate`` writes for each line: text, scores, alignment, JSON, pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.batches import BatchSize
from nmt_cli.display import Screen
from nmt_cli.files import json_text, write_whole
from nmt_cli.plots import plot_attention
from nmt_cli.search import Expand, SearchOptions
from nmt_cli.translation import Alignment, Output, Translation, Translator, word_pairs


@dataclass(frozen=True)
class Form:
    """What a line of output looks like."""

    n_best: int | None
    scores: bool
    align: bool
    as_json: bool
    attention: Path | None
    layer: int | None
    head: int | None


@dataclass
class Work:
    """A translator with its settings, and the number of the next line."""

    translator: Translator
    options: SearchOptions
    size: BatchSize
    expand: Expand
    screen: Screen
    line: int = 1


def written_lines(work: Work, form: Form, group: Sequence[str]) -> Iterator[str]:
    """Translate a group of lines and yield what is written for each."""
    with work.screen.progress("translating", len(group)) as bar:
        results = work.translator.translate(
            group, work.options, work.size, work.expand, work.line, bar.advance
        )
    for source, result in zip(group, results, strict=True):
        number = work.line
        work.line += 1
        if result.cut_from is not None:
            work.screen.note(
                f"warning: line {number}: cut from {result.cut_from} to "
                f"{len(result.src_tokens)} tokens, the limit"
            )
        outputs = result.outputs[: form.n_best or 1]
        if outputs[0].score == -math.inf:
            work.screen.note(
                f"warning: line {number}: has no translation, as the model's numbers are not "
                "finite; try --precision fp32, or an earlier run"
            )
        alignments = [
            _alignment(work, form, result, output, rank) for rank, output in enumerate(outputs)
        ]
        if form.attention is not None and alignments[0] is not None:
            path = form.attention.with_stem(f"{form.attention.stem}-{number}")
            _draw(path, alignments[0], work.screen)
        if form.as_json:
            line = _as_json(work, form, number, source, outputs, alignments)
            yield json_text(line) + "\n"
            continue
        for output, alignment in zip(outputs, alignments, strict=True):
            suffix = f"\t{_links(alignment)}" if form.align else ""
            if form.n_best is not None:
                yield f"{number}\t{output.score:.4f}\t{output.text}{suffix}\n"
            elif form.scores:
                yield f"{output.score:.4f}\t{output.text}{suffix}\n"
            else:
                yield f"{output.text}{suffix}\n"


def _alignment(
    work: Work, form: Form, result: Translation, output: Output, rank: int
) -> Alignment | None:
    """Attend once more with an output, if that is wanted of it; a picture is of the best."""
    wanted = form.align or (form.attention is not None and rank == 0)
    if not wanted or not result.src_tokens:
        return None
    return work.translator.align(result._replace(outputs=[output]), form.layer, form.head)


def _links(alignment: Alignment | None) -> str:
    """Write pairs of words as Pharaoh does: source-target, counted from 0."""
    if alignment is None:
        return ""
    return " ".join(f"{src}-{tgt}" for src, tgt in word_pairs(alignment))


def _as_json(
    work: Work,
    form: Form,
    number: int,
    source: str,
    outputs: Sequence[Output],
    alignments: Sequence[Alignment | None],
) -> dict[str, Any]:
    found = []
    for output, alignment in zip(outputs, alignments, strict=True):
        one: dict[str, Any] = {
            "text": output.text,
            "score": output.score,
            "tokens": work.translator.tgt_tokenizer.pieces(list(output.tokens)),
        }
        if form.align:
            one["alignment"] = [] if alignment is None else word_pairs(alignment)
        found.append(one)
    return {"line": number, "source": source, "translations": found}


def _draw(path: Path, alignment: Alignment, screen: Screen) -> None:
    if path.suffix.lower() == ".json":
        form = {
            "source": alignment.src_pieces,
            "target": alignment.tgt_pieces,
            "attention": alignment.weights.tolist(),
        }
        write_whole(path, json_text(form) + "\n")
    elif missing := plot_attention(alignment, path):
        screen.note(
            f"warning: {path}: no installed font has {', '.join(missing)}; install one that has "
            "(such as Noto), or write .json"
        )
    screen.note(f"attention: {path}")
