"""Text to ids and back, by sentencepiece: the one source of truth for ids.

Before sentencepiece sees a text it is normalised by a stated rule: lower case if asked for,
the Unicode form, and runs of spaces and tabs folded to one space, none at either end. After
that nothing is lost: rare characters become bytes, and what sentencepiece gives a meaning of its
own (its word mark, reserved characters) is escaped, so it is plain text.
"""

from __future__ import annotations

import io
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nmt_cli.errors import NmtError

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Kind = Literal["unigram", "bpe", "word", "char", "byte"]
Normalization = Literal["nfc", "nfkc", "identity"]

MARK = "▁"
"""Sentencepiece's mark of a space."""
_MARK_BYTES = [f"<0x{byte:02X}>" for byte in MARK.encode()]
_ESCAPE = "\ue000"
_RESERVED = _ESCAPE + MARK + "▅\0"
_TO_CODE = {ord(char): _ESCAPE + str(code) for code, char in enumerate(_RESERVED)}
_ESCAPED = re.compile(f"{_ESCAPE}([0-{len(_RESERVED) - 1}])")
_BREAKS = dict.fromkeys(map(ord, "\n\r\t"), " ")
"""What ends a line or a column, and so is never written."""
_SPACES = re.compile(r"[ \t]+")
_WORD = re.compile(r"\w+")
_OWN_PIECE = re.compile(r"<(pad|unk|s|/s|0x[0-9A-F]{2})>")
_LONGEST_TRAINING_LINE = 1 << 16
_LONGEST_SYMBOL = 1000
_ALWAYS_THERE = 256 + 4
_MIN_AUTO_VOCAB, _MAX_AUTO_VOCAB = 1000, 6000


@dataclass(frozen=True)
class TextRule:
    """How text is normalised before it is tokenized; recorded in the run."""

    normalization: Normalization = "nfc"
    lowercase: bool = False

    def __call__(self, text: str) -> str:
        """Normalise one line."""
        if self.lowercase:
            text = text.lower()
        if self.normalization == "nfc":
            text = unicodedata.normalize("NFC", text)
        elif self.normalization == "nfkc":
            text = unicodedata.normalize("NFKC", text)
        return _SPACES.sub(" ", text).strip(" ")


class Tokenizer:
    """Encode lines of one language to ids and decode ids to lines."""

    def __init__(self, model: bytes, rule: TextRule) -> None:
        from sentencepiece import SentencePieceProcessor

        self.model = model
        self.rule = rule
        self._pieces = SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        return int(self._pieces.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Give the ids of one line, without BOS and EOS."""
        return list(self._pieces.encode(escape(self.rule(text))))

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode many lines at once, on all threads."""
        return [list(ids) for ids in self._pieces.encode([escape(self.rule(t)) for t in texts])]

    def encode_escaped(self, text: str) -> list[int]:
        """Give the ids of text that has been normalised and escaped."""
        return list(self._pieces.encode(text))

    def scores(self) -> dict[str, float]:
        """Give what text is cut into, and how much sentencepiece prefers it."""
        pieces = self._pieces
        return {
            pieces.id_to_piece(i): pieces.get_score(i)
            for i in range(EOS + 1, len(self))
            if not pieces.is_byte(i)
        }

    def ids_of(self, piece: str) -> list[int]:
        """Give the id of a piece; of a character that has none, those of its bytes."""
        number = self._pieces.piece_to_id(piece)
        if number != UNK:
            return [number]
        return [self._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]

    def decode(self, ids: list[int]) -> str:
        """Give the text of some ids but control ids: always one line, with no tab in it."""
        text = self._pieces.decode([i for i in ids if i > EOS])
        # a mark that was written as bytes, for want of a piece, is a space all the same
        return unescape(text.removeprefix(MARK).replace(MARK, " ")).translate(_BREAKS)

    def pieces(self, ids: list[int]) -> list[str]:
        """Give the readable piece of each id, a leading ▁ marking the start of a word."""
        return [unescape(self._pieces.id_to_piece(i)) for i in ids]

    def raw_pieces(self) -> list[str]:
        """List what every id stands for in the tokenizer's own spelling."""
        return [self._pieces.id_to_piece(i) for i in range(len(self))]

    def words(self, ids: list[int]) -> list[int]:
        """Give the word, counted from 0 and between spaces, that each id belongs to."""
        pieces = [self._pieces.id_to_piece(i) for i in ids]
        starts = [
            piece.startswith(MARK) or pieces[n : n + len(_MARK_BYTES)] == _MARK_BYTES
            for n, piece in enumerate(pieces)
        ]
        return [max(sum(starts[: n + 1]) - 1, 0) for n in range(len(ids))]


def escape(text: str) -> str:
    """Write what sentencepiece reserves as an escape character and a digit."""
    return text.translate(_TO_CODE)


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return _ESCAPED.sub(lambda match: _RESERVED[int(match[1])], text)


def auto_vocab_size(lines: Iterable[str]) -> int:
    """Choose a size: the distinct words of the text, between 1,000 and 6,000."""
    words: set[str] = set()
    for line in lines:
        words.update(_WORD.findall(line))
        if len(words) >= _MAX_AUTO_VOCAB:
            return _MAX_AUTO_VOCAB
    return max(_MIN_AUTO_VOCAB, -(-len(words) // 100) * 100)


def train(
    lines: Iterable[str],
    rule: TextRule,
    kind: Kind,
    size: int,
    symbols: Sequence[str] = (),
) -> bytes:
    """Train a sentencepiece model; it has fewer entries if the text does not fill the size.

    Args:
        lines: the training text, not yet normalised.
        rule: how it is normalised.
        kind: ``unigram`` (Kudo 2018), ``bpe`` (Sennrich et al. 2016), whole words between spaces,
            characters, or the bytes of UTF-8. What a vocabulary lacks is written as bytes.
        size: most entries, 256 bytes and 4 control ids included.
        symbols: what stays whole wherever it stands, as ``require_symbols`` lets pass.

    Raises:
        NmtError: when the size cannot hold even the bytes and characters of the text.
    """
    texts = [escape(rule(line))[:_LONGEST_TRAINING_LINE] for line in lines]
    texts = [text for text in texts if text]
    if kind == "byte":
        texts = [_ESCAPE]  # nothing but the mark of a space and bytes is learnt
    whole = list(dict.fromkeys(escape(rule(symbol)) for symbol in symbols))
    if len(whole) + _ALWAYS_THERE > size and (whole or kind not in {"bpe", "unigram"}):
        asked = f"{len(whole)} symbols, " if whole else ""
        raise NmtError(
            f"--vocab-size {size} is too small: {asked}256 bytes and 4 control ids alone need "
            f"{len(whole) + _ALWAYS_THERE}"
        )
    try:
        return _run_trainer(texts, kind, size, whole)
    except RuntimeError as error:
        highest = re.search(r"value <= (\d+)", str(error))
        if highest is None:
            raise NmtError(_why_not(size, str(error))) from None
        return _run_trainer(texts, kind, int(highest[1]), whole)


def require_symbols(symbols: Iterable[str], kind: Kind, rule: TextRule) -> None:
    """Check what is to stay whole wherever it stands.

    Raises:
        NmtError: if one cannot, as it stands in normalised text.
    """
    for typed in symbols:
        name, symbol = f"--symbol {ascii(typed)[1:-1][:40]}", rule(typed)
        if symbol != typed:
            name += f" (normalised: {symbol})"
        if kind == "word":
            raise NmtError(
                f"{name}: --tokenizer word cuts at spaces alone; it goes with the others"
            )
        kinds = {unicodedata.category(char) for char in symbol}
        if kinds & {"Cc", "Cs"}:
            raise NmtError(f"{name}: must have no control characters, and be UTF-8")
        if not symbol or any(char.isspace() for char in symbol):
            raise NmtError(f"{name}: must be one word, without spaces")
        if len(symbol.encode()) > _LONGEST_SYMBOL:
            raise NmtError(f"{name}...: must have at most {_LONGEST_SYMBOL} bytes")
        if _OWN_PIECE.fullmatch(symbol):
            raise NmtError(f"{name}: is a piece that every vocabulary has; take another")


def _why_not(size: int, reason: str) -> str:
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason)
    if needed:
        return (
            f"--vocab-size {size} is too small: bytes, characters of the text and symbols alone "
            f"need {needed[1]}"
        )
    return f"the tokenizer could not be trained with --vocab-size {size}: {_last_line(reason)}"


def _last_line(reason: str) -> str:
    return " ".join(reason.split())[-200:]


def _run_trainer(texts: list[str], kind: Kind, size: int, symbols: list[str]) -> bytes:
    from sentencepiece import SentencePieceTrainer

    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        model_type="char" if kind == "byte" else kind,
        hard_vocab_limit=kind in {"unigram", "bpe"},
        vocab_size=size,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        pad_piece="<pad>",
        byte_fallback=True,
        user_defined_symbols=symbols,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.9999,
        max_sentence_length=8 * _LONGEST_TRAINING_LINE,
        num_threads=1,
        minloglevel=int(os.environ.get("NMT_SENTENCEPIECE_LOG", "2")),
    )
    return written.getvalue()
