import sys

import pytest

from nmt_cli import neural
from nmt_cli.corpus.pairs import Pair, PairList
from nmt_cli.errors import NmtError
from nmt_cli.evaluation import SystemOutput, check_metrics, evaluate, make_sample
from nmt_cli.metrics import Bleu

PACKAGE = """
from pathlib import Path


def download_model(name):
    if name != "Unbabel/wmt22-comet-da":
        raise KeyError(f"Model '{name}' not supported by COMET.")
    return "downloaded"


class Scorer:
    def predict(self, samples, batch_size, gpus, progress_bar):
        words = [set(s["mt"].split()) & set(s["ref"].split() + s["src"].split()) for s in samples]
        scores = [len(same) / len(s["mt"].split()) for same, s in zip(words, samples)]
        return {"scores": scores, "system_score": sum(scores) / len(scores)}


def load_from_checkpoint(path):
    if path != "downloaded" and Path(path).read_text() != "weights":
        raise RuntimeError("no checkpoint\\nof COMET")
    return Scorer()
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the interface of unbabel-comet, which is too large to install for tests."""
    (tmp_path / "comet").mkdir()
    (tmp_path / "comet" / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "comet", raising=False)
    neural._scorer.cache_clear()
    yield
    sys.modules.pop("comet", None)


def judged(metric):
    pairs = [Pair("a b", "x y z w"), Pair("c " * 15, "v v v v")]
    test = make_sample(PairList("t", "en", "fr", pairs))
    system = SystemOutput("s", [["x Y q q", "v"], ["x y z w", "c"]], None)
    report = evaluate(test, [system], Bleu("13a", lowercase=True), ["bleu", metric])
    (found,) = report.systems
    return [cell.others[metric] for cell in [*found.cells, found.overall]]


def test_scores_are_means_over_sentences_and_runs_of_the_text_as_it_is(package):
    first, second, *empty, overall = judged("comet")
    assert first == pytest.approx(100 * (1 / 4 + 1) / 2)
    assert second == pytest.approx(100)
    assert empty == [None] * 4
    assert overall == pytest.approx(100 * (1 / 4 + 1 + 1 + 1) / 4)


def test_a_checkpoint_may_be_a_file(package, tmp_path):
    (tmp_path / "model.ckpt").write_text("weights")
    assert judged(f"comet={tmp_path / 'model.ckpt'}") == judged("comet")


@pytest.mark.parametrize("model", ["none/such", "broken.ckpt"])
def test_a_model_that_cannot_be_had_is_said_in_a_line(package, tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.ckpt").write_text("other")
    with pytest.raises(NmtError, match=r"--metrics comet=.*: the model cannot be loaded; [^\n]*$"):
        judged(f"comet={model}")


def test_no_package_and_no_model_are_said_before_the_work(monkeypatch, tmp_path):
    with pytest.raises(NmtError, match="name a model of the hub"):
        check_metrics(["comet="])
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(NmtError, match="pip install unbabel-comet"):
        check_metrics(["bleu", "comet"])
    with pytest.raises(NmtError, match=r"unknown; there are: .*chrf.*comet"):
        check_metrics(["cometkiwi"])
