"""The laws that every back end obeys, over the registry and each architecture's variants."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load, save
from torch.nn import functional as F

from nmt_cli.batches import BatchSize, HeldIds, TrainingBatches, collate, with_ends
from nmt_cli.events import Score, Step
from nmt_cli.models import (
    Seq2Seq,
    Vocabulary,
    architecture,
    architectures,
    resolve_options,
    select,
)
from nmt_cli.models.base import Architecture, close_ranks
from nmt_cli.models.ensemble import Ensemble
from nmt_cli.models.options import describe, parse
from nmt_cli.precision import Precision
from nmt_cli.schedule import TrainingOptions
from nmt_cli.search import SearchOptions, search
from nmt_cli.teacher_forcing import target_hidden
from nmt_cli.tokenizer import EOS
from nmt_cli.training import Trainer

SMALL = {
    "d_model": 16, "d_embed": 12, "heads": 2, "d_ffn": 24, "dropout": 0.0, "encoder_layers": 2,
    "decoder_layers": 2, "d_state": 4,
}  # fmt: skip
V = 23
TOLERANCE = {"rtol": 0.0, "atol": 1e-9}


def small_options(arch: Architecture, variant):
    known = {option.name for option in describe(arch.options)}
    if "attention" in known:
        known.remove("heads")  # of one kind alone, and refused beside others
    return parse(
        arch.options, {**{k: v for k, v in SMALL.items() if k in known}, **variant}, arch.name
    )


CASES = [
    pytest.param(
        arch, variant, id=f"{arch.name}-{'-'.join(f'{k}={v}' for k, v in variant.items())}"
    )
    for arch in architectures()
    for variant in arch.variants
]


def build(arch, variant) -> Seq2Seq:
    torch.manual_seed(1)
    model = arch.build(small_options(arch, variant), Vocabulary(V, V, True))
    return model.double().eval()


def pytest_generate_tests(metafunc):
    if "arch" not in metafunc.fixturenames:
        return
    cases = CASES
    if metafunc.function.__name__ == "test_a_handful_of_pairs_is_fitted_exactly":
        cases = [
            pytest.param(*case.values, id=case.id, marks=pytest.mark.slow if case.values[1] else ())
            for case in CASES
        ]
    metafunc.parametrize(("arch", "variant"), cases)


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(EOS + 1, V, shape)


def mask_of(lengths: list[int], longest: int) -> torch.Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


def run(model: Seq2Seq, src, src_mask, tgt):
    memory = model.encode(src, src_mask)
    decoded = model.decode(tgt, memory, model.start(memory), attention=True)
    return model.project(decoded.hidden), decoded


def leaves(tree):
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def assert_close(a, b):
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_close(x, y)
    else:
        torch.testing.assert_close(a, b, **TOLERANCE)


@pytest.mark.parametrize("cuts", [(1,) * 7, (3, 4), (1, 5, 1), (6, 1)])
@pytest.mark.parametrize("max_length", [None, 12])
def test_decoding_in_chunks_equals_decoding_at_once(arch, variant, cuts, max_length):
    model = build(arch, variant)
    src, mask, tgt = ids(3, 6), mask_of([6, 4, 1], 6), ids(3, 7)
    logits, whole = run(model, src, mask, tgt)
    memory = model.encode(src, mask)
    state = model.start(memory, max_length)
    parts, attention = [], []
    for chunk in tgt.split(list(cuts), dim=1):
        decoded = model.decode(chunk, memory, state, attention=True)
        state = decoded.state
        parts.append(model.project(decoded.hidden))
        attention.append(decoded.attention)
    assert_close(torch.cat(parts, 1), logits)
    for layer, weights in enumerate(whole.attention):
        assert_close(torch.cat([part[layer] for part in attention], 2), weights)
    more = ids(3, 2)
    on = model.decode(more, memory, state)
    from_whole = model.decode(more, memory, whole.state)
    assert_close(model.project(on.hidden), model.project(from_whole.hidden))


def test_state_is_a_value_that_decode_leaves_alone(arch, variant):
    model = build(arch, variant)
    memory = model.encode(ids(2, 5), mask_of([5, 3], 5))
    state = model.decode(ids(2, 3), memory, model.start(memory)).state
    tokens = ids(2, 1)
    first = model.decode(tokens, memory, state).hidden
    model.decode(ids(2, 4), memory, state)
    assert_close(model.decode(tokens, memory, state).hidden, first)


def test_logits_do_not_depend_on_later_tokens(arch, variant):
    model = build(arch, variant)
    src, mask, tgt = ids(2, 5), mask_of([5, 5], 5), ids(2, 6)
    changed = tgt.clone()
    changed[:, 4:] = ids(2, 2)
    assert_close(run(model, src, mask, changed)[0][:, :4], run(model, src, mask, tgt)[0][:, :4])


def test_padding_does_not_change_logits(arch, variant):
    model = build(arch, variant)
    lengths = [5, 2, 3]
    src, tgt = ids(3, 5), ids(3, 4)
    mask = mask_of(lengths, 5)
    logits, decoded = run(model, src, mask, tgt)
    wide = torch.cat([src, ids(3, 3)], 1)
    wide[:, :5][~mask] = ids(int((~mask).sum()))
    padded, more = run(model, wide, mask_of(lengths, 8), torch.cat([tgt, ids(3, 2)], 1))
    assert_close(padded[:, :4], logits)
    for weights, expected in zip(more.attention, decoded.attention, strict=True):
        assert_close(weights[:, :, :4, :5], expected)
    for row, length in enumerate(lengths):
        alone = slice(row, row + 1)
        one = run(model, src[alone, :length], mask[alone, :length], tgt[alone])[0]
        assert_close(one, logits[alone])


def test_selecting_rows_before_decoding_equals_after(arch, variant):
    model = build(arch, variant)
    src, mask = ids(4, 5), mask_of([5, 3, 4, 1], 5)
    rows = torch.tensor([2, 0, 0, 3])
    memory = model.encode(src, mask)
    state = model.decode(ids(4, 3), memory, model.start(memory)).state
    tokens = ids(4, 2)
    after = model.decode(tokens, memory, state)
    before = model.decode(tokens[rows], select(memory, rows), select(state, rows))
    assert_close(before.hidden, after.hidden[rows])
    assert_close(before.state, select(after.state, rows))


@torch.inference_mode()
def test_closing_ranks_gives_what_selecting_gives(arch, variant):
    model = build(arch, variant)
    src, mask = ids(5, 5), mask_of([5, 3, 4, 1, 2], 5)
    memory = model.encode(src, mask)
    state = model.decode(ids(5, 3), memory, model.start(memory)).state
    rows, moves, tokens = torch.tensor([0, 3, 2]), torch.tensor([[1], [3]]), ids(3, 2)
    chosen = model.decode(tokens, select(memory, rows), select(state, rows))
    memory, state = close_ranks(memory, moves, 3), close_ranks(state, moves, 3)
    closed = model.decode(tokens, memory, state)
    assert_close(closed.hidden, chosen.hidden)
    assert_close(closed.state, chosen.state)


def test_beams_share_the_memory_of_their_sentence(arch, variant):
    model = build(arch, variant)
    B, K = 3, 4
    src, mask = ids(B, 5), mask_of([5, 2, 4], 5)
    memory = model.encode(src, mask)
    rows = torch.arange(B).repeat_interleave(K)
    tokens = ids(B * K, 3)
    state = select(model.start(memory), rows)
    shared = model.decode(tokens, memory, state, attention=True)
    copied = model.decode(tokens, select(memory, rows), state, attention=True)
    assert_close(shared.hidden, copied.hidden)
    assert_close(shared.attention, copied.attention)
    assert_close(shared.state, copied.state)


def test_attention_is_a_distribution_over_real_source_tokens(arch, variant):
    model = build(arch, variant)
    mask = mask_of([6, 3, 1], 6)
    for weights in run(model, ids(3, 6), mask, ids(3, 4))[1].attention:
        B, H, T, S = weights.shape
        assert (B, T, S) == (3, 4, 6) and H >= 1
        assert (weights >= 0).all()
        assert (weights.masked_select(~mask[:, None, None, :].expand_as(weights)) == 0).all()
        sums = weights.sum(-1)
        if variant.get("attention") == "local-p":  # its Gaussian takes a part
            assert (sums > 0).all() and (sums <= 1).all()
        else:
            assert_close(sums, torch.ones_like(sums))


def test_attention_is_given_only_when_asked_for(arch, variant):
    model = build(arch, variant)
    memory = model.encode(ids(1, 3), mask_of([3], 3))
    assert model.decode(ids(1, 2), memory, model.start(memory)).attention == ()


def test_every_parameter_gets_a_finite_gradient(arch, variant):
    model = build(arch, variant).train()
    pairs = [with_ends(ids(n).tolist(), ids(n + 1).tolist()) for n in (3, 5, 2)]
    hidden, targets = target_hidden(model, collate(pairs))
    F.cross_entropy(model.project(hidden), targets, reduction="sum").backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_options_and_weights_survive_the_round_trip(arch, variant):
    model = build(arch, variant)
    weights = load(save({n: p.detach().clone() for n, p in model.named_parameters()}))
    options = parse(arch.options, dataclasses.asdict(small_options(arch, variant)), arch.name)
    other = arch.build(options, Vocabulary(V, V, True)).double().eval()
    other.load_state_dict(weights, strict=False)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(weights[name])
    src, mask, tgt = ids(2, 4), mask_of([4, 2], 4), ids(2, 3)
    assert_close(run(other, src, mask, tgt)[0], run(model, src, mask, tgt)[0])


def test_autocast_keeps_recurrent_state_in_fp32_and_changes_little(arch, variant):
    model = build(arch, variant).float()
    src, mask, tgt = ids(2, 12), mask_of([12, 7], 12), ids(2, 30)
    exact, _ = run(model, src, mask, tgt)
    with torch.autocast("cpu", torch.bfloat16):
        logits, decoded = run(model, src, mask, tgt)
    difference = (logits.float() - exact).square().mean().sqrt() / exact.std()
    assert difference < 0.05
    recurrent = [part for part in leaves(decoded.state) if part.dim() != 4]  # no keys, values
    assert all(part.dtype in {torch.float32, torch.int64} for part in recurrent)


def test_a_handful_of_pairs_is_fitted_exactly(arch, variant):
    torch.manual_seed(0)
    known = {option.name for option in describe(arch.options)}
    wide = {name: 32 for name in ("d_model", "d_embed") if name in known}
    model = arch.build(small_options(arch, {**wide, **variant}), Vocabulary(V, V, True))
    pairs = [with_ends(ids(n).tolist(), ids(n).tolist()) for n in (2, 3, 4, 5)]
    options = TrainingOptions(
        lr=5e-3, warmup=20, schedule="constant", accumulate=1, label_smoothing=0.0, clip_norm=1.0,
        weight_decay=0.0, betas=(0.9, 0.98), validate_every=1000, save_every=1000, average=0,
        patience=0, last_step=300, minutes=None,
    )  # fmt: skip
    batches = TrainingBatches(HeldIds(pairs), BatchSize(1000), seed=1)
    trainer = Trainer(model, batches, lambda *_: Score(0.0, 1.0), options, Precision("fp32", ""), V)
    fitted = (
        knows(model, pairs)
        for event in trainer.run(lambda: False)
        if isinstance(event, Step) and event.step % 50 == 0
    )
    assert any(fitted)


def knows(model, pairs):
    model.eval()
    right = True
    for pair in pairs:
        src = torch.tensor([pair.src])
        best = search(model, src, torch.ones_like(src, dtype=torch.bool), SearchOptions(beam=2))
        right = right and list(best[0][0].tokens) == pair.tgt[1:-1]
    model.train()
    return right


@pytest.mark.parametrize("law", [
    test_decoding_in_chunks_equals_decoding_at_once, test_padding_does_not_change_logits,
    test_selecting_rows_before_decoding_equals_after, test_beams_share_the_memory_of_their_sentence,
])  # fmt: skip
def test_an_ensemble_obeys_the_laws(law, monkeypatch):
    torch.manual_seed(1)
    members = [a.build(small_options(a, {}), Vocabulary(V, V, True)) for a in architectures()]
    ensemble = Ensemble(members).double().eval()
    monkeypatch.setitem(globals(), "build", lambda arch, variant: ensemble)
    extra = {"cuts": (3, 4), "max_length": None} if "chunks" in law.__name__ else {}
    law(None, None, **extra)


def test_an_ensemble_of_twins_equals_one():
    arch = architectures()[0]
    model = build(arch, {})
    src, mask, tgt = ids(2, 4), mask_of([4, 2], 4), ids(2, 3)
    single = run(model, src, mask, tgt)[0].log_softmax(-1)
    assert_close(run(Ensemble([model, model]), src, mask, tgt)[0], single)


@pytest.mark.parametrize("name", [arch.name for arch in architectures()])
def test_a_new_model_at_its_preset_guesses(name):
    """It loses about ln V nats a word, on long sentences too: nothing is blown up on the way.

    Somewhat more is right: tied embeddings let a new model bet on the word that it has just read.
    """
    torch.manual_seed(0)
    words = 1000
    model = architecture(name).build(
        resolve_options(name, "small", {}), Vocabulary(words, words, True)
    )
    src, tgt = (torch.randint(EOS + 1, words, (2, 60)) for _ in range(2))
    with torch.no_grad():
        logits, _ = run(model, src, torch.ones_like(src, dtype=torch.bool), tgt)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tgt[:, 1:].flatten(), reduction="sum")
    assert loss / tgt[:, 1:].numel() < 1.3 * math.log(words)
