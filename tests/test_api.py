"""Training, translating and evaluating from Python."""

import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import nmt_cli
from nmt_cli.commands.train import train as command
from nmt_cli.config import Asked, resolve, resolve_training
from nmt_cli.errors import NmtWarning
from tests.conftest import PAIRS, nmt, text, write_pairs


@pytest.fixture(scope="module")
def model(trained):
    return nmt_cli.load(trained)


def test_importing_is_light():
    code = "import sys, nmt_cli; print('torch' in sys.modules, nmt_cli.load.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code]).split() == [b"False", b"load"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nmt_cli.nothing  # noqa: B018


@pytest.mark.slow
def test_translations_are_those_of_the_command(model, trained, tmp_path):
    sources = [src for src, _ in PAIRS[:5]]
    found = model.translate(sources)
    assert [t.text for t in found] == [tgt for _, tgt in PAIRS[:5]]
    stdin = "".join(f"{line}\n" for line in sources)
    lines = text(nmt("translate", "-m", trained, "--scores", "--align", cwd=tmp_path, stdin=stdin))
    for translated, line in zip(found, lines.splitlines(), strict=True):
        score, written, pairs = line.split("\t")
        assert (translated.text, f"{translated.score:.4f}") == (written, score)
        assert " ".join(f"{a}-{b}" for a, b in translated.alignment) == pairs


def test_a_translation_knows_its_tokens_and_attention(model):
    (found,) = model.translate([PAIRS[0][0]], beam=2)
    assert "".join(found.tokens).replace("▁", " ").strip() == found.text
    assert found.attention.shape == (len(found.tokens) + 1, len(found.source_tokens) + 1)
    assert np.allclose(found.attention.sum(axis=1), 1, atol=1e-4)
    assert "data:image/png;base64," in found._repr_html_()
    assert found.text in repr(found)
    (blank,) = model.translate([" "])
    assert (blank.text, blank.attention, blank.tokens, blank.alignment) == ("", None, [], [])


def test_n_best_and_scores_agree(model):
    ((best, *others),) = model.n_best([PAIRS[1][0]], 3, length_penalty=0)
    assert best.text == PAIRS[1][1]
    assert len(others) == 2
    assert best.score >= others[0].score >= others[1].score
    (scored,) = model.score([(PAIRS[1][0], best.text)])
    assert scored.log_prob == pytest.approx(best.score, abs=1e-3)
    with pytest.raises(TypeError, match="list"):
        model.translate("one string")


@pytest.mark.slow
def test_training_and_evaluating_match_the_commands(tmp_path, monkeypatch):
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    events = []
    asked = {"data": "pairs", "src_lang": "en", "tgt_lang": "fr", "size": "tiny", "steps": 3}
    model = nmt_cli.train("a", arch="gru", threads=1, on_event=events.append, **asked)
    assert {type(event).__name__ for event in events} >= {"Step", "Validated", "Evaluated"}
    options = ("-d", "pairs", "-s", "en", "-t", "fr", "--size", "tiny", "--steps", 3)
    text(nmt("train", "-a", "gru", *options, "--threads", 1, "-o", "b", cwd=tmp_path))
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in "ab"]
    assert weights[0] == weights[1]
    evaluation = nmt_cli.evaluate(model)
    form = json.loads(text(nmt("eval", "a", "--json", "-", cwd=tmp_path)))
    ours = evaluation.as_json()
    for system in (*form["systems"], *ours["systems"]):
        del system["seconds"]
    assert ours == form
    assert "BLEU by source length" in repr(evaluation)
    with pytest.raises(nmt_cli.NmtError, match="holds a run already"):
        nmt_cli.train("a", arch="gru", **asked)


def test_defaults_are_those_of_the_command_line():
    """What the command line says when nothing is given is what the program says."""
    said = {}
    for name, parameter in inspect.signature(command).parameters.items():
        value = getattr(parameter.default, "value", parameter.default)
        if name in Asked.__annotations__ and value is not None:
            said[name] = value
    given, left = resolve(said), resolve({})
    assert resolve_training(given, 100) == resolve_training(left, 100)
    assert replace(given, training={}) == replace(left, training={})


def test_an_option_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"no option step; did you mean 'steps'\?"):
        nmt_cli.train(tmp_path / "R", arch="lstm", step=3)  # type: ignore[call-arg]
    assert not (tmp_path / "R").exists()


def test_values_are_checked_as_on_the_command_line(trained, tmp_path):
    new = tmp_path / "R"
    with pytest.raises(nmt_cli.NmtError, match="schedule='linear'"):
        nmt_cli.train(new, arch="lstm", schedule="linear")
    for option in ({"arch": "gru"}, {"tokenizer": "char"}, {"lowercase": True}):
        with pytest.raises(nmt_cli.NmtError, match="cannot be changed with --init"):
            nmt_cli.train(new, init=str(trained), data="copy", **option)
    assert not new.exists()


def test_line_separators_of_unicode_are_ordinary_characters(model):
    texts = ["The ferry\u2028is late.", "We\x85painted\x0cthe shed.", "Two\r\nlines"]
    sources = [found.source for found in model.translate(texts, beam=1)]
    assert sources == [*texts[:2], "Two lines"]


def test_another_precision_than_asked_for_is_said(trained):
    with pytest.warns(NmtWarning, match="fp16"):
        nmt_cli.load(trained, device="cpu", precision="fp16")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"minutes": -1.0}, "minutes=-1"),
        ({"steps": "3"}, "steps='3'"),
        ({"symbol": "<num>"}, "symbol="),
        ({"options": "dropout=0.1"}, "options="),
        ({"arch": ["lstm"]}, "arch="),
        ({"src_lang": ""}, "src_lang"),
        ({"cache": ""}, "cache"),
        ({"tokenizer": "foo"}, "tokenizer='foo'"),
        ({"vocab_size": -1}, "vocab_size=-1"),
        ({"batch_tokens": 100, "batch_sentences": 4}, "batch_sentences"),
        ({"dropout": 0.1, "options": {"dropout": 0.2}}, "dropout"),
        ({"overwrite": "no"}, "overwrite"),
        ({"out": ""}, "empty"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_its_name(tmp_path, monkeypatch, asked, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nmt_cli.NmtError, match=said):
        nmt_cli.train(asked.pop("out", "R"), **asked)
    assert not list(tmp_path.iterdir())


def test_loading_and_translating_refuse_what_cannot_be(model, trained):
    for asked in ({"device": "gpu"}, {"precision": "fp8"}, {"workers": 0}, {"workers": 1000}):
        with pytest.raises(nmt_cli.NmtError, match=next(iter(asked))):
            nmt_cli.load(trained, **asked)
    for run in ("", []):
        with pytest.raises(nmt_cli.NmtError):
            nmt_cli.load(run)
    for asked in ({"beam": 0}, {"beam": 10**9}, {"batch_tokens": 0}, {"batch_tokens": "x"}):
        with pytest.raises(nmt_cli.NmtError, match=next(iter(asked))):
            model.translate(["a"], **asked)
    with pytest.raises(nmt_cli.NmtError, match="n=0"):
        model.n_best(["a"], 0)
    with pytest.raises(TypeError, match="list of"):
        model.score(["ab"])
