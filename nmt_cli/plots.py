"""Pictures: BLEU by source length, and attention as a heat map."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import NmtError
from nmt_cli.files import require_folder, write_whole

if TYPE_CHECKING:
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


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.hashsalt": "nmt",
            "svg.fonttype": "none",
        }
    )
    return pyplot


def _save(figure: Any, path: Path) -> list[str]:
    """Write a figure whole and give the characters that no font could draw."""
    buffer = io.BytesIO()
    kind = path.suffix.lower().lstrip(".")
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
    _pyplot().close(figure)
    write_whole(path, buffer.getvalue())
    return sorted(missing)


def plot_length_curve(report: Report, path: Path) -> None:
    """Draw BLEU by source length: a line a system with its 95 % interval, the counts below."""
    check_format(path)
    pyplot = _pyplot()
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(7.5, 5), sharex=True, height_ratios=[4, 1], layout="constrained"
    )
    places = list(range(len(report.buckets)))
    for number, system in enumerate(report.systems):
        colour = _COLOURS[number % len(_COLOURS)]
        shown = [
            (x, cell) for x, cell in zip(places, system.cells, strict=True) if cell.bleu is not None
        ]
        xs = [x for x, _ in shown]
        above.plot(xs, [c.bleu for _, c in shown], marker="o", color=colour, label=system.name)
        xs = [x for x, cell in shown if cell.interval]
        lows = [c.interval.low for _, c in shown if c.interval]
        highs = [c.interval.high for _, c in shown if c.interval]
        above.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
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
    _save(figure, path)


def plot_attention(alignment: Alignment, path: Path) -> list[str]:
    """Draw attention as a heat map, target pieces down, source pieces across.

    Returns:
        the characters that no installed font could draw.
    """
    check_format(path)
    pyplot = _pyplot()
    pyplot.rcParams["font.family"] = _families()
    T, S = alignment.weights.shape
    figure, axes = pyplot.subplots(
        figsize=(min(3 + 0.32 * S, 60), min(2 + 0.32 * T, 60)), layout="constrained"
    )
    image = axes.imshow(alignment.weights.numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(S), alignment.src_pieces, rotation=90, parse_math=False)
    axes.set_yticks(range(T), alignment.tgt_pieces, parse_math=False)
    axes.set_xlabel("source")
    axes.set_ylabel("translation")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03)
    return _save(figure, path)


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
