"""Figures as PDF: whole files that show what their SVG shows."""

import re
import zlib
from xml.etree import ElementTree as ET

import pytest

from dpaudit import Coins, Design, Key, PureDP, Ranking, audit_scores
from dpaudit.game.design import ThreatModel
from dpaudit.reporting import svg
from dpaudit.reporting.figure import Figure, Mark
from dpaudit.reporting.pdf import pdf
from dpaudit.reporting.report.page import write_figures

HEAD = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='100' height='50' "
    "viewBox='0 -10 100 50'><title id='t'>δ</title><style>{style}</style>{body}</svg>"
)


def drawn(body, style=""):
    """The operators of a page."""
    found = pdf(HEAD.format(style=style, body=body))
    length = int(re.search(rb"/Length (\d+)", found)[1])
    begin = found.index(b"stream\n") + len(b"stream\n")
    return zlib.decompress(found[begin : begin + length]).decode("ascii").splitlines()


@pytest.fixture
def figure():
    picture = svg.Picture(
        width=480, height=330, title="A", description="B", content=svg.dot(9, 9, "x")
    )
    marks = (Mark.line("found", "a line"),)
    return Figure(
        name="a", heading="Lower (1)", picture=picture, legend=marks, caption=("c",)
    )


def test_the_places_of_objects_are_where_the_table_says_they_are(figure):
    found = pdf(figure.document())
    assert found.endswith(b"%%EOF\n")
    start = int(re.search(rb"startxref\n(\d+)", found)[1])
    assert found[start:].startswith(b"xref\n0 6\n")
    places = re.findall(rb"(\d{10}) 00000 n", found)
    for number, place in enumerate(places, 1):
        assert found[int(place) :].startswith(b"%d 0 obj\n" % number)


def test_the_same_figure_gives_the_same_bytes(figure):
    assert pdf(figure.document()) == pdf(figure.document())


def test_a_page_is_as_large_as_the_picture_and_upside_up():
    assert drawn("")[0] == "1 0 0 -1 0 40 cm"
    assert b"/MediaBox [0 0 100 50]" in pdf(HEAD.format(style="", body=""))


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        ("<line x1='1' y1='2' x2='3' y2='4' class='a'/>", ["1 2 m 3 4 l", "S"]),
        ("<rect x='1' y='2' width='3' height='4' class='b'/>", ["1 2 3 4 re", "f"]),
        ("<polygon points='1,2 3,4 5,6' class='a b'/>", ["5 6 l", "h", "B"]),
        ("<polyline points='1,2 3,4' class='a b'/>", ["1 2 m", "3 4 l", "S"]),
        ("<rect x='1' y='2' width='3' height='4' class='none'/>", []),
    ],
)
def test_shapes_are_drawn_in_the_style_of_their_classes(body, operators):
    style = ".a { stroke: #ff0000; stroke-dasharray: 4 3; } .b { fill: #0000ff80; }"
    style += ".none { fill: none; }"
    found = drawn(body, style)
    places = [found.index(each) for each in operators]
    assert places == sorted(places)
    assert ("1.000 0.000 0.000 RG" in found) == ("a" in body.split("class='")[1])
    assert found.count("q") == found.count("Q")


def test_the_more_specific_rule_counts():
    style = ".line.b { stroke: #00ff00; } .line { stroke: #ff0000; }"
    body = "<line x1='0' y1='0' x2='1' y2='1' class='line b'/>"
    assert "0.000 1.000 0.000 RG" in drawn(body, style)


def test_rules_for_dark_paper_are_left_out():
    style = ".a { stroke: #ff0000; }"
    style += "@media (prefers-color-scheme: dark) { .a { stroke: #00ff00; } }"
    body = "<line x1='0' y1='0' x2='1' y2='1' class='a'/>"
    assert "1.000 0.000 0.000 RG" in drawn(body, style)


def test_texts_stay_text_in_the_fonts_that_have_their_letters():
    words = "ε ≥ 10⁻⁵ \N{MINUS SIGN} (a)"
    body = f"<text x='50' y='5' text-anchor='end' class='c'>{words}</text>"
    found = drawn(body, "text { font-size: 10px; fill: #000000; }")
    shown = [each for each in found if each.endswith("Tj")]
    letters = [
        (font, bytes.fromhex(hexed).decode("latin-1" if font == "F2" else "cp1252"))
        for font, hexed in re.findall(r"/(F\d) .*<([0-9a-f]*)>", "\n".join(shown))
    ]
    assert letters == [
        ("F2", "e"),
        ("F0", " "),
        ("F2", "\xb3"),
        ("F0", " 10"),
        ("F0", "-5"),
        ("F0", " \N{EN DASH} (a)"),
    ]
    begin = float(next(each for each in found if each.endswith("Td")).split()[0])
    assert -60 < begin < -30  # it ends at 50


def test_every_figure_of_a_report_is_written_twice(tmp_path):
    coins = Coins(key=Key(bytes(32)), count=100)
    design = Design(
        canaries=100,
        rules=Ranking(guesses=100),
        claim=PureDP(epsilon=1.0),
        threat_model=ThreatModel.OUTPUT,
    )
    result = audit_scores(range(100), coins, 3.0 * coins.bits(), design=design)
    written = write_figures(result, tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == sorted(path.name for path in written)
    assert {path.stem for path in written} == {"scores", "roc", "by-k", "waterfall"}
    for path in written:
        if path.suffix == ".svg":
            assert ET.fromstring(path.read_text("utf-8")) is not None
        else:
            assert path.read_bytes().startswith(b"%PDF-1.4")
