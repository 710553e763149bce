"""What pictures show of names that a drawing library would read as something else."""

import warnings

import pytest

from nmt_cli import plots
from nmt_cli.corpus.pairs import Pair, PairList
from nmt_cli.evaluation import SystemOutput, evaluate, make_sample
from nmt_cli.metrics import Bleu


@pytest.mark.parametrize("name", [r"$\x$", "$$", "$^$", "_hidden", r"\alpha", "a_b^c", "100 $"])
def test_a_name_is_drawn_as_it_is(name, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: drawn.append(figure))
    pairs = [Pair("a b c d e", "v w x y z")] * 12
    system = SystemOutput(name, [["v w x y z"] * 12], None)
    report = evaluate(make_sample(PairList("t", "en", "fr", pairs)), [system], Bleu("13a"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.plot_length_curve(report, tmp_path / "p.png")
        drawn[0].savefig(tmp_path / "p.png")
    (shown,) = drawn[0].axes[0].get_legend().get_texts()
    assert shown.get_text().strip().replace(r"\$", "$") == name


def test_the_interval_of_a_lone_bucket_is_drawn(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: drawn.append(figure))
    pairs = [Pair("a b c d e", f"v w x y z{n % 2}") for n in range(20)]
    system = SystemOutput("one", [["v w x y z0"] * 20], None)
    report = evaluate(make_sample(PairList("t", "en", "fr", pairs)), [system], Bleu("13a"))
    plots.plot_length_curve(report, tmp_path / "p.png")
    interval = report.systems[0].overall.interval
    assert interval.low < interval.high
    (line,) = drawn[0].axes[0].collections[-1].get_segments()
    assert [y for _, y in line] == [interval.low, interval.high]
