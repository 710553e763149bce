import pytest
import torch
from torch.nn import functional as F

from nmt_cli.batches import with_ends
from nmt_cli.metrics import Bleu
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.precision import Precision
from nmt_cli.search import SearchOptions, search
from nmt_cli.tokenized import Tokenizers
from nmt_cli.tokenizer import EOS, TextRule, Tokenizer, train
from nmt_cli.validation import Validation
from tests.conftest import PAIRS

FP32 = Precision("fp32", "")


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    rule = TextRule()
    both = Tokenizer(train([side for pair in PAIRS for side in pair], rule, "char", 320), rule)
    return Tokenizers(both, both)


@pytest.fixture
def pairs(tokenizers):
    return [
        (tgt, with_ends(tokenizers.src.encode(src), tokenizers.tgt.encode(tgt)))
        for src, tgt in PAIRS
    ]


def make_model(name: str, tokenizers: Tokenizers):
    torch.manual_seed(3)
    arch, size = architecture(name), len(tokenizers.src)
    options = arch.options(**arch.sizes["tiny"])
    return arch.build(options, Vocabulary(size, size, True)).eval()


def nats(model, pair) -> tuple[float, int]:
    """-log P of one target, read alone, and its tokens."""
    src, tgt = torch.tensor([pair.src]), torch.tensor([pair.tgt])
    with torch.inference_mode():
        memory = model.encode(src, torch.ones_like(src, dtype=torch.bool))
        hidden = model.decode(tgt[:, :-1], memory, model.start(memory)).hidden
        loss = F.cross_entropy(model.project(hidden)[0], tgt[0, 1:], reduction="sum")
    return float(loss), tgt.shape[1] - 1


def test_the_loss_is_that_of_a_token_whatever_the_batches(tokenizers, pairs):
    model = make_model("lstm-attn", tokenizers)
    score = Validation(iter(pairs), tokenizers, Bleu("13a", False), False)(model, FP32)
    alone = [nats(model, ids) for _, ids in pairs]
    expected = sum(loss for loss, _ in alone) / sum(tokens for _, tokens in alone)
    assert score.loss == pytest.approx(expected, rel=1e-5)


def test_samples_are_greedy_translations_of_the_first_pairs(tokenizers, pairs):
    model = make_model("lstm-attn", tokenizers)
    validation = Validation(pairs, tokenizers, Bleu("13a", False), False)
    validation(model, FP32)
    assert [sample.number for sample in validation.samples] == [1, 2, 3, 4, 5]
    for sample, (reference, ids) in zip(validation.samples, pairs, strict=False):
        src = torch.tensor([ids.src])
        ((best,),) = search(model, src, src >= 0, SearchOptions(beam=1))
        assert sample.translation == tokenizers.tgt.decode(list(best.tokens))
        assert (sample.reference, sample.attention) == (reference, None)
        assert sample.source == tokenizers.src.decode(list(ids.src[:-1])) and ids.src[-1] == EOS


@pytest.mark.parametrize(("arch", "attends"), [("lstm-attn", True), ("lstm", False)])
def test_samples_have_attention_where_it_is_wanted_and_there_is_any(
    arch, attends, tokenizers, pairs
):
    validation = Validation(pairs, tokenizers, Bleu("13a", False), True)
    validation(make_model(arch, tokenizers), FP32)
    for sample in validation.samples:
        assert (sample.attention is not None) == attends
        if sample.attention:
            rows = sample.attention.weights.sum(1)
            assert torch.allclose(rows, torch.ones_like(rows), atol=1e-5)


def test_a_long_source_is_read_as_far_as_when_translating(tokenizers, pairs, monkeypatch):
    monkeypatch.setattr("nmt_cli.validation.MAX_SOURCE_TOKENS", 4)
    model = make_model("lstm-attn", tokenizers)
    validation = Validation(pairs[:1], tokenizers, Bleu("13a", False), False)
    validation(model, FP32)
    src = torch.tensor([[*pairs[0][1].src[:4], EOS]])
    ((best,),) = search(model, src, src >= 0, SearchOptions(beam=1))
    assert validation.samples[0].translation == tokenizers.tgt.decode(list(best.tokens))
