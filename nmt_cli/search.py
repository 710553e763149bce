"""Greedy, beam and sampled search: one loop for every back end.

The loop knows a model only through encode, start, decode and project. Memory has one row per
sentence; tokens and state have one per hypothesis, row b*K+k belonging to sentence b. Sentences
that are done leave the batch, and the last ones of several batches go on together.

A score is log P / ((5 + length) / 6) ** length_penalty (Wu et al. 2016, equation 14 without
coverage); length counts the tokens with EOS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.errors import NmtError
from nmt_cli.models.base import Seq2Seq, Tree, close_ranks, full_precision, join, lengths_of, select
from nmt_cli.tokenizer import BOS, EOS

_BLOCK = 64
"""Neighbours in the vocabulary of which only the best is compared at first."""
_FEW = 32
"""Hypotheses for which a step costs hardly less than for more of them."""


@dataclass(frozen=True)
class SearchOptions:
    """How translations are searched for."""

    beam: int = 5
    n_best: int = 1
    """Translations wanted for each sentence, at most ``beam``."""
    length_penalty: float = 0.6
    max_length: int | None = None
    """Most tokens of a translation, EOS included; by default twice the source's plus 20."""
    prefix: tuple[int, ...] = ()
    """Ids that every translation begins with; they count in the score and the length."""

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length <= len(self.prefix):
            raise NmtError(
                f"--max-length {self.max_length}: the prefix alone has {len(self.prefix)} tokens, "
                "and one more ends the sentence"
            )
        if not abs(self.length_penalty) <= 10:
            raise NmtError(f"--length-penalty {self.length_penalty:g}: must be from -10 to 10")


class Hypothesis(NamedTuple):
    """A finished translation."""

    tokens: tuple[int, ...]
    """Ids without BOS and EOS."""
    score: float
    """log P divided by the length penalty."""
    log_prob: float


_NOTHING = Hypothesis((), -math.inf, -math.inf)


class Candidates(NamedTuple):
    """Continuations of the beams of each sentence, best first; C >= K of them."""

    log_probs: Tensor
    """(B, C), of the whole hypothesis; -inf for none."""
    parents: Tensor
    """(B, C), the beam that each continues."""
    tokens: Tensor
    """(B, C)."""


class Step(NamedTuple):
    """Where a search stands."""

    keys: list[int]
    """The number by which each of the B sentences is known, whatever batch it stands in."""
    length: int
    """Tokens of a hypothesis after this step."""


Expand = Callable[[Tensor, Tensor, Step], Candidates]
"""Choose candidates from log P of the beams (B, K) and of the next token (B, K, V)."""


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha."""
    return float(((5 + length) / 6) ** alpha)


def best_continuations(totals: Tensor, log_probs: Tensor, step: Step) -> Candidates:
    """Take the 2 K best of all continuations, so that K stay when K of them end.

    They stand in the 2 K blocks of the vocabulary whose best are the best, so only those are looked
    at one by one.
    """
    B, K, V = log_probs.shape
    count, blocks = min(2 * K, K * V), -(-V // _BLOCK)
    missing = blocks * _BLOCK - V
    padded = F.pad(log_probs, (0, missing), value=-math.inf) if missing else log_probs
    of_block = padded.view(B, K, blocks, _BLOCK)
    best = (of_block.amax(-1) + totals.unsqueeze(-1)).flatten(1)  # (B, K * blocks)
    block = best.topk(min(count, K * blocks), dim=1).indices  # (B, N)
    rows = torch.arange(B, device=block.device).unsqueeze(1)
    parents = block // blocks
    within = of_block[rows, parents, block % blocks] + totals.gather(1, parents).unsqueeze(-1)
    values, flat = within.flatten(1).topk(count, dim=1)
    chosen = flat // _BLOCK
    tokens = block.gather(1, chosen) % blocks * _BLOCK + flat % _BLOCK
    return Candidates(values, parents.gather(1, chosen), tokens.clamp(max=V - 1))


@dataclass(frozen=True)
class Sampler:
    """Draw one continuation for each beam: temperature, then the k likeliest, then the nucleus p.

    What is drawn for a sentence depends on the seed, its key and the step, not on its neighbours.
    """

    seed: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __call__(self, totals: Tensor, log_probs: Tensor, step: Step) -> Candidates:
        """Choose by inverting the cumulative distribution at numbers drawn from 0 to 1."""
        B, K, V = log_probs.shape
        kept = self._truncate(log_probs.flatten(0, 1) / self.temperature)
        mass = kept.cpu().double().softmax(-1).cumsum(-1)  # (B * K, V)
        at = mass[:, -1:] * self._uniform(step, K).view(-1, 1)
        tokens = torch.searchsorted(mass, at, right=True).clamp(max=V - 1)
        tokens = tokens.view(B, K).to(log_probs.device)
        drawn = totals + log_probs.gather(2, tokens.unsqueeze(-1)).squeeze(-1)
        parents = torch.arange(K, device=tokens.device).expand(B, K)
        return Candidates(drawn, parents, tokens)

    def _uniform(self, step: Step, count: int) -> Tensor:
        rows = [
            np.random.default_rng((self.seed, key, step.length)).random(count) for key in step.keys
        ]
        return torch.from_numpy(np.stack(rows))  # (B, K) float64

    def _truncate(self, logits: Tensor) -> Tensor:
        """Forbid all but the k likeliest tokens and all beyond the nucleus (Holtzman et al. 2020).

        Args:
            logits: (N, V).
        """
        if self.top_k > 0:
            kth = logits.topk(min(self.top_k, logits.shape[-1]), dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < kth, -math.inf)
        if self.top_p < 1.0:
            ordered, index = logits.sort(dim=-1, descending=True)
            probs = ordered.softmax(-1)
            outside = (probs.cumsum(-1) - probs) >= self.top_p
            logits = logits.masked_fill(outside.scatter(-1, index, outside), -math.inf)
        return logits


class _Sentence:
    """The finished hypotheses of one sentence, and when to stop looking for better ones."""

    def __init__(self, options: SearchOptions, key: int, limit: int, sampled: bool) -> None:
        self.options = options
        self.key = key
        self.limit = limit
        self.sampled = sampled
        self.finished: list[Hypothesis] = []

    def add(self, tokens: list[int], log_prob: float) -> None:
        penalty = length_penalty(len(tokens) + 1, self.options.length_penalty)
        self.finished.append(Hypothesis(tuple(tokens), log_prob / penalty, log_prob))

    def is_done(self, best_alive: float, length: int) -> bool:
        """Tell whether the hypotheses wanted are found.

        A beam goes on until nothing alive would be among them even if the rest of it, of as many
        tokens as ``_longest`` says, were certain: a few poor ends must not stop it. Greedy search
        takes its first end, and samples are all drawn to theirs.

        Args:
            best_alive: log P of the best hypothesis that goes on; log P only falls.
            length: its tokens so far.
        """
        if best_alive == -math.inf or length >= self.limit:
            return True
        if self.sampled or len(self.finished) < self.options.n_best:
            return False
        if self.options.beam == 1:
            return True
        alpha = self.options.length_penalty
        kindest = max(length_penalty(n, alpha) for n in (length + 1, self._longest(length)))
        return self.best()[-1].score >= best_alive / kindest

    def _longest(self, length: int) -> int:
        """Give how long what is alive is thought to become: a fifth longer, and two tokens."""
        return min(self.limit, length + length // 5 + 2)

    def best(self) -> list[Hypothesis]:
        return sorted(self.finished, key=lambda h: h.score, reverse=True)[: self.options.n_best]


class Sources(NamedTuple):
    """A batch to translate."""

    src: Tensor
    """(B, S) int64."""
    mask: Tensor
    """(B, S) bool, True = a real token."""
    keys: Sequence[int]
    """The number by which each sentence is known to an ``Expand``."""


@dataclass
class _Running:
    """Sentences that are searched side by side, and have as many tokens each."""

    sentences: list[_Sentence]
    memory: Tree
    """B rows, changed in place as sentences leave."""
    state: Tree
    """B*K rows, but B before the first step, as beams start alike."""
    newest: Tensor
    """(B, K) int64, or (B, 1)."""
    totals: Tensor
    """(B, K), log P of the hypotheses."""
    written: Tensor
    """(B, K, length) int64."""
    src_length: int
    """S, padding included."""

    @property
    def length(self) -> int:
        """Count the tokens of a hypothesis."""
        return self.written.shape[2]

    def advance(self, model: Seq2Seq, options: SearchOptions, expand: Expand) -> None:
        """Write one token more, and let the sentences leave that are done."""
        (B, width), K = self.newest.shape, options.beam
        length = self.length + 1
        decoded = model.decode(self.newest.view(-1, 1), self.memory, self.state)
        logits = model.project(decoded.hidden[:, -1])
        log_probs = _allowed(logits, [sentence.limit for sentence in self.sentences], length)
        if length <= len(options.prefix):
            log_probs = _only(options.prefix[length - 1], log_probs)
        step = Step([sentence.key for sentence in self.sentences], length)
        chosen = expand(self.totals, log_probs.view(B, width, -1).expand(-1, K, -1), step)
        slots, self.totals, alive = _settle(chosen, self.written, self.sentences, K)
        self.state = decoded.state
        stay = [
            n for n, sentence in enumerate(self.sentences) if not sentence.is_done(alive[n], length)
        ]
        rows = torch.arange(B, device=slots.device)
        if len(stay) < B:
            stay, moves = _without_gaps(stay)
            rows = slots.new_tensor(stay)
            self._leave(stay, rows, slots.new_tensor(moves))
            slots, chosen = slots[rows], Candidates(*(part[rows] for part in chosen))
        parents = chosen.parents.gather(1, slots)  # (B, K)
        self.newest = chosen.tokens.gather(1, slots)
        if K > 1:  # after the first step any parent is the one that there was
            beams = rows[:, None] * width + parents.clamp(max=width - 1)
            self.state = select(self.state, beams.flatten())
        history = self.written.gather(1, parents.unsqueeze(-1).expand(-1, -1, length - 1))
        self.written = torch.cat([history, self.newest.unsqueeze(-1)], dim=2)

    def _leave(self, stay: list[int], rows: Tensor, moves: Tensor) -> None:
        """Keep these sentences; of a beam the state keeps its rows, which are chosen next."""
        self.memory = close_ranks(self.memory, moves, len(stay))
        if self.totals.shape[1] == 1:
            self.state = close_ranks(self.state, moves, len(stay))
        self.sentences = [self.sentences[n] for n in stay]
        self.totals, self.written = self.totals[rows], self.written[rows]

    def pause(self) -> _Running:
        """Give back the memory of those that left."""
        every = torch.arange(self.newest.numel(), device=self.newest.device)
        self.memory = select(self.memory, every[: len(self.sentences)])
        self.state = select(self.state, every)
        return self

    def joined_by(self, other: _Running) -> _Running:
        """Go on together with sentences of which as many tokens are written."""
        return _Running(
            self.sentences + other.sentences,
            join(self.memory, other.memory),
            join(self.state, other.state),
            torch.cat([self.newest, other.newest]),
            torch.cat([self.totals, other.totals]),
            torch.cat([self.written, other.written]),
            max(self.src_length, other.src_length),
        )


def search(
    model: Seq2Seq,
    src: Tensor,
    src_mask: Tensor,
    options: SearchOptions,
    expand: Expand = best_continuations,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        model: any back end.
        src: (B, S) int64.
        src_mask: (B, S) bool, True = a real token.
        options: beam (1 is greedy), length penalty and limit.
        expand: how continuations are chosen; a ``Sampler`` draws them instead, then the beams
            are independent samples.
        keys: the number by which each sentence is known to ``expand``; by default its place.

    Returns:
        for each sentence its hypotheses, best first, at most ``n_best`` of them; an empty one with
        no probability where a model that is broken gives none at all.
    """
    batch = Sources(src, src_mask, range(len(src)) if keys is None else keys)
    return search_batches(model, [batch], options, expand)


@torch.inference_mode()
def search_batches(
    model: Seq2Seq, batches: Sequence[Sources], options: SearchOptions, expand: Expand
) -> list[list[Hypothesis]]:
    """Translate batches one after the other, but the last sentences of all together.

    The few that take many more steps than their neighbours wait, when a step costs hardly less than
    for more of them, until those of other batches are as long. Never are more tokens of sources
    read together than the largest batch has.

    Returns:
        the hypotheses of all sentences, as ``search`` gives those of a batch.
    """
    sentences: list[_Sentence] = []
    waiting: list[_Running] = []
    few = _FEW // options.beam if len(batches) > 1 else 0
    most = max((batch.src.numel() for batch in batches), default=0)
    for batch in batches:
        running = _begin(model, batch, options, expand is not best_continuations)
        sentences += running.sentences
        while len(running.sentences) > few:
            running.advance(model, options, expand)
        if running.sentences:
            waiting.append(running.pause())
        longest = max((others.src_length for others in waiting), default=0)
        if (sum(len(others.sentences) for others in waiting) + few) * longest > most:
            _finish(model, waiting, options, expand)
            waiting = []
    _finish(model, waiting, options, expand)
    return [sentence.best() or [_NOTHING] for sentence in sentences]


def _finish(
    model: Seq2Seq, waiting: Sequence[_Running], options: SearchOptions, expand: Expand
) -> None:
    """Search to the end, together from where they are as long."""
    by_length = sorted(waiting, key=lambda running: running.length, reverse=True)
    while by_length:
        running = by_length.pop()
        while running.sentences and not (by_length and by_length[-1].length == running.length):
            running.advance(model, options, expand)
        if by_length and running.sentences:
            by_length[-1] = by_length[-1].joined_by(running)


def _begin(model: Seq2Seq, batch: Sources, options: SearchOptions, sampled: bool) -> _Running:
    """Read the sources, and stand before the first token."""
    K, B = options.beam, len(batch.keys)
    limits = _limits(batch.mask, options, model.max_positions)
    memory = model.encode(batch.src.clone(), batch.mask.clone())  # what changes is ours
    width = K if sampled else 1  # beams start alike: the first step is taken for one of them
    beams = torch.arange(B, device=batch.src.device).repeat_interleave(width)
    totals = batch.src.new_zeros((B, K), dtype=torch.float32)
    if not sampled:
        totals[:, 1:] = -math.inf  # only the first may branch
    return _Running(
        [
            _Sentence(options, key, limit, sampled)
            for key, limit in zip(batch.keys, limits, strict=True)
        ],
        memory,
        select(model.start(memory, max(limits)), beams),
        batch.src.new_full((B, width), BOS),
        totals,
        batch.src.new_empty((B, K, 0)),
        batch.src.shape[1],
    )


def _without_gaps(keep: list[int]) -> tuple[list[int], list[list[int]]]:
    """Order ascending rows so that most keep their places: the last ones go where others left.

    Returns:
        which row is in each place then, and the moves as ``close_ranks`` wants them.
    """
    count = len(keep)
    fillers = [row for row in keep if row >= count]
    gaps = sorted(set(range(count)).difference(keep))
    after = list(range(count))
    for gap, filler in zip(gaps, fillers, strict=True):
        after[gap] = filler
    return after, [gaps, fillers]


def _only(token: int, log_probs: Tensor) -> Tensor:
    """Forbid all but one token."""
    return torch.full_like(log_probs, -math.inf).index_copy_(
        -1, torch.tensor([token], device=log_probs.device), log_probs[..., token, None]
    )


def _limits(src_mask: Tensor, options: SearchOptions, positions: int | None) -> list[int]:
    """Bound each sentence by its own length, so that its neighbours do not matter."""
    longest = options.max_length
    own = [2 * n + 20 + len(options.prefix) for n in lengths_of(src_mask).tolist()]
    limits = own if longest is None else [longest] * len(own)
    return limits if positions is None else [min(limit, positions) for limit in limits]


def _allowed(logits: Tensor, limits: list[int], length: int) -> Tensor:
    """Normalise in fp32 and forbid what may not be written: control ids, and all but EOS last.

    On a CPU the logits are written over, which takes half the time.
    """
    logits = full_precision(logits)
    log_probs = torch.log_softmax(logits, dim=-1, out=logits if logits.is_cpu else None)
    log_probs[:, :EOS] = -math.inf  # PAD, UNK and BOS
    last = [n for n, limit in enumerate(limits) if length == limit]
    if last:
        by_sentence = log_probs.view(len(limits), -1, log_probs.shape[-1])
        by_sentence[last, :, :EOS] = -math.inf
        by_sentence[last, :, EOS + 1 :] = -math.inf
    return log_probs


def _settle(
    chosen: Candidates, written: Tensor, sentences: list[_Sentence], beam: int
) -> tuple[Tensor, Tensor, list[float]]:
    """Put ended candidates aside and fill the beams with the best that go on.

    Only an end among the K best counts. Returns the candidate in each beam (B, K), log P of
    the beams (B, K), and that of the best for each sentence.
    """
    ended = chosen.tokens == EOS
    counted = ended[:, :beam] & (chosen.log_probs[:, :beam] > -math.inf)
    n, c = counted.nonzero(as_tuple=True)
    found = (n, written[n, chosen.parents[n, c]], chosen.log_probs[n, c])
    for sentence, tokens, log_prob in zip(*(part.tolist() for part in found), strict=True):
        sentences[sentence].add(tokens, log_prob)
    going_on = chosen.log_probs.masked_fill(ended, -math.inf)
    totals, slots = going_on.sort(dim=1, descending=True, stable=True)
    return slots[:, :beam], totals[:, :beam], totals[:, 0].tolist()
