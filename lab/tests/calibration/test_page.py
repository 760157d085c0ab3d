"""The page: what is written between its markers, and the one that is checked in.

What that page comes from, every row, is tested in ``test_results.py``.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.calibration.page import TABLES, fill, worst
from dpaudit_lab.calibration.results import read_csv
from dpaudit_lab.calibration.table import Part, Row

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "calibration.md"
RESULTS = ROOT / "lab" / "results" / "calibration.csv"
ROW = Row(
    part=Part.RULES,
    rule="betting",
    ours=True,
    null="silent",
    epsilon=0.0,
    delta=0.0,
    canaries=100,
    alpha=0.05,
    runs=1000,
    rate=0.02,
    low=0.01,
    high=0.04,
)
ROWS = [
    ROW,
    replace(ROW, null="attaining", rate=0.03),
    replace(ROW, alpha=0.001, rate=0.0005, low=0.0, high=0.002),
    replace(ROW, rule="peer", ours=False, runs=None, rate=0.2, low=0.2, high=0.2),
    replace(ROW, part=Part.WHOLE, rule="one run: everyone", null="noisy max"),
]


def test_the_worst_null_of_each_rule_and_level_is_shown():
    assert [(row.rule, row.null, row.alpha) for row in worst(ROWS)] == [
        ("betting", "attaining", 0.05),
        ("betting", "silent", 0.001),
        ("peer", "silent", 0.05),
        ("one run: everyone", "noisy max", 0.05),
    ]


def test_only_what_is_between_markers_is_written():
    page = "# Title\n<!-- table: rules -->\nstale\n<!-- end -->\nEnd.\n"
    found = fill(page, ROWS)
    assert found.startswith("# Title\n<!-- table: rules -->\n\n| rule |")
    assert found.endswith("\n\n<!-- end -->\nEnd.\n")
    assert "stale" not in found
    assert fill(found, ROWS) == found


def lines(name, rows):
    """Return the lines of a table, without its headings."""
    page = f"<!-- table: {name} -->\n<!-- end -->"
    return fill(page, rows).splitlines()[4:-2]


def test_a_bound_shows_its_largest_limits_at_each_level_ours_first():
    rows = [
        replace(ROW, rule="peer, of 3", ours=False),
        replace(ROW, rule="betting, twice", low=0.015, high=0.03),
        *ROWS,
    ]
    assert lines("rules", rows) == [
        "| betting | 4 | 1.50 | 4.00 | 0 | 0.2 | holds |",
        "| peer, of 3 | 1 | 1.00 | 4.00 |  |  | holds |",
        "| peer | 1 | 20.00 | 20.00 |  |  | **1 fail** |",
    ]


def test_whole_audits_are_told_by_their_auditor():
    assert lines("whole audits", ROWS) == ["| one run | 1 | 1.00 | 4.00 | holds |"]


ROAD = replace(
    ROW,
    part=Part.PIPELINE,
    rule="lists, key: all",
    runs=None,
    rate=0.04,
    low=0.04,
    high=0.04,
    designs=200,
)
ROADS = [
    replace(ROAD, rule="as it was: lists: all", ours=False, low=0.5, rate=0.5),
    ROAD,
    replace(ROAD, rule="lists, key: ranked", rate=0.1, low=0.1, alpha=0.3),
    replace(ROAD, rule="lists, key: half", rate=0.0, low=0.0, refused=1.0),
]


def test_the_pipeline_fills_its_tables_and_no_others():
    page = "<!-- table: {} -->\nstale\n<!-- end -->\n"
    assert fill(page.format("rules"), ROADS) == page.format("rules")
    assert fill(page.format("pipeline"), ROWS) == page.format("pipeline")
    found = fill(page.format("pipeline headline"), ROADS)
    assert "4 rows: 4 exact (each the worst of up to 200 designs), 0 drawn." in found
    assert "**Of dpaudit, 0 of 3 rows fail.**" in found
    assert "**Of dpaudit as it was, 1 of 1 rows fail.**" in found
    assert "In 1 rows every audit is refused." in found


def test_each_road_shows_its_largest_limits_and_what_is_refused_ours_first():
    assert lines("pipeline", ROADS) == [
        "| lists | 3 | 10.00 | 4.00 | 4.00 | 4.00 | holds; 1 always refused |",
        "| as it was: lists | 1 |  |  | 50.00 | 4.00 | **1 fail** |",
    ]


def test_what_fails_is_bold():
    _, peer = lines("rules", ROWS)
    assert peer.endswith("| **1 fail** |")


def test_the_headline_counts_rows_and_rules():
    page = "<!-- table: headline -->\n<!-- end -->"
    found = fill(page, ROWS)
    assert "5 rows: 1 exact, 4 simulated (1,000 to 1,000 audits each)." in found
    assert "**Of ours, 0 of 4 rows fail** (0 of 2 rules)." in found
    assert "**Of others', 1 of 1 rows fail** (1 of 1 rules)." in found


@pytest.mark.parametrize("page", ["no table", "<!-- table: x -->\n<!-- end -->"])
def test_a_page_without_its_markers_is_refused(page):
    with pytest.raises(InvalidInputError, match="NAME one of headline, rules"):
        fill(page, ROWS)


def test_the_page_that_is_checked_in_has_every_table():
    text = PAGE.read_text("utf-8")
    assert re.findall(r"<!-- table: (.+?) -->", text) == list(TABLES)


def test_the_page_that_is_checked_in_shows_what_the_rows_come_to():
    """Run ``dpaudit-lab calibrate --csv --page`` with both files if it fails."""
    text = PAGE.read_text("utf-8")
    assert fill(text, read_csv(RESULTS.read_text("utf-8"))) == text
