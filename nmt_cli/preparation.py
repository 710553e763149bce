"""From a corpus to what training reads: splits looked at, tokenizers learnt, text made ids."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from nmt_cli import tokenized, tokenizer
from nmt_cli.batches import Draw, HeldIds, IdPair, IdPairs, TrainingBatches, with_ends
from nmt_cli.config import MOST_HELD, Config
from nmt_cli.corpus.pairs import Pair, counted
from nmt_cli.corpus.preflight import Fingerprints, digest, fingerprints_of, preflight
from nmt_cli.corpus.splits import Splits, load_splits
from nmt_cli.corpus.spool import Places, SpooledPairs, select
from nmt_cli.errors import NmtError
from nmt_cli.models import Vocabulary
from nmt_cli.runs import RunFolder
from nmt_cli.subwords import SubwordSampler
from nmt_cli.tokenized import Tokenizers
from nmt_cli.tokenizer import Tokenizer
from nmt_cli.watching import Note, Watcher

_TOKENS_A_WORD = {"char": 20, "byte": 40}
"""A pair with a side of so many times --max-words tokens is left out: its words are no words."""
_SUBWORDS_A_WORD = 5

Notes = Generator[Note, None, None]


class Preparation:
    """The data of a run; ``read`` comes first, then one of the two ways to tokenizers."""

    splits: Splits
    fingerprints: Fingerprints
    """Of the training pairs."""
    known: Fingerprints
    """Of the same in their normal form, to tell whether test pairs are among them."""
    tokenizers: Tokenizers

    def __init__(self, config: Config, watcher: Watcher) -> None:
        self._config = config
        self._watcher = watcher

    def read(self) -> Notes:
        """Read the splits, and leave out what cannot be trained on.

        Raises:
            NmtError: for bad input.
        """
        data, work = self._config.data, self._watcher.work
        with work("reading", None) as advance:

            def collect(pairs: Iterable[Pair]) -> Sequence[Pair]:
                return data.spool().collect(counted(pairs, advance))

            raw = load_splits(data.spec, data.valid, data.test, data.request(), collect)
        for note in raw.notes:
            yield Note(note)
        with work("looking at the pairs", len(raw.train.pairs)) as advance:
            looked = preflight(raw, data.limits(), advance)
        self.splits, report, self.fingerprints, self.known = looked
        for line in report.lines():
            yield Note(line)

    def learn_tokenizers(self) -> Notes:
        """Make tokenizers from the training text, or take those of the run that training inits."""
        config = self._config.tokenizer
        notes: list[Note] = []
        train, sampled = self.splits.train.pairs, ""
        if self._config.init is not None:
            self.load_tokenizers(RunFolder(Path(self._config.init)))
        else:
            every = -(-len(train) // MOST_HELD)
            sampled = f", learnt from one pair in {every}" if every > 1 else ""
            some = list(islice(train, 0, None, every))
            src, tgt = [pair.src for pair in some], [pair.tgt for pair in some]
            with self._watcher.work("learning the vocabulary", None):
                if config.separate:
                    self.tokenizers = Tokenizers(
                        self._learnt(src, "source", notes), self._learnt(tgt, "target", notes)
                    )
                else:
                    shared = self._learnt(src + tgt, "shared", notes)
                    self.tokenizers = Tokenizers(shared, shared)
        yield from notes
        vocab = self.vocabulary()
        sizes = f"{vocab.src}" if vocab.shared else f"{vocab.src} and {vocab.tgt}"
        yield Note(f"vocabulary: {sizes} ({config.kind}{sampled})")

    def _learnt(self, lines: list[str], name: str, notes: list[Note]) -> Tokenizer:
        config, rule = self._config.tokenizer, self._config.tokenizer.rule()
        size = config.size or tokenizer.auto_vocab_size(lines)
        model = tokenizer.train(lines, rule, config.kind, size, config.symbols)
        learnt = Tokenizer(model, rule)
        if config.size is not None and len(learnt) < config.size:
            notes.append(
                Note(
                    f"warning: --vocab-size {config.size} is more than the {name} text fills; "
                    f"the vocabulary has {len(learnt)}"
                )
            )
        return learnt

    def load_tokenizers(self, run: RunFolder) -> None:
        """Take the tokenizers of a run."""
        self.tokenizers = Tokenizers(*run.tokenizers())

    def vocabulary(self) -> Vocabulary:
        """Give the sizes that a model needs."""
        src, tgt = self.tokenizers
        return Vocabulary(len(src), len(tgt), src is tgt)

    def data_hash(self) -> str:
        """Hash what a run learns and is chosen by."""
        return digest(self.fingerprints, fingerprints_of(self.splits.valid.pairs))

    def test_hash(self) -> str:
        """Hash what a run is judged by in the end."""
        return digest(fingerprints_of(self.splits.test.pairs))

    def most_tokens(self, max_positions: int | None) -> int:
        """Give how many tokens a side may have that the model learns from, or is chosen by."""
        config = self._config
        limit = _TOKENS_A_WORD.get(config.tokenizer.kind, _SUBWORDS_A_WORD) * config.data.max_words
        return min(limit, max_positions or limit)

    def batches(self, max_positions: int | None) -> Generator[Note, None, TrainingBatches]:
        """Encode the training pairs; those that are too long in tokens are left out.

        Args:
            max_positions: most tokens of a side that the model reads.

        Raises:
            NmtError: if no pair is left.
        """
        config, limit = self._config, self.most_tokens(max_positions)
        ids = yield from self._ids()
        places = np.flatnonzero(ids.lengths.max(axis=1) <= limit)
        if len(places) == 0:
            raise NmtError(
                f"{config.data.spec}: every pair has more than {limit} tokens a side; raise "
                + ("-O max_positions" if limit == max_positions else "--max-words")
            )
        if len(places) < len(ids):
            yield Note(f"dropped: {len(ids) - len(places)} with more than {limit} tokens a side")
            ids.keep(places)
        draw = self._sampled(places, ids, limit) if config.subword_sampling else None
        return TrainingBatches(ids, config.batch_size(), config.seed, draw)

    def _ids(self) -> Generator[Note, None, IdPairs]:
        """Encode the training pairs, to a file if they are in one or are to be."""
        pairs, data = self.splits.train.pairs, self._config.data
        if data.cache is None and not isinstance(pairs, SpooledPairs):
            return HeldIds(self.tokenizers.encode(pairs))
        mark, folder = digest(self.fingerprints), data.spool().folder
        with self._watcher.work("encoding", len(pairs)) as advance:
            ids, path, found = tokenized.store(folder, pairs, mark, self.tokenizers, advance)
        size = path.stat().st_size / 1e6
        yield Note(f"{'using' if found else 'wrote'} the corpus as ids: {path} ({size:.1f} MB)")
        return ids

    def _sampled(self, places: Places, plain: IdPairs, limit: int) -> Draw:
        """Make the function that cuts pairs anew; what would get too long stays as it is."""
        config = self._config
        text = select(self.splits.train.pairs, places)
        samplers = [
            SubwordSampler(
                side, config.tokenizer.kind, config.tokenizer.symbols, config.subword_sampling
            )
            for side in self.tokenizers
        ]

        def draw(seed: int, places: Places) -> list[IdPair]:
            pairs = select(text, places)
            src = samplers[0].encode_all((pair.src for pair in pairs), seed)
            tgt = samplers[1].encode_all((pair.tgt for pair in pairs), seed + 1)
            drawn = (with_ends(*sides) for sides in zip(src, tgt, strict=True))
            return [
                new if max(map(len, new)) <= limit else plain[place]
                for new, place in zip(drawn, places.tolist(), strict=True)
            ]

        return draw

    def valid_pairs(self, max_positions: int | None) -> Iterator[tuple[str, IdPair]]:
        """Give the reference and the ids of each validation pair that is not too long."""
        pairs, limit = self.splits.valid.pairs, self.most_tokens(max_positions)
        for pair, ids in zip(pairs, self.tokenizers.encode(pairs), strict=True):
            if max(map(len, ids)) <= limit:
                yield pair.tgt, ids
