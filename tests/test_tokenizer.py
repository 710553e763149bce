import unicodedata
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.errors import NmtError
from nmt_cli.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    Kind,
    TextRule,
    Tokenizer,
    auto_vocab_size,
    escape,
    train,
    unescape,
)

KINDS = get_args(Kind)
LINES = [
    "The old man sees the dog.",
    "Der alte Mann sieht den Hund.",
    "The tag <s> opens it, </s> ends it.",
    "Die Karte ▁ liegt ▅ auf dem Tisch, <unk> und <pad>.",
    "Wir haben 25 Hunde gesehen.",
] * 4


def make(kind="bpe", rule=TextRule()):  # noqa: B008
    return Tokenizer(train(LINES, rule, kind, 310), rule)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return make()


@pytest.fixture(scope="module", params=KINDS)
def any_kind(request) -> Tokenizer:
    return make(request.param)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "<s> </s> <unk> <pad>",
        "a ▁ b ▁▁c ▁",
        "▅ and \x00 and \ue000 and \ue0001 and \ue0000",
        "zero\u200dwidth ﬁ ＡＢＣ \u2028 \x85 \x0c",
        "日本語 und 🙂 <0x41>",
        "\u00a0hard\u00a0space\u3000",
    ],
)
def test_what_is_typed_comes_back(kind, text):
    tokenizer = make(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.rule(text)
    assert not {PAD, UNK, BOS, EOS} & set(ids)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r")))
def test_any_text_comes_back_as_normalised(any_kind, text):
    assert any_kind.decode(any_kind.encode(text)) == any_kind.rule(text)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_a_symbol_stays_whole(kind, lowercase):
    rule = TextRule(lowercase=lowercase)
    symbols = ["<NUM>", "▁x", "<NUM>", "@"]
    tokenizer = Tokenizer(train(LINES, rule, kind, 320, symbols), rule)
    line = "The 2<NUM>dogs ▁x @ <NUM>"
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == rule(line)
    pieces = tokenizer.pieces(ids)
    assert [pieces.count(rule(symbol)) for symbol in ("<NUM>", "▁x", "@")] == [2, 1, 1]


@given(text=st.text(st.sampled_from("▁▅\0\ue000012 a")))
def test_escaping_is_undone(text):
    assert unescape(escape(text)) == text
    assert not set("▁▅\0") & set(escape(text))


def test_spaces_and_tabs_are_folded_and_nothing_else():
    assert TextRule()("  a \t b\u00a0\u00a0c  ") == "a b\u00a0\u00a0c"


def test_decomposed_letters_give_the_same_ids(bpe):
    text = "Männer über"
    assert bpe.encode(unicodedata.normalize("NFD", text)) == bpe.encode(text)
    kept = TextRule(normalization="identity")
    assert kept(unicodedata.normalize("NFD", text)) != text


def test_nfkc_folds_what_nfc_keeps():
    assert TextRule("nfkc")("ﬁ Ａ") == "fi A"
    assert TextRule("nfc")("ﬁ Ａ") == "ﬁ Ａ"


def test_lowercase_applies_to_every_text():
    tokenizer = make(rule=TextRule(lowercase=True))
    assert tokenizer.encode("THE OLD MAN") == tokenizer.encode("the old man")


def test_decoded_text_is_always_one_line(bpe):
    newline = bpe._pieces.piece_to_id("<0x0A>")
    carriage = bpe._pieces.piece_to_id("<0x0D>")
    assert bpe.decode([newline, *bpe.encode("a"), carriage]) == "  a "


def test_control_ids_stand_where_they_are_promised(bpe):
    assert [bpe._pieces.id_to_piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_that_the_text_cannot_fill_is_lowered(kind):
    size = len(Tokenizer(train(LINES, TextRule(), kind, 8000), TextRule()))
    assert 260 <= size < 8000
    assert len(Tokenizer(train(LINES, TextRule(), kind, size), TextRule())) == size


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_too_small_for_the_characters_is_an_error(kind):
    with pytest.raises(NmtError, match="--vocab-size 100 is too small") as error:
        train(LINES, TextRule(), kind, 100)
    needed = int(str(error.value).split()[-1])
    assert len(Tokenizer(train(LINES, TextRule(), kind, needed), TextRule())) == needed
    with pytest.raises(NmtError, match=f"need {needed}"):
        train(LINES, TextRule(), kind, needed - 1)


def test_training_is_the_same_each_time():
    assert make().model == make().model


def test_pieces_know_their_word(any_kind):
    ids = any_kind.encode("Zebras old ▁x man")
    words = any_kind.words(ids)
    assert words[0] == 0
    assert words[-1] == 3
    assert sorted(words) == words


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("word", ["▁The", "▁old"]),
        ("char", ["▁", "T", "h", "e", "▁", "o", "l", "d"]),
        ("byte", ["▁", "<0x54>", "<0x68>", "<0x65>", "▁", "<0x6F>", "<0x6C>", "<0x64>"]),
    ],
)
def test_text_is_cut_as_asked(kind, pieces):
    tokenizer = make(kind)
    ids = tokenizer.encode("The old")
    assert tokenizer.pieces(ids) == pieces
    assert tokenizer.words(ids) == [0] * (len(pieces) // 2) + [1] * (len(pieces) // 2)


def test_auto_size_is_the_number_of_distinct_words_within_bounds():
    assert auto_vocab_size(["a b c"]) == 1000
    assert auto_vocab_size([f"w{n}" for n in range(2345)]) == 2400
    assert auto_vocab_size([f"w{n}" for n in range(99999)]) == 6000


@pytest.mark.parametrize("kind", ["char", "word", "byte"])
def test_a_size_too_small_for_the_bytes_is_an_error(kind):
    with pytest.raises(NmtError, match=r"--vocab-size 10 is too small: 256 bytes .* need 260"):
        train(["a b"], TextRule(), kind, 10)
