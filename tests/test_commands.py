"""Commands through the installed program."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from nmt_cli.runs import RunFolder
from tests.conftest import PAIRS, expect_error, nmt, text, write_pairs

SOURCES = [src for src, _ in PAIRS]
TINY = ("--size", "tiny", "--threads", 1)


def weights(run: Path) -> dict:
    return load_file(run / "model.safetensors")


def test_help_and_version_are_quick_to_import_nothing_heavy(tmp_path):
    code = (
        "import sys, nmt_cli.cli\n"
        "heavy = {'torch', 'sacrebleu', 'datasets', 'matplotlib', 'numpy', 'sentencepiece'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert out.stdout.decode().strip() == "[]"
    assert re.fullmatch(r"nmt \d+\.\d+\.\d+\n", text(nmt("--version", cwd=tmp_path)))
    listed = text(nmt("--help", cwd=tmp_path))
    for command in ("train", "translate", "eval", "runs", "archs", "data"):
        assert command in listed
    module = subprocess.run(
        [sys.executable, "-m", "nmt_cli", "--version"], capture_output=True, check=True
    )
    assert module.stdout.startswith(b"nmt ")


def test_the_doctor_says_what_there_is(tmp_path):
    found = text(nmt("doctor", cwd=tmp_path))
    for word in ("torch", "device", "training", "fp32", "GiB", "ctranslate2", "fonts"):
        assert word in found


def test_a_run_folder_has_what_is_promised(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "tokenizer.model", "model.safetensors", "log.jsonl", "eval.json",
            "last"} <= names  # fmt: skip
    assert not list(trained.rglob("*.part*"))
    assert not [p for p in trained.rglob("*") if p.suffix in {".pt", ".pth", ".pkl", ".bin"}]
    config = json.loads((trained / "config.json").read_text())
    assert config["format"] == 1
    assert config["arch"] == "lstm-attn"
    assert config["options"]["d_model"] == 128
    assert config["finished"] and config["step"] == 200
    latest = (trained / "last" / "LATEST").read_text().strip()
    assert latest == "step-200"
    assert [p.name for p in (trained / "last").iterdir() if p.is_dir()] == [latest]
    log = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    steps = [line for line in log if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 201))
    assert {"step", "epoch", "loss", "lr", "tokens_per_s"} <= set(steps[0])
    validated = [line for line in log if "valid_bleu" in line]
    assert validated
    for line in validated:
        assert [sample["source"] for sample in line["samples"]] == SOURCES[:5]
    assert validated[-1]["samples"][0]["translation"]
    evaluation = json.loads((trained / "eval.json").read_text())
    assert evaluation["systems"][0]["bleu"] > 90
    assert all(len(shape := tensor.shape) >= 1 and shape for tensor in weights(trained).values())


@pytest.mark.slow
def test_translating_from_a_pipe_and_from_a_file_are_the_same(trained):
    folder = trained.parents[1]
    stdin = "".join(f"{line}\n" for line in SOURCES)
    piped = text(nmt("translate", "-m", trained, cwd=folder, stdin=stdin))
    assert piped.splitlines() == [tgt for _, tgt in PAIRS]
    from_file = text(nmt("translate", "-m", trained, "pairs.en", cwd=folder))
    nmt("translate", "-m", trained, "pairs.en", "-o", "out.fr", cwd=folder)
    assert from_file == piped == (folder / "out.fr").read_text(encoding="utf-8")


def test_the_newest_run_is_the_default_and_is_named(trained):
    result = nmt("translate", cwd=trained.parents[1], stdin=SOURCES[0] + "\n")
    assert text(result) == PAIRS[0][1] + "\n"
    assert "checkpoints/M" in result.stderr.decode()


@pytest.mark.slow
def test_blank_lines_stay_blank_and_in_place(trained):
    stdin = f"{SOURCES[0]}\n\n   \n{SOURCES[1]}\n\u3000\n"
    out = text(nmt("translate", "-m", trained, cwd=trained, stdin=stdin))
    assert out == f"{PAIRS[0][1]}\n\n\n{PAIRS[1][1]}\n\n"
    assert text(nmt("translate", "-m", trained, cwd=trained, stdin="")) == ""


@pytest.mark.slow
def test_line_ends_and_bom_make_no_difference(trained):
    stdin = b"\xef\xbb\xbf" + SOURCES[0].encode() + b"\r\n" + SOURCES[1].encode()
    out = text(nmt("translate", "-m", trained, cwd=trained, stdin=stdin))
    assert out == f"{PAIRS[0][1]}\n{PAIRS[1][1]}\n"


@pytest.mark.slow
def test_a_bad_byte_is_named_or_replaced(trained):
    stdin = b"fine\nca\xe9\n"
    expect_error(nmt("translate", "-m", trained, cwd=trained, stdin=stdin), 2, "stdin:2", "0xe9")
    out = nmt("translate", "-m", trained, "--encoding-errors", "replace", cwd=trained, stdin=stdin)
    assert len(text(out).splitlines()) == 2


@pytest.mark.slow
def test_batch_sizes_do_not_change_a_line(trained):
    stdin = "".join(f"{line}\n" for line in SOURCES)
    outputs = {
        text(nmt("translate", "-m", trained, "--scores", *extra, cwd=trained, stdin=stdin))
        for extra in (
            ("--batch-sentences", 1),
            ("--batch-tokens", 30, "--workers", 1),
            ("--batch-tokens", 9999, "--workers", 1),
            ("--workers", 3),
        )
    }
    assert len(outputs) == 1


@pytest.mark.slow
def test_json_lines_and_a_prefix(trained):
    stdin = f"{SOURCES[0]}\n\n"
    args = ("translate", "-m", trained, "--json", "--align", "--n-best", 2)
    lines = [json.loads(x) for x in text(nmt(*args, cwd=trained, stdin=stdin)).splitlines()]
    assert [(line["line"], line["source"]) for line in lines] == [(1, SOURCES[0]), (2, "")]
    best, second = lines[0]["translations"]
    assert best["text"] == PAIRS[0][1]
    assert best["score"] >= second["score"]
    assert "".join(best["tokens"]).replace("▁", " ").strip() == best["text"]
    assert [tgt for _, tgt in best["alignment"]] == list(range(len(best["text"].split())))
    assert lines[1]["translations"] == [{"text": "", "score": 0.0, "tokens": [], "alignment": []}]
    args = ("translate", "-m", trained, "--prefix", "Mon voisin")
    assert text(nmt(*args, cwd=trained, stdin=stdin)).startswith("Mon voisin")


@pytest.mark.slow
def test_n_best_and_scores(trained):
    stdin = f"{SOURCES[0]}\n\n{SOURCES[1]}\n"
    rows = text(nmt("translate", "-m", trained, "--n-best", 3, cwd=trained, stdin=stdin))
    fields = [line.split("\t") for line in rows.splitlines()]
    assert [f[0] for f in fields] == ["1"] * 3 + ["2"] + ["3"] * 3
    first = [float(f[1]) for f in fields[:3]]
    assert first == sorted(first, reverse=True)
    scored = text(nmt("translate", "-m", trained, "--scores", cwd=trained, stdin=stdin))
    score, line = scored.splitlines()[0].split("\t")
    assert line == fields[0][2] == PAIRS[0][1]
    assert float(score) == pytest.approx(first[0], abs=1e-3)


@pytest.mark.slow
def test_sampling_follows_the_seed(trained):
    args = ("translate", "-m", trained, "--sample", "--temperature", 3)
    stdin = f"{SOURCES[0]}\n"
    one, same, other = (
        text(nmt(*args, "--seed", seed, cwd=trained, stdin=stdin)) for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_smaller_weights_translate_what_was_learnt(trained, precision):
    stdin = "".join(f"{line}\n" for line in SOURCES)
    written = text(
        nmt("translate", "-m", trained, "--precision", precision, cwd=trained, stdin=stdin)
    )
    assert written.splitlines() == [tgt for _, tgt in PAIRS]


@pytest.mark.slow
def test_neighbours_do_not_change_what_is_drawn(trained):
    args = ("translate", "-m", trained, "--sample", "--temperature", 2)
    stdin = "".join(f"{line}\n" for line in SOURCES)
    outputs = {
        text(nmt(*args, *extra, cwd=trained, stdin=stdin))
        for extra in (("--batch-sentences", 1), ("--workers", 1), ("--workers", 2))
    }
    assert len(outputs) == 1


def test_alignment_and_attention_files(trained, tmp_path):
    stdin = f"{SOURCES[0]}\n\n{SOURCES[1]}\n"
    out = nmt(
        "translate", "-m", trained, "--align", "--attention", "map.json", cwd=tmp_path, stdin=stdin
    )
    lines = text(out).splitlines()
    assert lines[1] == "\t"
    translation, pairs = lines[0].split("\t")
    links = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
    assert [tgt for _, tgt in links] == list(range(len(translation.split())))
    assert all(0 <= src < len(SOURCES[0].split()) for src, _ in links)
    assert {path.name for path in tmp_path.iterdir()} == {"map-1.json", "map-3.json"}
    form = json.loads((tmp_path / "map-1.json").read_text(encoding="utf-8"))
    assert len(form["attention"]) == len(form["target"])
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in form["attention"])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_attention_is_drawn(trained, tmp_path, suffix):
    args = ("--attention", f"map{suffix}", "--layer", 1, "--head", 1)
    text(nmt("translate", "-m", trained, *args, cwd=tmp_path, stdin=f"{SOURCES[0]}\n"))
    head = (tmp_path / f"map-1{suffix}").read_bytes()[:200]
    assert head.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    args = ("--attention", f"map{suffix}", "--head", 2)
    result = nmt("translate", "-m", trained, *args, cwd=tmp_path, stdin=f"{SOURCES[0]}\n")
    expect_error(result, 2, "--head 2", "has 1")


@pytest.mark.slow
def test_an_ensemble_of_a_run_with_itself_changes_nothing(trained):
    stdin = f"{SOURCES[0]}\n{SOURCES[5]}\n"
    one = text(nmt("translate", "-m", trained, "--scores", cwd=trained, stdin=stdin))
    two = text(nmt("translate", "-m", trained, "-m", trained, "--scores", cwd=trained, stdin=stdin))
    assert [line.split("\t")[1] for line in one.splitlines()] == [
        line.split("\t")[1] for line in two.splitlines()
    ]


@pytest.mark.slow
def test_a_long_line_is_cut_with_a_warning_and_the_others_are_not_touched(trained):
    stdin = f"{SOURCES[0]}\n{'the old clock ' * 3000}\n{SOURCES[1]}\n"
    result = nmt("translate", "-m", trained, "-b", 1, cwd=trained, stdin=stdin)
    lines = text(result).splitlines()
    assert len(lines) == 3
    assert (lines[0], lines[2]) == (PAIRS[0][1], PAIRS[1][1])
    assert "line 2: cut from" in result.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["eval", "score"])
def test_languages_that_change_nothing_are_refused(command, trained):
    place = trained.parents[1]
    for options in (("-t", "de"), ("-s", "fr"), ("--columns", "1,2")):
        expect_error(nmt(command, trained, *options, cwd=place), 2, options[0], "en into fr")
    assert nmt(command, trained, "-s", "en", "-t", "fr", cwd=place).returncode == 0


@pytest.mark.slow
def test_a_model_that_overflows_gives_no_translation_and_says_so(trained, tmp_path):
    run = tmp_path / "broken"
    shutil.copytree(trained, run)
    model = load_file(run / "model.safetensors")
    save_file({name: w.fill_(3e38) for name, w in model.items()}, run / "model.safetensors")
    stdin = f"{SOURCES[0]}\n\n{SOURCES[1]}\n"
    result = nmt("translate", "-m", run, "--json", cwd=tmp_path, stdin=stdin)
    found = [json.loads(line)["translations"][0] for line in text(result).splitlines()]
    assert [one["text"] for one in found] == ["", "", ""]
    assert [one["score"] for one in found] == [None, 0.0, None]
    said = result.stderr.decode()
    assert "line 1: has no translation" in said and "line 3: has no translation" in said
    assert "line 2" not in said


@pytest.mark.slow
def test_answers_come_before_the_pipe_is_closed(trained):
    program = Path(sys.executable).with_name("nmt")
    process = subprocess.Popen(
        [str(program), "translate", "-m", str(trained)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin and process.stdout
    for src, tgt in PAIRS[:3]:
        process.stdin.write(f"{src}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode() == f"{tgt}\n"
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(trained):
    program = Path(sys.executable).with_name("nmt")
    command = (
        f"yes '{SOURCES[0]}' | head -n 20000 | '{program}' translate -m '{trained}' 2>err "
        "| head -n 1; echo ${PIPESTATUS[2]}"
    )
    began = time.monotonic()
    out = subprocess.run(
        ["bash", "-c", command], cwd=trained.parent, capture_output=True, check=True, timeout=120
    )
    assert out.stdout.decode().splitlines()[0] == PAIRS[0][1]
    assert out.stdout.decode().splitlines()[1] in {"0", "141"}
    assert time.monotonic() - began < 60
    err = (trained.parent / "err").read_text()
    assert "Traceback" not in err and "BrokenPipe" not in err


def test_eval_of_runs_and_of_files(trained, tmp_path):
    folder = trained.parents[1]
    other = tmp_path / "other.fr"
    other.write_text("".join(f"{tgt} Oui.\n" for _, tgt in PAIRS), encoding="utf-8")
    copy = shutil.copytree(trained, tmp_path / "copy")
    args = (f"two={trained},{copy}", "--hyp", f"other={other}", "--buckets", "3,5",
            "--metrics", "bleu,chrf,exact", "--ci",
            "--json", tmp_path / "e.json", "--csv", tmp_path / "e.csv", "--worst", 2,
            "--plot", tmp_path / "e.svg", "--save", tmp_path / "saved")  # fmt: skip
    result = nmt("eval", trained, *args, cwd=folder)
    shown = text(result)
    assert "1-3  4-5   6+   all" in re.sub(r" +(?=[1-9]-|6\+|all)", "  ", shown).replace(
        "  6+", "   6+"
    ).replace("6+  all", "6+   all")
    words = ("M", "other", "+- over 2 runs", "vs M", "signature: nrefs:1|", "95 %", "line ")
    for word in (*words, "p: chance in the choice of sentences"):
        assert word in shown
    form = json.loads((tmp_path / "e.json").read_text())
    assert [system["name"] for system in form["systems"]] == ["M", "two", "other"]
    assert form["systems"][0]["exact"] > 90
    assert form["systems"][2]["difference"] < 0
    assert (tmp_path / "e.csv").read_text().count("\n") == 1 + 3 * 4
    assert (tmp_path / "e.svg").stat().st_size > 5000
    assert f"--plot: wrote {tmp_path / 'e.svg'}" in result.stderr.decode()
    assert (tmp_path / "saved" / "other.txt").read_bytes() == other.read_bytes()


def test_eval_says_if_the_recorded_test_has_changed(trained, tmp_path):
    same = nmt("eval", trained, cwd=trained.parents[1])
    text(same)
    assert "has changed" not in same.stderr.decode()
    write_pairs(tmp_path, PAIRS[1:])
    expect_error(nmt("eval", trained, cwd=tmp_path), 2, "has changed", str(trained), "-d")


@pytest.mark.slow
def test_eval_writes_pure_json_to_stdout(trained):
    folder = trained.parents[1]
    out = text(nmt("eval", trained, "-d", "pairs", "--json", "-", cwd=folder))
    assert json.loads(out)["systems"][0]["sentences"] == len(PAIRS)


@pytest.mark.slow
def test_eval_warns_of_test_pairs_that_were_trained_on(trained):
    result = nmt("eval", trained, "-d", "pairs", cwd=trained.parents[1])
    assert f"{len(PAIRS)} of {len(PAIRS)} test pairs occur in the training data" in (
        text(result) + result.stderr.decode()
    )


def test_runs_lists_what_is_there(trained):
    line = text(nmt("runs", cwd=trained.parents[1])).splitlines()[1]
    assert "checkpoints/M" in line and "lstm-attn" in line and "200" in line


def test_archs_shows_options(tmp_path):
    assert "transformer" in text(nmt("archs", cwd=tmp_path))
    assert "one state a layer" in text(nmt("archs", "mamba", cwd=tmp_path))
    shown = text(nmt("archs", "lstm-attn", cwd=tmp_path))
    assert "bahdanau | luong-dot" in shown and "input_feeding" in shown and "Luong" in shown
    assert "--lr 0.003 --warmup 300" in shown


def test_a_folder_that_holds_a_run_is_not_touched(trained):
    before = (trained / "config.json").read_bytes()
    args = ("train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", trained, "--steps", 1)
    line = expect_error(nmt(*args, cwd=trained.parents[1]), 2, "--resume", "--overwrite", "-o")
    assert str(trained) in line
    assert (trained / "config.json").read_bytes() == before


def train_pairs(folder: Path, out: str, *extra):
    return nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", out, *TINY, *extra, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("extra", [(), ("--subword-sampling", 0.2)], ids=["plain", "sampling"])
def test_twenty_steps_lengthened_to_forty_equal_forty(tmp_path, extra):
    write_pairs(tmp_path)
    common = ("--batch-sentences", 4, "--save-every", 7, "--validate-every", 10, "--dropout", 0.2)
    common += extra
    text(train_pairs(tmp_path, "A", "--steps", 40, *common))
    text(train_pairs(tmp_path, "B", "--steps", 20, *common))
    result = nmt("train", "--resume", "B", "--steps", 40, cwd=tmp_path)
    assert "M" not in text(result).split()
    a, b = weights(tmp_path / "A"), weights(tmp_path / "B")
    assert all((a[name] == b[name]).all() for name in a)
    clocks = {"tokens_per_s", "seconds", "time"}
    logs = [
        [
            {k: v for k, v in json.loads(line).items() if k not in clocks}
            for line in (tmp_path / run / "log.jsonl").read_text().splitlines()
        ]
        for run in "AB"
    ]
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_a_compiled_model_learns_what_the_plain_one_does(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    write_pairs(tmp_path)
    common = ("-a", "lstm", "--steps", 6, "--batch-sentences", 4, "--precision", "fp32")
    text(train_pairs(tmp_path, "A", *common))
    text(train_pairs(tmp_path, "B", *common, "--compile"))
    a, b = weights(tmp_path / "A"), weights(tmp_path / "B")
    assert all(abs(a[name] - b[name]).max() < 1e-3 for name in a)
    losses = [
        [json.loads(line)["loss"] for line in log.splitlines() if "lr" in line]
        for log in ((tmp_path / run / "log.jsonl").read_text() for run in "AB")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_without_a_compiler_there_is_a_word_about_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    write_pairs(tmp_path)
    extra = ("-a", "transformer", "--steps", 1, "--compile")
    expect_error(train_pairs(tmp_path, "R", *extra), 1, "--compile", "C++ compiler")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_can_go_on(tmp_path, number, code):
    write_pairs(tmp_path)
    program = Path(sys.executable).with_name("nmt")
    process = subprocess.Popen(
        [str(program), "train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", "R", *map(str, TINY),
         "--steps", "100000", "--validate-every", "100000"],
        cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    log = tmp_path / "R" / "log.jsonl"
    while not (log.is_file() and log.stat().st_size > 500):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr.decode()
    assert b"nmt train --resume R" in stderr
    step = json.loads(log.read_text().splitlines()[-1])["step"]
    assert (tmp_path / "R" / "last" / "LATEST").read_text() == f"step-{step}\n"
    text(nmt("train", "--resume", "R", "--steps", step + 1, cwd=tmp_path))


@pytest.mark.slow
def test_resume_takes_nothing_but_the_end_and_the_device(tmp_path, trained):
    result = nmt("train", "--resume", trained, "--lr", 1, cwd=tmp_path)
    expect_error(result, 2, "--lr", "--init")


@pytest.mark.slow
def test_resume_notices_that_the_data_has_changed(tmp_path):
    write_pairs(tmp_path)
    text(train_pairs(tmp_path, "R", "--steps", 2))
    write_pairs(tmp_path, PAIRS[1:])
    expect_error(nmt("train", "--resume", "R", "--steps", 4, cwd=tmp_path), 2, "has changed")


@pytest.mark.slow
def test_init_starts_from_the_weights_of_another_run(tmp_path, trained):
    write_pairs(tmp_path)
    args = ("--init", trained, "--steps", 1, "--lr", 1e-9)
    result = nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", "N", *args, cwd=tmp_path)
    text(result)
    old, new = weights(trained), weights(tmp_path / "N")
    assert all(old[name].allclose(new[name], atol=1e-6) for name in old)
    result = nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", "-o", "M", "--init", "N",
                 "--steps", 1, cwd=tmp_path)  # fmt: skip
    text(result)
    config = json.loads((tmp_path / "M" / "config.json").read_text())
    assert config["request"]["training"]["lr"] == 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [("convs2s",), ("transformer", "-O", "positions=learned")], ids=lambda m: m[0]
)
def test_learnt_positions_bound_what_is_trained_on_read_and_written(tmp_path, model):
    write_pairs(tmp_path)
    text(train_pairs(tmp_path, "R", "-a", *model, "-O", "max_positions=20", "--steps", 2))
    lines = "The ferry.\n" + "ferry " * 100 + "\n"
    result = nmt("translate", "-m", "R", "--max-length", 90, cwd=tmp_path, stdin=lines)
    assert text(result).count("\n") == 2
    assert "line 2: cut from" in result.stderr.decode()


@pytest.mark.slow
def test_separate_vocabularies_and_unigram(tmp_path):
    write_pairs(tmp_path)
    extra = ("--separate-vocab", "--tokenizer", "unigram", "-a", "transformer", "--steps", 3)
    text(train_pairs(tmp_path, "R", *extra))
    assert {"src.model", "tgt.model"} <= {path.name for path in (tmp_path / "R").iterdir()}
    out = nmt("translate", "-m", "R", "--max-length", 5, cwd=tmp_path, stdin="The ferry.\n")
    assert text(out).count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word", "char", "byte"])
def test_text_is_cut_otherwise_than_into_subwords(tmp_path, kind):
    write_pairs(tmp_path)
    text(train_pairs(tmp_path, "R", "--tokenizer", kind, "--steps", 3))
    out = nmt("translate", "-m", "R", "--max-length", 5, cwd=tmp_path, stdin="The ferry.\n")
    assert text(out).count("\n") == 1


@pytest.mark.slow
def test_symbols_stay_whole_in_the_run(tmp_path):
    write_pairs(tmp_path)
    text(train_pairs(tmp_path, "R", "--symbol", "<num>", "--symbol", "@user", "--steps", 3))
    tokenizer, _ = RunFolder(tmp_path / "R").tokenizers()
    pieces = tokenizer.pieces(tokenizer.encode("The<num> ferry of @users."))
    assert {"<num>", "@user"} <= set(pieces)


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        (("--symbol", "two words"), ["--symbol", "must be one word"]),
        (("--symbol", "</s>"), ["--symbol </s>", "every vocabulary has"]),
        (("--symbol", "</S>", "--lowercase"), ["</S> (normalised: </s>)", "every vocabulary has"]),
        (("--symbol", "\uff1cs\uff1e", "--normalization", "nfkc"), ["<s>", "every vocabulary"]),
        (("--symbol", "\ufdfa", "--normalization", "nfkc"), ["must be one word"]),
        (("--symbol", "a\x07"), [r"a\x07", "control characters"]),
        (("--symbol", "y" * 1001), ["at most 1000 bytes"]),
        (("--symbol", "a", "--symbol", "b", "--vocab-size", 261), ["--vocab-size 261", "262"]),
        (("--symbol", "<num>", "--tokenizer", "word"), ["--symbol", "cuts at spaces"]),
        (("--subword-sampling", 0.1, "--tokenizer", "char"), ["--subword-sampling", "bpe"]),
    ],
)
def test_what_a_tokenizer_cannot_do_is_refused(tmp_path, options, mentions):
    write_pairs(tmp_path)
    expect_error(train_pairs(tmp_path, "R", *options, "--steps", 3), 2, *mentions)
    assert not (tmp_path / "R").exists()


@pytest.mark.slow
def test_toy_is_written_as_files(tmp_path):
    text(nmt("data", "make", "toy", "-o", "toy", "--train", 30, cwd=tmp_path))
    assert len((tmp_path / "toy" / "train.en").read_text(encoding="utf-8").splitlines()) == 30
    expect_error(nmt("data", "make", "toy", "-o", "toy", cwd=tmp_path), 2, "--overwrite")


@pytest.mark.slow
def test_a_run_can_be_moved(trained, tmp_path):
    import shutil

    moved = tmp_path / "elsewhere"
    shutil.copytree(trained, moved)
    out = nmt("translate", "-m", moved, cwd=tmp_path, stdin=f"{SOURCES[0]}\n")
    assert text(out) == f"{PAIRS[0][1]}\n"


def test_no_library_swallows_an_interrupt_before_the_work_begins(tmp_path):
    """What Ctrl-C does while modules are imported, some of which catch every exception."""
    script = (
        "import os, signal\n"
        "from nmt_cli import signals\n"
        "signals.end_at_once()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException:\n"
        "    pass\n"
        "print('went on')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"interrupted\n")


def test_an_interrupt_while_translate_waits_for_text_is_no_crash(trained):
    program = Path(sys.executable).with_name("nmt")
    with subprocess.Popen(
        [program, "translate", "-m", trained, "--workers", "1"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(f"{SOURCES[0]}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode() == f"{PAIRS[0][1]}\n"
        time.sleep(0.2)  # by now it reads on
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b"interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--separate-vocab", "--lowercase"])
def test_a_run_begun_from_another_reads_text_as_that_one_does(tmp_path, option):
    write_pairs(tmp_path)
    text(train_pairs(tmp_path, "A", "--steps", 2, option))
    child = ("-o", "B", "--init", "A", "--steps", 2, "--threads", 1)
    text(nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", *child, cwd=tmp_path))
    a, b = (json.loads((tmp_path / run / "config.json").read_text()) for run in "AB")
    assert a["tokenizer"] == b["tokenizer"]
    text(nmt("train", "--resume", "B", "--steps", 3, cwd=tmp_path))
    text(nmt("translate", "-m", "B", "--max-length", 5, cwd=tmp_path, stdin="The ferry.\n"))


@pytest.mark.slow
def test_two_trainings_of_one_folder_are_refused_until_the_first_is_gone(tmp_path):
    write_pairs(tmp_path)
    options = ("-d", "pairs", "-s", "en", "-t", "fr", *TINY, "-o", "R", "--save-every", 1)
    first = subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", "train", *map(str, options), "--steps", "100000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "R" / "last" / "LATEST").exists():
            assert time.monotonic() < deadline
            assert first.poll() is None
            time.sleep(0.05)
        for others in (("train", "--resume", "R"), ("train", *options, "--overwrite")):
            result = nmt(*others, "--steps", 2, cwd=tmp_path)
            expect_error(result, 2, "R: is being trained", f"pid {first.pid}", "-o")
    finally:
        first.kill()
        first.wait()
    step = json.loads((tmp_path / "R" / "log.jsonl").read_text().splitlines()[-1])["step"]
    text(nmt("train", "--resume", "R", "--steps", step + 2, cwd=tmp_path))
    assert not (tmp_path / "R" / ".nmt-lock").exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
def test_a_signal_saves_and_training_goes_on(tmp_path):
    write_pairs(tmp_path)
    options = ("-d", "pairs", "-s", "en", "-t", "fr", *TINY, "-o", "R", "--validate-every", 20)
    training = subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", "train", *map(str, options), "--save-every", "9999999"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log, latest = tmp_path / "R" / "log.jsonl", tmp_path / "R" / "last" / "LATEST"

    def wait_for(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            assert training.poll() is None
            time.sleep(0.02)

    try:
        wait_for(lambda: log.exists() and "valid_bleu" in log.read_text())
        assert not latest.exists()
        training.send_signal(signal.SIGUSR1)
        wait_for(latest.exists)
        size = log.stat().st_size
        wait_for(lambda: log.stat().st_size > size)
    finally:
        training.kill()
        training.wait()
    step = int(latest.read_text().strip().removeprefix("step-"))
    text(nmt("train", "--resume", "R", "--steps", step + 1, cwd=tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("place", ["stdout", "-o"])
def test_a_full_disk_is_said_with_path_and_reason(trained, place):
    program, out = Path(sys.executable).with_name("nmt"), ["-o", "/dev/full"]
    with open("/dev/full" if place == "stdout" else "/dev/null", "wb") as stdout:
        result = subprocess.run(
            [program, "translate", "-m", trained, *([] if place == "stdout" else out)],
            input=b"The ferry.\n", stdout=stdout, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    expect_error(result, 1, "output" if place == "stdout" else "/dev/full", "No space left")
