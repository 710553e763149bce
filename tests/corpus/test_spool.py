import numpy as np
import pytest

from nmt_cli.corpus import spool
from nmt_cli.corpus.pairs import Pair
from nmt_cli.corpus.spool import Spool, SpooledPairs, select
from nmt_cli.errors import NmtError, WorkFailed

PAIRS = [Pair(f"source {n}", "\ud800 half é\u2028漢" if n % 7 == 0 else f"t{n}") for n in range(50)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(spool, "CHUNK", 8)


def spooled(tmp_path, pairs=PAIRS):
    kept = Spool(tmp_path / "made" / "here", most_held=0).collect(iter(pairs))
    assert isinstance(kept, SpooledPairs)
    return kept


def test_few_pairs_stay_in_memory(tmp_path):
    assert Spool(tmp_path / "none", most_held=50).collect(iter(PAIRS)) == PAIRS
    assert not (tmp_path / "none").exists()


def test_pairs_in_a_file_are_those_that_were_read(tmp_path):
    kept = spooled(tmp_path)
    assert list(kept) == PAIRS
    assert [kept[i] for i in range(50)] == PAIRS
    assert kept[-1] == PAIRS[-1]
    assert kept[3:40:5] == PAIRS[3:40:5]
    with pytest.raises(IndexError):
        kept[50]


def test_the_file_has_no_name_that_a_killed_process_would_leave(tmp_path):
    kept = spooled(tmp_path)
    assert list((tmp_path / "made" / "here").iterdir()) == []
    assert list(kept) == PAIRS


def test_no_pairs_need_no_file(tmp_path):
    assert Spool(tmp_path / "none", most_held=0).collect(iter([])) == []


@pytest.mark.parametrize("places", [[0], [49], [7, 8, 9, 31, 32], [], list(range(0, 50, 3))])
def test_a_selection_is_that_of_a_list_and_so_is_one_of_it(tmp_path, places):
    at = np.array(places, np.int64)
    view, held = select(spooled(tmp_path), at), select(PAIRS, at)
    assert list(view) == held == [PAIRS[i] for i in places]
    assert [view[i] for i in range(len(places))] == held
    again = np.arange(0, len(places), 2)
    assert list(select(view, again)) == select(held, again)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NmtError, match=r"--cache .*file/sub: cannot be made"):
        Spool(tmp_path / "file" / "sub", most_held=0).collect(iter(PAIRS))


def test_a_disk_that_is_full_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool, "_batch", full)
    with pytest.raises(WorkFailed, match="the corpus cannot be written: No space left"):
        spooled(tmp_path)
    assert list((tmp_path / "made" / "here").iterdir()) == []
