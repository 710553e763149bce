"""Values of a run's request are what they can be, or the field is named."""

import copy
import math
from typing import Any, Literal

import pytest

from nmt_cli.checking import fits
from nmt_cli.config import Config, resolve
from nmt_cli.errors import NmtError

REQUEST = resolve({"data": "toy", "lr": 1e-3, "columns": ("a", "b"), "symbol": ["<num>"]}).as_json()


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True), (True, int, False), (1, float, True), (True, float, False),
        (math.inf, float, False), (math.nan, float, False), ("x", str, True), (5, str, False),
        (None, int | None, True), ("x", int | None, False), ("a", Literal["a", 1], True),
        (True, Literal["a", 1], False), ([], Literal["a"], False), (("a",), tuple[str, ...], True),
        (("a", 1), tuple[str, ...], False), (("a",), tuple[str, str], False),
        ((), tuple[str, ...], True), ({"a": []}, dict[str, Any], True),
        ({1: 2}, dict[str, Any], False), ([], dict[str, Any], False),
    ],
)  # fmt: skip
def test_a_value_fits_a_type(value, hint, expected):
    assert fits(value, hint) is expected


def test_what_was_written_is_read():
    assert Config.from_json(copy.deepcopy(REQUEST)).as_json() == REQUEST


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("arch", []), ("options", None), ("training", "x"), ("seed", "x"), ("seed", -1),
        ("threads", 0), ("batch_tokens", "x"), ("batch_tokens", 0), ("batch_sentences", "x"),
        ("subword_sampling", "x"), ("subword_sampling", -0.1), ("device", "x"), ("precision", []),
        ("data.spec", 5), ("data.valid", 5), ("data.src_lang", 5), ("data.columns", "x"),
        ("data.columns", [1, 2, 3]), ("data.encoding_errors", 5), ("data.max_words", "x"),
        ("data.max_ratio", "x"), ("data.cache", 5), ("training.lr", "x"), ("training.lr", -1),
        ("training.lr", math.nan), ("training.warmup", "x"), ("training.weight_decay", "x"),
        ("training.label_smoothing", []), ("training.accumulate", 0), ("training.unknown", 1),
        ("end.steps", "x"), ("end.steps", True), ("tokenizer.kind", "none"), ("tokenizer.size", -5),
        ("tokenizer.symbols", "abc"), ("tokenizer.symbols", [1]), ("compile", 1), ("init", 5),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_named(path, value):
    request = copy.deepcopy(REQUEST)
    *outer, last = path.split(".")
    place = request
    for name in outer:
        place = place[name]
    place[last] = value
    with pytest.raises(NmtError, match=r"config\.json: damaged: "):
        Config.from_json(request)


@pytest.mark.parametrize("name", [*REQUEST, "data.spec", "tokenizer.kind"])
def test_a_value_that_is_missing_is_an_error_or_has_a_default(name):
    request = copy.deepcopy(REQUEST)
    *outer, last = name.split(".")
    del (request[outer[0]] if outer else request)[last]
    try:
        Config.from_json(request)
    except NmtError:
        return
    assert name in {"init", "compile", "subword_sampling"}
