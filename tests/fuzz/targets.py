"""Targets of fuzzing: each takes any bytes and may fail with ``NmtError`` alone.

``tests/test_fuzz.py`` tries them with hypothesis and with what was found before
(``tests/fuzz/found/TARGET/`` and ``corpus/``); ``python -m tests.fuzz TARGET`` searches on, led by
coverage.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from nmt_cli.batches import BatchSize
from nmt_cli.cli import app
from nmt_cli.corpus.lines import decode_lines, is_blank
from nmt_cli.corpus.pairs import Request
from nmt_cli.corpus.readers import FORMATS
from nmt_cli.errors import NmtError
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.precision import Precision
from nmt_cli.runs import RunFolder
from nmt_cli.search import SearchOptions
from nmt_cli.tokenizer import TextRule, Tokenizer, train
from nmt_cli.translation import Translator, load_model
from tests.conftest import PAIRS

_EN_FR = Request("en", "fr")
_BREAKS = "\n\t\r"
"""A translation has none of these."""


@contextmanager
def file_of(data: bytes, suffix: str) -> Iterator[Path]:
    """Write bytes to a file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{suffix}"
        path.write_bytes(data)
        yield path


def lines(data: bytes) -> None:
    """A line is what ends in a line feed, whatever else stands in it."""
    raw = _split(data)
    with suppress(NmtError):
        strict = list(decode_lines(raw, "data", "strict"))
        assert "\n".join(strict) == "\n".join(decode_lines(raw, "data", "replace"))
    with suppress(NmtError):  # UTF-16
        found = list(decode_lines(raw, "data", "replace"))
        assert len(found) == data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        assert not any("\n" in line for line in found)


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def reader_of(suffix: str) -> Callable[[bytes], None]:
    """Make the target of one format: pairs of one line a side, or an error."""

    def read(data: bytes) -> None:
        with file_of(data, suffix) as path, suppress(NmtError):
            for pair in FORMATS[Path(suffix).suffix or suffix](path, _EN_FR).pairs:
                assert "\n" not in pair.src + pair.tgt

    return read


def compressed(data: bytes) -> None:
    """A compressed file is read whole, or said to be damaged."""
    for suffix in (".gz", ".bz2", ".xz", ".zst"):
        with file_of(data, f".tsv{suffix}") as path, suppress(NmtError):
            list(FORMATS[".tsv"](path, _EN_FR).pairs)


@cache
def tokenizers() -> list[Tokenizer]:
    """Train one of each kind that can write any text."""
    texts, rule = [side for pair in PAIRS for side in pair], TextRule()
    return [
        Tokenizer(train(texts, rule, kind, size), rule)
        for kind, size in (("bpe", 400), ("unigram", 400), ("byte", 400))
    ]


def round_trip(data: bytes) -> None:
    """What is encoded and decoded is the normalised text."""
    text = data.decode("utf-8", "replace")
    if any(char in text for char in _BREAKS):
        text = "".join(char for char in text if char not in _BREAKS)
    for tokenizer in tokenizers():
        ids = tokenizer.encode(text)
        assert all(0 <= number < len(tokenizer) for number in ids)
        assert tokenizer.decode(ids) == tokenizer.rule(text), (text, tokenizer.decode(ids))


def any_ids(data: bytes) -> None:
    """Whatever ids a model writes, they are one line."""
    for tokenizer in tokenizers():
        ids = [byte % len(tokenizer) for byte in data]
        written = tokenizer.decode(ids)
        assert not any(char in written for char in _BREAKS)
        assert len(tokenizer.pieces(ids)) == len(tokenizer.words(ids)) == len(ids)


@cache
def translator() -> Translator:
    """Make an untrained one."""
    tokenizer, kind = tokenizers()[0], architecture("lstm-attn")
    options = kind.options(d_model=8, d_embed=8)
    size = Vocabulary(len(tokenizer), len(tokenizer), True)
    model = kind.build(options, size).eval()
    return Translator(model, tokenizer, tokenizer, Precision("fp32", ""))


def translate(data: bytes) -> None:
    """As many lines come out as go in, in order; blank ones stay blank."""
    head, data = data[:2].ljust(2, b"\0"), data[2:2000]
    with suppress(NmtError):
        texts = list(decode_lines(_split(data), "data", "replace"))
        options = SearchOptions(beam=1 + head[0] % 5, max_length=4)
        size = BatchSize(tokens=1 + head[1])
        found = translator().translate(texts, options, size)
        assert len(found) == len(texts)
        for text, translation in zip(texts, found, strict=True):
            assert not any(char in translation.outputs[0].text for char in _BREAKS)
            assert not is_blank(text) or translation.outputs[0].text == ""


def options_file(data: bytes) -> None:
    """A file of options is read or refused."""
    for suffix in (".toml", ".json"):
        with file_of(data, suffix) as path, suppress(NmtError):
            _print_config(path)


def _print_config(path: Path) -> None:
    import contextlib
    import io

    import typer

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(["train", "--config", str(path), "--print-config"], standalone_mode=False)
        except Exception as error:
            usage = isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message")
            if not usage:
                raise


@cache
def run_files() -> dict[str, bytes]:
    """Give the files of a small run that is whole."""
    import torch

    from nmt_cli.models.options import parse

    tokenizer, kind = tokenizers()[0], architecture("lstm-attn")
    values = {"d_model": 8, "d_embed": 8}
    options: Any = parse(kind.options, {**kind.sizes["tiny"], **values}, kind.name)
    vocab = Vocabulary(len(tokenizer), len(tokenizer), True)
    torch.manual_seed(1)
    model = kind.build(options, vocab)
    import dataclasses

    with tempfile.TemporaryDirectory() as place:
        run = RunFolder(Path(place))
        rule = {"normalization": "nfc", "lowercase": False, "separate": False, "kind": "bpe"}
        run.write_config(
            {
                "arch": kind.name, "options": dataclasses.asdict(options),
                "vocab": vocab._asdict(), "tokenizer": rule, "src_lang": "en", "tgt_lang": "fr",
                "training": {}, "request": {}, "data_hash": "", "test_hash": "", "parameters": 1,
                "training_pairs": 1, "device": "cpu", "precision": "fp32", "created": "",
                "finished": None, "step": 1, "best": None, "nmt": "0", "versions": {},
            }
        )  # fmt: skip
        run.write_tokenizers(tokenizer, tokenizer)
        run.write_weights(dict(model.named_parameters()))
        return {path.name: path.read_bytes() for path in Path(place).iterdir() if path.is_file()}


def run_file_of(name: str) -> Callable[[bytes], None]:
    """Make the target of one file of a run: a run with it is loaded, or refused."""

    def load(data: bytes) -> None:
        import torch

        with tempfile.TemporaryDirectory() as place:
            for other, content in run_files().items():
                (Path(place) / other).write_bytes(data if other == name else content)
            with suppress(NmtError):
                run = RunFolder(Path(place))
                run.tokenizers()
                load_model(run, torch.device("cpu"))

    return load


TARGETS: dict[str, Callable[[bytes], None]] = {
    "lines": lines,
    **{f"read-{suffix[1:]}": reader_of(suffix) for suffix in FORMATS if suffix != ".txt"},
    "compressed": compressed,
    "round-trip": round_trip,
    "any-ids": any_ids,
    "translate": translate,
    "options-file": options_file,
    "run-config": run_file_of("config.json"),
    "run-weights": run_file_of("model.safetensors"),
    "run-tokenizer": run_file_of("tokenizer.model"),
}


def corpus(target: str) -> dict[str, bytes]:
    """Give bytes that earlier searches found to reach new code, by number."""
    path = Path(__file__).parent / "corpus" / f"{target}.json"
    kept = json.loads(path.read_text()) if path.is_file() else []
    return {f"{number:03}": base64.b64decode(content) for number, content in enumerate(kept)}


def seeds(target: str) -> dict[str, bytes]:
    """Give bytes that are right, by name, from which a search for wrong ones begins."""
    import bz2
    import gzip
    import io
    import lzma

    import pyarrow
    import pyarrow.parquet

    if target.startswith("run-"):
        return run_files()
    parquet = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"en": ["a"], "fr": ["b"]}), parquet)
    tuv = '<tuv xml:lang="{}"><seg>a <bpt i="1">b</bpt></seg></tuv>'
    unit = f"<tu>{tuv.format('en')}{tuv.format('fr')}</tu>"
    pair = b'{"en": "a", "fr": "b"}'
    return {
        "tsv": b"en\tfr\na\tb\n",
        "csv": b'en,fr\n"a, ""b""",c\n',
        "jsonl": pair + b'\n{"translation": ' + pair + b"}\n",
        "json": b'{"data": [' + pair + b"]}",
        "parquet": parquet.getvalue(),
        "tmx": f'<tmx version="1.4"><header/><body>{unit}</body></tmx>'.encode(),
        "gz": gzip.compress(b"a\tb\n"),
        "bz2": bz2.compress(b"a\tb\n"),
        "xz": lzma.compress(b"a\tb\n"),
        "toml": b'arch = "lstm"\nsteps = 5\n[options]\nd_model = 32\n',
        "text": "\ufeffÉte\u0301\r\n\u2028 <s> \u2581\n\n".encode(),
    }
