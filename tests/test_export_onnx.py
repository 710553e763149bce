"""Every architecture as ONNX graphs, run in ONNX Runtime."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from nmt_cli.batches import pad
from nmt_cli.export.onnx import export
from nmt_cli.models import Vocabulary, architectures
from nmt_cli.models.options import parse
from nmt_cli.tokenizer import EOS
from tests.conftest import expect_error, nmt, text, write_pairs

DOCS = Path(__file__).parent.parent / "docs" / "export.md"
V = 30
EVERY = [(arch, variant) for arch in architectures() for variant in arch.variants]
SOME = [(arch, arch.variants[0]) for arch in architectures() if arch.name != "hybrid"]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def assert_the_graphs_are_the_model(arch, variant, folder):
    """Step by step over a padded batch, of another size and length than was traced."""
    torch.manual_seed(1)
    options = parse(arch.options, {**arch.sizes["tiny"], "dropout": 0.0, **variant}, arch.name)
    model = arch.build(options, Vocabulary(V, V, True)).eval()
    export(model, folder)
    encoder, decoder = (session(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    src, mask = pad([[5, 6, 7, 8, 9, EOS], [8, EOS], [4, 5, 6, EOS], [7, 7, EOS], [5, EOS]])
    tgt = torch.randint(4, V, (5, 6))
    with torch.no_grad():
        memory = model.encode(src, mask)
        hidden = model.decode(tgt, memory, model.start(memory)).hidden
        expected = torch.log_softmax(model.project(hidden), dim=-1).numpy()
    names = [each.name for each in encoder.get_outputs()]
    outputs = encoder.run(None, {"src": src.numpy(), "src_mask": mask.numpy()})
    now = dict(zip(names, outputs, strict=True))
    after = [each.name.replace("next", "state") for each in decoder.get_outputs()]
    for t in range(tgt.shape[1]):
        now["token"] = tgt[:, t].numpy()
        given = {each.name: now[each.name] for each in decoder.get_inputs()}
        now |= zip(after, decoder.run(None, given), strict=True)
        np.testing.assert_allclose(now["log_probs"], expected[:, t], atol=2e-5)


def names(cases):
    return [f"{arch.name}-{variant}" for arch, variant in cases]


def is_written(variant):
    return variant.get("positions") != "relative"


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "variant"), SOME, ids=names(SOME))
def test_the_graphs_give_the_same_probabilities(arch, variant, tmp_path):
    assert_the_graphs_are_the_model(arch, variant, tmp_path)


@pytest.mark.slow
def test_what_was_learnt_is_translated_by_the_script_of_the_docs(tmp_path):
    write_pairs(tmp_path)
    extra = ("--size", "tiny", "--steps", 150, "--lr", 0.01, "--dropout", 0, "-o", "R")
    text(nmt("train", "-d", "pairs", "-s", "en", "-t", "fr", *extra, cwd=tmp_path))
    text(nmt("export", "R", "graphs", "--to", "onnx", cwd=tmp_path))
    script = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[1]
    sentences = (tmp_path / "pairs.en").read_bytes()
    ours = nmt("translate", "-m", "R", "-b", 1, cwd=tmp_path, stdin=sentences)
    theirs = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        input=sentences,
        capture_output=True,
        check=True,
    )
    assert theirs.stdout == ours.stdout
    assert ours.stdout.count(b".") >= 12
    again = nmt("export", "R", "graphs", "--to", "onnx", cwd=tmp_path)
    expect_error(again, 2, "graphs", "--overwrite")
    int8 = nmt("export", "R", "other", "--to", "onnx", "--weights", "int8", cwd=tmp_path)
    expect_error(int8, 2, "--weights int8")


if __name__ == "__main__":  # all variants: some minutes
    for arch, variant in EVERY:
        if is_written(variant):
            folder = Path(sys.argv[1])
            assert_the_graphs_are_the_model(arch, variant, folder)
            print(arch.name, variant, "ok", flush=True)
