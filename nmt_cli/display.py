"""What people see in a terminal: notes, progress, and the table of BLEU by length."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections import Counter

    from nmt_cli.corpus.info import Info
    from nmt_cli.evaluation import Cell, Report, SystemReport

_PLAIN_EVERY_S, _PLAIN_SHARE = 10.0, 0.02
"""Without a bar a line comes no sooner than this, in seconds and as a share of the time so far."""
_NARROWEST = 14
"""Characters of a column below which its text is not wrapped."""
_CONTROLS = dict.fromkeys([*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0)], "\ufffd")
"""What a terminal would obey rather than show; a model or a corpus may contain any of it."""


def printable(text: str) -> str:
    """Put a mark in the place of every control character but tabs and line feeds."""
    return text.translate(_CONTROLS)


class Screen:
    """Notes and progress on stderr; a bar in a terminal, a line now and then elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Tell whether stderr is a terminal."""
        return self.console.is_terminal

    def note(self, text: str) -> None:
        """Write a line, unless quiet; a warning is shown all the same."""
        warning = text.startswith("warning:")
        if not self.quiet or warning:
            style = "yellow" if warning else None
            self.console.print(printable(text), style=style, markup=False, emoji=False)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Bar]:
        """Show how far some work has come."""
        if self.quiet or not self.is_terminal:
            yield Bar(self, what, total, None)
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[extra]}", markup=False),
        )
        with Progress(*columns, console=self.console, transient=True) as shown:
            yield Bar(self, what, total, shown)


class Bar:
    """One piece of work under way."""

    def __init__(
        self, screen: Screen, what: str, total: int | None, shown: Progress | None
    ) -> None:
        import time

        self._clock = time.monotonic
        self._screen = screen
        self._what = what
        self._total = total
        self._shown = shown
        self._task = shown.add_task(what, total=total, extra="") if shown else None
        self._last_line = self._began = self._clock()
        self.done = self._before = 0

    def advance(self, count: int = 1, extra: str = "") -> None:
        """Say that so much more is done."""
        self.done += count
        if self._shown and self._task is not None:
            self._shown.update(self._task, completed=self.done, extra=extra)
            return
        now = self._clock()
        if now - self._last_line >= max(_PLAIN_EVERY_S, _PLAIN_SHARE * (now - self._began)):
            self._last_line = now
            of = f"/{self._total}" if self._total else ""
            self._screen.note(f"{self._what} {self.done}{of}  {extra}{self._left()}".rstrip())

    def start_from(self, done: int) -> None:
        """Say how much was done before, so that the time left is judged by what is done now."""
        self.done = self._before = done

    def _left(self) -> str:
        """Say how long the rest will take at the pace so far."""
        now = self.done - self._before
        if not self._total or not now:
            return ""
        seconds = (self._clock() - self._began) / now * (self._total - self.done)
        return f"  {seconds / 60:.0f} min left" if seconds >= 90 else f"  {seconds:.0f} s left"


def report_table(report: Report, show_intervals: bool = False) -> str:
    """Lay out BLEU by source length: a row a system, a column a bucket, the counts first."""
    from nmt_cli.evaluation import FEW_SENTENCES

    first = report.systems[0]
    cells = [*first.cells, first.overall]
    header = ["", *(bucket.label for bucket in report.buckets), "all"]
    few = any(0 < cell.sentences < FEW_SENTENCES for cell in cells)
    counts = ["sentences"] + [
        f"{cell.sentences}{'*' if 0 < cell.sentences < FEW_SENTENCES else ''}" for cell in cells
    ]
    rows = [header, counts]
    for system in report.systems:
        row = [*system.cells, system.overall]
        rows.append([system.name, *(_score(cell) for cell in row)])
        if count := len(system.overall.runs):
            rows.append([f"  +- over {count} runs", *(_spread(cell) for cell in row)])
        if show_intervals:
            rows.append(["  95 % from", *(_bound(cell, 0) for cell in row)])
            rows.append(["  95 % to", *(_bound(cell, 1) for cell in row)])
        if system is not first:
            rows.append([f"  vs {first.name}", *(_difference(cell) for cell in row)])
            rows.append(["  p", *(_p_value(cell) for cell in row)])
    lines = [f"BLEU by source length in {report.unit}s: {report.data}", *aligned(rows)]
    lines.append(f"signature: {first.signature}")
    if few:
        lines.append(f"* under {FEW_SENTENCES} sentences: hardly more than chance")
    lines += sorted({f"n/a: {cell.note}" for cell in cells if cell.note and cell.sentences})
    overall = [system.overall for system in report.systems]
    if any(cell.comparison for cell in overall) and any(cell.runs for cell in overall):
        lines.append("p: chance in the choice of sentences; that of the seeds is in the +- alone")
    return "\n".join(lines)


def metrics_table(report: Report, names: list[str]) -> str:
    """Lay out further metrics: a row a system and metric."""
    rows = [["", *(bucket.label for bucket in report.buckets), "all"]]
    for system in report.systems:
        for name in names:
            rows.append([f"{system.name} {name}", *_values(system, name)])
    return "\n".join(aligned(rows))


def _values(system: SystemReport, name: str) -> list[str]:
    cells = [*system.cells, system.overall]
    values = [cell.others.get(name) for cell in cells]
    return ["-" if value is None else f"{value:.1f}" for value in values]


def _score(cell: Cell) -> str:
    if cell.bleu is None:
        return "n/a" if cell.sentences else "-"
    return f"{cell.bleu:.1f}"


def _spread(cell: Cell) -> str:
    return "" if cell.spread is None else f"{cell.spread:.1f}"


def _bound(cell: Cell, side: int) -> str:
    return f"{cell.interval[side]:.1f}" if cell.interval else ""


def _difference(cell: Cell) -> str:
    return f"{cell.comparison.difference:+.1f}" if cell.comparison else ""


def _p_value(cell: Cell) -> str:
    if not cell.comparison:
        return ""
    return "<0.001" if cell.comparison.p < 0.001 else f"{cell.comparison.p:.3f}"


def terminal_width() -> int | None:
    """Give the columns of the terminal that stdout is, or None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(
    rows: list[list[str]], text_columns: tuple[int, ...] = (0,), most: int | None = None
) -> list[str]:
    """Pad the cells of a table: columns of text to the right, of numbers to the left.

    Args:
        rows: of equally many cells.
        text_columns: which of them hold text.
        most: characters of a line, past which the last column goes on below itself; None: any.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    indent = sum(widths[:-1]) + 2 * (len(widths) - 1)
    lines = []
    for row in rows:
        cells = (
            text.ljust(width) if column in text_columns else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        line = "  ".join(cells).rstrip()
        if most is None or most - indent < _NARROWEST:
            lines.append(line)
        else:
            rest = textwrap.wrap(line[indent:], most - indent) or [""]
            lines.append((line[:indent] + rest[0]).rstrip())
            lines += [" " * indent + more for more in rest[1:]]
    return lines


def info_text(split: str, info: Info) -> str:
    """Lay out what is known of a split: numbers, lengths as bars, lines that look wrong."""
    sides = (info.src, info.tgt)
    rows = [["", info.src_lang, info.tgt_lang]]
    rows += [
        [name, *(f"{value(side):,}" for side in sides)]
        for name, value in (
            ("words", lambda side: side.words),
            ("characters", lambda side: side.characters),
            ("different words", lambda side: len(side.vocabulary)),
            ("words of the longest line", lambda side: side.longest),
            ("empty lines", lambda side: side.empty),
            ("lines of composed letters (NFC)", lambda side: side.composed),
            ("lines of decomposed letters (NFD)", lambda side: side.decomposed),
        )
    ]
    scripts = [
        f"{language} {', '.join(f'{name} {share:.1%}' for name, share in _shares(side.scripts()))}"
        for language, side in zip((info.src_lang, info.tgt_lang), sides, strict=True)
    ]
    ratio = "-" if info.ratio is None else f"{info.ratio:.2f}"
    lines = [
        f"{split}: {info.pairs:,} pairs, {info.name}",
        *aligned(rows),
        f"target words a source word: {ratio}",
        f"scripts: {'; '.join(scripts)}",
        f"pairs that repeat: {info.duplicates:,}; sources with several targets: {info.ambiguous:,}",
    ]
    lines += [f"pairs also in {name}: {count:,}" for name, count in info.leaked.items() if count]
    lines += _length_bars(info)
    lines += [f"note: {note}" for note in info.notes]
    if info.suspicious:
        lines.append("lines that look wrong:")
    for reason, found in sorted(info.suspicious.items(), key=lambda item: -item[1].count):
        more = ", ..." if found.count > len(found.lines) else ""
        lines.append(f"  {reason}: {found.count:,} ({', '.join(map(str, found.lines))}{more})")
    return "\n".join(lines)


def _shares(counts: Counter[str], most: int = 3) -> list[tuple[str, float]]:
    total = sum(counts.values())
    return [(name, count / total) for name, count in counts.most_common(most)]


def _length_bars(info: Info, width: int = 24) -> list[str]:
    """Draw the lengths of both sides side by side."""
    from nmt_cli.corpus.info import BUCKET, LONGEST_BUCKET

    edges = sorted(info.src.lengths.keys() | info.tgt.lengths.keys())
    if not edges:
        return []
    highest = max((*info.src.lengths.values(), *info.tgt.lengths.values()))
    rows = [["words", f"{info.src_lang} lines", "", f"{info.tgt_lang} lines", ""]]
    for edge in range(edges[0], edges[-1] + 1, BUCKET):
        is_open = edge == LONGEST_BUCKET
        row = [f"{edge - BUCKET + 1}+" if is_open else f"{edge - BUCKET + 1}-{edge}"]
        for side in (info.src, info.tgt):
            count = side.lengths[edge]
            row += [f"{count:,}", "#" * max(round(width * count / highest), count > 0)]
        rows.append(row)
    return aligned(rows, text_columns=(0, 2, 4))
