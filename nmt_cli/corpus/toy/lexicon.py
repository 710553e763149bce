"""The words of the toy corpus, read from the tables beside this file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

EntryT = TypeVar("EntryT")


class Noun(NamedTuple):
    """A noun of both languages; a plural of ``-`` marks one that has none."""

    classes: frozenset[str]
    en: str
    en_plural: str
    gender: str
    """m, f or n."""
    de: str
    de_plural: str
    de_oblique: str
    """Accusative and dative singular."""

    @property
    def countable(self) -> bool:
        """Tell whether it has a plural and takes ``a``."""
        return self.en_plural != "-"


class Verb(NamedTuple):
    """A verb of both languages and what it governs."""

    frame: str
    """intr, acc, dat, both, prep, motion, stay, that, inf or be."""
    preposition: str
    """German preposition of a ``prep`` frame."""
    case: str
    """Case that the preposition governs."""
    objects: frozenset[str]
    en: str
    en_past: str
    prefix: str
    """Separable prefix or nothing."""
    de: str
    """Infinitive without the prefix."""
    de_third: str
    participle: str
    auxiliary: str
    """h for haben, s for sein."""
    subjects: frozenset[str]


class Adjective(NamedTuple):
    """An adjective of both languages."""

    classes: frozenset[str]
    en: str
    de: str
    de_stem: str
    """What an ending is added to."""


class Name(NamedTuple):
    """A proper name; ``de_oblique`` is its German accusative and dative."""

    en: str
    de: str
    de_oblique: str


class Phrase(NamedTuple):
    """A fixed phrase of both languages."""

    en: str
    de: str


ADJECTIVE_CLASS = {"p": "person", "a": "animal", "t": "thing", "f": "food", "o": "place"}


def _rows(name: str) -> Iterator[list[str]]:
    text = (files(__package__) / name).read_text(encoding="utf-8")
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            yield line.split("\t")


def _table(name: str, make: Callable[[list[str]], EntryT]) -> tuple[EntryT, ...]:
    return tuple(make(row) for row in _rows(name))


def _words(field: str) -> frozenset[str]:
    return frozenset(word for word in field.split(",") if word)


def _noun(row: list[str]) -> Noun:
    classes, en, en_plural, gender, de, de_plural, oblique = row
    return Noun(_words(classes), en, en_plural, gender, de, de_plural, oblique or de)


def _verb(row: list[str]) -> Verb:
    frame, objects, en, en_past, infinitive, third, participle, auxiliary, subjects = row
    kind, _, governed = frame.partition(":")
    preposition, _, case = governed.partition(":")
    prefix, separable, stem = infinitive.partition("_")
    return Verb(
        frame=kind,
        preposition=preposition,
        case=case,
        objects=_words(objects),
        en=en,
        en_past=en_past,
        prefix=prefix if separable else "",
        de=stem if separable else infinitive,
        de_third=third,
        participle=participle,
        auxiliary=auxiliary,
        subjects=frozenset(ADJECTIVE_CLASS[letter] for letter in subjects),
    )


def _adjective(row: list[str]) -> Adjective:
    letters, en, de, stem = row
    return Adjective(frozenset(ADJECTIVE_CLASS[letter] for letter in letters), en, de, stem or de)


@cache
def nouns() -> tuple[Noun, ...]:
    """List the nouns."""
    return _table("nouns.tsv", _noun)


@cache
def verbs() -> tuple[Verb, ...]:
    """List the verbs."""
    return _table("verbs.tsv", _verb)


@cache
def adjectives() -> tuple[Adjective, ...]:
    """List the adjectives."""
    return _table("adjectives.tsv", _adjective)


def _same(*names: str) -> tuple[Name, ...]:
    return tuple(Name(name, name, name) for name in names)


BE = Verb("be", "", "", frozenset(), "be", "was", "", "sein", "ist", "gewesen", "s", frozenset())

COST = Verb(
    "cost",
    "",
    "",
    frozenset(),
    "cost",
    "cost",
    "",
    "kosten",
    "kostet",
    "gekostet",
    "h",
    frozenset(),
)

PEOPLE = (
    *_same(
        "Anna", "Peter", "Maria", "Paul", "Sophie", "Lukas", "Emma", "Jonas", "Laura", "Felix",
        "Julia", "David", "Clara", "Martin", "Lena", "Simon", "Nina", "Tobias", "Eva", "Oskar",
        "Ida", "Karl", "Greta", "Anton",
    ),
    *(
        Name(f"Mr. {surname}", f"Herr {surname}", f"Herrn {surname}")
        for surname in ("Weber", "Becker", "Schulz", "Hoffmann", "Wagner", "Keller")
    ),
    *(
        Name(f"Mrs. {surname}", f"Frau {surname}", f"Frau {surname}")
        for surname in ("Fischer", "Meyer", "Braun", "Richter", "Vogel", "Lang")
    ),
)  # fmt: skip

CITIES = tuple(
    Name(en, de, de)
    for en, de in (
        ("Berlin", "Berlin"), ("Munich", "München"), ("Cologne", "Köln"), ("Vienna", "Wien"),
        ("Hamburg", "Hamburg"), ("Rome", "Rom"), ("Paris", "Paris"), ("London", "London"),
        ("Prague", "Prag"), ("Moscow", "Moskau"), ("Warsaw", "Warschau"),
        ("Lisbon", "Lissabon"), ("Athens", "Athen"), ("Zurich", "Zürich"), ("Geneva", "Genf"),
        ("Venice", "Venedig"), ("Copenhagen", "Kopenhagen"), ("Brussels", "Brüssel"),
        ("Milan", "Mailand"), ("Nuremberg", "Nürnberg"), ("Hanover", "Hannover"),
        ("Madrid", "Madrid"),
    )
)  # fmt: skip

WEEKDAYS = tuple(
    Phrase(f"on {en}", f"am {de}")
    for en, de in (
        ("Monday", "Montag"), ("Tuesday", "Dienstag"), ("Wednesday", "Mittwoch"),
        ("Thursday", "Donnerstag"), ("Friday", "Freitag"), ("Saturday", "Samstag"),
        ("Sunday", "Sonntag"),
    )
)  # fmt: skip

MONTHS = (
    Phrase("January", "Januar"), Phrase("February", "Februar"), Phrase("March", "März"),
    Phrase("April", "April"), Phrase("May", "Mai"), Phrase("June", "Juni"),
    Phrase("July", "Juli"), Phrase("August", "August"), Phrase("September", "September"),
    Phrase("October", "Oktober"), Phrase("November", "November"), Phrase("December", "Dezember"),
)  # fmt: skip

PAST_TIMES = (
    Phrase("yesterday", "gestern"), Phrase("last week", "letzte Woche"),
    Phrase("last year", "letztes Jahr"), Phrase("two days ago", "vor zwei Tagen"),
    Phrase("an hour ago", "vor einer Stunde"), Phrase("yesterday evening", "gestern Abend"),
)  # fmt: skip
EVERY_DAY = Phrase("every day", "jeden Tag")
PRESENT_TIMES = (
    Phrase("on Sundays", "sonntags"), Phrase("at noon", "am Mittag"), EVERY_DAY,
    Phrase("in the morning", "am Morgen"), Phrase("in the evening", "am Abend"),
    Phrase("at night", "in der Nacht"), Phrase("in winter", "im Winter"),
    Phrase("in summer", "im Sommer"),
)  # fmt: skip
FUTURE_TIMES = (
    Phrase("tomorrow", "morgen"), Phrase("soon", "bald"), Phrase("next week", "nächste Woche"),
    Phrase("next year", "nächstes Jahr"), Phrase("this evening", "heute Abend"),
    Phrase("in three days", "in drei Tagen"),
)  # fmt: skip
FREQUENCIES = (
    Phrase("always", "immer"), Phrase("often", "oft"), Phrase("sometimes", "manchmal"),
    Phrase("never", "nie"), Phrase("rarely", "selten"), Phrase("usually", "meistens"),
)  # fmt: skip
MANNERS = (
    Phrase("quickly", "schnell"), Phrase("slowly", "langsam"), Phrase("carefully", "vorsichtig"),
    Phrase("quietly", "leise"), Phrase("secretly", "heimlich"), Phrase("patiently", "geduldig"),
    Phrase("alone", "allein"),
)  # fmt: skip
SUDDENLY = Phrase("suddenly", "plötzlich")
COMMENTS = (
    Phrase("perhaps", "vielleicht"), Phrase("unfortunately", "leider"),
    Phrase("fortunately", "zum Glück"), Phrase("of course", "natürlich"),
    Phrase("therefore", "deshalb"), Phrase("nevertheless", "trotzdem"),
)  # fmt: skip
CONJUNCTIONS = (
    Phrase("because", "weil"), Phrase("although", "obwohl"), Phrase("while", "während"),
    Phrase("before", "bevor"), Phrase("until", "bis"), Phrase("as soon as", "sobald"),
)  # fmt: skip
PREPOSITIONS = (
    Phrase("under", "unter"), Phrase("behind", "hinter"), Phrase("next to", "neben"),
    Phrase("in front of", "vor"),
)  # fmt: skip
NUMERALS = (
    Phrase("two", "zwei"), Phrase("three", "drei"), Phrase("four", "vier"),
    Phrase("five", "fünf"), Phrase("six", "sechs"), Phrase("seven", "sieben"),
    Phrase("eight", "acht"), Phrase("nine", "neun"), Phrase("ten", "zehn"),
    Phrase("eleven", "elf"), Phrase("twelve", "zwölf"),
)  # fmt: skip
