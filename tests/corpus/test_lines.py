import bz2
import gzip
import lzma

import pytest

from nmt_cli.corpus.lines import is_blank, read_lines
from nmt_cli.errors import NmtError


def read(tmp_path, data: bytes, name="x.en", errors="strict"):
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_lines(path, errors))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u0085c\x0cd\x0be\x1cf\n".encode(), ["a\u2028b\u0085c\x0cd\x0be\x1cf"]),
        (b"a\rb\n", ["a\rb"]),
    ],
)
def test_only_a_line_feed_ends_a_line(tmp_path, data, lines):
    assert read(tmp_path, data) == lines


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
class TestCompressed:
    TEXT = "".join(f"line {n} é\n" for n in range(500)).encode()

    def test_it_is_read_on_the_fly(self, tmp_path, suffix, compress):
        assert len(read(tmp_path, compress(self.TEXT), "x.en" + suffix)) == 500

    def test_several_members_are_one_file(self, tmp_path, suffix, compress):
        twice = compress(self.TEXT) + compress(self.TEXT)
        assert len(read(tmp_path, twice, "x.en" + suffix)) == 1000

    def test_a_damaged_member_is_an_error_be_it_the_second(self, tmp_path, suffix, compress):
        good = compress(self.TEXT)
        for second in (b"\xff" + good[1:], good[:-20], b"something else"):
            with pytest.raises(NmtError, match=r"x\.en.*truncated/corrupt"):
                read(tmp_path, good + second, "x.en" + suffix)
        assert len(read(tmp_path, good + b"\0" * 8, "x.en" + suffix)) == 500

    def test_a_file_that_is_cut_off_is_an_error(self, tmp_path, suffix, compress):
        with pytest.raises(NmtError, match=r"x\.en.*truncated/corrupt"):
            read(tmp_path, compress(self.TEXT)[:-20], "x.en" + suffix)

    def test_a_file_that_is_something_else_is_an_error(self, tmp_path, suffix, compress):
        with pytest.raises(NmtError, match=r"x\.en"):
            read(tmp_path, b"plain text\n", "x.en" + suffix)


def test_a_bad_byte_names_file_line_and_byte(tmp_path):
    with pytest.raises(NmtError, match=r"x\.en:2: byte 0xe9 at position 3"):
        read(tmp_path, b"good\nca\xe9\n")
    assert read(tmp_path, b"ca\xe9\n", errors="replace") == ["ca\ufffd"]


def test_white_space_is_blank():
    assert is_blank("") and is_blank(" \t\u3000\u00a0")
    assert not is_blank(" a ")
