"""Pictures: BLEU by source length, and attention as a heat map."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import NmtError
from nmt_cli.files import require_folder, write_whole

if TYPE_CHECKING:
    from nmt_cli.corpus.info import Info
    from nmt_cli.evaluation import Report
    from nmt_cli.translation import Alignment

FORMATS = (".png", ".svg", ".pdf")
_COLOURS = ("#1f6f8b", "#d1495b", "#66a182", "#edae49", "#5f4b8b", "#8d6b4f", "#3a7d44", "#444444")


def check_format(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Refuse a file name whose suffix is no picture format.

    Raises:
        NmtError: it lists the formats.
    """
    if path.suffix.lower() not in formats:
        raise NmtError(f"{path}: the name must end in {', '.join(formats)}")
    require_folder(path)


@contextmanager
def _style() -> Iterator[None]:
    """Draw in one style, and leave the caller's settings of matplotlib as they are."""
    import matplotlib as mpl

    style: dict[Any, Any] = {
        "font.size": 10,
        "font.family": _families(),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "nmt",
        "svg.fonttype": "none",
    }
    with mpl.rc_context(style):
        yield


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _render(figure: Any, kind: str) -> tuple[bytes, list[str]]:
    """Give a figure as the bytes of a file, and the characters that no font could draw."""
    buffer = io.BytesIO()
    missing = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metadata = (
            {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
        )
        figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    for warning in caught:
        if "missing from" in str(warning.message):
            missing.add(str(warning.message).split("(")[0].replace("Glyph ", "").strip())
    return buffer.getvalue(), sorted(missing)


def _save(figure: Any, path: Path) -> list[str]:
    """Write a figure whole and give the characters that no font could draw."""
    picture, missing = _render(figure, path.suffix.lower().lstrip("."))
    write_whole(path, picture)
    return missing


def plot_length_curve(report: Report, path: Path) -> None:
    """Draw BLEU by source length: a line a system with its 95 % interval, the counts below."""
    check_format(path)
    with _style():
        _save(_length_figure(report), path)


def length_curve_png(report: Report) -> bytes:
    """Draw the same as the bytes of a PNG file."""
    with _style():
        return _render(_length_figure(report), "png")[0]


def _length_figure(report: Report) -> Any:
    figure = _figure(7.5, 5)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    places = list(range(len(report.buckets)))
    for number, system in enumerate(report.systems):
        colour = _COLOURS[number % len(_COLOURS)]
        shown = [
            (x, cell) for x, cell in zip(places, system.cells, strict=True) if cell.bleu is not None
        ]
        xs = [x for x, _ in shown]
        above.plot(
            xs, [c.bleu for _, c in shown], marker="o", color=colour, label=_plain(system.name)
        )
        xs = [x for x, cell in shown if cell.interval]
        lows = [c.interval.low for _, c in shown if c.interval]
        highs = [c.interval.high for _, c in shown if c.interval]
        above.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
        if len(xs) == 1:  # which has no area
            above.vlines(xs, lows, highs, color=colour, alpha=0.4)
    above.set_ylabel("BLEU (95 % interval)")
    above.set_ylim(bottom=0)
    above.grid(axis="y", alpha=0.3)
    above.legend(frameon=False)
    counts = [cell.sentences for cell in report.systems[0].cells]
    below.bar(places, counts, color="#bbbbbb", width=0.6)
    for x, count in zip(places, counts, strict=True):
        below.annotate(str(count), (x, count), ha="center", va="bottom", fontsize=8)
    below.set_ylabel("sentences")
    below.set_ylim(top=max(counts) * 1.4)
    below.set_xticks(places, [bucket.label for bucket in report.buckets])
    below.set_xlabel(f"source length in {report.unit}s")
    return figure


def _plain(name: str) -> str:
    """Keep matplotlib from reading dollars as formulas, and from hiding what begins with ``_``."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def plot_lengths(infos: Mapping[str, Info], path: Path) -> None:
    """Draw how long the lines of both sides are, a picture a split."""
    check_format(path)
    with _style():
        figure = _figure(7.5, 1 + 2.2 * len(infos))
        rows = figure.subplots(len(infos), 1, squeeze=False)[:, 0]
        for axes, (split, info) in zip(rows, infos.items(), strict=True):
            edges = sorted(info.src.lengths.keys() | info.tgt.lengths.keys())
            sides = ((info.src_lang, info.src), (info.tgt_lang, info.tgt))
            for place, ((language, side), colour) in enumerate(zip(sides, _COLOURS, strict=False)):
                xs = [n + 0.4 * place - 0.2 for n in range(len(edges))]
                heights = [side.lengths[edge] for edge in edges]
                axes.bar(xs, heights, width=0.4, color=colour, label=_plain(language))
            axes.set_xticks(range(len(edges)), [str(edge) for edge in edges])
            axes.set_title(_plain(f"{split}: {info.pairs:,} pairs"), fontsize=10)
            axes.set_ylabel("lines")
            axes.legend(frameon=False)
        rows[-1].set_xlabel("words, up to")
        _save(figure, path)


def plot_attention(alignment: Alignment, path: Path) -> list[str]:
    """Draw attention as a heat map, target pieces down, source pieces across.

    Returns:
        the characters that no installed font could draw.
    """
    check_format(path)
    with _style():
        return _save(_attention_figure(alignment), path)


def attention_png(alignment: Alignment) -> bytes:
    """Draw the same as the bytes of a PNG file."""
    with _style():
        return _render(_attention_figure(alignment), "png")[0]


def _attention_figure(alignment: Alignment) -> Any:
    T, S = alignment.weights.shape
    figure = _figure(min(3 + 0.32 * S, 60), min(2 + 0.32 * T, 60))
    axes = figure.subplots()
    image = axes.imshow(alignment.weights.numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(S), alignment.src_pieces, rotation=90, parse_math=False)
    axes.set_yticks(range(T), alignment.tgt_pieces, parse_math=False)
    axes.set_xlabel("source")
    axes.set_ylabel("translation")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03)
    return figure


def _families() -> list[str]:
    """Order the installed fonts so that scripts which the default lacks are drawn by another."""
    from matplotlib import font_manager

    wanted = (
        "DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei",
        "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Hebrew",
        "Arial Unicode MS", "Droid Sans Fallback", "Microsoft YaHei", "PingFang SC", "Unifont",
    )  # fmt: skip
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in wanted if name in installed] or ["sans-serif"]


def can_draw(letter: str) -> bool:
    """Tell whether one of the fonts that pictures use has a letter."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    wanted = set(_families())
    files = (font.fname for font in font_manager.fontManager.ttflist if font.name in wanted)
    return any(FT2Font(file).get_char_index(ord(letter)) for file in files)
