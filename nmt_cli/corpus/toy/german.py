"""German read off a tree: cases, verb second, verb last, the verbal bracket.

The order of the middle field is fixed: pronouns, time, frequency, dative, accusative (manner
before it when indefinite, after it else), ``nicht``, prepositional object, direction, place. The
relative clause of an object stands behind the bracket, that of a subject at its noun.
"""

from __future__ import annotations

from nmt_cli.corpus.toy.english import is_plural
from nmt_cli.corpus.toy.lexicon import Name, Verb
from nmt_cli.corpus.toy.trees import (
    Both,
    Case,
    Clause,
    Existence,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Question,
    Sentence,
    Shared,
    Unit,
)

Words = list[str]

_CASES = {"nom": 0, "acc": 1, "dat": 2}
_GENDERS = {"m": 0, "f": 1, "n": 2, "plural": 3}
_DEFINITE = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
)
_STRONG = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
_EIN = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
_WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
_MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
_RELATIVE = (*_DEFINITE[:2], ("dem", "der", "dem", "denen"))
_DER_WORDS = {"this": "dies", "these": "dies", "every": "jed", "all": "all", "both": "beid"}
_EIN_WORDS = {
    "a": "ein", "no": "kein", "my": "mein", "his": "sein", "her": "ihr", "our": "unser",
    "their": "ihr",
}  # fmt: skip
_QUANTITIES = {"some": "einig", "many": "viel", "few": "wenig"}
_PRONOUNS = {
    "I": ("ich", "mich", "mir"),
    "he": ("er", "ihn", "ihm"),
    "she": ("sie", "sie", "ihr"),
    "we": ("wir", "uns", "uns"),
    "they": ("sie", "sie", "ihnen"),
}
_CONTRACTIONS = {
    ("in", "dem"): "im", ("an", "dem"): "am", ("von", "dem"): "vom", ("zu", "dem"): "zum",
    ("zu", "der"): "zur", ("in", "das"): "ins", ("an", "das"): "ans",
}  # fmt: skip
_FINITE = {
    "future": ("werde", "wird", "werden"),
    "can": ("kann", "kann", "können"),
    "must": ("muss", "muss", "müssen"),
    "should": ("sollte", "sollte", "sollten"),
    "want": ("will", "will", "wollen"),
    "h": ("habe", "hat", "haben"),
    "s": ("bin", "ist", "sind"),
    "be": ("bin", "ist", "sind"),
    "was": ("war", "war", "waren"),
}
_QUESTION_WORDS = {
    "who": "wer", "whom": "wen", "what": "was", "where": "wo", "when": "wann", "why": "warum",
}  # fmt: skip


def sentence(tree: Sentence) -> Words:
    """Give the words of a sentence, commas and the end mark as words of their own."""
    if tree.question:
        return [*question(tree.question), "?"]
    words = unit(tree.units[0])
    for joint, following in zip(tree.joints, tree.units[1:], strict=True):
        if joint == "and then":
            words += [",", "und", *unit(following, front=["dann"])]
        else:
            words += [",", "und" if joint == "and" else "aber", *unit(following)]
    return [*words, "."]


def unit(tree: Unit, front: Words | None = None) -> Words:
    """Give one main clause with what hangs on it; ``front`` takes the place before the verb."""
    if isinstance(tree, Clause):
        return main(tree, front)
    if isinstance(tree, Shared):
        return [*main(tree.first, front), "und", *_second_predicate(tree)]
    if isinstance(tree, Existence):
        there = [*front, "gibt", "es"] if front else ["es", "gibt"]
        return [*there, *nominal(tree.nominal, "acc"), *place(tree.place)]
    dependent = [",", tree.conjunction.de, *_joined(tree.subordinate), ","]
    if tree.subordinate_first:
        return main(tree.main, dependent)
    return [*main(tree.main, front), *dependent]


def _joined(clauses: tuple[Clause, ...]) -> Words:
    words = subordinate(clauses[0])
    for following in clauses[1:]:
        words += ["und", *subordinate(following)]
    return words


def _second_predicate(tree: Shared) -> Words:
    """Leave out the auxiliary when both predicates share it."""
    finite, end = verbs(tree.second)
    shared = tree.second.tense == "past" and finite == verbs(tree.first)[0]
    return [*([] if shared else [finite]), *middle(tree.second), *end, *after(tree.second)]


def main(tree: Clause, front: Words | None = None) -> Words:
    """Give a main clause, the finite verb in second place."""
    finite, end = verbs(tree)
    first = front
    if first is None and tree.comment:
        first = tree.comment.de.split()
    if first is None and tree.time and tree.time_first:
        first = tree.time.de.split()
    subject = nominal(tree.subject, "nom")
    rest = [*middle(tree), *end, *after(tree)]
    return [*first, finite, *subject, *rest] if first else [*subject, finite, *rest]


def subordinate(tree: Clause) -> Words:
    """Give a subordinate clause, all verbs at the end."""
    front = tree.comment.de.split() if tree.comment else []
    return [*nominal(tree.subject, "nom"), *front, *middle(tree), *last_verbs(tree), *after(tree)]


def relative(tree: Clause, head: NounPhrase) -> Words:
    """Give a relative clause between commas, its pronoun agreeing with the head."""
    case = {"subject": "nom", "prep": tree.verb.case}.get(tree.gap, tree.gap)
    pronoun = _RELATIVE[_CASES[case]][_column(head)]
    opening = [tree.verb.preposition, pronoun] if tree.gap == "prep" else [pronoun]
    subject = [] if tree.gap == "subject" else nominal(tree.subject, "nom")
    return [",", *opening, *subject, *middle(tree), *last_verbs(tree), *after(tree), ","]


def question(tree: Question) -> Words:
    """Give a question: the finite verb first, or after the question word."""
    asked = tree.clause
    finite, end = verbs(asked)
    word = [_QUESTION_WORDS[tree.word]] if tree.word else []
    subject = [] if tree.word == "who" else nominal(asked.subject, "nom")
    return [*word, finite, *subject, *middle(asked), *end, *after(asked)]


def verbs(tree: Clause) -> tuple[str, Words]:
    """Give the finite verb and what closes the bracket."""
    verb = tree.verb
    if verb.frame == "be" and tree.tense in {"present", "past"}:
        return _finite("be" if tree.tense == "present" else "was", tree), []
    if tree.tense == "present":
        return present(verb, tree.subject), [verb.prefix] if verb.prefix else []
    if tree.tense == "past":
        return _finite(verb.auxiliary, tree), [verb.participle]
    return _finite(tree.tense, tree), [verb.prefix + verb.de]


def last_verbs(tree: Clause) -> Words:
    """Give the verbs of a subordinate clause."""
    finite, end = verbs(tree)
    if tree.tense == "present" and tree.verb.prefix:
        return [tree.verb.prefix + finite]
    return [*end, finite]


def _finite(kind: str, tree: Clause) -> str:
    return _FINITE[kind][_person(tree.subject)]


def _person(subject: Nominal) -> int:
    if subject == Pronoun("I"):
        return 0
    return 2 if is_plural(subject) else 1


def present(verb: Verb, subject: Nominal) -> str:
    """Give the present tense without the separable prefix."""
    person = _person(subject)
    if person == 1:
        return verb.de_third
    if person == 2:
        return verb.de
    irregular = {"wissen": "weiß", "haben": "habe"}
    if verb.de in irregular:
        return irregular[verb.de]
    if verb.de.endswith("eln"):
        return f"{verb.de[:-3]}le"
    return f"{verb.de[:-1]}e" if verb.de.endswith("ern") else verb.de[:-1]


def zu_infinitive(verb: Verb) -> Words:
    """Give ``zu sehen`` or ``anzurufen``."""
    return [f"{verb.prefix}zu{verb.de}"] if verb.prefix else ["zu", verb.de]


def middle(tree: Clause) -> Words:
    """Give the middle field, the subject left out."""
    words: Words = []
    full, tree = tree, _without_relatives(tree)
    if isinstance(tree.accusative, Pronoun):
        words += nominal(tree.accusative, "acc")
    if isinstance(tree.dative, Pronoun):
        words += nominal(tree.dative, "dat")
    if tree.time and (not tree.time_first or tree.comment):
        words += tree.time.de.split()
    if tree.frequency:
        words += tree.frequency.de.split()
    if tree.dative is not None and not isinstance(tree.dative, Pronoun):
        words += nominal(tree.dative, "dat")
    words += _accusative_with_manner(tree)
    if tree.negated and not _has_kein(tree):
        words += ["nicht"]
    if tree.prepositional is not None:
        words += with_preposition(
            tree.verb.preposition, tree.prepositional, tree.verb.case, contract=not _described(full)
        )
    if tree.predicate:
        words += [tree.predicate.de]
    if tree.euros:
        words += [f"{tree.euros:,}".replace(",", "."), "Euro"]
    for location in (tree.direction, tree.place):
        words += place(location) if location else []
    return words


def _without_relatives(tree: Clause) -> Clause:
    """Leave the relative clauses of objects to ``after``: they stand behind the bracket."""

    def bare(part: Nominal | None) -> Nominal | None:
        return part._replace(relative=None) if isinstance(part, NounPhrase) else part

    return tree._replace(
        accusative=bare(tree.accusative),
        dative=bare(tree.dative),
        prepositional=bare(tree.prepositional),
    )


def _accusative_with_manner(tree: Clause) -> Words:
    manner = tree.manner.de.split() if tree.manner else []
    part = tree.accusative
    if part is None or isinstance(part, Pronoun):
        return manner
    if _has_kein(tree) and isinstance(part, NounPhrase):
        return _noun_phrase(part, "acc", "no")
    words = nominal(part, "acc")
    return [*manner, *words] if _is_indefinite(part) else [*words, *manner]


def _is_indefinite(part: Nominal) -> bool:
    if isinstance(part, Both):
        return any(_is_indefinite(each) for each in part.parts)
    return isinstance(part, NounPhrase) and part.determiner in {"a", "", "some", "many", "few"}


def _has_kein(tree: Clause) -> bool:
    """Tell whether the negation joins an indefinite object: does not have a dog."""
    part = tree.accusative
    return (
        tree.negated
        and isinstance(part, NounPhrase)
        and part.determiner in {"a", ""}
        and part.number is None
    )


def after(tree: Clause) -> Words:
    """Give what follows the bracket: the object's relative clause, and other embedded ones."""
    words: Words = []
    for part in (tree.accusative, tree.dative, tree.prepositional):
        if isinstance(part, NounPhrase) and part.relative:
            words += relative(part.relative, part)
    if tree.content:
        words += [",", "dass", *_joined(tree.content), ","]
    if tree.infinitive:
        words += [",", *middle(tree.infinitive), *zu_infinitive(tree.infinitive.verb), ","]
    if tree.purpose:
        words += [",", "um", *middle(tree.purpose), *zu_infinitive(tree.purpose.verb), ","]
    return words


def nominal(tree: Nominal, case: Case) -> Words:
    """Give a noun phrase, name, pronoun or coordination in a case."""
    if isinstance(tree, Pronoun):
        return [_PRONOUNS[tree.word][_CASES[case]]]
    if isinstance(tree, Name):
        return (tree.de if case == "nom" else tree.de_oblique).split()
    if isinstance(tree, Both):
        words = nominal(tree.parts[0], case)
        for part in tree.parts[1:-1]:
            words += [",", *nominal(part, case)]
        return [*words, "und", *nominal(tree.parts[-1], case)]
    return _noun_phrase(tree, case, tree.determiner)


def _column(tree: NounPhrase) -> int:
    return _GENDERS["plural" if tree.plural else tree.noun.gender]


def _noun_phrase(tree: NounPhrase, case: Case, determiner: str) -> Words:
    row, column = _CASES[case], _column(tree)
    word, endings = _determiner(determiner, row, column)
    words = [word] if word else []
    if tree.number:
        words.append(tree.number.de)
    words += [adjective_form(a.de_stem, endings[row][column]) for a in tree.adjectives]
    words.append(_noun_form(tree, case))
    return [*words, *relative(tree.relative, tree)] if tree.relative else words


def adjective_form(stem: str, ending: str) -> str:
    """Add an ending; a stem in -e does not double it."""
    return stem + (ending[1:] if stem.endswith("e") else ending)


def _determiner(english: str, row: int, column: int) -> tuple[str, tuple[tuple[str, ...], ...]]:
    if english == "the":
        return _DEFINITE[row][column], _WEAK
    if english in _DER_WORDS:
        return _DER_WORDS[english] + _STRONG[row][column], _WEAK
    if english in _EIN_WORDS:
        return _EIN_WORDS[english] + _EIN[row][column], _MIXED
    if english in _QUANTITIES:
        return _QUANTITIES[english] + _STRONG[row][column], _STRONG
    return "", _STRONG


def _noun_form(tree: NounPhrase, case: Case) -> str:
    noun = tree.noun
    if not tree.plural:
        return noun.de if case == "nom" else noun.de_oblique
    if case == "dat" and not noun.de_plural.endswith(("n", "s")):
        return f"{noun.de_plural}n"
    return noun.de_plural


def _described(tree: Clause) -> bool:
    """Tell whether a relative clause says which one the prepositional object is."""
    part = tree.prepositional
    return isinstance(part, NounPhrase) and part.relative is not None


def with_preposition(preposition: str, tree: Nominal, case: str, contract: bool = True) -> Words:
    """Give a prepositional phrase, contracted with a plain article unless told not to."""
    words = nominal(tree, "acc" if case == "acc" else "dat")
    contracted = _CONTRACTIONS.get((preposition, words[0]))
    plain = isinstance(tree, NounPhrase) and tree.determiner == "the"
    if contracted and plain and contract:
        return [contracted, *words[1:]]
    return [preposition, *words]


def place(tree: Place) -> Words:
    """Give a phrase of place."""
    return with_preposition(tree.de, tree.nominal, tree.case)
