"""The abstract trees that both languages are read off from."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from nmt_cli.corpus.toy.lexicon import Adjective, Name, Noun, Phrase, Verb

Case = Literal["nom", "acc", "dat"]
Tense = Literal["present", "past", "future", "can", "must", "should", "want"]
Gap = Literal["none", "subject", "acc", "dat", "prep"]
Joint = Literal["and", "but", "and then"]
QuestionWord = Literal["", "who", "whom", "what", "where", "when", "why"]


class Pronoun(NamedTuple):
    """A personal pronoun, by its English subject form."""

    word: Literal["I", "he", "she", "we", "they"]


class NounPhrase(NamedTuple):
    """Determiner, adjectives, noun, and perhaps a relative clause."""

    determiner: str
    """The English word, or nothing."""
    adjectives: tuple[Adjective, ...]
    noun: Noun
    plural: bool
    number: Phrase | None = None
    relative: Clause | None = None


class Both(NamedTuple):
    """Noun phrases joined by commas and ``and``."""

    parts: tuple[NounPhrase | Name, ...]


Nominal: TypeAlias = Pronoun | NounPhrase | Name | Both


class Place(NamedTuple):
    """A prepositional phrase of place: ``in the old house``, ``in Rome``."""

    en: str
    de: str
    case: Case
    nominal: NounPhrase | Name


class Clause(NamedTuple):
    """A verb with all that belongs to it; ``gap`` names what a relative pronoun stands for."""

    subject: Nominal
    verb: Verb
    tense: Tense
    negated: bool = False
    accusative: Nominal | None = None
    dative: Nominal | None = None
    prepositional: Nominal | None = None
    predicate: Adjective | None = None
    euros: int = 0
    comment: Phrase | None = None
    time: Phrase | None = None
    time_first: bool = False
    frequency: Phrase | None = None
    manner: Phrase | None = None
    place: Place | None = None
    direction: Place | None = None
    content: tuple[Clause, ...] = ()
    """That-clauses, joined by ``and``."""
    infinitive: Clause | None = None
    purpose: Clause | None = None
    """In order to ..."""
    gap: Gap = "none"


class Shared(NamedTuple):
    """Two predicates of one subject: The man opens the door and calls the woman."""

    first: Clause
    second: Clause


class Existence(NamedTuple):
    """There is a dog in the garden."""

    nominal: NounPhrase
    place: Place


class Complex(NamedTuple):
    """A main clause with a subordinate one before or after it."""

    main: Clause
    conjunction: Phrase
    subordinate: tuple[Clause, ...]
    subordinate_first: bool


class Question(NamedTuple):
    """A question: yes or no, or after a question word."""

    word: QuestionWord
    clause: Clause


Unit: TypeAlias = Clause | Shared | Existence | Complex


class Sentence(NamedTuple):
    """Main clauses joined by ``and``, ``but`` or ``and then``; or one question."""

    units: tuple[Unit, ...]
    joints: tuple[Joint, ...] = ()
    question: Question | None = None
