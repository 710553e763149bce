"""The example architecture of the docs is one that works."""

import ast
import json
import re
from pathlib import Path

import pytest

from nmt_cli.models import base
from tests.models import test_laws as laws

DOCS = Path(__file__).parent.parent / "docs" / "new-architecture.md"


@pytest.fixture
def mean(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    exec(compile(code, str(DOCS), "exec"), {"__name__": "nmt_cli.models.mean"})
    assert code.count("\n") < 45
    return base.architecture("mean")


def test_the_example_obeys_the_laws(mean):
    for variant in mean.variants:
        for cuts in ((1,) * 7, (3, 4)):
            laws.test_decoding_in_chunks_equals_decoding_at_once(mean, variant, cuts, None)
        laws.test_state_is_a_value_that_decode_leaves_alone(mean, variant)
        laws.test_logits_do_not_depend_on_later_tokens(mean, variant)
        laws.test_padding_does_not_change_logits(mean, variant)
        laws.test_selecting_rows_before_decoding_equals_after(mean, variant)
        laws.test_every_parameter_gets_a_finite_gradient(mean, variant)
        laws.test_autocast_keeps_recurrent_state_in_fp32_and_changes_little(mean, variant)


def test_the_example_learns(mean):
    laws.test_a_handful_of_pairs_is_fitted_exactly(mean, {})


@pytest.mark.slow
def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS.parent / "tour.ipynb").read_text("utf-8"))["cells"]
    names: dict = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "tour", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "tour", "eval"), names))
    picture, attention, scores, evaluation = (value for value in shown if value is not None)
    assert "data:image/png" in picture._repr_html_()
    assert attention.sum(axis=1) == pytest.approx(1, abs=0.1)
    assert scores[0].log_prob < 0
    assert "tour/" not in repr(evaluation)
    assert {"attn", "fixed"} <= {system["name"] for system in evaluation.as_json()["systems"]}
