"""A few kills; ``python -m tests.killing --kills 100`` is the long form."""

import pytest

from tests.conftest import write_pairs
from tests.killing import assert_alike, survive


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_as_one_that_lived(tmp_path):
    write_pairs(tmp_path)
    extra = ("--size", "tiny")
    assert survive(tmp_path, "lived", 40, 0, extra) == 0
    assert survive(tmp_path, "killed", 40, 3, extra) > 0
    assert_alike(tmp_path / "killed", tmp_path / "lived")
