"""One run, one line, one translation: whatever is beside it, however many threads, wherever."""

import shutil

import pytest
import torch

import nmt_cli
from nmt_cli.models import architectures
from tests.conftest import PAIRS, write_pairs

TIE = 1e-5
LINES = [src for src, _ in PAIRS] + ["", "The", "The baker painted a map of the shed . " * 6]


def assert_same(found, expected):
    """Compare translations with scores; equally likely ones may stand for each other."""
    assert [t.score for t in found] == pytest.approx([t.score for t in expected], abs=TIE)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text or abs(one.score - other.score) < TIE
    different = sum(a.text != b.text for a, b in zip(found, expected, strict=True))
    assert different <= 1, "too many ties to be true"


@pytest.mark.slow
@pytest.mark.parametrize("arch", [arch.name for arch in architectures()])
def test_a_translation_depends_on_its_line_alone(arch, tmp_path):
    data = str(write_pairs(tmp_path))
    nmt_cli.train(
        tmp_path / "run", arch=arch, data=data, src_lang="en", tgt_lang="fr", size="tiny",
        steps=40, lr=5e-3, warmup=10, dropout=0.0,
    )  # fmt: skip
    model = nmt_cli.load(tmp_path / "run")
    for beam in (1, 5):
        expected = model.translate(LINES, beam=beam)
        assert len({t.text for t in expected}) > 3
        assert_same([model.translate([line], beam=beam)[0] for line in LINES], expected)
        assert_same(model.translate(LINES, beam=beam, batch_tokens=8), expected)
        assert_same(model.translate(LINES[::-1], beam=beam)[::-1], expected)
        torch.set_num_threads(2)
        assert_same(model.translate(LINES, beam=beam), expected)
        torch.set_num_threads(1)
    elsewhere = shutil.move(tmp_path / "run", tmp_path / "another place")
    assert_same(nmt_cli.load(elsewhere).translate(LINES), expected)
    (tmp_path / "pairs.en").unlink()
    assert_same(nmt_cli.load(elsewhere, workers=2).translate(LINES), expected)
