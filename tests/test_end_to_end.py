"""Every command of the README, through the installed program."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nmt_cli.corpus import toy
from tests.conftest import nmt, write_pairs

pytestmark = pytest.mark.slow
README = Path(__file__).parents[1] / "README.md"


def short_pairs(count: int):
    pairs = toy.make(toy.ToyOptions(train=3 * count))["train"]
    return [pair for pair in pairs if len(pair.src.split()) <= 8][:count]


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(nmt|echo) ", line)]


def test_the_commands_of_the_readme_run(tmp_path):
    write_pairs(tmp_path / "corpus", short_pairs(20), "train", ("en", "de"))
    write_pairs(tmp_path / "corpus", short_pairs(5), "valid", ("en", "de"))
    write_pairs(tmp_path / "corpus", short_pairs(5), "test", ("en", "de"))
    (tmp_path / "input.en").write_text("The old man sleeps.\n")
    main = re.search(r"\.venv/bin/(nmt train .*)", README.read_text(encoding="utf-8"))
    commands = [main[1], *readme_commands()]
    assert len(commands) >= 7
    for command in commands:
        shortened = (
            command.replace("nmt train", "nmt train --steps 2 --size tiny -d corpus/ -s en -t de")
            .replace("eval", "eval -b 1")
            .replace("translate", "translate --max-length 9")
        )
        echoed, pipe, command = shortened.rpartition(" | ")
        words = shlex.split(command, comments=True)
        stdin = shlex.split(echoed)[1] + "\n" if pipe else None
        if "<" in words:
            stdin = (tmp_path / words[words.index("<") + 1]).read_text()
            words = words[: words.index("<")]
        result = nmt(*words[1:], cwd=tmp_path, stdin=stdin)
        assert result.returncode == 0, f"{command}\n{result.stderr.decode()}"
    assert (tmp_path / "length.png").stat().st_size > 10_000


@pytest.mark.parametrize("arch", ["lstm", "lstm-attn", "transformer"])
def test_an_architecture_learns_sentences_by_heart(tmp_path, arch):
    pairs = short_pairs(60)
    write_pairs(tmp_path, pairs, "pairs", ("en", "de"))
    command = f"train -a {arch} -d pairs -s en -t de -o R --size tiny --steps 600 --lr 3e-3"
    result = nmt(*command.split(), "--warmup", 50, "--dropout", 0, cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    assert json.loads((tmp_path / "R" / "eval.json").read_text())["systems"][0]["bleu"] > 95
    out = nmt("translate", "-m", "R", "pairs.en", cwd=tmp_path).stdout.decode().splitlines()
    right = sum(line == pair.tgt for line, pair in zip(out, pairs, strict=True))
    assert right > 0.9 * len(pairs)
