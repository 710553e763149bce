"""English read off a tree."""

from __future__ import annotations

from nmt_cli.corpus.toy.lexicon import Name
from nmt_cli.corpus.toy.trees import (
    Both,
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

_OBJECT_FORM = {"I": "me", "he": "him", "she": "her", "we": "us", "they": "them"}
_MODALS = {"future": "will", "can": "can", "must": "must", "should": "should"}
_VOWELS = frozenset("aeiou")
_CONSONANT_SOUND = ("uni", "use", "eu")
_VOWEL_SOUND = ("hon", "hour")

Words = list[str]


def sentence(tree: Sentence) -> Words:
    """Give the words of a sentence, commas and the end mark as words of their own."""
    if tree.question:
        return [*question(tree.question), "?"]
    words = unit(tree.units[0])
    for joint, following in zip(tree.joints, tree.units[1:], strict=True):
        words += [",", *joint.split(), *unit(following, opening=False)]
    return [*words, "."]


def unit(tree: Unit, opening: bool = True) -> Words:
    """Give one main clause with what hangs on it; ``opening`` if no other stands before it."""
    if isinstance(tree, Clause):
        return clause(tree, opening)
    if isinstance(tree, Shared):
        return [*clause(tree.first, opening), "and", *predicate(tree.second)]
    if isinstance(tree, Existence):
        verb = "are" if is_plural(tree.nominal) else "is"
        return ["there", verb, *nominal(tree.nominal), *place(tree.place)]
    dependent = [*tree.conjunction.en.split(), *_joined(tree.subordinate)]
    if tree.subordinate_first:
        return [*dependent, ",", *clause(tree.main)]
    return [*clause(tree.main), *dependent]


def _joined(clauses: tuple[Clause, ...]) -> Words:
    words = clause(clauses[0])
    for following in clauses[1:]:
        words += ["and", *clause(following)]
    return words


def clause(tree: Clause, opening: bool = True) -> Words:
    """Give a clause with its subject."""
    words: Words = []
    if tree.comment:
        comma = opening and tree.comment.en != "perhaps"
        words += [*tree.comment.en.split(), *([","] if comma else [])]
    if tree.time and tree.time_first:
        words += tree.time.en.split()
    return [*words, *nominal(tree.subject), *predicate(tree)]


def relative(tree: Clause, person: bool) -> Words:
    """Give a relative clause with its pronoun."""
    if tree.gap == "subject":
        return ["who" if person else "that", *predicate(tree)]
    if tree.gap == "prep":
        verb, preposition = tree.verb.en.rsplit(" ", 1)
        past = tree.verb.en_past.rsplit(" ", 1)[0]
        rest = predicate(tree._replace(verb=tree.verb._replace(en=verb, en_past=past)))
        return [preposition, "whom" if person else "which", *nominal(tree.subject), *rest]
    pronoun = "whom" if person else "that"
    return [pronoun, *nominal(tree.subject), *predicate(tree)]


def predicate(tree: Clause) -> Words:
    """Give the verb and all that follows it."""
    return [*verb_group(tree), *complements(tree)]


def complements(tree: Clause) -> Words:
    """Give all that follows the verb."""
    words: Words = []
    for part in (tree.dative, tree.accusative, tree.prepositional):
        if part is not None:
            words += nominal(part, is_object=True)
    if tree.predicate:
        words += [tree.predicate.en]
    if tree.euros:
        words += [f"{tree.euros:,}", "euros"]
    for phrase in (tree.manner,):
        words += phrase.en.split() if phrase else []
    for location in (tree.direction, tree.place):
        words += place(location) if location else []
    if tree.time and not tree.time_first:
        words += tree.time.en.split()
    if tree.content:
        words += ["that", *_joined(tree.content)]
    if tree.infinitive:
        words += ["to", *tree.infinitive.verb.en.split(), *complements(tree.infinitive)]
    if tree.purpose:
        words += ["in", "order", "to", *tree.purpose.verb.en.split(), *complements(tree.purpose)]
    return words


def verb_group(tree: Clause) -> Words:
    """Give the finite verb with negation and the adverb of frequency."""
    helper, rest = auxiliary(tree)
    adverb = tree.frequency.en.split() if tree.frequency else []
    if helper == ["can", "not"]:
        helper = ["cannot"]
    if tree.verb.en == "be" and tree.tense in {"present", "past"}:
        return [*helper, *adverb]
    return (
        [*helper, *adverb, *rest] if helper and tree.tense != "want" else [*adverb, *helper, *rest]
    )


def auxiliary(tree: Clause) -> tuple[Words, Words]:
    """Split the verb into what stands before the subject in a question, and the rest."""
    negation = ["not"] if tree.negated else []
    base = tree.verb.en.split()
    third = is_third_singular(tree.subject)
    if tree.verb.en == "be" and tree.tense in {"present", "past"}:
        return [_form_of_be(tree), *negation], []
    if tree.tense in _MODALS:
        return [_MODALS[tree.tense], *negation], base
    if tree.tense == "want":
        if tree.negated:
            return ["does" if third else "do", "not"], ["want", "to", *base]
        return [], ["wants" if third else "want", "to", *base]
    if tree.negated:
        do = "did" if tree.tense == "past" else "does" if third else "do"
        return [do, "not"], base
    if tree.tense == "past":
        return [], tree.verb.en_past.split()
    return [], [third_person(base[0]), *base[1:]] if third else base


def _form_of_be(tree: Clause) -> str:
    if tree.subject == Pronoun("I"):
        return "am" if tree.tense == "present" else "was"
    plural = not is_third_singular(tree.subject)
    if tree.tense == "past":
        return "were" if plural else "was"
    return "are" if plural else "is"


def question(tree: Question) -> Words:
    """Give a question: the helping verb before the subject."""
    asked = tree.clause
    if tree.word == "who":
        return ["who", *predicate(asked)]
    helper, rest = auxiliary(asked)
    if not helper:
        third = is_third_singular(asked.subject)
        helper = ["did"] if asked.tense == "past" else ["does" if third else "do"]
        rest = (
            ["want", "to", *asked.verb.en.split()]
            if asked.tense == "want"
            else asked.verb.en.split()
        )
    adverb = asked.frequency.en.split() if asked.frequency else []
    word = [tree.word] if tree.word else []
    return [*word, *helper, *nominal(asked.subject), *adverb, *rest, *complements(asked)]


def nominal(tree: Nominal, is_object: bool = False) -> Words:
    """Give a noun phrase, name, pronoun or coordination."""
    if isinstance(tree, Pronoun):
        return [_OBJECT_FORM[tree.word] if is_object else tree.word]
    if isinstance(tree, Name):
        return tree.en.split()
    if isinstance(tree, Both):
        words = nominal(tree.parts[0])
        for part in tree.parts[1:-1]:
            words += [",", *nominal(part)]
        return [*words, "and", *nominal(tree.parts[-1])]
    words = [adjective.en for adjective in tree.adjectives]
    words += (tree.noun.en_plural if tree.plural else tree.noun.en).split()
    if tree.number:
        words = [tree.number.en, *words]
    if tree.determiner == "a":
        words = [_indefinite(words[0]), *words]
    elif tree.determiner:
        words = [tree.determiner, *words]
    if tree.relative:
        words += relative(tree.relative, "person" in tree.noun.classes)
    return words


def _indefinite(following: str) -> str:
    if following.startswith(_CONSONANT_SOUND):
        return "a"
    return "an" if following[0] in _VOWELS or following.startswith(_VOWEL_SOUND) else "a"


def place(tree: Place) -> Words:
    """Give a phrase of place."""
    return [*tree.en.split(), *nominal(tree.nominal)]


def is_plural(tree: Nominal) -> bool:
    """Tell whether a subject takes a plural verb."""
    if isinstance(tree, Pronoun):
        return tree.word in {"we", "they"}
    return isinstance(tree, Both) or (isinstance(tree, NounPhrase) and tree.plural)


def is_third_singular(tree: Nominal) -> bool:
    """Tell whether a subject takes the -s form."""
    return not is_plural(tree) and tree != Pronoun("I")


def third_person(verb: str) -> str:
    """Give the -s form of a verb."""
    if verb in {"have", "be"}:
        return {"have": "has", "be": "is"}[verb]
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return f"{verb[:-1]}ies"
    return f"{verb}s"
