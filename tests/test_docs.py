"""What the docs show is there: commands, options, and an example architecture that works."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
import torch
import typer

from nmt_cli import cli
from nmt_cli.models import Vocabulary, base
from nmt_cli.packing import LINEARS, pack
from nmt_cli.search import SearchOptions, search
from nmt_cli.tokenizer import EOS
from tests.models import test_laws as laws

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "new-architecture.md"
INDEX = ROOT / "docs" / "architectures" / "index.md"
PAGES = [
    "README.md",
    "data/README.md",
    *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md"))),
]


@pytest.fixture
def mean(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    exec(compile(code, str(DOCS), "exec"), {"__name__": "nmt_cli.models.mean"})
    assert code.count("\n") < 45
    return base.architecture("mean")


def test_the_example_obeys_the_laws(mean):
    for variant in mean.variants:
        for cuts in ((1,) * 7, (3, 4)):
            laws.test_decoding_in_chunks_equals_decoding_at_once(mean, variant, cuts, None)
        laws.test_state_is_a_value_that_decode_leaves_alone(mean, variant)
        laws.test_logits_do_not_depend_on_later_tokens(mean, variant)
        laws.test_padding_does_not_change_logits(mean, variant)
        laws.test_selecting_rows_before_decoding_equals_after(mean, variant)
        laws.test_every_parameter_gets_a_finite_gradient(mean, variant)
        laws.test_autocast_keeps_recurrent_state_in_fp32_and_changes_little(mean, variant)


def test_the_example_can_be_prepared_to_translate(mean):
    model = mean.build(mean.options(**mean.sizes["tiny"]), Vocabulary(30, 30, True)).eval()
    src = torch.tensor([[5, 6, 7, EOS]])
    pack(model, LINEARS["fp32"])
    assert search(model, src, src > 0, SearchOptions(beam=2, max_length=5))[0]


def test_the_example_learns(mean):
    laws.test_a_handful_of_pairs_is_fitted_exactly(mean, {})


@pytest.mark.slow
def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS.parent / "tour.ipynb").read_text("utf-8"))["cells"]
    names: dict = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"]).replace("steps=400", "steps=100")
        body = ast.parse(source).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "tour", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "tour", "eval"), names))
    picture, attention, scores, evaluation = (value for value in shown if value is not None)
    assert "data:image/png" in picture._repr_html_()
    assert attention.sum(axis=1) == pytest.approx(1, abs=0.1)
    assert scores[0].log_prob < 0
    assert "tour/" not in repr(evaluation)
    assert {"attn", "fixed"} <= {system["name"] for system in evaluation.as_json()["systems"]}


def test_raw_figures_can_be_read():
    for raw in ROOT.glob("benchmarks/raw/*.json"):
        assert json.loads(raw.read_text("utf-8")), raw


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_a_page_exist(page):
    text = (ROOT / page).read_text("utf-8")
    root = typer.main.get_command(cli.app)
    known = {option for name in root.commands for option in options_of(root.commands[name])}
    blocks = re.findall(r"^```sh\n(.*?)^```|^((?: {4}.*\n)+)", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for part in block for line in part.splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for words in map(split, [*lines, *spans]):
        if "nmt" not in words[:1]:
            option = words[0].split("=")[0] if words else ""
            assert not option.startswith("--") or option in known
            continue
        named = len(words) > 1 and not words[1].startswith("-")
        command = root.commands[words[1]] if named else root
        if hasattr(command, "commands") and len(words) > 2:
            command = command.commands[words[2]]
        for word in words[1:]:
            if re.match(r"--?[a-z]", word):
                assert word.split("=")[0] in options_of(command), " ".join(words)


def options_of(command):
    subcommands = getattr(command, "commands", {}).values()
    own = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    return {"--help", "-h", "--version"}.union(own, *(options_of(each) for each in subcommands))


def split(line):
    """Cut a shell line into the words of its last command of nmt."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    if "nmt" in words:
        words = words[len(words) - 1 - words[::-1].index("nmt") :]
    for end in ("|", "<", ">", "&&", ";"):
        words = words[: words.index(end)] if end in words else words
    return words


def test_the_site_has_every_page_and_every_architecture():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md", nav))
    index = INDEX.read_text("utf-8")
    names = {name for row in index.splitlines() for name in re.findall(r"`([\w-]+)`", row)}
    assert {arch.name for arch in base.architectures()} <= names


@pytest.mark.parametrize(
    "page", sorted(set(ROOT.glob("docs/architectures/*.md")) - {INDEX}), ids=str
)
def test_options_that_a_page_proposes_are_taken(page):
    text = page.read_text("utf-8")
    names = re.findall(r"`([\w-]+)`", text.splitlines()[0])
    proposed = [
        dict(option.split("=") for option in re.findall(r"-O (\S+=[^\s`]+)", span))
        for span in re.findall(r"`([^`]+)`", text)
    ]
    for given in filter(None, proposed):
        for name in names:
            base.resolve_options(name, "small", given)
