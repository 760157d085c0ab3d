"""The page: what is written between its markers, and the one that is checked in."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.calibration.cases import Case, cases, is_exact
from dpaudit_lab.calibration.page import TABLES, fill, worst
from dpaudit_lab.calibration.pipeline import pipeline_cases
from dpaudit_lab.calibration.rates import exact_rate
from dpaudit_lab.calibration.table import Part, Row
from dpaudit_lab.calibration.whole import whole_cases

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "calibration.md"
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
    page = "# Title\n<!-- table: our rules -->\nold\n<!-- end -->\nEnd.\n"
    found = fill(page, ROWS)
    assert found.startswith("# Title\n<!-- table: our rules -->\n\n| rule |")
    assert found.endswith("\n\n<!-- end -->\nEnd.\n")
    assert "old" not in found
    assert "| betting | 3.00 (1.00 to 4.00): attaining, n = 100 |" in found
    assert "peer" not in found
    assert fill(found, ROWS) == found


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
    page = "<!-- table: {} -->\nold\n<!-- end -->\n"
    assert fill(page.format("our rules"), ROADS) == page.format("our rules")
    assert fill(page.format("pipeline"), ROWS) == page.format("pipeline")
    found = fill(page.format("pipeline headline"), ROADS)
    assert "4 rows: 4 exact (each the worst of up to 200 designs), 0 drawn." in found
    assert "**Of dpaudit, 0 of 3 rows fail.**" in found
    assert "**Of dpaudit as it was, 1 of 1 rows fail.**" in found
    assert "In 1 rows every audit is refused." in found


def test_each_road_shows_the_row_nearest_to_its_level_ours_first():
    page = "<!-- table: pipeline -->\nold\n<!-- end -->\n"
    *_, ours, was, _, _ = fill(page, ROADS).splitlines()
    assert ours.startswith("| lists, key | 4.00 of 5: all, silent, n = 100 |")
    assert ours.endswith("| exact, 200 designs | 3 | 1 |")
    assert was.startswith("| as it was: lists | **50.00** of 5")


def test_what_is_always_refused_says_so():
    page = "<!-- table: every road -->\nold\n<!-- end -->\n"
    lines = fill(page, ROADS).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[4:-2]] == [
        "0 %",
        "0 %",
        "always",
        "0 %",
    ]


def test_what_fails_is_bold():
    page = "<!-- table: others' rules -->\n<!-- end -->"
    assert "| peer | **20.00**: silent, n = 100 |" in fill(page, ROWS)


def test_the_headline_counts_rows_and_rules():
    page = "<!-- table: headline -->\n<!-- end -->"
    found = fill(page, ROWS)
    assert "5 rows: 1 exact, 4 simulated (1,000 to 1,000 audits each)." in found
    assert "**Of ours, 0 of 4 rows fail** (0 of 2 rules)." in found
    assert "**Of others', 1 of 1 rows fail** (1 of 1 rules)." in found


@pytest.mark.parametrize("page", ["no table", "<!-- table: x -->\n<!-- end -->"])
def test_a_page_without_its_markers_is_refused(page):
    with pytest.raises(InvalidInputError, match="NAME one of headline, our rules"):
        fill(page, ROWS)


def test_the_page_that_is_checked_in_has_every_table():
    text = PAGE.read_text("utf-8")
    assert re.findall(r"<!-- table: (.+?) -->", text) == list(TABLES)


def test_the_page_that_is_checked_in_shows_every_case():
    """Run ``dpaudit-lab calibrate --page`` with that page if it fails."""
    text = PAGE.read_text("utf-8")
    for case in cases():
        assert f"| {case.rule} | {case.null} |" in text
    for case in whole_cases():
        assert f"| {case.auditor}: {case.guesser} | {case.mechanism} |" in text
    for case in pipeline_cases():
        assert f"| {case.road}: {case.rules} | {case.null}" in text


def test_the_exact_rates_of_the_page_are_those_of_the_code():
    text = PAGE.read_text("utf-8")
    for case in cases(canaries=(100,), alphas=(0.05,)):
        if is_exact(case):
            found = re.search(_line(case), text)
            assert found is not None
            assert float(found[1]) / 100 == pytest.approx(exact_rate(case), abs=6e-5)


def _line(case: Case) -> str:
    named = re.escape(f"| {case.rule} | {case.null} | ")
    return named + r"[^|]+\| 0\.05 \| 100: \**([0-9.e-]+)"
