"""Data sets by ``hf:``, from local folders that the tests make."""

import json

import datasets
import pytest

from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.corpus.readers import open_corpus
from nmt_cli.corpus.splits import load_one, load_splits
from nmt_cli.errors import NmtError

EN_FR = Request("en", "fr")
ROWS = [{"translation": {"en": f"word {n}", "fr": f"mot {n}"}} for n in range(8)]
WANTED = [Pair(f"word {n}", f"mot {n}") for n in range(8)]


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["files", "saved"])
def folder(request, tmp_path):
    if request.param == "saved":
        parts = {"train": ROWS, "test": ROWS[:3]}
        made = {name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}
        datasets.DatasetDict(made).save_to_disk(str(tmp_path / "ds"))
    else:
        (tmp_path / "ds").mkdir()
        for name, rows in (("train", ROWS), ("test", ROWS[:3])):
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            (tmp_path / "ds" / f"{name}.jsonl").write_text(text)
    return tmp_path


def test_splits_are_found(folder):
    splits = load_splits("hf:./ds", None, None, EN_FR)
    assert splits.train.pairs == WANTED
    assert splits.test.pairs == WANTED[:3]
    assert load_one("hf:./ds@test", EN_FR).pairs == WANTED[:3]
    assert load_one("hf:./ds@test", Request("fr", "en")).pairs[0] == Pair("mot 0", "word 0")


def test_a_split_that_is_not_there_lists_those_that_are(folder):
    with pytest.raises(NmtError, match="no split 'validation'; available: test, train"):
        open_corpus("hf:./ds@validation", EN_FR)


def test_one_saved_set_is_the_training_split(tmp_path):
    datasets.Dataset.from_list([{"src": "a", "tgt": "b"}]).save_to_disk(str(tmp_path / "one"))
    assert load_one("hf:./one@train", EN_FR).pairs == [Pair("a", "b")]


@pytest.mark.parametrize("spec", ["hf:nobody/nothing", "hf:nothing-here", "hf:"])
def test_what_is_not_there_is_said_in_one_line(spec):
    with pytest.raises(NmtError) as error:
        open_corpus(spec, EN_FR)
    assert spec in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", ["hf:./nope", "hf:/no/such/folder", "hf:../nope:config@train"])
def test_a_local_folder_that_is_not_there_is_said_to_be_that(spec):
    with pytest.raises(NmtError, match="no such folder"):
        open_corpus(spec, Request("en", "fr"))
