"""Pictures: legible, repeatable, and refused where they cannot be drawn."""

import math
from itertools import combinations
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from typer.testing import CliRunner

from dpaudit.cli import app
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing
from dpaudit.mechanisms.local import LocalGaussian, LocalLaplace
from dpaudit.mechanisms.parity import Xor
from dpaudit.reporting import plots
from dpaudit.reporting.plots import waterfall
from dpaudit.theory.gaps import gaps
from dpaudit.theory.rungs import Gaps, Rung


def rung(name, epsilon, low, high, meaning="what is left of it after this step"):
    return Rung(name=name, epsilon=epsilon, low=low, high=high, meaning=meaning)


def measured():
    """All oddities: infinities, intervals, a rise, large numbers, long words."""
    long = "the level at delta = 0.0002, the most that a valid test can ever certify"
    return Gaps(
        rungs=(
            rung("claim", 123.456, 123.456, 123.456),
            rung("confidence", math.inf, math.inf, math.inf, meaning=long),
            rung("interference", 99.0, 99.0, math.inf),
            rung("outputs", 50.0, 48.123, 52.456, meaning=long),
            rung("elements", 60.0, 55.0, 65.0),
            rung("guessing", 0.0, 0.0, 0.0),
            rung("statistics", 0.001, 0.0, 0.002),
        ),
        spread=12.345,
        remainder=100.0,
        delta=1e-5,
        alpha=0.05,
        elements=1_000_000,
        guesses=100_000,
    )


CASES = {
    "xor": lambda: gaps(Xor(elements=100), elements=100),
    "laplace": lambda: gaps(LocalLaplace(epsilon=1.0), elements=100),
    "gaussian": lambda: gaps(
        LocalGaussian(sigma=1.0), elements=1000, guesses=30, delta=1e-5, observed=1.9
    ),
    "all or nothing": lambda: gaps(AllOrNothing(elements=9, chance=0.3), elements=9),
    "all oddities": measured,
}


def texts(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = [t for t in figure.findobj(Text) if t.get_visible()]
    shown = [t for t in drawn if t.get_text().strip()]
    boxes = [t.get_window_extent(canvas.get_renderer()) for t in shown]
    return shown, boxes


@pytest.mark.parametrize("case", CASES)
def test_no_text_overlaps_another_or_leaves_the_picture(case):
    with mpl.rc_context(plots._STYLE):
        figure = plots._figure(CASES[case](), "a title")
        shown, boxes = texts(figure)
    for (one, a), (two, b) in combinations(zip(shown, boxes, strict=True), 2):
        assert not a.overlaps(b), (one.get_text(), two.get_text())
    page = figure.bbox
    for one, box in zip(shown, boxes, strict=True):
        assert box.x0 >= 0, one.get_text()
        assert box.y0 >= 0, one.get_text()
        assert box.x1 <= page.x1, one.get_text()
        assert box.y1 <= page.y1, one.get_text()


@pytest.mark.parametrize("case", CASES)
def test_every_rung_and_its_number_are_written(case):
    found = CASES[case]()
    with mpl.rc_context(plots._STYLE):
        shown, _ = texts(plots._figure(found, None))
    words = [t.get_text() for t in shown]
    for each in found.rungs:
        assert each.name in words
        number = "\u221e" if each.epsilon == math.inf else f"{each.epsilon:.3f}"
        assert number in words
    assert ("observed" in words) is (found.remainder is not None)
    assert ("\u221e" in words) is any(r.high == math.inf for r in found.rungs)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_gaps_give_the_same_bytes(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        waterfall(measured(), path, title="twice")
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert mpl.__version__.encode() not in one
    assert b"<dc:date>" not in one


def test_the_formats_are_what_their_suffix_says(tmp_path):
    waterfall(measured(), tmp_path / "a.SVG")
    root = ElementTree.fromstring((tmp_path / "a.SVG").read_text("utf-8"))
    assert root.tag.endswith("svg")
    waterfall(measured(), str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_drawing_changes_no_global_setting(tmp_path):
    before = dict(mpl.rcParams)
    waterfall(measured(), tmp_path / "a.png")
    assert dict(mpl.rcParams) == before


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"as \.svg or \.png, got path="):
        waterfall(measured(), tmp_path / "a.gif")


def run(*arguments):
    return CliRunner().invoke(app, ["gaps", "xor", "--n=9", *arguments])


def test_the_command_draws_and_says_what_it_says_without(tmp_path):
    path = tmp_path / "xor.svg"
    done = run(f"--picture={path}")
    assert done.exit_code == 0
    assert done.stdout == run().stdout
    assert path.read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("picture", "advice"),
    [("x.gif", "must end in .svg or .png"), ("taken/x.svg", "cannot be written (")],
)
def test_a_picture_that_cannot_be_written_exits_with_2(tmp_path, picture, advice):
    (tmp_path / "taken").write_text("a file")
    done = run(f"--picture={tmp_path / picture}")
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""
