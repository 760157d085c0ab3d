"""The picture of a comparison: legible, repeatable, refused where it cannot be."""

import sys
from dataclasses import asdict, replace
from itertools import combinations

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from typer.testing import CliRunner

from dpaudit.errors import InvalidInputError
from dpaudit_lab.cli import app
from dpaudit_lab.pictures import power_picture as module
from dpaudit_lab.pictures.chart import true_and_shown
from dpaudit_lab.pictures.power_picture import Curve, Point, power_picture
from dpaudit_lab.pictures.style import STYLE
from dpaudit_lab.power.plan import Guesses
from dpaudit_lab.power.sweeps import plan_sweep
from dpaudit_lab.power.task import Task
from dpaudit_lab.sweeps.store import Store

CAPTION = (
    "Scores N(0, 1) and N(1, 1), delta = 1e-05, alpha = 0.05. 50 "
    "to 200 draws, the same for all methods;\nbars are standard errors."
)
LIMITS = true_and_shown(truth=4.377, ceiling=3.616)
NAMES = {
    "exact, guesses planned": 3.43,
    "ranked, nothing planned": 3.4,
    "weighted, guesses planned": 3.2,
    "Steinke et al., guesses planned": 2.61,
    "jax-privacy 2.0.0, as it comes": 2.3,
    "jax-privacy 2.0.0, Split": 2.4,
}


def curve(name, top, *, sizes=(3, 4, 5, 6), seconds=0.001):
    points = tuple(
        Point(
            canaries=round(10**size),
            mean=top * size / 6,
            error=0.02,
            seconds=None if seconds is None else seconds * 10 ** (size - 3),
        )
        for size in sizes
    )
    return Curve(name=name, ours=top > 3, points=points)


FULL = [curve(name, top) for name, top in NAMES.items()]
CASES = {
    "full": FULL,
    "no times": [curve(name, top, seconds=None) for name, top in NAMES.items()],
    "ours alone": FULL[:3],
    "one size": [curve(name, top, sizes=(3,)) for name, top in NAMES.items()],
    "a single draw": [
        replace(each, points=tuple(replace(p, error=None) for p in each.points))
        for each in FULL
    ],
    "many sizes": [curve("a", 3.2, sizes=[2 + i / 3 for i in range(17)])],
    "slow": [curve("a", 3.2, seconds=50.0), curve("b", 3.1, seconds=1e-6)],
    "unequal": [FULL[0], curve("weighted, guesses planned", 3.0, sizes=(3, 4))],
}


@pytest.mark.parametrize("case", CASES)
def test_no_text_overlaps_another_or_leaves_the_picture(case):
    with mpl.rc_context(STYLE):
        figure = module._figure(CASES[case], LIMITS, CAPTION)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    shown = [t for t in figure.findobj(Text) if t.get_text().strip()]
    shown = [t for t in shown if t.get_visible()]
    boxes = [t.get_window_extent(canvas.get_renderer()) for t in shown]
    for (one, a), (two, b) in combinations(zip(shown, boxes, strict=True), 2):
        assert not a.overlaps(b), (one.get_text(), two.get_text())
    for one, box in zip(shown, boxes, strict=True):
        assert box.x0 >= 0, one.get_text()
        assert box.y0 >= 0, one.get_text()
        assert box.x1 <= figure.bbox.x1, one.get_text()
        assert box.y1 <= figure.bbox.y1, one.get_text()


@pytest.mark.parametrize(("case", "panels"), [("full", 2), ("no times", 1)])
def test_times_have_a_panel_of_their_own_if_there_are_any(case, panels):
    with mpl.rc_context(STYLE):
        figure = module._figure(CASES[case], LIMITS, CAPTION)
    assert len(figure.axes) == panels


def test_every_method_is_named_below_and_every_limit_at_its_line():
    with mpl.rc_context(STYLE):
        figure = module._figure(FULL, LIMITS, CAPTION)
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == set(NAMES)
    named = {text.get_text(): text.xy[1] for text in figure.axes[0].texts}
    assert named == {
        "true ε 4.377": 4.377,
        "no audit reliably shows more than 3.616": 3.616,
    }


@pytest.mark.parametrize("case", CASES)
def test_axes_fill_the_width_and_name_more_than_one_tick(case):
    with mpl.rc_context(STYLE):
        figure = module._figure(CASES[case], LIMITS, CAPTION)
        FigureCanvasAgg(figure).draw()
    wide = sum(axes.get_window_extent().width for axes in figure.axes)
    assert wide > 2 / 3 * figure.bbox.width
    below = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        assert below.y1 < axes.get_window_extent().y0
        for axis, (low, high) in (
            (axes.xaxis, axes.get_xlim()),
            (axes.yaxis, axes.get_ylim()),
        ):
            assert sum(low <= at <= high for at in axis.get_ticklocs()) >= 2


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_curves_give_the_same_bytes(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        power_picture(FULL, path, limits=LIMITS, caption=CAPTION)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert mpl.__version__.encode() not in one


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"as \.svg, \.png or \.pdf, got path="):
        power_picture(FULL, tmp_path / "a.gif", limits=LIMITS, caption=CAPTION)
    for curves in ([], FULL * 2):
        with pytest.raises(InvalidInputError, match="from 1 to 7 curves"):
            power_picture(curves, tmp_path / "a.svg", limits=LIMITS, caption=CAPTION)


def test_the_command_draws_and_says_what_it_says_without(tmp_path, monkeypatch):
    for name in ("jax_privacy", "privacy_guard"):
        monkeypatch.setitem(sys.modules, name, None)
    task, store = Task(canaries=60), tmp_path / "power.sqlite"
    plan = Guesses(exact=20, steinke=20, weighted=24)
    with Store(store) as opened:
        opened.add(plan_sweep([task]).cell(asdict(task)), [(0, asdict(plan))])
    arguments = ["benchmark", "--only=bounds", "--canaries=60", "--trials=2"]
    arguments += ["--pairs=0", f"--store={store}"]
    path = tmp_path / "power.svg"
    done = CliRunner().invoke(app, [*arguments, f"--picture={path}"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == CliRunner().invoke(app, arguments).stdout
    assert path.read_text("utf-8").startswith("<?xml")
    refused = CliRunner().invoke(app, [*arguments, "--picture=power.gif"])
    assert refused.exit_code == 2
