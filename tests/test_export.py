"""Models written for another engine, run there."""

import re
import subprocess
import sys
from pathlib import Path

import ctranslate2
import pytest
import torch
from sentencepiece import SentencePieceProcessor

from nmt_cli.batches import pad
from nmt_cli.errors import NmtError
from nmt_cli.export.ctranslate2 import specify
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.tokenizer import BOS, EOS, TextRule, Tokenizer, train
from tests.conftest import PAIRS, expect_error, nmt, text, write_pairs

DOCS = Path(__file__).parent.parent / "docs" / "export.md"
KNOWN = (
    {},
    {"norm": "post", "tied": False, "encoder_layers": 1},
    {"normalization": "rms", "ffn": "swiglu"},
    {"ffn": "gelu", "positions": "learned"},
    {"positions": "rope", "heads": 2},
    {"positions": "none"},
)


@pytest.fixture(scope="module")
def tokenizer():
    lines = [line for pair in PAIRS for line in pair]
    return Tokenizer(train(lines, TextRule(), "bpe", 330), TextRule())


@pytest.mark.parametrize("options", KNOWN, ids=str)
def test_the_engine_gives_the_same_probabilities(options, tokenizer, tmp_path):
    torch.manual_seed(3)
    arch = architecture("transformer")
    chosen = arch.options(**{**arch.sizes["tiny"], "dropout": 0.0, **options})
    model = arch.build(chosen, Vocabulary(len(tokenizer), len(tokenizer), True)).eval()
    for parameter in model.parameters():  # norms and biases that are not 1 and 0
        parameter.data += 0.1 * torch.randn_like(parameter)
    spec = specify(model, chosen, tokenizer, tokenizer)
    spec.validate()
    spec.optimize()
    spec.save(str(tmp_path))
    pieces = tokenizer.raw_pieces()
    pairs = [[tokenizer.encode(line) for line in pair] for pair in PAIRS[:3]]
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32")
    scored = engine.score_batch(
        [[pieces[i] for i in src] for src, _ in pairs],
        [[pieces[i] for i in tgt] for _, tgt in pairs],
    )
    src, mask = pad([[*src, EOS] for src, _ in pairs])
    with torch.inference_mode():
        memory = model.encode(src, mask)
        tgt, _ = pad([[BOS, *tgt, EOS] for _, tgt in pairs])
        logits = model.project(model.decode(tgt[:, :-1], memory, model.start(memory)).hidden)
        ours = logits.log_softmax(-1).gather(2, tgt[:, 1:, None]).squeeze(2)
    for row, result, (_, ids) in zip(ours, scored, pairs, strict=True):
        assert result.log_probs == pytest.approx(row[: len(ids) + 1].tolist(), abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["fp32", "int8"])
def test_the_engine_translates_what_was_learnt(weights, learnt, tmp_path):
    out = tmp_path / "fast"
    text(nmt("export", learnt, out, "--to", "ctranslate2", "--weights", weights, cwd=tmp_path))
    engine = ctranslate2.Translator(str(out))
    src, tgt = (SentencePieceProcessor(str(out / f"{side}.spm")) for side in ("source", "target"))
    batch = [src.encode(line, out_type=str) for line, _ in PAIRS]
    for beam in (1, 5):
        results = engine.translate_batch(batch, beam_size=beam)
        assert [tgt.decode(r.hypotheses[0]) for r in results] == [line for _, line in PAIRS]
    example = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    stdin = "".join(f"{line}\n" for line, _ in PAIRS).encode()
    shown = subprocess.run(
        [sys.executable, "-c", example[1]], cwd=tmp_path, input=stdin, capture_output=True
    )
    assert text(shown).splitlines() == [line for _, line in PAIRS]
    again = ("export", learnt, out, "--to", "ctranslate2")
    expect_error(nmt(*again, cwd=tmp_path), 2, "--overwrite")
    text(nmt(*again, "--overwrite", cwd=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"fast"}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learnt")
    write_pairs(folder)
    options = ("--steps", 300, "--size", "tiny", "--lr", "3e-3", "--warmup", 20, "--dropout", 0)
    data = ("-d", "pairs", "-s", "en", "-t", "fr", "-o", "run")
    text(nmt("train", "-a", "transformer", *data, *options, cwd=folder))
    return folder / "run"


@pytest.mark.slow
def test_what_the_engine_does_not_know_is_refused(trained, tmp_path):
    result = nmt("export", trained, tmp_path / "out", "--to", "ctranslate2", cwd=tmp_path)
    expect_error(result, 2, "lstm-attn", "transformer")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"positions": "alibi"}, "ALiBi"),
        ({"positions": "relative"}, "relative"),
        ({"cross_attention": False}, "cross-attention"),
        ({"kernel": "linear"}, "linear attention"),
        ({"window": 4}, "window"),
        ({"kv_heads": 1}, "kv_heads"),
        ({"d_ffn": 0}, "d_ffn"),
    ],
)
def test_refusals_name_the_option(options, word):
    from nmt_cli.export.ctranslate2 import require_known

    chosen = architecture("transformer").options(**options)
    with pytest.raises(NmtError, match=word):
        require_known(chosen)


def test_a_folder_of_other_things_is_left_alone(trained, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    args = ("export", trained, tmp_path, "--to", "ctranslate2", "--overwrite")
    expect_error(nmt(*args, cwd=tmp_path), 2, "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "mine"
