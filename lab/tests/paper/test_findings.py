"""What is said about curves, on curves drawn by hand."""

import json
from dataclasses import replace

import pytest

from dpaudit_lab.paper.courses import (
    climbs,
    excess,
    falls,
    higher,
    inner_maximum,
    rises,
)
from dpaudit_lab.paper.figure import Reproduced
from dpaudit_lab.paper.findings import (
    Comparison,
    Note,
    Observation,
    Verdict,
    compared,
)
from dpaudit_lab.paper.names import FIGURES
from dpaudit_lab.paper.summary import Summary, page
from dpaudit_lab.pictures.chart import Chart, Curve, Look, Mark, Point, csv_text


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
        ((0, 1, 0.8), Verdict.WITHIN_ERROR),  # 1.4 errors down: chance
        ((0, 1, 0.65), Verdict.UNCLEAR),  # 2.5 errors down
        ((0, 2, 1.8, 1.6, 1.4), Verdict.FAILS),  # 4.2 in all, 1.4 at a step
    ],
)
def test_a_curve_rises_or_falls_or_that_is_not_clear(means, verdict):
    assert rises("up", curve(*means), "x").verdict is verdict
    assert falls("down", curve(*means[::-1]), "x").verdict is verdict


def test_where_a_curve_goes_the_other_way_is_told():
    up = rises("up", curve(0, 1, 0.8, 3), "mm")
    assert up.measured == (
        "from 0.000 ± 0.100 at 1 mm to 3.000 ± 0.100 at 4; the other way from "
        "1.000 ± 0.100 at 2 to 0.800 ± 0.100 at 3, by 1.4 errors of the difference"
    )
    down = falls("down", curve(3, 0.8, 1, 0), "mm")
    assert down.measured.endswith(
        "the other way from 0.800 ± 0.100 at 2 to 1.000 ± 0.100 at 3, by 1.4 errors of "
        "the difference"
    )
    assert "other way" not in rises("up", curve(0, 1, 2), "mm").measured


@pytest.mark.parametrize("judged", [rises, falls, inner_maximum])
@pytest.mark.parametrize("means", [(), (1.0,)])
def test_of_too_few_points_nothing_is_said(judged, means):
    found = judged("it", curve(*means), "x")
    assert found.verdict is climbs(curve(*means)) is Verdict.UNCLEAR
    assert found.measured == f"{len(means)} points are too few to tell"


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        (((0.9, 1.1), (0.4, 0.6)), Verdict.HOLDS),
        (((0.9, 1.1), (-0.4, 0.6)), Verdict.UNCLEAR),
        (((0.9, 1.1), (-0.6, -0.4)), Verdict.FAILS),
    ],
)
def test_one_bound_is_higher_than_another_at_every_size_or_not(gains, verdict):
    runs = {
        size: [{"a": 3 * i + gain, "b": 3 * i} for i, gain in enumerate(each)]
        for size, each in zip((2, 5), gains, strict=True)
    }
    assert higher("it", runs, one="a", other="b", at="x").verdict is verdict


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
        Comparison(
            what="it",
            printed=1.0,
            printed_error=0.3,
            mean=2.0,
            error=0.4,
            remark="see docs/explanation/errata.md",
        ),
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
    assert (found["repeats"], found["paper_repeats"]) == (9, 100)
    assert (found["trials"], found["ran"], found["redrawn"]) == (99, 99, False)
    written = page([summary], "figures")
    for line in str(summary).splitlines()[2:]:
        assert f"- {line.strip()}." in written
    assert "9 repeats; the paper has 100; 99 trials took 12 s" in written
    assert "(figures/sets.svg)" in written


def test_a_picture_names_the_paper_and_its_number_there(summary):
    assert summary.chart.title == "Figure 9: A title"
    assert summary.chart.caption.endswith(
        "\nFigure 9 of Keinan, Shenfeld and Ligett, arXiv:2503.07199, simulated anew."
    )
    assert csv_text(summary.chart) == csv_text(summary.result.chart)


def test_the_page_names_the_curves_without_a_general_guarantee(summary):
    chart = summary.result.chart
    assert "guarantee" not in summary.section("figures")
    curves = (replace(chart.curves[0], look=Look.UNGUARANTEED),)
    without = replace(chart, curves=curves)
    marked = replace(summary, result=replace(summary.result, chart=without))
    line = "\n*No [general guarantee](errata.md):* a.\n"
    assert line in marked.section("figures")


def test_a_remark_stands_beside_the_number_in_words_and_in_the_table(summary):
    assert "difference apart; see docs/explanation/errata.md\n" in str(summary)
    written = page([summary], "figures")
    row = "| it | `sets` | 1 ± 0.3 | 2 ± 0.4 | 2.0 errors | see [errata](errata.md) |"
    assert row in written
    assert "apart; see [errata](errata.md).\n" in written


@pytest.mark.parametrize(
    ("name", "repeats", "said"),
    [
        ("sets", 100, "100 repeats, as in the paper; "),
        ("sets", 9, "9 repeats; the paper has 100; "),
        ("local-laplace", 200, "200 repeats; the paper's figure has no experiments; "),
    ],
)
def test_the_paper_s_repeats_are_told_beside_ours(summary, name, repeats, said):
    other = replace(summary, figure=FIGURES[name], repeats=repeats)
    assert other.cost.startswith(said)
    assert f"*Took:* {said}" in other.section("figures")


def test_trials_that_were_run_before_are_not_counted_in_the_time(summary):
    rest = replace(summary, ran=40)  # the end of a run that was interrupted
    assert rest.cost.endswith(
        "40 of its 99 trials took 12 s, the others were in the store already"
    )
    none = replace(summary, ran=0)
    assert none.cost.endswith("100; its trials were in the store already")


def test_a_figure_drawn_once_more_names_what_an_earlier_run_took(summary):
    again = replace(summary, ran=0, seconds=0.1)
    points = csv_text(summary.result.chart)
    twice = again.with_cost_of(summary.to_json(), points)
    assert twice.cost.endswith(
        "its trials were in the store already; in an earlier run 99 trials took 12 s"
    )
    assert again.with_cost_of(twice.to_json(), points) == twice
    others = (
        "no JSON",
        "[]",
        '{"format": "dpaudit.figure.1"}',
        replace(summary, repeats=8).to_json(),
        replace(summary, ran=100).to_json(),  # more than there are
        replace(summary, ran=0).to_json(),
    )
    for other in others:
        assert again.with_cost_of(other, points) is again


def test_the_time_of_a_run_that_came_to_other_points_is_not_borrowed(summary):
    again = replace(summary, ran=0, seconds=0.1)
    others = csv_text(replace(summary.result.chart, points=tuple(curve(1, 2.1))))
    assert again.with_cost_of(summary.to_json(), others) is again
