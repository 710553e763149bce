"""Random trees: which words may stand together, and nothing that would make English ambiguous.

A source must have one translation, so that what German orders or marks by structure is always
visible in English: nothing follows an embedded clause but a new main clause, main clauses are
joined with a comma and subordinate ones without, and adverbs keep one place each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TypeVar

from nmt_cli.corpus.toy import lexicon
from nmt_cli.corpus.toy.english import is_third_singular
from nmt_cli.corpus.toy.lexicon import Adjective, Name, Noun, Phrase, Verb
from nmt_cli.corpus.toy.trees import (
    Both,
    Case,
    Clause,
    Complex,
    Existence,
    Gap,
    Joint,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Question,
    QuestionWord,
    Sentence,
    Shared,
    Tense,
    Unit,
)

ItemT = TypeVar("ItemT")

_PRONOUNS = (Pronoun("I"), Pronoun("he"), Pronoun("she"), Pronoun("we"), Pronoun("they"))
_POSSESSIVES = ("my", "his", "her", "our", "their")
_PLAIN_TENSES: tuple[Tense, ...] = ("present", "past")
_TENSES: tuple[Tense, ...] = (
    *(("present",) * 6), *(("past",) * 7), "future", "future", "can", "must", "should", "want",
)  # fmt: skip
_OBJECT_DETERMINERS = ("the", "the", "the", "the", "a", "a", "a", "no", "this")
_SUBJECT_DETERMINERS = (*_OBJECT_DETERMINERS, "every")
_PLURAL_DETERMINERS = ("the", "the", "the", "", "these", "some", "many", "all", "both")
_ABSTRACT = frozenset({
    "new", "good", "bad", "important", "interesting", "boring", "strange", "wonderful",
    "terrible", "simple", "perfect", "long",
})  # fmt: skip
_DONE_SOMEHOW = frozenset({
    "eat", "drink", "cook", "open", "close", "pack", "unpack", "tidy up", "clean", "wash",
    "repair", "build", "write", "read", "copy", "paint", "draw", "push", "carry", "count",
    "translate", "work", "sing", "dance", "swim", "go", "run", "walk", "drive", "travel",
})  # fmt: skip
_CONTRASTING = frozenset({"therefore", "nevertheless"})
_OF_MANY = frozenset({"count", "collect"})
_NEVER_MINE = frozenset({"man", "woman"})
_QUANTITIES = frozenset({"every", "all", "both", "many", "some", "no"})
_NOT_ASKED_WITH = frozenset({"look after"})
_MASS = frozenset({"stuff", "drink"})


_CORE_CHANCE = 0.95
_CORE_PART = 12
_SMALLEST_CORE = 4


class Dice:
    """A seeded source of choices, the same on every machine and Python version.

    Only ``Random.random`` is documented to give the same sequence everywhere.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        """Tell whether an event of this probability happens."""
        return self._random.random() < probability

    def below(self, bound: int) -> int:
        """Draw a whole number from 0 to bound - 1."""
        return int(self._random.random() * bound)

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        """Draw one item."""
        return items[self.below(len(items))]

    def pick_common(self, items: Sequence[ItemT]) -> ItemT:
        """Draw one item: 19 times in 20 one of the few at the front, a core vocabulary."""
        core = max(_SMALLEST_CORE, len(items) // _CORE_PART)
        return items[self.below(min(core, len(items)) if self.chance(_CORE_CHANCE) else len(items))]


@cache
def _nouns(classes: frozenset[str]) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.nouns() if noun.classes & classes)


@cache
def _verbs(frames: frozenset[str], subject: str) -> tuple[Verb, ...]:
    return tuple(
        verb for verb in lexicon.verbs() if verb.frame in frames and subject in verb.subjects
    )


@cache
def _verbs_with_object(frame: str, classes: frozenset[str]) -> tuple[Verb, ...]:
    return tuple(
        verb
        for verb in lexicon.verbs()
        if verb.frame == frame and verb.objects & classes and verb.en not in _NOT_ASKED_WITH
    )


def adjective_class(noun: Noun) -> str:
    """Give the class of adjectives that fit a noun."""
    if "person" in noun.classes or "animal" in noun.classes:
        return "person" if "person" in noun.classes else "animal"
    if noun.classes & (_MASS | {"food"}):
        return "food"
    if "place" in noun.classes:
        return "place"
    return "abstract" if "topic" in noun.classes else "thing"


@cache
def _adjectives(kind: str) -> tuple[Adjective, ...]:
    if kind == "abstract":
        return tuple(each for each in lexicon.adjectives() if each.en in _ABSTRACT)
    return tuple(each for each in lexicon.adjectives() if kind in each.classes)


class Grammar:
    """Draws trees; ``richness`` from 0 to 1 says how much is added to the bare clause."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice

    def sentence(self, units: int, richness: float) -> Sentence:
        """Draw a sentence of so many main clauses, or a question."""
        if units == 1 and self.dice.chance(0.15):
            return Sentence((), (), self._question(richness))
        drawn = [self._unit(richness) for _ in range(units)]
        joints: list[Joint] = []
        for before, unit in pairwise(drawn):
            joints.append(self._joint(before, unit, "but" in joints))
        return Sentence(tuple(drawn), tuple(joints))

    def _joint(self, before: Unit, unit: Unit, had_but: bool) -> Joint:
        comment = unit.comment if isinstance(unit, Clause) else None
        choices: list[Joint] = ["and", "and"]
        if not had_but and (comment is None or comment.en not in _CONTRASTING):
            choices.append("but")
        if isinstance(before, Clause) and isinstance(unit, Clause):
            fronted = comment is not None or unit.time_first
            if not fronted and before.tense == unit.tense in _PLAIN_TENSES:
                choices.append("and then")
        return self.dice.pick(choices)

    def _unit(self, richness: float) -> Unit:
        roll = self.dice.below(100)
        if roll < 5:
            return self._existence(richness)
        if roll < 5 + 15 * richness:
            return self._shared(richness)
        if roll < 5 + 45 * richness:
            return self._complex(richness)
        return self.clause(self.dice.pick(_TENSES), richness)

    def _existence(self, richness: float) -> Existence:
        noun = self.dice.pick_common(_nouns(frozenset({"animal", "thing", "food"})))
        plural = self.dice.chance(0.5)
        phrase = self._dress(noun, "a", richness, plural=False)
        if plural:
            determiner, number = self.dice.pick((("many", None), ("some", None), ("", True)))
            phrase = self._dress(noun, determiner, richness, plural=True)
            if number:
                phrase = phrase._replace(number=self.dice.pick(lexicon.NUMERALS))
        return Existence(phrase, self._place(richness))

    def _shared(self, richness: float) -> Shared:
        first = self.clause(self.dice.pick(_PLAIN_TENSES), richness * 0.6, closed=False)
        second = self.clause(first.tense, richness * 0.8, subject=first.subject, fronted=False)
        return Shared(first, second)

    def _complex(self, richness: float) -> Complex:
        tense = self.dice.pick(_PLAIN_TENSES)
        first = self.dice.chance(0.35)
        conjunction = self.dice.pick(lexicon.CONJUNCTIONS)
        if first:
            conjunction = self.dice.pick(lexicon.CONJUNCTIONS[:4])
        count = 2 if self.dice.chance(0.15 * richness) else 1
        subordinate = tuple(
            self.clause(
                tense,
                richness * 0.7,
                fronted=False,
                closed=n == count - 1,
                negatable=conjunction in lexicon.CONJUNCTIONS[:3],
            )
            for n in range(count)
        )
        main = self.clause(tense, richness * 0.7, fronted=False, closed=first)
        return Complex(main, conjunction, subordinate, first)

    def _question(self, richness: float) -> Question:
        tense = self.dice.pick(_TENSES)
        words: tuple[QuestionWord, ...] = (
            "", "", "", "who", "whom", "what", "where", "when", "why",
        )  # fmt: skip
        word = self.dice.pick(words)
        asked = self.clause(
            tense, richness, fronted=False, frames=self._asked_frames(word), negatable=False
        )
        if word == "who":
            someone = NounPhrase("the", (), _nouns(frozenset({"person"}))[0], False)
            asked = asked._replace(subject=someone)
        if word in {"whom", "what"}:
            wanted = "person" if word == "whom" else "thing"
            if not (asked.verb.frame == "acc" and wanted in asked.verb.objects):
                return self._question(richness)
            asked = asked._replace(accusative=None)
        if word == "where":
            asked = asked._replace(place=None, direction=None)
        if word == "when":
            asked = asked._replace(time=None)
        return Question(word, asked)

    def _asked_frames(self, word: str) -> frozenset[str] | None:
        if word in {"whom", "what"}:
            return frozenset({"acc"})
        if word == "where":
            return frozenset({"intr", "acc"})
        return frozenset({"intr", "acc", "dat", "prep", "motion"}) if word else None

    def clause(
        self,
        tense: Tense,
        richness: float,
        *,
        subject: Nominal | None = None,
        fronted: bool = True,
        closed: bool = True,
        frames: frozenset[str] | None = None,
        negatable: bool = True,
    ) -> Clause:
        """Draw a clause.

        Args:
            tense: its tense.
            richness: how much is added, 0 to 1.
            subject: given, or drawn.
            fronted: whether a time or comment may stand before the subject.
            closed: whether it may end in an embedded clause, as nothing of its own follows.
            frames: verb frames to choose from, or all.
            negatable: whether it may be negated.
        """
        dice = self.dice
        if subject is None and frames is None and dice.chance(0.16):
            return self._description(tense, richness, fronted)
        animal = subject is None and dice.chance(0.12)
        if subject is None:
            subject = self._subject("animal" if animal else "person", richness, tense)
        kind = "animal" if _is_animal(subject) else "person"
        verb = self._verb(kind, tense, subject, richness, closed, frames)
        if verb.frame == "inf" and tense not in _PLAIN_TENSES:
            tense = "present"
        tree = self._with_objects(Clause(subject, verb, tense), richness, closed)
        tree = self._with_place(tree, richness)
        tree = self._with_adverbs(tree, richness, fronted)
        tree = self._with_embedded(tree, richness, closed)
        if negatable and dice.chance(0.12) and _can_be_negated(tree):
            return tree._replace(negated=True, manner=None, frequency=None)
        if tree.tense == "must" and _has_no(tree):
            return tree._replace(tense="should")
        return tree

    def _verb(
        self,
        kind: str,
        tense: Tense,
        subject: Nominal,
        richness: float,
        closed: bool,
        frames: frozenset[str] | None,
    ) -> Verb:
        open_frames = {"intr", "acc", "dat", "both", "prep", "motion", "stay"}
        if closed and richness > 0.25:
            open_frames |= {"that", "inf"}
        usable = frames or frozenset(open_frames)
        while True:
            frame = self.dice.pick(sorted(usable) + (["acc"] * 3 if "acc" in usable else []))
            candidates = _verbs(frozenset({frame}), kind)
            if not candidates:
                continue
            verb = self.dice.pick_common(candidates)
            told_apart = tense not in _PLAIN_TENSES or is_third_singular(subject)
            if verb.en != verb.en_past or told_apart:
                return verb

    def _with_objects(self, tree: Clause, richness: float, closed: bool) -> Clause:
        verb, dice = tree.verb, self.dice
        if verb.frame == "acc":
            if dice.chance(0.12) and "person" in verb.objects:
                return tree._replace(accusative=self._other_pronoun(tree.subject))
            return tree._replace(accusative=self._object(verb.objects, richness, closed, tree))
        if verb.frame == "dat":
            if dice.chance(0.15):
                return tree._replace(dative=self._other_pronoun(tree.subject))
            return tree._replace(dative=self._object(verb.objects, richness, closed, tree))
        if verb.frame == "both":
            receiver: Nominal = self._object(frozenset({"person"}), richness * 0.5, False, tree)
            if dice.chance(0.3):
                receiver = self._other_pronoun(tree.subject)
            given = self._object(verb.objects, richness, closed, tree)
            return tree._replace(dative=receiver, accusative=given)
        if verb.frame == "prep":
            return tree._replace(prepositional=self._object(verb.objects, richness, closed, tree))
        return tree

    def _with_place(self, tree: Clause, richness: float) -> Clause:
        if tree.verb.frame == "stay":
            return tree._replace(place=self._place(richness))
        if tree.verb.frame == "motion":
            return tree._replace(direction=self._direction(richness))
        fitting = tree.verb.frame in {"intr", "acc"} and not _ends_in_clause(tree)
        if fitting and self.dice.chance(0.35 * richness):
            return tree._replace(place=self._place(richness * 0.6))
        return tree

    def _with_adverbs(self, tree: Clause, richness: float, fronted: bool) -> Clause:
        dice = self.dice
        if (
            tree.verb.en in _DONE_SOMEHOW
            and not _ends_in_clause(tree)
            and dice.chance(0.2 * richness)
        ):
            tree = tree._replace(manner=dice.pick(lexicon.MANNERS))
        if fronted and dice.chance(0.15 * richness):
            sudden = tree.tense == "past" and dice.chance(0.3)
            comment = lexicon.SUDDENLY if sudden else dice.pick(lexicon.COMMENTS)
            return tree._replace(comment=comment)
        if dice.chance(0.15 + 0.4 * richness):
            first = fronted and dice.chance(0.4)
            embeds = tree.verb.frame in {"that", "inf"}
            if first or not (_ends_in_clause(tree) or embeds):
                return tree._replace(time=self._time(tree.tense), time_first=first)
        plain = tree.tense in _PLAIN_TENSES and not _has_no(tree) and not tree.manner
        if plain and dice.chance(0.12):
            return tree._replace(frequency=dice.pick(lexicon.FREQUENCIES))
        return tree

    def _with_embedded(self, tree: Clause, richness: float, closed: bool) -> Clause:
        frame, dice = tree.verb.frame, self.dice
        if frame == "that":
            tense = tree.tense if tree.tense in _PLAIN_TENSES else "present"
            count = 2 if dice.chance(0.2 * richness) else 1
            content = tuple(
                self.clause(
                    tense, richness * 0.7, fronted=False, closed=n == count - 1 and richness > 0.5
                )
                for n in range(count)
            )
            return tree._replace(content=content)
        if frame == "inf":
            return tree._replace(infinitive=self._infinitive(tree.subject, richness))
        ends_here = closed and (tree.time is None or tree.time_first)
        purposeful = frame == "motion" and ends_here and not _is_animal(tree.subject)
        if purposeful and dice.chance(0.4 * richness):
            return tree._replace(purpose=self._infinitive(tree.subject, richness))
        return tree

    def _infinitive(self, subject: Nominal, richness: float) -> Clause:
        kind = "animal" if _is_animal(subject) else "person"
        frames = frozenset({"acc", "dat", "intr", "motion"} if kind == "person" else {"acc"})
        while True:
            verb = self.dice.pick_common(_verbs(frames, kind))
            if verb.en not in {"hate", "own", "hesitate"}:
                break
        tree = Clause(subject, verb, "present")
        with_objects = self._with_objects(tree, richness * 0.7, closed=True)
        while _has_no(with_objects._replace(subject=_PRONOUNS[0])):
            with_objects = self._with_objects(tree, richness * 0.7, closed=True)
        return self._with_place(with_objects, richness * 0.5)

    def _description(self, tense: Tense, richness: float, fronted: bool) -> Clause:
        """Draw what somebody or something is like, where it is, or what it costs."""
        dice = self.dice
        if tense in {"can", "must", "want"}:
            tense = "present"
        classes = dice.pick(("person", "animal", "thing", "place", "food", "text", "vehicle"))
        subject = self._subject(classes, richness, tense)
        be = Clause(subject, lexicon.BE, tense)
        if classes in {"thing", "vehicle"} and dice.chance(0.25):
            return be._replace(
                verb=lexicon.COST, tense=_told_apart(tense, subject), euros=self._price()
            )
        if classes in {"thing", "text", "person", "animal"} and dice.chance(0.25):
            return be._replace(place=self._place(richness))
        if isinstance(subject, NounPhrase):
            fitting = _adjectives(adjective_class(subject.noun))
            taken = {adjective.en for adjective in subject.adjectives}
        else:
            fitting, taken = _adjectives("person"), set()
        be = be._replace(
            predicate=dice.pick_common([each for each in fitting if each.en not in taken])
        )
        if tense in _PLAIN_TENSES and not _has_no(be) and dice.chance(0.2):
            return be._replace(frequency=dice.pick(lexicon.FREQUENCIES))
        if dice.chance(0.2 * richness):
            first = fronted and dice.chance(0.5)
            be = be._replace(time=self._time(tense), time_first=first)
        if _can_be_negated(be) and dice.chance(0.15):
            return be._replace(negated=True)
        return be

    def _price(self) -> int:
        return self.dice.pick((1, 1, 100, 1000)) * (2 + self.dice.below(97))

    def _subject(self, kind: str, richness: float, tense: Tense) -> Nominal:
        dice = self.dice
        if kind == "person":
            roll = dice.below(100)
            if roll < 18:
                return dice.pick(_PRONOUNS)
            if roll < 34:
                return dice.pick_common(lexicon.PEOPLE)
            if roll < 34 + 12 * richness:
                return self._coordination(frozenset({"person"}), richness)
        plural = dice.chance(0.25)
        determiner = self._determiner(plural, as_subject=True)
        noun = dice.pick_common(_nouns(frozenset({kind})))
        if not noun.countable:
            determiner, plural = "the", False
        phrase = self._dress(noun, determiner, richness, plural)
        phrase = self._perhaps_number(phrase)
        if dice.chance(0.25 * richness) and determiner in {"the", "a", "every", "some", "many"}:
            return self._with_relative(phrase, richness, tense)
        return phrase

    def _object(
        self, classes: frozenset[str], richness: float, closed: bool, tree: Clause
    ) -> Nominal:
        dice = self.dice
        if "person" in classes and dice.chance(0.2):
            name = dice.pick_common(lexicon.PEOPLE)
            if name != tree.subject:
                return name
        if dice.chance(0.12 * richness):
            return self._coordination(classes, richness)
        noun = dice.pick_common(_nouns(classes))
        many = tree.verb.en in _OF_MANY
        plural = noun.countable and (many or dice.chance(0.25))
        determiner = self._determiner(plural, as_subject=False)
        if determiner == "no" and _determiner_of(tree.subject) in _QUANTITIES:
            determiner = "the"
        if not noun.countable:
            determiner = dice.pick(("", "", "the", "his", "my"))
        phrase = self._perhaps_number(self._dress(noun, determiner, richness, plural))
        relative = closed and determiner in {"the", "a", "some", "many"} and noun.countable
        if relative and dice.chance(0.35 * richness):
            return self._with_relative(phrase, richness, tree.tense)
        return phrase

    def _perhaps_number(self, phrase: NounPhrase) -> NounPhrase:
        if phrase.plural and phrase.determiner in {"", "the", "my"} and self.dice.chance(0.4):
            if self.dice.chance(0.25):
                digits = str(13 + self.dice.below(87))
                return phrase._replace(number=Phrase(digits, digits))
            return phrase._replace(number=self.dice.pick(lexicon.NUMERALS))
        return phrase

    def _determiner(self, plural: bool, as_subject: bool) -> str:
        dice = self.dice
        if dice.chance(0.12):
            return dice.pick(_POSSESSIVES)
        if plural:
            return dice.pick(_PLURAL_DETERMINERS)
        return dice.pick(_SUBJECT_DETERMINERS if as_subject else _OBJECT_DETERMINERS)

    def _dress(self, noun: Noun, determiner: str, richness: float, plural: bool) -> NounPhrase:
        """Add adjectives to a noun."""
        if noun.en in _NEVER_MINE and determiner in _POSSESSIVES:
            determiner = "the"
        fitting = _adjectives(adjective_class(noun))
        chosen: tuple[Adjective, ...] = ()
        if self.dice.chance(0.15 + 0.45 * richness):
            chosen = (self.dice.pick_common(fitting),)
        return NounPhrase(determiner, chosen, noun, plural)

    def _coordination(self, classes: frozenset[str], richness: float) -> Both:
        count = 2 + self.dice.chance(0.3)
        parts: list[NounPhrase | Name] = []
        while len(parts) < count:
            if classes == {"person"} and self.dice.chance(0.3):
                part: NounPhrase | Name = self.dice.pick_common(lexicon.PEOPLE)
            else:
                noun = self.dice.pick_common(_nouns(classes))
                determiner = (
                    self.dice.pick(("the", "the", "a", "my", "his")) if noun.countable else "the"
                )
                part = self._dress(noun, determiner, richness * 0.5, plural=False)
            if part not in parts:
                parts.append(part)
        return Both(tuple(parts))

    def _other_pronoun(self, subject: Nominal) -> Pronoun:
        """Draw an object pronoun that cannot be the subject itself."""
        first = {"I", "we"}
        word = subject.word if isinstance(subject, Pronoun) else ""
        taken = first if word in first else {word}
        return self.dice.pick([each for each in _PRONOUNS if each.word not in taken])

    def _with_relative(self, head: NounPhrase, richness: float, tense: Tense) -> NounPhrase:
        """Add a relative clause in which the head is subject, object or behind a preposition."""
        tense = tense if tense in _PLAIN_TENSES else "present"
        classes = head.noun.classes
        kind = next((each for each in ("person", "animal") if each in classes), None)
        gaps: list[Gap] = ["subject", "subject", "acc", "acc"]
        if kind == "person":
            gaps += ["dat", "prep"]
        gap = self.dice.pick(gaps)
        if gap == "subject":
            return head._replace(relative=self._relative_about(head, kind, richness, tense))
        frame = {"acc": "acc", "dat": "dat", "prep": "prep"}[gap]
        verbs = _verbs_with_object(frame, classes)
        if not verbs:
            return head._replace(relative=self._relative_about(head, kind, richness, tense))
        subject = self._plain_subject()
        verb = self.dice.pick_common([v for v in verbs if v.en != v.en_past])
        clause = Clause(subject, verb, tense, gap=gap)
        if self.dice.chance(0.3 * richness):
            clause = clause._replace(time=self._time(tense))
        return head._replace(relative=clause)

    def _plain_subject(self) -> Nominal:
        roll = self.dice.below(3)
        if roll == 0:
            return self.dice.pick(_PRONOUNS)
        if roll == 1:
            return self.dice.pick_common(lexicon.PEOPLE)
        noun = self.dice.pick_common(_nouns(frozenset({"person"})))
        return self._dress(noun, self.dice.pick(("the", "the", "my", "his")), 0.0, plural=False)

    def _relative_about(
        self, head: NounPhrase, kind: str | None, richness: float, tense: Tense
    ) -> Clause:
        if kind is None:
            fitting = _adjectives(adjective_class(head.noun))
            taken = {adjective.en for adjective in head.adjectives}
            predicate = self.dice.pick_common([each for each in fitting if each.en not in taken])
            return Clause(head, lexicon.BE, tense, predicate=predicate, gap="subject")
        frames = frozenset({"intr", "acc", "dat", "prep", "stay"})
        clause = self.clause(
            tense,
            richness * 0.4,
            subject=head,
            fronted=False,
            closed=False,
            frames=frames,
            negatable=False,
        )
        return clause._replace(gap="subject")

    def _place(self, richness: float) -> Place:
        dice = self.dice
        roll = dice.below(10)
        if roll < 2:
            return Place("in", "in", "dat", dice.pick_common(lexicon.CITIES))
        if roll < 5:
            where = dice.pick(lexicon.PREPOSITIONS)
            noun = dice.pick_common(_nouns(frozenset({"support", "vehicle", "building", "plant"})))
            return Place(where.en, where.de, "dat", self._place_noun(noun, richness))
        if roll < 6:
            noun = dice.pick_common(_nouns(frozenset({"support"})))
            return Place("on", "auf", "dat", self._place_noun(noun, richness))
        noun = dice.pick_common(_nouns(frozenset({"place"})))
        return Place(*_own_preposition(noun), self._place_noun(noun, richness))

    def _place_noun(self, noun: Noun, richness: float) -> NounPhrase:
        determiner = self.dice.pick(("the", "the", "the", "the", "a", "my", "his", "this"))
        return self._dress(noun, determiner, richness * 0.7, plural=False)

    def _direction(self, richness: float) -> Place:
        if self.dice.chance(0.25):
            return Place("to", "nach", "dat", self.dice.pick_common(lexicon.CITIES))
        noun = self.dice.pick_common(_nouns(frozenset({"place"})))
        return Place("to", "zu", "dat", self._place_noun(noun, richness))

    def _time(self, tense: Tense) -> Phrase:
        dice = self.dice
        if tense == "past":
            return self._date() if dice.chance(0.5) else dice.pick(lexicon.PAST_TIMES)
        if tense == "present":
            return self._hour() if dice.chance(0.2) else dice.pick(lexicon.PRESENT_TIMES)
        return dice.pick(lexicon.WEEKDAYS) if dice.chance(0.3) else dice.pick(lexicon.FUTURE_TIMES)

    def _hour(self) -> Phrase:
        hour = 1 + self.dice.below(12)
        return Phrase(f"at {hour} o'clock", f"um {hour} Uhr")

    def _date(self) -> Phrase:
        dice = self.dice
        roll = dice.below(4)
        if roll == 0:
            return dice.pick(lexicon.WEEKDAYS)
        if roll == 1:
            year = 1950 + dice.below(75)
            return Phrase(f"in {year}", f"im Jahr {year}")
        month = dice.pick(lexicon.MONTHS)
        if roll == 2:
            return Phrase(f"in {month.en}", f"im {month.de}")
        day = 1 + dice.below(28)
        return Phrase(f"on {month.en} {day}", f"am {day}. {month.de}")


def _own_preposition(noun: Noun) -> tuple[str, str, Case]:
    if "in" in noun.classes:
        return "in", "in", "dat"
    return ("at", "an", "dat") if "at" in noun.classes else ("on", "auf", "dat")


def _told_apart(tense: Tense, subject: Nominal) -> Tense:
    """Avoid the present or past of a verb whose English forms are alike."""
    return tense if tense not in _PLAIN_TENSES or is_third_singular(subject) else "future"


def _is_animal(subject: Nominal) -> bool:
    return isinstance(subject, NounPhrase) and "animal" in subject.noun.classes


def _ends_in_clause(tree: Clause) -> bool:
    parts = (tree.accusative, tree.dative, tree.prepositional)
    return any(isinstance(part, NounPhrase) and part.relative is not None for part in parts)


def _determiner_of(tree: Nominal) -> str:
    return tree.determiner if isinstance(tree, NounPhrase) else ""


def _nominals(tree: Clause) -> list[Nominal]:
    parts = (tree.subject, tree.accusative, tree.dative, tree.prepositional)
    return [part for part in parts if part is not None]


def _has_no(tree: Clause) -> bool:
    return any(
        isinstance(part, NounPhrase) and part.determiner in {"no", "many", "every"}
        for part in _nominals(tree)
    )


def _can_be_negated(tree: Clause) -> bool:
    """Tell whether one rule places the negation: by ``kein`` or by ``nicht`` in its one place."""
    if tree.tense == "must" or tree.comment is not None or tree.purpose is not None:
        return False
    if tree.verb is lexicon.COST or tree.frequency or _ends_in_clause(tree):
        return False
    if tree.time == lexicon.EVERY_DAY:
        return False
    definite = {"the", "this", "these", *_POSSESSIVES}
    for part in _nominals(tree):
        if isinstance(part, Both):
            return False
        if isinstance(part, NounPhrase):
            indefinite = part is tree.accusative and part.determiner in {"a", ""}
            if part.number or not (part.determiner in definite or indefinite):
                return False
    return True
