"""Options of ``nmt train`` from a file."""

import json
from pathlib import Path

import pytest

from tests.conftest import nmt, text, write_pairs

SETTINGS = """
data = "pairs"
src-lang = "en"
tgt_lang = "fr"
size = "tiny"
steps = 3
threads = 1
lowercase = true
symbol = ["<num>", "😀"]
subword_sampling = 0.1

[options]
d_model = 32
input-feeding = true
attention = "luong-dot"
"""


@pytest.fixture
def folder(tmp_path):
    write_pairs(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    return tmp_path


def printed(folder, *args) -> str:
    return text(nmt("train", *args, "--print-config", cwd=folder))


@pytest.mark.slow
def test_the_command_line_wins_over_the_file_key_by_key(folder):
    given = ("--config", "run.toml", "--steps", 7, "-O", "d_model=48")
    (folder / "all.toml").write_text(printed(folder, *given))
    lines = (folder / "all.toml").read_text().splitlines()
    listed = 'symbol = ["<num>", "😀"]'
    for line in ("steps = 7", "d_model = 48", "lowercase = true", "input_feeding = true", listed):
        assert line in lines
    assert printed(folder, "--config", "all.toml").splitlines() == lines


def test_it_wins_also_where_options_stand_for_one_another(folder):
    more = "dropout = 0.3\nbatch_tokens = 500\n"
    (folder / "more.toml").write_text(more + SETTINGS)
    (folder / "all.toml").write_text(printed(folder, "--config", "more.toml"))
    assert "dropout = 0.3" in (folder / "all.toml").read_text().splitlines()
    for file in ("more.toml", "all.toml"):
        given = ("--config", file, "-O", "dropout=0.1", "--batch-sentences", 3, "--size", "base")
        lines = printed(folder, *given).splitlines()
        assert "dropout = 0.1" in lines and "d_model = 1024" in lines
        assert "batch_sentences = 3" in lines and "batch_tokens = 500" not in lines
        assert 'attention = "luong-dot"' in lines  # which no size sets
    told = nmt("train", "--config", "run.toml", "--size", "base", "--print-config", cwd=folder)
    assert "--size base stands in place of run.toml's d_model" in told.stderr.decode()


def test_an_end_on_the_command_line_stands_for_that_of_the_file(folder):
    lines = printed(folder, "--config", "run.toml", "--epochs", 2).splitlines()
    assert "epochs = 2.0" in lines and not any(line.startswith("steps") for line in lines)


def test_where_a_run_is_written_and_followed_is_printed_too(folder):
    args = ("--config", "run.toml", "-o", "R", "--tensorboard", "--tracker", "wandb")
    (folder / "all.toml").write_text(printed(folder, *args))
    lines = printed(folder, "--config", "all.toml").splitlines()
    assert {'out = "R"', "tensorboard = true", 'tracker = "wandb"'} <= set(lines)


@pytest.mark.slow
def test_a_run_from_the_weights_of_another_is_made_again_from_its_config(folder):
    args = ("-a", "transformer", "--steps", 1, "-d", "pairs", "-s", "en", "-t", "fr")
    text(nmt("train", *args, "--size", "tiny", "-o", "one", cwd=folder))
    text(nmt("train", "--init", "one", *args, "-o", "two", cwd=folder))
    text(nmt("train", "--config", "two/config.json", "-o", "three", cwd=folder))
    two, three = (folder / name / "model.safetensors" for name in ("two", "three"))
    assert two.read_bytes() == three.read_bytes()


def test_what_the_command_line_takes_a_run_may_hold(folder):
    endless = ("--minutes", 1e12, "--max-ratio", 1e12, "--clip-norm", 1e12, "--steps", 1)
    text(nmt("train", "--config", "run.toml", *endless, "-o", "R", cwd=folder))
    again = ("--resume", "R", "-o", "R", "--config", "R/config.json")  # nothing of it is another
    text(nmt("train", *again, "--steps", 2, cwd=folder))


@pytest.mark.slow
def test_a_run_is_made_again_from_its_own_config(folder):
    text(nmt("train", "--config", "run.toml", "-o", "one", cwd=folder))
    text(nmt("train", "--config", "one/config.json", "-o", "two", cwd=folder))
    one, two = (json.loads((folder / name / "config.json").read_text()) for name in ("one", "two"))
    assert one["request"] == two["request"]
    weights = [(folder / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        ('symbol = "<num>"', ["run.toml", "symbol", "a list of texts"]),
        ("step = 3", ["run.toml", "step", "did you mean 'steps'?"]),
        ("steps = 3\nsteps = x", ["run.toml", "line 2"]),
        ("steps = 0", ["run.toml", "steps", "1"]),
        ("steps = true", ["run.toml", "steps = true"]),
        ('steps = "many"', ["run.toml", 'steps = "many"', "integer"]),
        ("a = " + "[" * 50_000, ["run.toml", "not TOML"]),
        ("seed = " + "9" * 6000, ["run.toml"]),
        ("lowercase = 1", ["run.toml", "lowercase = 1", "true or false"]),
        ('precision = "fp7"', ["run.toml", "precision", "bf16"]),
        ("options = 3", ["run.toml", "[options]"]),
        ("[options]\nd_modl = 3", ["run.toml", "d_modl", "d_model"]),
        ("[options]\ndropout = nan", ["run.toml", "dropout"]),
        ('arch = "rnm"', ["run.toml", "rnm"]),
        ('src-lang = "en"\nsrc_lang = "de"', ["run.toml", "src_lang", "twice"]),
        ('resume = "x"', ["run.toml", "resume"]),
        (b"\xff", ["run.toml", "UTF-8"]),
    ],
)
def test_what_a_file_may_not_say_is_named(fails, content, mentions):
    raw = content if isinstance(content, bytes) else content.encode()
    Path("run.toml").write_bytes(raw)
    fails("train", "--config", "run.toml", mentions=mentions)


def test_a_file_that_is_no_config_is_refused(fails):
    fails("train", "--config", "none.toml", mentions=["none.toml", "No such file"])
    for content in ("[]", "{}", "{", "[" * 99_999, '{"request": {}}', '{"request": {"data": 5}}'):
        Path("config.json").write_text(content)
        fails("train", "--config", "config.json", mentions=["config.json"])


def test_a_file_cannot_change_a_run_that_is_resumed(trained, fails):
    Path("run.toml").write_text("lr = 0.5")
    fails("train", "--resume", trained, "--config", "run.toml", mentions=["--lr", "--resume"])
