"""Bad input: one line that says what, where and what to do, and exit code 2."""

import dataclasses
import json
import math
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt_cli import cli
from nmt_cli.corpus.lines import read_lines
from nmt_cli.errors import NmtError
from nmt_cli.models import Vocabulary, architecture, resolve_options
from nmt_cli.runs import RunFolder
from nmt_cli.training import weights_of
from tests.conftest import write_pairs


@pytest.mark.parametrize(
    ("args", "mentions"),
    [
        (("trian",), ["trian", "--help"]),
        (("train", "--arhc", "lstm"), ["--arhc"]),
        (("train", "--steps", "many"), ["--steps", "integer"]),
        (("train", "-a", "lstn"), ["lstn", "lstm-attn", "transformer"]),
        (("train", "-O", "layer=2"), ["layer", "did you mean 'layers'", "d_model"]),
        (("train", "-O", "layers=two"), ["layers=two", "whole number"]),
        (("train", "-O", "layers"), ["key=value"]),
        (("train", "-O", "attention=luong"), ["attention=luong", "luong-dot", "bahdanau"]),
        (
            ("train", "-O", "attention=bahdanau", "-O", "input-feeding=yes"),
            ["input_feeding", "attention=luong-general"],
        ),
        (("train", "-a", "transformer", "-O", "heads=3"), ["heads=3", "d_model=128"]),
        (("train", "-a", "mamba", "-O", "d_model=0"), ["d_model=0", "2 to"]),
        (("train", "-a", "lstm", "-O", f"d_embed={10**22}"), ["d_embed", "1 to"]),
        (("train", "-a", "convs2s", "-O", "d_model=-1"), ["d_model=-1", "1 to"]),
        (("train", "-a", "mingru", "-O", "d_state=0"), ["d_state=0", "1 to"]),
        (("train", "-a", "transformer", "-O", f"window={10**22}"), ["window", "0 to"]),
        (("train", "-a", "transformer", "-O", f"d_ffn={10**22}"), ["d_ffn", "0 to"]),
        (("train", "-a", "hybrid", "-O", "pattern="), ["pattern=", "mamba"]),
        (("train", "-a", "gru-attn", "-O", "heads=2"), ["heads=2", "attention=multi-head"]),
        (("train", "-a", "rnn-attn", "-O", "reach=2"), ["reach=2", "local-m"]),
        (("train", "-a", "gru", "-O", "residual=yes"), ["residual", "layers=2"]),
        (("train", "-a", "transformer", "-O", "max_positions=9"), ["positions=learned"]),
        (("train", "--epochs", "0"), ["--epochs", "more than 0"]),
        (("data", "info", "a.tsv", "--columns", "1,01"), ["--columns 1,01", "the same column"]),
        (("data", "info", "a.tsv", "--columns", "9" * 5000 + ",1"), ["--columns", "no table"]),
        (
            (
                *("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv"),
                *("-t", "de", "--buckets", "9" * 5000),
            ),
            ["--buckets", "whole numbers"],
        ),
        (
            ("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv"),
            ["its language is not known", "-t de"],
        ),
        (("data", "info", "a.tsv", "--json", "j" * 250), ["--json", "too long"]),
        (("data", "info", "a\x1b[31m"), ["a\ufffd[31m"]),
        (("train", "--minutes", "nan"), ["--minutes", "finite"]),
        (("train", "-d", "nowhere", "-s", "en", "-t", "fr"), ["nowhere"]),
        (("train", "--resume", "nowhere"), ["nowhere", "no run here"]),
        (("train", "--schedule", "cosine", "--minutes", "1"), ["--schedule cosine", "--steps"]),
        (("train", "--device", "cuda"), ["cuda", "not available"]),
        (("translate",), ["no finished run"]),
        (("translate", "-m", "nowhere"), ["nowhere", "no run here"]),
        (("translate", "missing.txt"), ["missing.txt"]),
        (("translate", "x" * 300), ["xxx", "name too long"]),
        (("translate", "The dog. " * 60), ["| nmt translate"]),
        (("translate", "The dog."), ["The dog.", "| nmt translate"]),
        (("translate", "--top-k", "3"), ["--sample"]),
        (("translate", "--seed", "3"), ["--seed", "--sample"]),
        (("translate", "-m", ""), ["-m", "is empty"]),
        (("eval", "x", "--json", ""), ["--json", "is empty"]),
        (("score", "x", "--each", ""), ["--each", "is empty"]),
        (("data", "info", "toy", "--json", ""), ["--json", "is empty"]),
        (("train", "-o", ""), ["-o", "is empty"]),
        (("train", "-o", "a.tsv/x"), ["a.tsv is a file"]),
        (("train", "--dropout", "0.5", "-O", "dropout=0.1"), ["--dropout", "-O dropout"]),
        (("train", "-d", "toy:train=10,train=20"), ["train is given twice"]),
        (("data", "info", "copy:max=10,max=20"), ["max is given twice"]),
        (("data", "info", "empty.tmx", "-s", "en", "-t", "fr"), ["empty.tmx", "<html>"]),
        (
            ("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv", "--beam", "3"),
            ["--beam", "nothing is translated"],
        ),
        (
            ("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv", "--save", "."),
            ["--save .", "other files"],
        ),
        (
            ("eval", "--hyp", "a.tsv", "-d", "a.tsv", "-s", "en", "-t", "fr", "--buckets", ""),
            ["--buckets", "whole numbers"],
        ),
        (
            ("eval", "--hyp", "empty.tsv", "-d", "empty.tsv", "-s", "en", "-t", "fr"),
            ["empty.tsv", "holds no pairs"],
        ),
        (("translate", "--sample", "--beam", "3"), ["--sample", "--beam"]),
        (("data", "make", "copy:train=5", "--train", "7"), ["train is given twice"]),
        (("data", "make", "toy", "--train", "99999999999"), ["--train"]),
        (("translate", "--attention", "map.gif"), ["map.gif", ".png"]),
        (("eval",), ["nothing to evaluate"]),
        (("eval", "x", "--plot", "a.jpg"), ["a.jpg", ".svg"]),
        (("eval", "--hyp", "a.tsv"), ["--src and --ref"]),
        (("runs",), ["checkpoints", "no runs"]),
        (("archs", "rnm"), ["rnm"]),
        (("data", "make", "nothing"), ["nothing", "toy"]),
        (("train", "--epochs", "inf"), ["--epochs", "finite"]),
        (("train", "--lr", "nan"), ["--lr"]),
        (("train", "--dropout", "nan"), ["--dropout"]),
        (("train", "--seed", str(2**63)), ["--seed", str(2**63 - 1)]),
        (("train", "--steps", "9" * 25), ["--steps", "1000000000"]),
        (("train", "--threads", "100000"), ["--threads", "1024"]),
        (("train", "--batch-tokens", "9", "--batch-sentences", "9"), ["--batch-sentences", "both"]),
        (("train", "-d", ""), ["empty name"]),
        (("train", "-o", "a.tsv"), ["a.tsv", "is a file", "-o"]),
        (("train", "-d", "pairs", "-s", "en", "-t", "en"), ["both 'en'"]),
        (("train", "-d", "a.tsv", "-s", "en", "-t", "fr", "--columns", "1,1"), ["--columns 1,1"]),
        (("train", "-O", "layers=100000"), ["layers=100000"]),
        (("translate", "--sample", "--temperature", "nan"), ["--temperature"]),
        (("translate", "--sample", "--temperature", "0"), ["--temperature"]),
        (("translate", "--sample", "--top-p", "1e-300"), ["--top-p"]),
        (("translate", "--max-length", "9" * 9), ["--max-length"]),
        (("translate", "--length-penalty", "inf"), ["--length-penalty"]),
        (("translate", "a.tsv", "-o", "a.tsv"), ["-o a.tsv", "overwrite"]),
        (("translate", ".", "-o", "x"), [".: is a folder"]),
        (("eval", "x", "--json", "a", "--csv", "./a"), ["--csv a", "overwrite --json a"]),
        (("eval", "x", "--buckets", "3", "--quantiles", "3"), ["--quantiles", "both"]),
        (("eval", "--hyp", "a.tsv", "--worst", "3"), ["--worst", "two systems"]),
        (("eval", "--hyp", "x", "--src", "pairs.en", "--ref", "pairs.fr"), ["x: no such file"]),
        (
            ("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv", "--split", "test"),
            ["--split", "--data"],
        ),
        (
            ("eval", "--hyp", "a.tsv", "--src", "a.tsv", "--ref", "a.tsv", "--columns", "1,2"),
            ["--columns", "--data"],
        ),
        (("eval", "--hyp", "a.tsv", "--save", "a.tsv"), ["--save a.tsv", "is a file"]),
        (
            ("eval", "--hyp", "a.tsv", "-d", "pairs", "-s", "en", "-t", "fr", "--split", "dev"),
            ["no splits", "--split"],
        ),
        (
            ("eval", "--hyp", "pairs.fr", "-d", "a.tsv", "-s", "en", "-t", "fr"),
            ["pairs.fr", "12", "1"],
        ),
        (
            (
                "eval",
                "--hyp",
                "a.tsv",
                "-d",
                "a.tsv",
                "-s",
                "en",
                "-t",
                "fr",
                "--bleu-tokenize",
                "x",
            ),
            ["--bleu-tokenize x", "13a"],
        ),
    ],
)
def test_bad_usage(tmp_path, fails, args, mentions):
    if "cuda" in args and torch.cuda.is_available():
        args, mentions = ("train", "--device", "mps"), ["mps", "not available"]
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "empty.tmx").write_text("<html><body>not found</body></html>")
    fails(*args, mentions=mentions)
    assert not (tmp_path / "checkpoints").exists()
    assert (tmp_path / "a.tsv").read_text() == "one\tun\n"


def change(path: Path, **values: object) -> None:
    config = json.loads(path.read_text())
    config.update(values)
    path.write_text(json.dumps(config))


def shrink(path: Path) -> None:
    """Drop a row of the largest tensor."""
    tensors = load_file(path)
    name = max(tensors, key=lambda n: tensors[n].numel())
    save_file({**tensors, name: tensors[name][:-1].clone()}, path)


def of_another_run(path: Path) -> None:
    """Mark weights of the right shapes as those of a run that is none of ours."""
    save_file(load_file(path), path, {"run": "another"})


def overflow(path: Path) -> None:
    """Put in a number that fp32 cannot hold."""
    tensors = {name: tensor.double() for name, tensor in load_file(path).items()}
    next(iter(tensors.values())).view(-1)[0] = 1e300
    save_file(tensors, path)


def change_state(path: Path, **values: object) -> None:
    state = json.loads(path.read_text())
    state["trainer"].update(values)
    path.write_text(json.dumps(state))


DAMAGES = [
    ("config.json", lambda p: p.write_bytes(b"\xff"), "config.json"),
    ("config.json", lambda p: p.write_text("null"), "format"),
    ("config.json", lambda p: change(p, format=99), "format 99"),
    ("config.json", lambda p: change(p, vocab=None), "'vocab'"),
    ("config.json", lambda p: change(p, vocab={"src": 10**12, "tgt": 10**12}), "tokenizer.model"),
    ("config.json", lambda p: change(p, options={"d_model": 60000}), "does not fit"),
    ("config.json", lambda p: change(p, options={"d_model": None}), "d_model"),
    ("config.json", lambda p: change(p, arch="rnm"), "rnm"),
    ("config.json", lambda p: change(p, tokenizer={"lowercase": False}), "normalization (None)"),
    (
        "config.json",
        lambda p: change(p, tokenizer={"normalization": "nfd", "lowercase": False}),
        "normalization ('nfd')",
    ),
    ("tokenizer.model", lambda p: p.write_bytes(b""), "tokenizer.model"),
    ("tokenizer.model", lambda p: p.write_bytes(p.read_bytes()[:3000]), "tokenizer.model"),
    ("tokenizer.model", lambda p: p.unlink(), "tokenizer.model"),
    ("tokenizer.model", lambda p: os.truncate(p, 1 << 31), "tokenizer.model"),
    ("model.safetensors", lambda p: of_another_run(p), "of another run"),
    ("model.safetensors", lambda p: overflow(p), "not finite"),
    ("model.safetensors", lambda p: p.write_bytes(b""), "model.safetensors"),
    ("model.safetensors", lambda p: p.write_bytes(p.read_bytes()[:-9]), "model.safetensors"),
    ("model.safetensors", shrink, "does not fit"),
    ("model.safetensors", lambda p: p.unlink(), "model.safetensors"),
]


@pytest.mark.parametrize(("file", "damage", "mention"), DAMAGES)
def test_a_damaged_run_is_named(trained, tmp_path, fails, file, damage, mention):
    run = shutil.copytree(trained, tmp_path / "R")
    damage(run / file)
    fails("translate", "-m", "R", "pairs.en", mentions=["R/", mention])


def change_vocab(path: Path, **values: object) -> None:
    change(path, vocab={**json.loads(path.read_text())["vocab"], **values})


def change_request(path: Path, **values: object) -> None:
    change(path, request={**json.loads(path.read_text())["request"], **values})


STATE_DAMAGES = [
    ("LATEST", lambda p: p.write_bytes(b"\xff\xfe"), "last"),
    ("LATEST", lambda p: p.unlink(), "LATEST"),
    ("LATEST", lambda p: p.write_text("step-" + "9" * 50), "LATEST"),
    ("LATEST", lambda p: p.write_text(".."), "LATEST"),
    ("LATEST", lambda p: os.truncate(p, 1 << 36), "LATEST"),
    ("step-200/state.json", lambda p: change_state(p, step="200"), "step is '200'"),
    ("step-200/state.json", lambda p: change_state(p, step=-1), "step is -1"),
    ("step-200/state.json", lambda p: change_state(p, stale=True), "stale"),
    ("step-200/state.json", lambda p: change_state(p, rollbacks=10**30), "rollbacks"),
    ("step-200/state.json", lambda p: change_state(p, parts=0), "parts"),
    ("step-200/state.json", lambda p: change_state(p, seconds=math.inf), "seconds"),
    ("step-200/state.json", lambda p: change_state(p, health={"seen": -1}), "seen"),
    ("step-200/state.json", lambda p: change_state(p, health={"square": -0.5}), "square"),
    ("step-200/state.json", lambda p: change_state(p, position=[0, 0.5]), "batch"),
    ("step-200/best.safetensors", lambda p: of_another_run(p), "of another run"),
    ("../config.json", lambda p: change(p, options={"d_model": 128}), "options is not that"),
    ("../config.json", lambda p: change(p, arch="lstm"), "arch is not that"),
    ("../config.json", lambda p: change_vocab(p, shared=False), "vocab"),
    ("../config.json", lambda p: change_request(p, seed=10**30), "seed"),
    ("../config.json", lambda p: change_request(p, threads=10**6), "threads"),
    ("../config.json", lambda p: change_request(p, subword_sampling=5.0), "subword_sampling"),
    ("step-200/state.json", lambda p: p.write_text("{}"), "last"),
    ("step-200/state.json", lambda p: p.write_text("["), "state.json"),
    ("step-200/state.safetensors", lambda p: p.write_bytes(b"x"), "state.safetensors"),
    ("step-200/state.safetensors", lambda p: save_file({"a": torch.ones(1)}, p), "last"),
]


@pytest.mark.parametrize(("file", "damage", "mention"), STATE_DAMAGES)
def test_a_damaged_state_is_named(trained, tmp_path, fails, file, damage, mention):
    run = Path(shutil.copytree(trained, tmp_path / "R"))
    damage(run / "last" / file)
    before = (run / "model.safetensors").read_bytes()
    fails("train", "--resume", "R", "--steps", 210, mentions=["R", mention])
    assert (run / "model.safetensors").read_bytes() == before


def test_runs_of_one_system_may_differ_by_seed_alone(trained, tmp_path, fails):
    run = shutil.copytree(trained, tmp_path / "R")
    change(run / "config.json", options={"d_model": 64})
    fails("eval", f"both={trained},R", mentions=["R: its options"])


def test_seeds_of_a_system_are_different_runs(trained, fails):
    fails("eval", f"a={trained},{trained}/", mentions=["a=", "names a run twice"])


def test_the_mean_of_runs_needs_a_name(trained, fails):
    fails("eval", f"{trained},other", mentions=["no such folder", f"NAME={trained},other"])


def test_a_misspelt_architecture_is_guessed(fails):
    fails("archs", "lstm-atn", mentions=["no architecture", "did you mean 'lstm-attn'?"])


def test_no_output_of_a_seed_overwrites_another_systems(trained, tmp_path, fails):
    shutil.copytree(trained, tmp_path / "R")
    two = f"a={trained},R"
    fails("eval", two, "--hyp", "a-2=a.tsv", "--save", "out", mentions=["'a-2'", "name them apart"])


def test_the_folder_of_a_run_that_is_there_is_not_touched(trained, tmp_path, fails):
    run = shutil.copytree(trained, tmp_path / "R")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    words = ["R:", "--resume", "--overwrite", "-o"]
    fails("train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", "R", mentions=words)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_init_refuses_what_it_would_ignore(trained, fails):
    data = ("-d", "pairs", "-s", "en", "-t", "fr", "-o", "new")
    for option in (("-a", "lstm"), ("--vocab-size", 500), ("--lowercase",), ("--size", "base")):
        fails("train", *data, "--init", trained, *option, mentions=["--init", str(trained)])


def test_options_that_do_not_fit_the_parents_weights_are_to_blame(trained, fails):
    data = ("-d", "pairs", "-s", "en", "-t", "fr", "-o", "new")
    words = ["-O d_model=32:", f"not the options of {trained}"]
    fails("train", *data, "--init", trained, "-O", "d_model=32", mentions=words)


def test_a_state_that_nothing_names_is_not_thrown_away(trained, tmp_path, fails):
    run = Path(shutil.copytree(trained, tmp_path / "R"))
    (run / "last" / "LATEST").unlink()
    fails("train", "--resume", "R", "--steps", 210, mentions=["LATEST", "is lost", "step-200"])


def test_options_of_the_architecture_stay_with_resume(trained, fails):
    fails("train", "--resume", trained, "-O", "layers=2", mentions=["-O: cannot be changed"])


def test_a_model_without_attention_is_named_before_any_line_is_read(trained, tmp_path, fails):
    run = RunFolder(Path(shutil.copytree(trained, tmp_path / "R")))
    options = resolve_options("lstm", "tiny", {})
    model = architecture("lstm").build(options, Vocabulary(**run.config()["vocab"]))
    run.write_weights(weights_of(model))
    run.update_config(arch="lstm", options=dataclasses.asdict(options))
    for asked in (("--align",), ("--attention", "map.json")):
        fails(
            "translate",
            "-m",
            "R",
            *asked,
            "a.tsv",
            mentions=["R: its model (lstm) has no attention"],
        )


def test_a_pair_of_one_endless_word_is_left_out_aloud(tmp_path, fails):
    word = "".join(random.Random(0).choices("abcdefghijklmnop", k=9000))
    (tmp_path / "long.tsv").write_text(f"{word}\tun\n")
    words = ["more than 1000 tokens"]
    fails("train", "-d", "long.tsv", "-s", "en", "-t", "fr", "-a", "lstm", mentions=words)


def test_a_finished_run_says_how_to_lengthen_it(trained, tmp_path, fails):
    shutil.copytree(trained, tmp_path / "R")
    fails("train", "--resume", "R", mentions=["has finished", "--steps"])


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_compressed_file_of_no_bytes_is_cut_off(tmp_path, suffix):
    path = tmp_path / f"pairs.tsv{suffix}"
    path.touch()
    with pytest.raises(NmtError, match="truncated"):
        list(read_lines(path))
    (tmp_path / "pairs.tsv").touch()
    assert list(read_lines(tmp_path / "pairs.tsv")) == []


@pytest.mark.parametrize(
    "command",
    [
        "data info a.tsv -s en -t fr --json a.tsv",
        "data info pairs.en,pairs.fr -s en -t fr --json pairs.fr",
        "data info split -s en -t fr --json split/train.en",
        "eval --src pairs.en --ref pairs.fr --hyp s=a.tsv -s en -t fr --csv a.tsv",
        "eval -d a.tsv -s en -t fr --hyp s=pairs.fr --json a.tsv",
        "eval --src pairs.en --ref pairs.fr --hyp pairs=source.txt -s en -t fr --save .",
        "score run -d a.tsv --each a.tsv",
        "score run -d a.tsv --json run/config.json",
        "translate -m run -o run/model.safetensors a.tsv",
        "translate -m run a-1.json --attention a.json",
        "translate -m run a.tsv --attention a.json -o a-12.json",
    ],
)
def test_no_output_replaces_what_is_read(fails, trained, command):
    shutil.copytree(trained, "run")
    write_pairs(Path("split"), name="train")
    for name in ("source.txt", "a-1.json"):
        shutil.copy("pairs.en", name)
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    fails(*command.split(), mentions=["would overwrite"])
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_a_model_whose_numbers_overflow_is_told_of(trained, tmp_path, fails, monkeypatch, capsys):
    path = Path(shutil.copytree(trained, tmp_path / "R")) / "model.safetensors"
    save_file({name: torch.full_like(x, 1e38) for name, x in load_file(path).items()}, path)
    data = ("-d", "pairs", "-s", "en", "-t", "fr")
    fails("score", "R", *data, code=1, mentions=["pair", "not finite"])
    monkeypatch.setattr(sys, "argv", ["nmt", "eval", "R", *data])
    assert cli.run() == 0
    assert "warning: R: 12 sources have no translation" in capsys.readouterr().err


def test_a_parent_that_cannot_be_read_leaves_no_run_behind(trained, tmp_path, fails):
    parent = Path(shutil.copytree(trained, tmp_path / "R"))
    (parent / "training-pairs.safetensors").write_bytes(b"garbage")
    data = ("-d", "pairs", "-s", "en", "-t", "fr", "--steps", 1, "-o", "new")
    fails("train", "--init", "R", *data, mentions=["training-pairs.safetensors"])
    assert not (tmp_path / "new" / "config.json").exists()


def test_a_log_that_has_lost_lines_is_gone_on_with_by_whole_ones(
    trained, tmp_path, fails, monkeypatch, capsys
):
    log = Path(shutil.copytree(trained, tmp_path / "R")) / "log.jsonl"
    os.truncate(log, log.stat().st_size - 30)
    monkeypatch.setattr(sys, "argv", ["nmt", "train", "--resume", "R", "--steps", "201"])
    assert cli.run() == 0
    assert "warning: R/log.jsonl: has lost lines" in capsys.readouterr().err
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert records[-1]["step"] == 201 and len(records) > 200


def test_a_refused_resume_leaves_the_weights_alone(trained, tmp_path, fails):
    run = RunFolder(Path(shutil.copytree(trained, tmp_path / "R")))
    model = load_file(tmp_path / "R" / "model.safetensors")
    better = {name: tensor + 1 for name, tensor in model.items()}
    run.write_weights(better)  # as a last validation does, after the last state
    before = (tmp_path / "R" / "model.safetensors").read_bytes()
    fails("train", "--resume", "R", mentions=["has finished"])
    assert (tmp_path / "R" / "model.safetensors").read_bytes() == before
