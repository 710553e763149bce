"""Subword regularisation: a text is cut in other ways from epoch to epoch.

BPE-dropout (Provilkov et al. 2020) and sampling from a unigram model (Kudo 2018). Sentencepiece
draws such segmentations too, but from a source that no seed governs, and a resumed run must see
what it would have seen. No piece reaches over a space, so each word is cut on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from nmt_cli.tokenizer import MARK, Tokenizer, escape

_UNKNOWN = 10.0
"""How far in log-probability a character without a piece is below the rarest one, as in the search
for the best."""
_CACHED = 1 << 18


class SubwordSampler:
    """Draws segmentations of lines.

    Args:
        tokenizer: of kind ``bpe`` or ``unigram``.
        kind: which.
        symbols: of the tokenizer, which stay whole; a word that has one is always cut alike.
        strength: for ``bpe`` the chance that a merge is left out; for ``unigram`` the power to
            which the probability of each segmentation is raised, so that less is more varied.
    """

    def __init__(
        self, tokenizer: Tokenizer, kind: str, symbols: Sequence[str], strength: float
    ) -> None:
        self._tokenizer = tokenizer
        self._symbols = [escape(tokenizer.rule(symbol)) for symbol in symbols]
        self._strength = strength
        self._scores = tokenizer.scores()
        self._draw = self._merge if kind == "bpe" else self._walk
        self._bounds = min(self._scores.values()) - _UNKNOWN, max(map(len, self._scores))
        self._lattices: dict[str, Lattice] = {}

    def encode_all(self, lines: Iterable[str], seed: int) -> list[list[int]]:
        """Draw the ids of each line, the same ones for the same seed."""
        random = Random(seed)
        rule = self._tokenizer.rule
        words = (escape(rule(line)).split(" ") for line in lines)
        return [[i for word in line if word for i in self._encode(word, random)] for line in words]

    def _encode(self, word: str, random: Random) -> list[int]:
        if any(symbol in word for symbol in self._symbols):
            return self._tokenizer.encode_escaped(word)
        pieces = self._draw(MARK + word, random)
        return [i for piece in pieces for i in self._tokenizer.ids_of(piece)]

    def _merge(self, word: str, random: Random) -> list[str]:
        return merge(list(word), self._scores, self._strength, random)

    def _walk(self, word: str, random: Random) -> list[str]:
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = Lattice(word, self._scores, self._strength, *self._bounds)
            if len(self._lattices) < _CACHED:
                self._lattices[word] = lattice
        return lattice.draw(random)


def merge(
    pieces: list[str], scores: Mapping[str, float], dropout: float, random: Random
) -> list[str]:
    """Merge the best pair of neighbours until there is none, each left out by chance each time.

    Provilkov et al. 2020, algorithm 1.

    Args:
        pieces: characters.
        scores: what can be merged to; the highest first.
        dropout: the chance.
        random: its source.
    """
    while True:
        best, highest = -1, -math.inf
        for place in range(len(pieces) - 1):
            score = scores.get(pieces[place] + pieces[place + 1])
            if score is not None and random.random() >= dropout and score > highest:
                best, highest = place, score
        if best < 0:
            return pieces
        pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]


class Lattice:
    """All segmentations of a word, each with its probability (Kudo 2018, section 3.2).

    Draws are exact: from the end of the word back, each piece by the sum over all ways to what is
    before it.

    Args:
        word: to be cut.
        scores: log P of each piece.
        power: to which the probability of a segmentation is raised.
        unknown: the score of a character that is no piece.
        longest: characters of the longest piece.
    """

    def __init__(
        self, word: str, scores: Mapping[str, float], power: float, unknown: float, longest: int
    ) -> None:
        self._word = word
        sums = [0.0]  # log of the summed weight of all segmentations of the first so many
        self._ends: list[tuple[list[int], list[float]]] = []
        for end in range(1, len(word) + 1):
            begins, weights = [], []
            for begin in range(max(0, end - longest), end):
                score = scores.get(word[begin:end], unknown if end - begin == 1 else None)
                if score is not None:
                    begins.append(begin)
                    weights.append(sums[begin] + power * score)
            most = max(weights)
            relative = [math.exp(weight - most) for weight in weights]
            sums.append(most + math.log(sum(relative)))
            self._ends.append((begins, relative))

    def draw(self, random: Random) -> list[str]:
        """Draw one."""
        pieces, end = [], len(self._word)
        while end > 0:
            begins, weights = self._ends[end - 1]
            begin = begins[0]
            if len(begins) > 1:
                (begin,) = random.choices(begins, weights)
            pieces.append(self._word[begin:end])
            end = begin
        return pieces[::-1]
