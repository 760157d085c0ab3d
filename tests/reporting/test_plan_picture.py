"""The picture of a plan: legible, repeatable, and refused where it cannot be drawn."""

import math
import sys
from dataclasses import replace
from itertools import combinations
from types import ModuleType

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from typer.testing import CliRunner

from dpaudit import AdaptiveRounds, ApproxDP, OneRun
from dpaudit.cli import app
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.expected_one_run import Expected
from dpaudit.dpsgd.planning.guess_law import Training
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.errors import InvalidInputError
from dpaudit.reporting import plots
from dpaudit.reporting.plots import plan_picture

PLAN = Plan(
    training=Training(steps=100, rate=0.1, noise=2.42),
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
    purpose=Purpose.BOUND,
    available=1000,
    coordinates=1000,
    alpha=0.05,
    per_coordinate=6,
    rules=OneRun(guesses=100),
    expected=Expected(mean=0.7, spread=0.1),
    true_epsilon=1.8,
    ceiling=1.4,
    all_right=7.0,
    fault=3.0,
    candidates=tuple(
        Candidate(
            per_coordinate=s,
            coordinates=1000,
            rules=rules,
            bound=bound - s / 100,
            fault=2.0 + s / 10,
        )
        for s in (1, 2, 3, 4, 6, 8, 16, 32)
        for rules, bound in (
            (OneRun(guesses=9), 0.7),
            (AdaptiveRounds(weights=(1.0,), jump=0.5), 0.8),
        )
    ),
)
CASES = {
    "all": PLAN,
    "no delta": replace(PLAN, ceiling=math.inf, true_epsilon=math.inf),
    "no accountant": replace(PLAN, ceiling=None, true_epsilon=None),
    "large": replace(
        PLAN,
        coordinates=1_000_000,
        training=Training(steps=1_000_000, rate=0.000123, noise=123.456),
        true_epsilon=123.456,
    ),
    "one size": replace(PLAN, candidates=PLAN.candidates[:1], per_coordinate=1),
    "faults": replace(PLAN, purpose=Purpose.FAULTS),
    "nothing caught": replace(
        PLAN,
        purpose=Purpose.FAULTS,
        fault=None,
        candidates=tuple(replace(each, fault=None) for each in PLAN.candidates),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_text_overlaps_another_or_leaves_the_picture(case):
    with mpl.rc_context(plots._STYLE):
        figure = plots._plan_figure(CASES[case])
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


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_plan_gives_the_same_bytes(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        plan_picture(PLAN, path)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert mpl.__version__.encode() not in one


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"as \.svg or \.png, got path="):
        plan_picture(PLAN, tmp_path / "a.gif")


def test_the_command_draws_and_says_what_it_says_without(tmp_path, monkeypatch):
    accounting = ModuleType("dpaudit.accounting")
    accounting.accountant_curve = lambda history: None
    monkeypatch.setitem(sys.modules, "dpaudit.accounting", accounting)
    arguments = ["plan", "--epsilon=2", "--delta=1e-5", "--steps=1", "--rate=1"]
    arguments += ["--noise=2", "--coordinates=50", "--per-coordinate=1"]
    path = tmp_path / "plan.svg"
    done = CliRunner().invoke(app, [*arguments, f"--picture={path}"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == CliRunner().invoke(app, arguments).stdout
    assert path.read_text("utf-8").startswith("<?xml")
