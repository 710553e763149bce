"""Likelihoods of given translations."""

import json
import math

import pytest
import torch

from nmt_cli.batches import collate, with_ends
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.scoring import log_probs
from tests.conftest import PAIRS, nmt, text, write_pairs


@pytest.mark.parametrize("name", ["lstm-attn", "transformer", "mamba"])
def test_log_p_is_the_sum_over_single_steps(name):
    torch.manual_seed(0)
    arch = architecture(name)
    options = arch.options(**{**arch.sizes["tiny"], "dropout": 0.0})
    model = arch.build(options, Vocabulary(40, 40, True)).double().eval()
    pairs = [with_ends([5, 6, 7], [8, 9]), with_ends([4], []), with_ends([9] * 6, [5, 6, 7, 8, 9])]
    together = log_probs(model, collate(pairs))
    for pair, given in zip(pairs, together, strict=True):
        src = torch.tensor([pair.src])
        total = 0.0
        with torch.inference_mode():
            memory = model.encode(src, torch.ones_like(src, dtype=torch.bool))
            state = model.start(memory)
            for token, following in zip(pair.tgt, pair.tgt[1:], strict=False):
                decoded = model.decode(torch.tensor([[token]]), memory, state)
                state = decoded.state
                total += float(model.project(decoded.hidden)[0, 0].log_softmax(-1)[following])
        assert given == pytest.approx(total, abs=1e-9)


@pytest.mark.slow
def test_a_translation_scores_as_it_was_found(trained, tmp_path):
    (tmp_path / "in.en").write_text("".join(f"{src}\n" for src, _ in PAIRS))
    args = ("-m", trained, "--length-penalty", 0, "--scores", "in.en")
    found = [line.split("\t") for line in text(nmt("translate", *args, cwd=tmp_path)).splitlines()]
    (tmp_path / "out.fr").write_text("".join(f"{line}\n" for _, line in found))
    files = ("--src", "in.en", "--ref", "out.fr")
    lines = text(nmt("score", trained, *files, "--each", "-", cwd=tmp_path)).splitlines()
    scores = [line.split("\t") for line in lines]
    assert [float(s) for s, _ in scores] == pytest.approx([float(s) for s, _ in found], abs=1e-3)
    form = json.loads(text(nmt("score", trained, *files, "--json", "-", cwd=tmp_path)))
    (system,) = form["systems"]
    log_prob, tokens = sum(float(s) for s, _ in scores), sum(int(n) for _, n in scores)
    assert system["log_prob"] == pytest.approx(log_prob, abs=1e-2)
    assert system["perplexity"] == pytest.approx(math.exp(-log_prob / tokens), rel=1e-4)
    for key in ("sentences", "tokens"):
        assert sum(part[key] for part in system["buckets"]) == system[key]


@pytest.mark.slow
def test_a_table_by_length_is_shown_and_wrong_pairs_cost(trained, tmp_path):
    write_pairs(tmp_path, name="right")
    swapped = [tgt for _, tgt in PAIRS[1:] + PAIRS[:1]]
    write_pairs(tmp_path, list(zip([src for src, _ in PAIRS], swapped, strict=True)), "wrong")
    values = []
    for name in ("right", "wrong"):
        table = text(nmt("score", trained, "-d", name, cwd=tmp_path)).splitlines()
        assert table[1].split()[0] == "1-10"
        values.append(float(table[-1].split()[-1]))
    assert 1 <= values[0] < values[1] / 5


def test_what_cannot_be_told_apart_is_refused(trained, fails):
    fails("score", trained, trained, mentions=["NAME=PATH"])
    fails("score", f"a={trained}", f"b={trained}", "--each", "-", mentions=["--each"])
    fails("score", trained, "--src", "x", mentions=["--ref"])
    fails("score", trained, "--each", "-", "--json", "-", mentions=["--each -", "--json -"])
