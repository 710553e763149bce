import itertools
import math

import pytest
import torch

import nmt_cli.search
from nmt_cli.batches import pad
from nmt_cli.errors import NmtError
from nmt_cli.models import Vocabulary, architecture, architectures
from nmt_cli.models.base import Decoded, Seq2Seq
from nmt_cli.search import (
    Sampler,
    SearchOptions,
    Sources,
    Step,
    best_continuations,
    length_penalty,
    search,
    search_batches,
)
from nmt_cli.tokenizer import BOS, EOS, PAD, UNK

V = 7
WORDS = range(EOS + 1, V)


class Table(Seq2Seq):
    """A model that is a table of logits: of the last two tokens and the first source token."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(V, V, V, V, generator=generator, dtype=torch.float64) * 2

    def encode(self, src, src_mask):
        return (src[:, 0],)

    def start(self, memory, max_length=None):
        return (torch.zeros_like(memory[0]),)

    def decode(self, tokens, memory, state, *, attention=False):
        first = memory[0].repeat_interleave(tokens.shape[0] // memory[0].shape[0])
        before = torch.cat([state[0][:, None], tokens[:, :-1]], 1)
        return Decoded(self.table[first[:, None], before, tokens], (tokens[:, -1],), ())

    def project(self, hidden):
        return hidden

    def log_prob(self, first: int, tokens: tuple[int, ...]) -> float:
        total, before, last = 0.0, 0, BOS
        for token in (*tokens, EOS):
            total += float(self.table[first, before, last].log_softmax(-1)[token])
            before, last = last, token
        return total


def brute_force(model: Table, first: int, longest: int, alpha: float):
    """Score every sequence of at most ``longest`` tokens, EOS included."""
    everything = [
        (model.log_prob(first, tokens) / length_penalty(len(tokens) + 1, alpha), tokens)
        for length in range(longest)
        for tokens in itertools.product(WORDS, repeat=length)
    ]
    return sorted(everything, reverse=True)


def sources(*firsts: int):
    return pad([[first, EOS] for first in firsts])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5, -0.5])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_what_brute_force_finds(seed, alpha):
    model = Table(seed)
    options = SearchOptions(beam=100, n_best=4, length_penalty=alpha, max_length=4)
    found = search(model, *sources(4, 5), options)
    for first, hypotheses in zip((4, 5), found, strict=True):
        expected = brute_force(model, first, 4, alpha)[:4]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        for hypothesis, (score, tokens) in zip(hypotheses, expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(model.log_prob(first, tokens), abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_takes_the_likeliest_token_at_each_step(seed):
    model = Table(seed)
    before, last, expected = 0, BOS, []
    while len(expected) < 9:
        row = model.table[4, before, last].clone()
        row[[PAD, UNK, BOS]] = -math.inf
        token = int(row.argmax())
        if token == EOS:
            break
        expected.append(token)
        before, last = last, token
    found = search(model, *sources(4), SearchOptions(beam=1, max_length=10))
    assert list(found[0][0].tokens) == expected


@pytest.mark.parametrize(("B", "K", "size"), [(3, 1, 8000), (4, 5, 1000), (2, 3, 7), (5, 2, 130)])
def test_the_best_continuations_are_those_of_a_full_sort(B, K, size):
    torch.manual_seed(0)
    log_probs, totals = torch.randn(B, K, size).log_softmax(-1), torch.randn(B, K)
    log_probs[..., :3] = -math.inf
    found = best_continuations(totals, log_probs, Step(list(range(B)), 1))
    values, flat = (totals.unsqueeze(-1) + log_probs).flatten(1).topk(min(2 * K, K * size), dim=1)
    assert torch.equal(found.log_probs, values)
    seen = values > -math.inf
    assert torch.equal(found.parents[seen], (flat // size)[seen])
    assert torch.equal(found.tokens[seen], (flat % size)[seen])
    assert int(found.tokens.max()) < size


def test_a_beam_branches_from_one_hypothesis_a_sentence_and_samples_are_apart_at_once(monkeypatch):
    model, rows = Table(0), []

    def decode(tokens, *rest, **options):
        rows.append(len(tokens))
        return Table.decode(model, tokens, *rest, **options)

    monkeypatch.setattr(model, "decode", decode)
    search(model, *sources(4, 5), SearchOptions(beam=3, max_length=2))
    search(model, *sources(4, 5), SearchOptions(beam=3, max_length=2), Sampler())
    assert rows[:2] == [2, 6]
    assert rows[2] == 6


def test_control_tokens_are_never_written():
    model = Table(0)
    model.table[..., [PAD, UNK, BOS]] += 50
    for hypotheses in search(model, *sources(4, 5, 6), SearchOptions(beam=4, n_best=4)):
        assert all(token > EOS for h in hypotheses for token in h.tokens)


def test_a_sentence_in_a_batch_is_translated_as_alone():
    model = Table(1)
    options = SearchOptions(beam=3, n_best=3)
    together = search(model, *sources(4, 5, 6, 4), options)
    for first, hypotheses in zip((4, 5, 6, 4), together, strict=True):
        alone = search(model, *sources(first), options)[0]
        assert [h.tokens for h in hypotheses] == [h.tokens for h in alone]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_is_kept_and_counts(beam):
    model = Table(3)
    prefix = (5, 4, 6)
    options = SearchOptions(beam=beam, n_best=beam, max_length=8, prefix=prefix)
    (found,) = search(model, *sources(4), options)
    for hypothesis in found:
        assert hypothesis.tokens[:3] == prefix
        assert hypothesis.log_prob == pytest.approx(model.log_prob(4, hypothesis.tokens), abs=1e-5)
    free = [h for h in brute_force(model, 4, 6, 0.6) if h[1][:3] == prefix]
    if beam > 1:
        assert found[0].score >= free[0][0] - 1e-5
    with pytest.raises(NmtError, match="prefix alone has 3 tokens"):
        SearchOptions(max_length=3, prefix=prefix)


def test_max_length_counts_the_end_and_is_kept():
    model = Table(2)
    model.table[..., EOS] -= 50
    found = search(model, *sources(4), SearchOptions(beam=2, max_length=5))
    assert len(found[0][0].tokens) == 4


@pytest.mark.parametrize("beam", [1, 4])
def test_every_back_end_gives_the_same_at_any_batch_size(beam):
    for arch in architectures():
        torch.manual_seed(2)
        small = arch.sizes["tiny"]
        model = arch.build(arch.options(**small), Vocabulary(30, 30, True)).double().eval()
        for parameter in model.parameters():
            parameter.data.mul_(2.0)
        rows = [[*torch.randint(4, 30, (n,)).tolist(), EOS] for n in (3, 9, 1, 5, 6)]
        options = SearchOptions(beam=beam, n_best=min(beam, 2), max_length=12)
        together = search(model, *pad(rows), options)
        for row, hypotheses in zip(rows, together, strict=True):
            alone = search(model, *pad([row]), options)[0]
            assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
            for a, b in zip(alone, hypotheses, strict=True):
                assert a.score == pytest.approx(b.score, abs=1e-8)


def some_batches():
    """Batches of falling length, as a search gets them."""
    lengths = [[9, 9, 8], [3, 6, 4, 5], [1, 2, 2]]
    return [
        [[*torch.randint(4, 30, (length,)).tolist(), EOS] for length in batch] for batch in lengths
    ]


@pytest.mark.parametrize("few", [1, 2, 5])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("arch", architectures(), ids=lambda arch: arch.name)
def test_who_waits_for_other_batches_is_translated_as_alone(arch, beam, few, monkeypatch):
    torch.manual_seed(2)
    model = arch.build(arch.options(**arch.sizes["tiny"]), Vocabulary(30, 30, True)).double().eval()
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    options = SearchOptions(beam=beam, n_best=min(beam, 2), max_length=12)
    batches = some_batches()
    alone = [best for batch in batches for best in search(model, *pad(batch), options)]
    monkeypatch.setattr(nmt_cli.search, "_FEW", few * beam)
    given = [Sources(*pad(batch), range(len(batch))) for batch in batches]
    together = search_batches(model, given, options, best_continuations)
    for one, other in zip(alone, together, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-8)


@pytest.mark.parametrize(("few", "steps"), [(0, 40), (1, 4 + 9 + 9), (9, 40)])
def test_who_waits_saves_steps_and_never_do_more_go_on_than_in_a_batch(few, steps, monkeypatch):
    model = Table(2)
    model.table[5, ..., EOS] += 50  # ends at once
    model.table[6, ..., EOS] -= 50
    decode, rows = model.decode, []

    def watched(tokens, memory, state):
        rows.append(len(memory[0]))
        return decode(tokens, memory, state)

    monkeypatch.setattr(model, "decode", watched)
    monkeypatch.setattr(nmt_cli.search, "_FEW", few)
    given = [Sources(*sources(5, 6, 5), range(3))] * 4
    search_batches(model, given, SearchOptions(beam=1, max_length=10), best_continuations)
    assert len(rows) == steps
    assert max(rows) == 3


@pytest.mark.parametrize("draws", [1, 3])
def test_who_waits_is_drawn_the_same_samples(draws, monkeypatch):
    model, options = Table(3), SearchOptions(beam=draws, n_best=draws, max_length=12)
    (src, mask), keys = sources(4, 5, 6, 4, 5, 6), range(6)
    alone = search(model, src, mask, options, Sampler(2), keys)
    monkeypatch.setattr(nmt_cli.search, "_FEW", 2 * draws)
    given = [Sources(src[n : n + 3], mask[n : n + 3], keys[n : n + 3]) for n in (0, 3)]
    assert search_batches(model, given, options, Sampler(2)) == alone


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_given_to_a_search_is_not_changed(beam):
    model = Table(2)
    model.table[5, ..., EOS] += 50  # leaves at once, and the other takes its place
    model.table[6, ..., EOS] -= 50
    src, mask = pad([[5, EOS], [6, 5, 4, EOS]])
    before = src.clone(), mask.clone()
    search(model, src, mask, SearchOptions(beam=beam))
    assert torch.equal(src, before[0]) and torch.equal(mask, before[1])


def test_the_score_of_a_hypothesis_is_that_of_teacher_forcing():
    arch = architectures()[0]
    torch.manual_seed(3)
    model = arch.build(arch.options(**arch.sizes["tiny"]), Vocabulary(30, 30, True)).eval()
    src, mask = pad([[5, 6, 7, EOS]])
    best = search(model, src, mask, SearchOptions(beam=3, max_length=8))[0][0]
    tgt = torch.tensor([[BOS, *best.tokens, EOS]])
    memory = model.encode(src, mask)
    logits = model.project(model.decode(tgt[:, :-1], memory, model.start(memory)).hidden)
    log_probs = logits.log_softmax(-1).gather(2, tgt[:, 1:, None]).sum().item()
    assert best.log_prob == pytest.approx(log_probs, abs=1e-4)
    assert best.score == pytest.approx(
        log_probs / ((5 + len(best.tokens) + 1) / 6) ** 0.6, abs=1e-4
    )


def test_samples_follow_the_model():
    model = Table(4)
    expand = Sampler()
    draws = search(
        model, *sources(4), SearchOptions(beam=4000, n_best=4000, max_length=30), expand
    )[0]
    share = sum(h.tokens == () for h in draws) / len(draws)
    allowed = model.table[4, 0, BOS, EOS:].softmax(-1)
    assert share == pytest.approx(float(allowed[0]), abs=0.03)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("draws", [1, 5])
def test_the_score_of_a_sample_is_the_models(draws, seed):
    model, options = Table(3), SearchOptions(beam=draws, n_best=draws, max_length=12)
    found = search(model, *sources(4, 5, 6), options, Sampler(seed))
    for first, hypotheses in zip((4, 5, 6), found, strict=True):
        assert len(hypotheses) == draws
        for hypothesis in hypotheses:
            expected = model.log_prob(first, hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)


def test_top_k_of_one_samples_greedily():
    model = Table(5)
    expand = Sampler(top_k=1)
    drawn = search(model, *sources(4), SearchOptions(beam=3, n_best=3, max_length=9), expand)[0]
    greedy = search(model, *sources(4), SearchOptions(beam=1, max_length=9))[0][0]
    assert {h.tokens for h in drawn} == {greedy.tokens}


def test_top_p_keeps_the_nucleus_alone():
    model = Table(6)
    model.table[4, 0, BOS] = torch.tensor([0, 0, 0, -9, 3.0, 2.9, -9]).double()
    expand = Sampler(top_p=0.3)
    draws = search(model, *sources(4), SearchOptions(beam=50, n_best=50, max_length=3), expand)[0]
    assert {h.tokens[0] for h in draws} == {4}


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_gives_nan_has_one_empty_hypothesis_a_sentence(beam):
    kind = architecture("lstm-attn")
    model = kind.build(kind.options(**kind.sizes["tiny"]), Vocabulary(20, 20, True)).eval()
    with torch.no_grad():
        model.readout.weight.fill_(math.nan)
    src = torch.tensor([[5, 6, EOS], [7, EOS, 0]])
    found = search(model, src, src != 0, SearchOptions(beam=beam, max_length=5))
    assert [len(best) for best in found] == [1, 1]
    assert found[0][0].score == -math.inf


def test_ends_that_are_many_but_poor_do_not_stop_a_beam():
    """EOS is always second best, so that a beam of 2 has two ends after two steps."""
    model = Table(1)
    model.table.fill_(-30.0)
    model.table[..., EOS + 1], model.table[..., EOS] = math.log(0.9), math.log(0.1)
    src = torch.tensor([[5, EOS]])
    options = SearchOptions(beam=2, max_length=7)
    (best,) = search(model, src, torch.ones_like(src, dtype=torch.bool), options)
    assert best[0].tokens == (EOS + 1,) * 6
