"""Inputs that broke other tools: each of its kind, made here, with the right behaviour."""

import gzip
import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from nmt_cli.tokenizer import TextRule, Tokenizer
from tests.conftest import PAIRS, expect_error, nmt, write_pairs

pytestmark = pytest.mark.slow
FIVE = ("--steps", 5, "--size", "tiny", "--out", "M")


def ok(result) -> str:
    stderr = result.stderr.decode()
    assert result.returncode == 0, stderr
    assert "Traceback" not in stderr
    return stderr


def train(folder: Path, data: str, *extra):
    return nmt("train", "-d", data, "-s", "en", "-t", "fr", *(extra or FIVE), cwd=folder)


def pieces(run: Path) -> list[str]:
    tokenizer = Tokenizer((run / "tokenizer.model").read_bytes(), TextRule())
    return [tokenizer._pieces.id_to_piece(n) for n in range(len(tokenizer))]


def write(path: Path, lines, end="\n", start="") -> None:
    path.write_text(start + "".join(line + end for line in lines), encoding="utf-8", newline="")


def sides(count=8):
    return [pair[0] for pair in PAIRS[:count]], [pair[1] for pair in PAIRS[:count]]


def test_bom_and_carriage_returns_leave_no_trace(tmp_path):
    src, tgt = sides()
    write(tmp_path / "src.en", src, "\r\n", "\ufeff")
    write(tmp_path / "tgt.fr", tgt)
    assert "train: 8 pairs" in ok(train(tmp_path, "src.en,tgt.fr"))
    assert not [p for p in pieces(tmp_path / "M") if "\ufeff" in p or "\r" in p]
    out = nmt("translate", "-m", "M", cwd=tmp_path, stdin=b"The ferry is late.\r\n")
    ok(out)
    assert out.stdout.endswith(b"\n") and b"\r" not in out.stdout


def test_a_truncated_gzip_is_named_and_nothing_is_trained(tmp_path):
    src, tgt = sides(12)
    data = gzip.compress("".join(f"{line}\n" for line in src * 20).encode())
    (tmp_path / "src.en.gz").write_bytes(data[:-30])
    (tmp_path / "tgt.fr.gz").write_bytes(
        gzip.compress("".join(f"{line}\n" for line in tgt * 20).encode())
    )
    expect_error(train(tmp_path, "src.en.gz,tgt.fr.gz"), 2, "src.en.gz", "truncated/corrupt gzip")
    assert not (tmp_path / "M").exists()


def test_different_line_counts_stop_training_before_it_starts(tmp_path):
    src, tgt = sides(10)
    write(tmp_path / "src.en", src)
    write(tmp_path / "tgt.fr", tgt[:9])
    expect_error(train(tmp_path, "src.en,tgt.fr"), 2, "src.en has 10", "tgt.fr has 9")
    assert not (tmp_path / "M").exists()


def test_different_line_counts_give_no_score(tmp_path):
    src, tgt = sides(6)
    write(tmp_path / "src.en", src)
    write(tmp_path / "ref.fr", tgt)
    write(tmp_path / "hyp.fr", tgt[:5])
    args = ("--hyp", "hyp.fr", "--ref", "ref.fr", "--src", "src.en")
    result = nmt("eval", *args, cwd=tmp_path)
    expect_error(result, 2, "5 lines", "6 references")
    assert result.stdout == b""


def test_line_separators_are_ordinary_characters(tmp_path):
    src, tgt = sides(12)
    src[3], tgt[8] = src[3].replace(" ", "\u2028", 1), tgt[8].replace(" ", "\u2029", 1)
    write(tmp_path / "src.en", src)
    write(tmp_path / "tgt.fr", tgt)
    assert "train: 12 pairs" in ok(train(tmp_path, "src.en,tgt.fr"))


def test_a_latin1_byte_is_named_by_file_and_line(tmp_path):
    src, tgt = sides()
    (tmp_path / "src.en").write_bytes(
        "\n".join([*src[:4], "caf\xe9", *src[5:], ""]).encode("latin-1")
    )
    write(tmp_path / "tgt.fr", tgt)
    expect_error(train(tmp_path, "src.en,tgt.fr"), 2, "src.en:5", "0xe9")


def test_control_tokens_typed_by_a_user_are_text(tmp_path):
    pairs = [
        ("The tag <s> opens.", "La balise <s> ouvre."),
        ("Write </s> at the end.", "Écrivez </s> à la fin."),
        ("It prints <unk> here.", "Il affiche <unk> ici."),
        ("A <pad> is text.", "Un <pad> est du texte."),
    ]
    write_pairs(tmp_path, pairs)
    extra = ("--steps", 250, "--size", "tiny", "--lr", "5e-3", "--dropout", 0, "--out", "M")
    ok(train(tmp_path, "pairs", *extra))
    out = nmt("translate", "-m", "M", "pairs.en", cwd=tmp_path)
    ok(out)
    assert out.stdout.decode().splitlines() == [tgt for _, tgt in pairs]


def test_a_leak_is_counted_at_eval(tmp_path):
    write(tmp_path / "train.tsv", ["\t".join(pair) for pair in PAIRS[:8]])
    test = [*PAIRS[6:10], ("it rained all week.", PAIRS[6][1]), ("New.", "Nouveau.")]
    write(tmp_path / "test.tsv", ["\t".join(pair) for pair in test])
    ok(train(tmp_path, "train.tsv"))
    out = nmt("eval", "M", "-d", "test.tsv", cwd=tmp_path)
    assert "2 of 6 test pairs occur in the training data" in ok(out)


def test_all_capitals_with_and_without_lowercase(tmp_path, trained):
    caps = "".join(f"{src.upper()}\n" for src, _ in PAIRS[:4])
    out = nmt("translate", "-m", trained, cwd=tmp_path, stdin=caps)
    ok(out)
    lines = out.stdout.decode().splitlines()
    assert len(lines) == 4 and all(lines) and "<unk>" not in out.stdout.decode()
    write_pairs(tmp_path)
    ok(train(tmp_path, "pairs", *FIVE, "--lowercase"))
    plain = caps.lower()
    both = [
        nmt("translate", "-m", "M", "--max-length", 9, cwd=tmp_path, stdin=stdin).stdout
        for stdin in (caps, plain)
    ]
    assert both[0] == both[1]
    shown = nmt("eval", "M", "-d", "pairs", cwd=tmp_path)
    ok(shown)
    assert "case:lc" in shown.stdout.decode()
    first = json.loads((tmp_path / "M" / "eval.json").read_text())["systems"][0]
    assert "case:lc" in first["signature"]


def test_normal_forms_do_not_change_a_score_or_a_translation(tmp_path, trained):
    src, tgt = sides(12)
    accented = [line.replace("é", "é").replace("e", "é") for line in tgt]
    write(tmp_path / "src.en", src)
    write(tmp_path / "ref.fr", accented)
    write(tmp_path / "hyp.fr", [unicodedata.normalize("NFD", line) for line in accented])
    args = ("--hyp", "hyp.fr", "--ref", "ref.fr", "--src", "src.en", "--json", "-")
    form = json.loads(nmt("eval", *args, cwd=tmp_path).stdout)
    assert form["systems"][0]["bleu"] == pytest.approx(100)
    outputs = [
        nmt("translate", "-m", trained, cwd=tmp_path,
            stdin=unicodedata.normalize(form, "Das Café über dem Fluß\n")).stdout
        for form in ("NFC", "NFD")
    ]  # fmt: skip
    assert outputs[0] == outputs[1]


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    write_pairs(tmp_path)
    extra = ("--steps", 20, "--save-every", 20, "--size", "tiny")
    ok(train(tmp_path, "pairs", *extra, "--out", "A"))
    program = Path(sys.executable).with_name("nmt")
    command = f"ulimit -f 8; '{program}' train --resume A --steps 60 --save-every 20"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    expect_error(result, 1, "A/", "cannot be")
    assert (tmp_path / "A" / "last" / "LATEST").read_text() == "step-20\n"
    assert not [p for p in (tmp_path / "A").rglob("*") if "part" in p.name]
    out = nmt("translate", "-m", "A", "--max-length", 9, "pairs.en", cwd=tmp_path)
    ok(out)
    assert out.stdout.count(b"\n") == len(PAIRS)


def test_a_perfect_bucket_of_short_sentences_is_not_zero(tmp_path):
    src = ["One.", "Two here.", "This is a much longer sentence than the other two are."]
    tgt = ["Un.", "Deux ici.", "Voici une phrase bien plus longue que ne le sont les deux autres."]
    for name, lines in (("src.en", src), ("ref.fr", tgt), ("hyp.fr", tgt)):
        write(tmp_path / name, lines)
    result = nmt("eval", "--hyp", "hyp.fr", "--ref", "ref.fr", "--src", "src.en", cwd=tmp_path)
    ok(result)
    row = next(line for line in result.stdout.decode().splitlines() if line.startswith("hyp.fr"))
    assert row.split()[1:3] == ["n/a", "100.0"]


def test_nothing_left_after_filtering_trains_nothing(tmp_path):
    write_pairs(tmp_path, PAIRS[:8])
    result = train(tmp_path, "pairs", "--max-words", 2, "--steps", 50, "--out", "M")
    expect_error(result, 2, "0 of 8 pairs left", "--max-words 2")
    assert not (tmp_path / "M").exists()


def test_fewer_pairs_than_a_batch_are_one_batch_an_epoch(tmp_path):
    write_pairs(tmp_path, PAIRS[:5])
    ok(train(tmp_path, "pairs", "--batch-sentences", 64, "--epochs", 5, "--out", "M"))
    log = [json.loads(line) for line in (tmp_path / "M" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert len(losses) == 5
    assert all(loss > 0 for loss in losses)
    assert losses[-1] < losses[0]


def test_attributions_and_quotes_in_tsv(tmp_path):
    rows = [
        f"{src}\t{tgt}\tCC-BY 2.0 (France) tatoeba.org #{n}" for n, (src, tgt) in enumerate(PAIRS)
    ]
    rows[3] = '"' + rows[3]
    write(tmp_path / "fra.txt", rows)
    assert f"train: {len(PAIRS)} pairs" in ok(train(tmp_path, "fra.txt"))
    assert not [p for p in pieces(tmp_path / "M") if "tatoeba" in p or "CC-BY" in p]
    assert "\t" not in "".join(pieces(tmp_path / "M"))


def test_a_vocabulary_larger_than_the_data_is_lowered_and_said(tmp_path):
    write_pairs(tmp_path)
    stderr = ok(train(tmp_path, "pairs", *FIVE, "--vocab-size", 8000))
    assert "--vocab-size 8000" in stderr and "is more than the shared text fills" in stderr


def test_chinese_is_scored_by_the_chinese_tokenizer(tmp_path):
    write(tmp_path / "src.en", ["I like to drink green tea every day."])
    write(tmp_path / "ref.zh", ["我每天都喜欢喝绿茶。"])
    write(tmp_path / "hyp.zh", ["我每天都喜欢喝红茶。"])
    args = ("eval", "--hyp", "hyp.zh", "--ref", "ref.zh", "--src", "src.en", "-t", "zh")
    result = nmt(*args, cwd=tmp_path)
    ok(result)
    assert "tok:zh" in result.stdout.decode()
    forced = nmt(*args, "--bleu-tokenize", "13a", cwd=tmp_path)
    assert "warning: BLEU tokenizer 13a was forced" in ok(forced)


def test_a_run_is_replaced_only_by_one_that_can_translate(tmp_path):
    """One that diverges leaves the old run as it was; one that does not takes its place."""
    write_pairs(tmp_path)
    ok(train(tmp_path, "pairs", "--steps", 2, "--size", "tiny", "--out", "A"))
    (tmp_path / "A" / "notes.txt").write_text("mine")

    def read():
        files = (tmp_path / "A").rglob("*")
        return {path: path.read_bytes() for path in files if path.is_file()}

    before = read()
    again = ("--size", "tiny", "--out", "A", "--overwrite", "--seed", 2)
    hopeless = ("--lr", 1000, "--steps", 200, "--save-every", 10)
    expect_error(train(tmp_path, "pairs", *hopeless, *again), 1, "diverged")
    assert read() == before
    ok(train(tmp_path, "pairs", "--steps", 2, *again))
    after = read()
    assert after.keys() == before.keys()
    weights = tmp_path / "A" / "model.safetensors"
    assert after[weights] != before[weights]
    assert json.loads((tmp_path / "A" / "config.json").read_text())["request"]["seed"] == 2


def test_divergence_is_an_error_and_overwrites_nothing(tmp_path):
    write_pairs(tmp_path)
    extra = ("--precision", "fp16", "--lr", 1000, "--steps", 200, "--save-every", 10)
    result = train(tmp_path, "pairs", *extra, "--out", "A")
    line = expect_error(result, 1, "learning rate", "a lower --lr")
    assert "diverged" in line
    assert "warning: fp16 does not train on a CPU" in result.stderr.decode()
    from safetensors.torch import load_file

    assert not (tmp_path / "A" / "last").exists()  # the loss was wrong from the first save on
    for path in (tmp_path / "A").rglob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values())


@pytest.mark.parametrize(
    "name", ["bom-crlf-source", "lines-u2028-pair", "tsv-anki-attribution", "tsv-open-quote"]
)
def test_the_shared_cases_hold_where_they_are_at_hand(cases, tmp_path, name):
    if cases is None:
        expected, spec = len(PAIRS), str(write_pairs(tmp_path))
    else:
        case = (cases / name / "case.toml").read_text()
        expected = int(re.search(r"^pairs *= *(\d+)", case, re.M)[1])
        single = [p for p in (cases / name).iterdir() if p.suffix in {".tsv", ".txt"}]
        spec = str(single[0]) if single else f"{cases / name / 'src.en'},{cases / name / 'tgt.fr'}"
    assert f"train: {expected} pairs" in ok(train(tmp_path, spec))
