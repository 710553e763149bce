"""Text that other programs read."""

import json
import math

import pytest

from nmt_cli.files import json_text


def strictly(text: str):
    def refuse(constant: str):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_becomes_null(value):
    form = {"score": value, "rows": [[1.5, value], (value, "nan")], "none": None}
    assert strictly(json_text(form)) == {
        "score": None, "rows": [[1.5, None], [None, "nan"]], "none": None,
    }  # fmt: skip


def test_what_is_finite_stays_to_the_last_bit():
    form = {"loss": 0.1 + 0.2, "step": 10**18, "text": "Löwe\u2028", "flag": True}
    assert strictly(json_text(form, indent=2)) == form
    assert strictly(json_text(form, ascii_only=True)) == form
    assert json_text(form, ascii_only=True).isascii()
