"""Translation memories."""

import gzip

import pytest

from nmt_cli.corpus.pairs import Pair, Request
from nmt_cli.corpus.readers import open_corpus
from nmt_cli.errors import NmtError

EN_FR = Request("en", "fr")
UNITS = """
<tu><tuv xml:lang="EN-gb"><seg>Press <bpt>&lt;b&gt;<sub>no</sub></bpt>it<ept/> now.</seg>
 </tuv>
 <tuv xml:lang="fr"><seg>Appuyez.</seg></tuv></tu>
<tu><note>not text</note><tuv lang="fr_FR"><prop type="x">p</prop><seg>Un
   deux.</seg></tuv><tuv lang="en"><seg>One <hi>two</hi>&amp;<ph>{0}</ph>.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Alone.</seg></tuv><tuv xml:lang="de"><seg>Allein.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg></seg></tuv><tuv xml:lang="fr"><seg>Vide.</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>color</seg></tuv><tuv xml:lang="en"><seg>colour</seg></tuv>
 <tuv xml:lang="fr"><seg>couleur</seg></tuv></tu>
"""
WANTED = [
    Pair("Press it now.", "Appuyez."),
    Pair("One two&.", "Un deux."),
    Pair("colour", "couleur"),
]


def memory(units: str = UNITS, before: str = "") -> str:
    head = '<?xml version="1.0" encoding="{0}"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd"' + before
    return head + f'>\n<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'


def read(path, request=EN_FR):
    return open_corpus(str(path), request).read("")


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_units_with_both_languages_become_pairs(tmp_path, encoding):
    raw = memory().replace("{0}", encoding, 1).encode(encoding)
    (tmp_path / "m.tmx").write_bytes(raw)
    (tmp_path / "m.tmx.gz").write_bytes(gzip.compress(raw))
    for name in ("m.tmx", "m.tmx.gz"):
        found = read(tmp_path / name)
        assert found.pairs == WANTED
        assert "2 rows skipped" in found.notes[0]
    swapped = read(tmp_path / "m.tmx", Request("fr", "en"))
    assert swapped.pairs == [Pair(b, a) for a, b in WANTED]


def test_languages_are_asked_for_and_checked(tmp_path):
    (tmp_path / "m.tmx").write_text(memory().replace("{0}", "UTF-8", 1))
    with pytest.raises(NmtError, match="EN-gb, fr; say which"):
        read(tmp_path / "m.tmx", Request())
    with pytest.raises(NmtError, match=r"no unit has both 'en' and 'nl'; .* are: EN-gb, de"):
        read(tmp_path / "m.tmx", Request("en", "nl"))


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">',
        '<!ENTITY x SYSTEM "/etc/passwd">',
        '<!ENTITY % p "q">',
    ],
)
def test_entities_are_refused(tmp_path, declaration):
    text = memory(before=f" [{declaration}]").replace("{0}", "UTF-8", 1)
    (tmp_path / "m.tmx").write_text(text)
    with pytest.raises(NmtError, match="entity"):
        read(tmp_path / "m.tmx")


@pytest.mark.parametrize("cut", [0, 60, 300])
def test_damaged_xml_names_the_line(tmp_path, cut):
    text = memory().replace("{0}", "UTF-8", 1)
    (tmp_path / "m.tmx").write_text(text[:cut])
    with pytest.raises(NmtError, match=r"m\.tmx:\d+: is not well-formed XML"):
        read(tmp_path / "m.tmx")


def test_an_unknown_encoding_is_said(tmp_path):
    (tmp_path / "m.tmx").write_text('<?xml version="1.0" encoding="klingon"?><tmx/>')
    with pytest.raises(NmtError, match="unknown encoding"):
        read(tmp_path / "m.tmx")
