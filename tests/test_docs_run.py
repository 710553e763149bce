"""The commands of the docs are run, page by page, as they stand, but on small data and briefly."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PAIRS, write_pairs

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": ROOT / "README.md", "data/README.md": ROOT / "data" / "README.md"} | {
    str(page.relative_to(ROOT)): page for page in sorted(ROOT.glob("docs/*.md"))
}
_NOT_HERE = re.compile(r"venv|\bpip\b|pytest|mkdocs|hf:|--tracker|COMET|comet")
"""Lines that install, or need what tests do without."""
_OTHERS = {"docs/new-architecture.md", "docs/export.md", "data/README.md"}
"""Pages whose commands their own tests run, or another page has."""

BRIEFLY = """#!{python}
import os, sys
words = sys.argv[1:]
if words[:1] == ["train"] and "--resume" not in words:
    spec = words[words.index("-d") + 1] if "-d" in words else ""
    if not spec:
        words += ["-d", "corpus/", "-s", "en", "-t", "de"]
    elif spec.startswith("toy"):
        words += ["--valid", "corpus/", "--test", "corpus/"]
    elif ":" in spec:
        words[words.index("-d") + 1] += ",train=60,test=6"
    words += ["--steps", "2", "--size", "tiny", "--overwrite", "--threads", "1"]
os.execv({program!r}, [{program!r}, *words])
"""


def commands(page: Path) -> list[str]:
    """Give the shell lines of a page: fenced as sh, or indented."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```|^((?: {4}\S[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for part in block for line in part.splitlines()]
    return [line for line in lines if re.search(r"\bnmt ", line) and not _NOT_HERE.search(line)]


WITH_COMMANDS = [name for name, page in PAGES.items() if commands(page) and name not in _OTHERS]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with what the pages name: a corpus, files, three runs, and an nmt that is brief."""
    folder = tmp_path_factory.mktemp("docs")
    program = str(Path(sys.executable).with_name("nmt"))
    short = folder / "bin" / "nmt"
    short.parent.mkdir()
    short.write_text(BRIEFLY.format(python=sys.executable, program=program))
    short.chmod(short.stat().st_mode | stat.S_IXUSR)
    for split in ("train", "valid", "test"):
        write_pairs(folder / "corpus", PAIRS, split, ("en", "de"))
    rows = "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS)
    for split in ("train", "val", "test", "test_2016_flickr"):
        write_pairs(folder / "multi30k", PAIRS, split, ("en", "de"))
        write_pairs(folder / "wmt", PAIRS, split, ("en", "de"))
    for name in ("huge.tsv", "pairs.tsv", "fra.txt"):
        (folder / name).write_text(rows)
    for name in ("input.en", "test.en"):
        shutil.copy(folder / "corpus" / "test.en", folder / name)
    for name in ("test.de", "theirs.de", "ours.de", "output.de"):
        shutil.copy(folder / "corpus" / "test.de", folder / name)
    for arch in ("lstm", "lstm-attn", "transformer"):
        run(folder, f"nmt train --arch {arch}")
    return folder


def run(folder: Path, line: str) -> None:
    """Run a line in bash; no command of it may fail."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line.replace("/scratch", str(folder))],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"


def test_the_pages_that_a_newcomer_reads_have_commands():
    assert {"README.md", "docs/own-data.md", "docs/tutorial.md", "docs/evaluation.md"} <= set(
        WITH_COMMANDS
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_of_a_page_work(name, place, tmp_path):
    folder = tmp_path / "place"
    shutil.copytree(place, folder)
    for line in commands(PAGES[name]):
        run(folder, line)


@pytest.mark.slow
def test_the_page_on_python_works(place, tmp_path):
    folder = tmp_path / "place"
    shutil.copytree(place, folder)
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "BLEU by source length" in done.stdout.decode()
