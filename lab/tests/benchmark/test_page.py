"""The benchmark on a page: what is measured is between the markers, and only that."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.benchmark.machine import versions
from dpaudit_lab.benchmark.page import fill, tables
from dpaudit_lab.benchmark.results import csv_text
from dpaudit_lab.benchmark.row import Bound, Cost, Part, Row, cost_of
from dpaudit_lab.power.nulls import Wrong
from dpaudit_lab.power.timing import Ratio

ROOT = Path(__file__).parents[3]
PAGE = "before\n<!-- table: costs -->\nold\n<!-- end -->\nafter\n"
BARE = Row(
    part=Part.TABLES,
    size="2 rows",
    method="pyarrow, bare",
    ours=False,
    cost=Cost(seconds=2.0, memory=1.25),
)
OURS = Row(
    part=Part.TABLES,
    size="2 rows",
    method="an audit",
    ours=True,
    cost=Cost(seconds=3.0, ratio=Ratio(middle=1.5, low=1.25, high=2.0, pairs=20)),
)
BOUND = Row(
    part=Part.BOUNDS,
    size="10 canaries",
    method="jax-privacy",
    ours=False,
    cost=Cost(),
    bound=Bound(mean=1.25, error=0.5, draws=4),
    wrong=(
        Wrong(epsilon=0.0, draws=100, hits=40),
        Wrong(epsilon=1.0, draws=100, hits=5),
    ),
    guesses=7,
)


def test_what_is_between_the_markers_is_written_anew():
    filled = fill(PAGE, {"costs": "new"})
    assert filled == PAGE.replace("old\n", "\nnew\n\n")
    assert fill(filled, {"costs": "new"}) == filled
    assert fill(PAGE, {"bounds": "new"}) == PAGE


@pytest.mark.parametrize("page", ["nothing", PAGE.replace("costs", "cost")])
def test_a_page_without_known_markers_is_refused(page):
    with pytest.raises(InvalidInputError, match="when, bounds, costs"):
        fill(page, {})


def cells(text):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]


def test_costs_are_a_line_for_each_row_that_is_compared():
    found = tables([OURS, BARE, BOUND], [])
    assert list(found) == ["when", "bounds", "costs"]
    headings, _, ours = cells(found["costs"])
    assert headings == ["size", "method", "ratio [95 %]"]
    assert ours == ["2 rows", "**an audit**", "1.5 [1.25, 2]"]


def test_without_rows_there_is_no_table():
    assert list(tables([BARE], [])) == ["when"]


def test_a_rate_that_fails_is_bold():
    _, _, row = cells(tables([BOUND], [])["bounds"])
    assert row[:2] == ["jax-privacy", "1.250 ± 0.500"]
    # Exact limits of 40 and of 5 in 100, 99.9 % on either side.
    assert row[2] == "**40.0 % [25.5, 55.9] of 100**"
    assert row[3] == "5.0 % [0.8, 15.5] of 100"


def test_a_method_shows_all_its_bounds_its_last_ratio_and_its_largest_error():
    more = replace(
        BOUND,
        size="20 canaries",
        bound=Bound(mean=2.0, error=None, draws=1),
        wrong=(Wrong(epsilon=0.0, draws=100, hits=4),),
        cost=OURS.cost,
    )
    exact = replace(more, method="exact", ours=True, wrong=(), cost=Cost())
    headings, _, first, second = cells(tables([BOUND, more, exact], [])["bounds"])
    assert headings == [
        "method",
        "10 canaries",
        "20 canaries",
        "ratio [95 %]",
        "wrong at ε = 0, at most",
        "wrong at ε = 1, at most",
    ]
    assert first == [
        "jax-privacy",
        "1.250 ± 0.500",
        "2.000",
        "1.5 [1.25, 2], 20 canaries",
        "**40.0 % [25.5, 55.9] of 100**",
        "5.0 % [0.8, 15.5] of 100",
    ]
    assert second == ["**exact**", "", "2.000", "", "", ""]


def read(line):
    """Return the row that a line of the file is."""

    def value(name, kind=float):
        return kind(line[name]) if line[name] else None

    truths = [n for n in line if re.fullmatch("wrong_at_[0-9.]+", n) and line[n]]
    wrong = [
        Wrong(
            epsilon=float(name.removeprefix("wrong_at_")),
            draws=(draws := int(line[f"{name}_draws"])),
            hits=round(float(line[name]) * draws),
        )
        for name in truths
    ]
    ratio = Ratio(
        middle=value("ratio"),
        low=value("ratio_low"),
        high=value("ratio_high"),
        pairs=value("pairs", int),
    )
    bound = Bound(mean=value("mean"), error=value("error"), draws=value("draws", int))
    return Row(
        part=Part(line["part"]),
        size=line["size"],
        method=line["method"],
        ours=line["ours"] == "True",
        cost=Cost(
            seconds=value("seconds"),
            ratio=ratio if line["ratio"] else None,
            memory=value("memory_mib"),
        ),
        bound=bound if line["mean"] else None,
        wrong=tuple(wrong),
        guesses=value("guesses", int),
    )


def test_the_page_that_is_checked_in_shows_what_the_rows_come_to():
    """Run ``dpaudit-lab benchmark --csv --page`` with both files if it fails."""
    text = (ROOT / "lab" / "results" / "power.csv").read_text("utf-8")
    rows = [read(line) for line in csv.DictReader(io.StringIO(text))]
    assert csv_text(rows) == text
    page = (ROOT / "docs" / "explanation" / "others.md").read_text("utf-8")
    found = tables(rows, [])
    del found["when"]
    assert list(found) == ["bounds", "costs"]
    assert fill(page, found) == page


def test_a_page_says_when_and_with_what():
    said = tables([BARE], ["jax-privacy is not installed"])["when"]
    assert re.match(r"Measured on \d{4}-\d\d-\d\d on \d+ cores: Python 3", said)
    assert said.endswith("\n\n- jax-privacy is not installed")
    assert versions()["numpy"] in said


def test_a_cost_without_measurements_is_empty():
    assert cost_of([], [], []) == Cost()
    times = [1.0, 2.0]
    assert cost_of(times, times, [4.0]) == Cost(seconds=1.5, memory=4.0)


def test_a_mean_of_one_bound_has_no_error():
    assert Bound.of([2.0]) == Bound(mean=2.0, error=None, draws=1)
    with pytest.raises(InvalidInputError, match="at least one bound"):
        Bound.of([])
