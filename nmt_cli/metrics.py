"""BLEU and its kin over all sentences and by source length, with bootstrap intervals.

BLEU (Papineni et al. 2002) is sacrebleu's (Post 2018). A corpus score is a function of summed
sentence statistics, so buckets and bootstrap samples (Koehn 2004) are sums of the same rows.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import NmtError

Unit = Literal["word", "token", "char"]
Floats = npt.NDArray[np.float64]

METRICS = ("bleu", "chrf", "chrf++", "ter", "exact")
SPACELESS = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue", "wuu"})
"""Languages written without spaces: their sources are measured in characters."""
_TWO_LETTERS = {
    "cmn": "zh", "zho": "zh", "chi": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo",
    "khm": "km", "mya": "my", "bur": "my", "bod": "bo", "tib": "bo",
}  # fmt: skip
"""Codes of ISO 639-2 and 639-3 by those of 639-1, where the language decides something."""
RESAMPLES = 1000
_BOOTSTRAP_SEED = 12345
_ORDER = 4


class Interval(NamedTuple):
    """A 95 % bootstrap interval."""

    low: float
    high: float


class Comparison(NamedTuple):
    """The difference of two systems on the same sentences and its paired-bootstrap p-value."""

    difference: float
    p: float


def base_language(code: str) -> str:
    """Give the language of a code with a region or script: ``zh`` of ``zh_CN`` and ``zho_Hans``."""
    base = code.replace("_", "-").split("-")[0].lower()
    return _TWO_LETTERS.get(base, base)


def bleu_tokenizer(language: str) -> tuple[str, str | None]:
    """Choose sacrebleu's tokenizer for a language, and a warning where it is a makeshift."""
    base = base_language(language)
    if base in {"zh", "yue", "wuu"}:
        return "zh", None
    wanted = {"ja": ("ja-mecab", "MeCab"), "ko": ("ko-mecab", "mecab_ko")}
    if base in wanted:
        name, module = wanted[base]
        if _can_import(module):
            return name, None
        extra = f"pip install 'sacrebleu[{base}]'"
        return "char", f"BLEU over characters, since {name} is not installed ({extra})"
    if base in SPACELESS:
        return "char", f"BLEU over characters, since {language} is written without spaces"
    return "13a", None


def _can_import(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def length_unit(language: str) -> Unit:
    """Choose the unit of source length: characters for a language without spaces, else words."""
    return "char" if base_language(language) in SPACELESS else "word"


def text_lengths(lines: Sequence[str], unit: Literal["word", "char"]) -> list[int]:
    """Measure lines in white-space words or in characters that are not white space."""
    if unit == "char":
        return [sum(not char.isspace() for char in line) for line in lines]
    return [len(line.split()) for line in lines]


class Bleu:
    """Corpus BLEU of one tokenizer and case, from sentence statistics."""

    def __init__(self, tokenizer: str, lowercase: bool = False) -> None:
        from sacrebleu.metrics.bleu import BLEU

        self.lowercase = lowercase
        logging.getLogger("sacrebleu").setLevel(logging.ERROR)
        if tokenizer not in BLEU.TOKENIZERS:
            known = ", ".join(sorted(name for name in BLEU.TOKENIZERS if name))
            raise NmtError(f"--bleu-tokenize {tokenizer}: unknown; there are: {known}")
        try:
            self._metric = BLEU(tokenize=tokenizer, lowercase=lowercase, effective_order=True)
            self._signer = BLEU(tokenize=tokenizer, lowercase=lowercase)
        except (RuntimeError, ValueError, ImportError, OSError) as error:
            raise NmtError(f"--bleu-tokenize {tokenizer}: {error}") from None

    @cached_property
    def signature(self) -> str:
        """Give sacrebleu's signature, and that both sides were brought to NFC."""
        self._signer.corpus_score(["a"], [["a"]])
        return f"{self._signer.get_signature()}|norm:nfc"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Floats:
        """Count n-gram matches: rows (N, 10) of 4 matches, 4 totals and the two lengths."""
        rows = np.empty((len(hypotheses), 2 * _ORDER + 2))
        for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
            score = self._metric.sentence_score(nfc(hypothesis), [nfc(reference)])
            rows[row] = [*score.counts, *score.totals, score.sys_len, score.ref_len]
        return rows

    def score(self, summed: Floats) -> float:
        """Compute corpus BLEU from statistics (10,) summed over sentences."""
        correct, total = summed[:_ORDER], summed[_ORDER : 2 * _ORDER]
        result = self._signer.compute_bleu(
            [int(n) for n in correct],
            [int(n) for n in total],
            sys_len=int(summed[-2]),
            ref_len=int(summed[-1]),
            smooth_method="exp",
        )
        return float(result.score)


def nfc(text: str) -> str:
    """Compose a text, as both sides are before they are compared."""
    return unicodedata.normalize("NFC", text)


def resamples(sentences: int) -> npt.NDArray[np.int64]:
    """Draw bootstrap samples: counts (RESAMPLES, N), the same for every system of that size."""
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    draws = generator.integers(0, sentences, size=(RESAMPLES, sentences))
    counts = np.zeros((RESAMPLES, sentences), dtype=np.int64)
    rows = np.repeat(np.arange(RESAMPLES), sentences)
    np.add.at(counts, (rows, draws.ravel()), 1)
    return counts


def interval(scores: Floats) -> Interval:
    """Take the middle 95 % of bootstrap scores."""
    low, high = np.percentile(scores, [2.5, 97.5])
    return Interval(float(low), float(high))


def compare(scores: Floats, baseline: Floats, difference: float) -> Comparison:
    """Test the difference of two systems on the same bootstrap samples, two-sided.

    p is the share of samples whose difference, once centred, is at least as large as the one
    observed (Riezler & Maxwell 2005, section 4), with one added to both counts.
    """
    centred = np.abs((scores - baseline) - np.mean(scores - baseline))
    extreme = int(np.sum(centred >= abs(difference) - 1e-12))
    return Comparison(difference, (extreme + 1) / (len(scores) + 1))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF (Popovic 2015), by sacrebleu."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus(CHRF(), hypotheses, references)


def chrf_plus_plus(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF++, chrF with word pairs (Popovic 2017), by sacrebleu."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus(CHRF(word_order=2), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus translation edit rate (Snover et al. 2006), by sacrebleu; lower is better."""
    from sacrebleu.metrics.ter import TER

    return _corpus(TER(), hypotheses, references)


def exact(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Share of sentences equal to their reference, in per cent."""
    same = sum(nfc(h) == nfc(r) for h, r in zip(hypotheses, references, strict=True))
    return 100.0 * same / len(hypotheses)


def _corpus(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> float:
    score = metric.corpus_score([nfc(h) for h in hypotheses], [[nfc(r) for r in references]])
    return float(score.score)


@dataclass(frozen=True)
class Bucket:
    """Source lengths from ``low`` to ``high``, both included; None is no bound."""

    low: int
    high: int | None

    @property
    def label(self) -> str:
        """Write as in the table: 1-10, 51+."""
        return f"{self.low}+" if self.high is None else f"{self.low}-{self.high}"


def buckets_of(edges: Sequence[int]) -> list[Bucket]:
    """Turn upper edges 10, 20 into 1-10, 11-20, 21+.

    Raises:
        NmtError: if the edges do not rise from at least 1.
    """
    if not edges or edges[0] < 1 or any(a >= b for a, b in pairwise(edges)):
        raise NmtError("--buckets takes rising numbers from 1 on, such as 10,20,30")
    lows = [1, *(edge + 1 for edge in edges)]
    return [Bucket(low, high) for low, high in zip(lows, [*edges, None], strict=True)]


def quantile_edges(lengths: Sequence[int], parts: int) -> list[int]:
    """Choose upper edges so that each bucket holds about as many sentences."""
    ordered = sorted(lengths)
    cuts = {max(ordered[len(ordered) * k // parts - 1], 1) for k in range(1, parts)}
    return sorted(cuts - {ordered[-1]}) or [ordered[-1]]


def bucket_index(length: int, buckets: Sequence[Bucket]) -> int:
    """Find the bucket of a length; a source of no words counts to the first."""
    for index, bucket in enumerate(buckets):
        if bucket.high is None or length <= bucket.high:
            return index
    raise AssertionError("the last bucket has no bound")
