"""What is said about curves, on curves drawn by hand."""

import json
from dataclasses import replace

import pytest

from dpaudit.experiments.paper.figure import Reproduced
from dpaudit.experiments.paper.findings import (
    Comparison,
    Note,
    Observation,
    Verdict,
    compared,
    excess,
    falls,
    inner_maximum,
    rises,
)
from dpaudit.experiments.paper.names import FIGURES
from dpaudit.experiments.paper.summary import Summary, page
from dpaudit.reporting.chart import Chart, Curve, Mark, Point


def curve(*means, error=0.1):
    return [
        Point(curve="a", x=x, mean=mean, error=error, repeats=9)
        for x, mean in enumerate(means, start=1)
    ]


def test_a_printed_number_is_compared_in_errors_of_the_difference():
    points = curve(0.5, 0.7, error=0.03)
    found = compared("it", Mark(x=2, value=0.6, error=0.04), points)
    assert found.apart == pytest.approx(2.0)  # 0.1 in units of 0.05
    assert str(found) == (
        "it: printed 0.6 ± 0.04, measured 0.7 ± 0.03, 2.0 errors of the difference "
        "apart"
    )


def test_means_without_error_are_equal_or_far_apart():
    same, other = curve(1.0, 2.0, error=0.0)
    assert excess(same, same) == 0
    assert excess(other, same) > 1000


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ((0, 1, 2), Verdict.HOLDS),
        ((0, 0.1, 0.2), Verdict.UNCLEAR),
        ((0, 3, 2), Verdict.FAILS),  # it falls at the end
        ((2, 1, 0), Verdict.FAILS),
        ((0, 1, 0.8), Verdict.HOLDS),  # 1.4 errors down: chance
    ],
)
def test_a_curve_rises_or_falls_or_that_is_not_clear(means, verdict):
    assert rises("up", curve(*means), "x").verdict is verdict
    assert falls("down", curve(*means[::-1]), "x").verdict is verdict


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ((0, 1, 0), Verdict.HOLDS),
        ((0, 1, 0.9), Verdict.UNCLEAR),
        ((2, 1, 0), Verdict.FAILS),
    ],
)
def test_a_maximum_is_inside_or_not_or_that_is_not_clear(means, verdict):
    assert inner_maximum("best", curve(*means), "x").verdict is verdict


@pytest.fixture
def summary():
    chart = Chart(
        title="A title",
        caption="",
        x_label="x",
        y_label="y",
        curves=(Curve(name="a", colour=0),),
        points=tuple(curve(1, 2)),
    )
    findings = (
        Comparison(what="it", printed=1.0, printed_error=0.3, mean=2.0, error=0.4),
        Observation(claim="it rises", measured="1 to 2", verdict=Verdict.HOLDS),
        Note(text="a remark"),
    )
    return Summary(
        figure=FIGURES["sets"],
        result=Reproduced(chart=chart, findings=findings),
        repeats=9,
        ran=99,
        seconds=12.3,
    )


def test_a_summary_says_the_same_in_words_as_json_and_on_the_page(summary):
    found = json.loads(summary.to_json())
    assert found["format"] == "dpaudit.figure.1"
    assert [f["kind"] for f in found["findings"]] == [
        "comparison",
        "observation",
        "note",
    ]
    assert found["findings"][0]["apart"] == pytest.approx(2.0)
    assert found["findings"][1]["verdict"] == "holds"
    assert found["text"] == str(summary)
    written = page([summary], "figures")
    for line in str(summary).splitlines()[1:]:
        assert f"- {line.strip()}." in written
    assert "9 repeats; 99 trials took 12 s" in written
    assert "(figures/sets.svg)" in written
    assert "| it | `sets` | 1 ± 0.3 | 2 ± 0.4 | 2.0 errors |" in written


def test_a_figure_drawn_once_more_keeps_what_it_took(summary):
    again = replace(summary, ran=0, seconds=0.1)
    assert again.with_cost_of(summary.to_json()).cost == summary.cost
    others = (
        "no JSON",
        "[]",
        '{"format": "dpaudit.figure.1"}',
        replace(summary, repeats=8).to_json(),
    )
    for other in others:
        assert again.with_cost_of(other) is again
