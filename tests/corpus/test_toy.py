import hashlib
from collections import Counter

import pytest

from nmt_cli.corpus import toy
from nmt_cli.corpus.pairs import Request
from nmt_cli.corpus.toy import english, german, lexicon
from nmt_cli.corpus.toy.grammar import Dice, Grammar
from nmt_cli.corpus.toy.lexicon import Phrase
from nmt_cli.corpus.toy.trees import Clause, Complex, NounPhrase, Place, Pronoun, Sentence, Shared
from nmt_cli.errors import NmtError


@pytest.fixture(scope="module")
def splits():
    return toy.make(toy.ToyOptions())


def test_the_splits_have_their_sizes_and_share_no_source(splits):
    assert {name: len(pairs) for name, pairs in splits.items()} == {
        "train": 20_000,
        "valid": 500,
        "test": 1200,
    }
    sources = [pair.src for pairs in splits.values() for pair in pairs]
    assert len(set(sources)) == len(sources)


def test_every_bucket_is_filled(splits):
    def buckets(pairs):
        return Counter((len(pair.src.split()) - 1) // 10 for pair in pairs)

    assert all(buckets(splits["test"])[bucket] >= 100 for bucket in range(6))
    assert all(buckets(splits["train"])[bucket] >= 500 for bucket in range(6))
    lengths = [len(pair.src.split()) for pairs in splits.values() for pair in pairs]
    assert (min(lengths), max(lengths)) == (3, 60)


def test_the_corpus_is_the_same_everywhere():
    pairs = toy.make(toy.ToyOptions(train=200, seed=1))["train"]
    digest = hashlib.sha256("\n".join(f"{p.src}\t{p.tgt}" for p in pairs).encode()).hexdigest()
    assert digest == "fae6836200770b9f633dc488c50f9fe933b3f559323d121b57ef9bdf45da5c54"


def test_the_size_of_training_does_not_change_the_other_splits(splits):
    small = toy.make(toy.ToyOptions(train=10))
    assert small["test"] == splits["test"]
    assert len(small["train"]) == 10


def test_another_seed_gives_other_sentences(splits):
    other = toy.make(toy.ToyOptions(train=10, seed=2))
    assert other["test"][:5] != splits["test"][:5]


def test_a_source_has_one_translation():
    grammar = Grammar(Dice(99))
    seen = {}
    for n in range(30_000):
        tree = grammar.sentence(1 + n % 2, (n % 10) / 10)
        src = toy.written(english.sentence(tree))
        assert seen.setdefault(src, toy.written(german.sentence(tree))) is not None
        assert seen[src] == toy.written(german.sentence(tree)), src
    assert len(seen) > 20_000


def test_there_are_600_lemmas_a_language():
    content = [lexicon.nouns(), lexicon.verbs(), lexicon.adjectives()]
    function = [
        lexicon.FREQUENCIES, lexicon.MANNERS, lexicon.COMMENTS, lexicon.CONJUNCTIONS,
        lexicon.PREPOSITIONS, lexicon.NUMERALS, lexicon.MONTHS, lexicon.WEEKDAYS,
    ]  # fmt: skip
    for language in ("en", "de"):
        lemmas = {
            getattr(entry, "prefix", "") * (language == "de") + getattr(entry, language)
            for group in [*content, *function]
            for entry in group
        }
        assert len(lemmas) >= 600


def test_texts_are_written_as_people_write(splits):
    for pair in splits["train"][:3000]:
        for text in pair:
            assert text[0].isupper() or text[0].isdigit()
            assert text[-1] in ".?"
            assert "  " not in text and " ," not in text and " ." not in text and ",," not in text


def word(table, en):
    return next(entry for entry in table if entry.en == en)


def phrase(determiner, noun, *adjectives, plural=False, **rest):
    found = tuple(word(lexicon.adjectives(), adjective) for adjective in adjectives)
    return NounPhrase(determiner, found, word(lexicon.nouns(), noun), plural, **rest)


def verb(en):
    return word(lexicon.verbs(), en)


MAN, DOG = phrase("the", "man", "old"), phrase("the", "dog")


@pytest.mark.parametrize(
    ("unit", "en", "de"),
    [
        (Clause(MAN, verb("see"), "present", accusative=DOG),
         "The old man sees the dog.", "Der alte Mann sieht den Hund."),
        (Clause(MAN, verb("call"), "past", accusative=phrase("a", "neighbor", "young"),
                time=Phrase("yesterday", "gestern"), time_first=True),
         "Yesterday the old man called a young neighbor.",
         "Gestern hat der alte Mann einen jungen Nachbarn angerufen."),
        (Clause(Pronoun("I"), verb("open"), "present", accusative=phrase("no", "door")),
         "I open no door.", "Ich mache keine Tür auf."),
        (Clause(Pronoun("she"), verb("buy"), "present", negated=True,
                accusative=phrase("a", "book", "expensive")),
         "She does not buy an expensive book.", "Sie kauft kein teures Buch."),
        (Clause(Pronoun("we"), verb("help"), "future",
                dative=phrase("these", "child", plural=True)),
         "We will help these children.", "Wir werden diesen Kindern helfen."),
        (Clause(phrase("the", "boy"), verb("try"), "past",
                infinitive=Clause(phrase("the", "boy"), verb("close"), "present",
                                  accusative=phrase("the", "window"))),
         "The boy tried to close the window.",
         "Der Junge hat versucht, das Fenster zuzumachen."),
        (Complex(Clause(Pronoun("he"), verb("laugh"), "present"), Phrase("because", "weil"),
                 (Clause(MAN, verb("look at"), "present", accusative=phrase("my", "picture")),),
                 True),
         "Because the old man looks at my picture, he laughs.",
         "Weil der alte Mann mein Bild ansieht, lacht er."),
        (Shared(Clause(MAN, verb("open"), "past", accusative=phrase("the", "door")),
                Clause(MAN, verb("call"), "past", accusative=DOG)),
         "The old man opened the door and called the dog.",
         "Der alte Mann hat die Tür aufgemacht und den Hund angerufen."),
        (Clause(phrase("the", "man", relative=Clause(
            Pronoun("they"), verb("wait for"), "past", gap="prep")), verb("sleep"), "present"),
         "The man for whom they waited sleeps.",
         "Der Mann, auf den sie gewartet haben, schläft."),
        (Clause(MAN, verb("feed"), "past", accusative=phrase("the", "cat", relative=Clause(
            phrase("the", "cat"), verb("wake up"), "past", gap="subject"))),
         "The old man fed the cat that woke up.",
         "Der alte Mann hat die Katze gefüttert, die aufgewacht ist."),
        (Clause(Pronoun("I"), verb("go"), "present",
                direction=Place("to", "zu", "dat", phrase("the", "school"))),
         "I go to the school.", "Ich gehe zur Schule."),
    ],
)  # fmt: skip
def test_both_languages_are_read_off_one_tree(unit, en, de):
    tree = Sentence((unit,))
    assert toy.written(english.sentence(tree)) == en
    assert toy.written(german.sentence(tree)) == de


def test_either_language_can_be_the_source():
    forward = toy.corpus("train=5", Request()).read("train")
    backward = toy.corpus("train=5", Request("de", "en")).read("train")
    assert [(p.src, p.tgt) for p in forward.pairs] == [(p.tgt, p.src) for p in backward.pairs]


@pytest.mark.parametrize("options", ["train=x", "size=5", "train"])
def test_unknown_options_are_refused(options):
    with pytest.raises(NmtError, match="takes train=N and seed=N"):
        toy.corpus(options, Request())


def test_other_languages_are_refused():
    with pytest.raises(NmtError, match="has en and de"):
        toy.corpus("", Request("en", "fr"))
