"""The rows as a file, and the file that is checked in: every case of the code."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration.cases import cases, is_exact
from dpaudit_lab.calibration.pipeline import Way, pipeline_cases
from dpaudit_lab.calibration.rates import exact_rate
from dpaudit_lab.calibration.results import csv_text, read_csv, replaced
from dpaudit_lab.calibration.table import FALSE_ALARM, Part, Row, plan
from dpaudit_lab.calibration.whole import whole_cases

RESULTS = Path(__file__).parents[2] / "results" / "calibration.csv"
RULE = Row(
    part=Part.RULES,
    rule='a, "rule": of ours',
    ours=True,
    null="silent, always",
    epsilon=0.1 + 0.2,
    delta=1e-300,
    canaries=10**6,
    alpha=0.05,
    runs=10**5,
    rate=1 / 3,
    low=0.0,
    high=2 / 3,
)
ROWS = [
    RULE,
    replace(RULE, ours=False, runs=None, rate=0.2, low=0.2, high=0.2),
    replace(RULE, part=Part.WHOLE),
    replace(RULE, part=Part.PIPELINE, designs=200, refused=1.0),
]


@pytest.fixture(scope="module")
def held():
    return read_csv(RESULTS.read_text("utf-8"))


def test_rows_that_are_written_are_read_with_every_digit():
    text = csv_text(ROWS)
    assert read_csv(text) == ROWS
    verdicts = [line.rpartition(",")[2] for line in text.splitlines()]
    assert verdicts == ["verdict", "holds", "FAILS", "holds", "refused"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("part,rule", "rule,part", "a file of calibration has the columns part, rule"),
        (",True,", ",perhaps,", "line 2 is no row of a calibration"),
        ("1000000", "many", "line 2 is no row of a calibration"),
        ("FAILS", "holds", "line 3 says 'holds', and its numbers 'FAILS'"),
        (",holds", "", "line 2 is no row of a calibration"),
    ],
)
def test_another_file_is_refused(old, new, said):
    with pytest.raises(InvalidInputError, match=said):
        read_csv(csv_text(ROWS).replace(old, new, 1))


def test_nothing_is_no_such_file():
    with pytest.raises(InvalidInputError, match="got none"):
        read_csv("")


def test_a_table_is_written_anew_and_the_other_stays():
    other, road = replace(RULE, rate=0.5), replace(ROWS[3], rate=0.5)
    assert replaced(ROWS, [other]) == [other, ROWS[3]]
    assert replaced(ROWS, [road]) == [*ROWS[:3], road]
    assert replaced(ROWS, [other, road]) == [other, road]
    assert replaced([], [road]) == [road]


def test_the_file_that_is_checked_in_is_as_it_would_be_written(held):
    assert csv_text(held) == RESULTS.read_text("utf-8")


def test_the_file_that_is_checked_in_has_every_case_and_no_other(held):
    """Run ``dpaudit-lab calibrate --csv`` with that file if it fails."""
    assert [row.part for row in held] == sorted(
        (row.part for row in held), key=list(Part).index
    )
    rules, wholes, roads = (
        [(row.rule, row.null, row.canaries, row.alpha) for row in held if row.part is p]
        for p in Part
    )
    assert rules == [(c.rule, c.null, c.canaries, c.alpha) for c in cases()]
    assert [each[:2] for each in wholes] == [
        (f"{case.auditor}: {case.guesser}", case.mechanism) for case in whole_cases()
    ]
    assert roads == [
        (
            f"{case.road}: {case.rules}",
            case.null + (f", seed {case.seed}" if case.seed else ""),
            case.canaries,
            case.alpha,
        )
        for case in pipeline_cases()
    ]


def test_none_of_ours_fails(held):
    assert [row for row in held if row.ours and row.fails] == []


def test_the_exact_rates_of_the_file_are_those_of_the_code(held):
    found = {(row.rule, row.null, row.canaries, row.alpha): row for row in held}
    for case in cases(canaries=(100,), alphas=(0.05,)):
        row = found[case.rule, case.null, case.canaries, case.alpha]
        assert (row.runs is None) is is_exact(case)
        if is_exact(case):
            assert row.rate == pytest.approx(exact_rate(case), abs=6e-5)
            assert row.low == row.rate == row.high


def test_the_limits_of_the_file_are_those_of_its_runs(held):
    """To the digits that are kept, of which old rows have three."""
    planned = plan()
    for row in held:
        if row.runs is None:
            continue
        rates = planned.drawn if row.part is Part.PIPELINE else planned.rates
        hits = round(row.rate * row.runs)
        near = (  # a rate above 1 % was kept to 1 in 10,000 audits
            rate_limits(each, row.runs, alpha=2 * FALSE_ALARM / rates)
            for each in range(max(0, hits - 5), min(row.runs, hits + 5) + 1)
        )
        assert any(
            low == pytest.approx(row.low, rel=6e-3, abs=6e-5)
            and high == pytest.approx(row.high, rel=6e-3, abs=6e-5)
            for low, high in near
        ), row


def test_what_is_drawn_of_the_pipeline_is_what_its_cases_say(held):
    roads = [row for row in held if row.part is Part.PIPELINE]
    for case, row in zip(pipeline_cases(), roads, strict=True):
        assert (row.runs is not None) is (case.way is Way.DRAWN)
        assert row.ours is case.ours
