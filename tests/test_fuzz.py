"""Any bytes: a little of what ``python -m tests.fuzz`` does at length, and what that found."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, corpus, run_files, seeds

FOUND = Path(__file__).parent / "fuzz" / "found"
PARTS = [
    "\n",
    "\r\n",
    "\t",
    "\ufeff",
    '"',
    ",",
    "{",
    "}",
    "[",
    "]",
    ":",
    "en",
    "fr",
    "<",
    "</",
    ">",
]
PARTS += ["tu", "tuv", "seg", "xml:lang=", "&amp;", "<!ENTITY a 'b'>", "\\u0000", "1e999", "null"]
PARTS += ["▁", "<s>", "</s>", "<unk>", "<0x0A>", "\u2028", "\x85", "\x0c", "é", "e\u0301", "\u200d"]
text = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=8))).map("".join)
anything = st.one_of(st.binary(max_size=200), text.map(lambda t: t.encode("utf-8", "replace")))


@pytest.mark.parametrize("target", TARGETS)
def test_any_bytes_are_taken_or_refused(target):
    @settings(
        max_examples=30,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(anything)
    def check(data):
        TARGETS[target](data)

    check()


@pytest.mark.parametrize("target", TARGETS)
def test_what_searches_kept_is_taken_or_refused(target):
    for content in corpus(target).values():
        TARGETS[target](content)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_run_with_damaged_bytes_is_loaded_or_refused(name):
    content = run_files()[name]
    target = TARGETS[
        {"config.json": "run-config", "model.safetensors": "run-weights"}.get(name, "run-tokenizer")
    ]
    for place in range(0, len(content), max(1, len(content) // 40)):
        for byte in (0, 0x22, 0xFF, content[place] ^ 1):
            target(content[:place] + bytes([byte]) + content[place + 1 :])
        target(content[:place])


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "json", "parquet", "tmx"])
def test_the_seeds_of_a_format_are_read_with_any_byte_changed(suffix):
    content, read = seeds("")[suffix], TARGETS[f"read-{suffix}"]
    read(content)
    for place in range(0, len(content), max(1, len(content) // 100)):
        for byte in (0, 0x0A, 0x22, 0x3C, 0xFF):
            read(content[:place] + bytes([byte]) + content[place + 1 :])
        read(content[:place])


@pytest.mark.parametrize(
    "path", sorted(FOUND.rglob("*")) if FOUND.is_dir() else [], ids=lambda path: path.name
)
def test_what_was_found_stays_mended(path):
    if path.is_file():
        TARGETS[path.parent.name](path.read_bytes())
