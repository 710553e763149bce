"""Train, valid and test of a corpus: as given, as found in a folder, or split off by a hash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nmt_cli.corpus.pairs import Collect, Corpus, PairList, Request, stable_hash
from nmt_cli.corpus.readers import TEST, TRAIN, VALID, open_corpus
from nmt_cli.corpus.spool import select
from nmt_cli.errors import NmtError

FEWEST_TO_HOLD_OUT = 200
_HELD_OUT_SHARE = 0.05
_HELD_OUT_MOST = 1000
_SLOTS = 1 << 20


@dataclass
class Splits:
    """The three splits, and what the user should know about how they came about."""

    train: PairList
    valid: PairList
    test: PairList
    notes: list[str] = field(default_factory=list)


def load_splits(
    data: str, valid: str | None, test: str | None, request: Request, collect: Collect = list
) -> Splits:
    """Read the splits that training needs.

    A split that is neither given nor found is held out of the training pairs by a hash of the
    source, so that one source never stands on two sides; under 200 pairs the training pairs
    themselves serve.

    Args:
        data: the SPEC of the training pairs, or of all.
        valid: the SPEC of the validation pairs, if they stand elsewhere.
        test: the SPEC of the test pairs, if they stand elsewhere.
        request: languages, columns and encoding.
        collect: what keeps the training pairs.

    Raises:
        NmtError: if something cannot be read or a folder has no training split.
    """
    corpus = open_corpus(data, request)
    train = _training_part(corpus, collect)
    elsewhere = replace(
        request, src_lang=train.src_lang, tgt_lang=train.tgt_lang, columns_of_another=True
    )
    found: dict[str, PairList] = {}
    for name, given, kinds in (("valid", valid, VALID), ("test", test, TEST)):
        if given is not None:
            found[name] = load_one(given, elsewhere, kinds)
        elif corpus.named(kinds):
            found[name] = _read_first(corpus, kinds)
    notes = [note for part in (train, *found.values()) for note in part.notes]
    missing = [name for name in ("valid", "test") if name not in found]
    if missing and len(train.pairs) < FEWEST_TO_HOLD_OUT:
        if train.pairs:
            use = "use" if len(missing) > 1 else "uses"
            notes.append(
                f"only {len(train.pairs)} pairs: nothing is held out; {' and '.join(missing)} "
                f"{use} the training pairs, which tells nothing about new sentences"
            )
        found.update(
            (name, train._replace(name=f"{train.name} (training pairs)")) for name in missing
        )
    elif missing:
        train, held_out = hold_out(train, missing)
        found.update(held_out)
        sizes = " and ".join(f"{len(found[name].pairs)} for {name}" for name in missing)
        notes.append(f"held out of the training pairs, by a hash of the source: {sizes}")
    return Splits(train, found["valid"], found["test"], notes)


def load_own_test(data: str, test: str | None, request: Request) -> PairList | None:
    """Read the test split that ``load_splits`` would give if it stands apart from the rest.

    Args:
        data: as for ``load_splits``.
        test: as for ``load_splits``.
        request: as for ``load_splits``, with both languages.

    Raises:
        NmtError: if something cannot be read.
    """
    if test is not None:
        return load_one(test, replace(request, columns_of_another=True), TEST)
    corpus = open_corpus(data, request)
    return _read_first(corpus, TEST) if corpus.named(TEST) else None


def load_one(
    spec: str, request: Request, kinds: tuple[str, ...] = TEST, by_name: bool = False
) -> PairList:
    """Read one list of pairs: the only part of a SPEC, or its part of a kind.

    Of several the one of exactly that name is taken, else the first, with a note.

    Args:
        spec: the SPEC.
        request: languages, columns and encoding.
        kinds: words that the part's name may begin with, such as ``("test",)``.
        by_name: whether the user named the part, so that a corpus without parts will not do.

    Raises:
        NmtError: if the corpus has parts but none of the kind.
    """
    corpus = open_corpus(spec, request)
    if "" in corpus.parts:
        if by_name:
            raise NmtError(f"{spec}: has no splits, so none called {kinds[0]!r}; drop --split")
        return corpus.read("")
    if by_name and kinds[0] in corpus.parts:
        return corpus.read(kinds[0])
    return _read_first(corpus, kinds)


def _read_first(corpus: Corpus, kinds: tuple[str, ...], collect: Collect = list) -> PairList:
    """Read the first part of a kind, with a note that names the others.

    Raises:
        NmtError: if there is none.
    """
    names = corpus.named(kinds)
    if not names:
        raise NmtError(
            f"{corpus.name}: no split {kinds[0]!r}; available: {', '.join(corpus.parts)}"
        )
    pairs = corpus.read(names[0], collect)
    if len(names) == 1:
        return pairs
    note = f"{kinds[0]} splits of {corpus.name}: {', '.join(names)}; using {names[0]}"
    return pairs._replace(notes=(note, *pairs.notes))


def hold_out(train: PairList, names: list[str]) -> tuple[PairList, dict[str, PairList]]:
    """Split by a hash of the source: a twentieth for each name, at most about 1,000 pairs."""
    share = min(_HELD_OUT_SHARE, _HELD_OUT_MOST / len(train.pairs))
    slots = np.fromiter((stable_hash(pair.src) % _SLOTS for pair in train.pairs), np.int64)
    drawn = np.minimum(slots / _SLOTS / share, len(names)).astype(np.int8)
    parts = [select(train.pairs, np.flatnonzero(drawn == n)) for n in range(len(names) + 1)]
    held_out = {
        name: train._replace(name=f"{train.name} (held out for {name})", pairs=list(pairs))
        for name, pairs in zip(names, parts, strict=False)
    }
    if not all(parts):
        raise NmtError(
            f"{train.name}: its sources repeat too much to hold any out; give --valid and --test"
        )
    return train._replace(pairs=parts[-1]), held_out


def _training_part(corpus: Corpus, collect: Collect) -> PairList:
    return corpus.read("", collect) if "" in corpus.parts else _read_first(corpus, TRAIN, collect)
