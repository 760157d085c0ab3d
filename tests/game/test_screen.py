"""The first screen: what is printed first of every result."""

from dataclasses import replace

import pytest
from evidence_samples import KINDS

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.bounds import Counts
from dpaudit.bounds.bound import ClaimTest
from dpaudit.game.configuration import DetectableFault
from dpaudit.game.coverage import Coverage
from dpaudit.game.findings import (
    Hypothesis,
    Stage,
    canary_tested,
    fault,
    inspected,
    invalid,
    not_applicable,
    not_checked,
    noted,
)
from dpaudit.game.result import judge
from dpaudit.game.text.findings import measured
from dpaudit.game.text.screen import screen_of
from dpaudit.game.verdict import Verdict

CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
CHECKED = (
    inspected(
        Stage.SAMPLING,
        "sampling.batches",
        batches=100,
        rate=0.1007,
        accounted=0.1,
        most=20,
        spread=3.0,
        expected_spread=3.1,
    ),
    inspected(Stage.GRADIENTS, "probe.exchanged", coupling=0.0),
    inspected(
        Stage.CLIPPING,
        "probe.clipped",
        records=8,
        change=1.0,
        ran="step",
        clipped=1.0,
        enlarged=True,
    ),
    not_applicable(Stage.AGGREGATION, "aggregation.single"),
    inspected(
        Stage.NOISE_SCALE,
        "noise.measured",
        ratio=0.999,
        error=0.005,
        steps=100,
        parameters=4,
        detectable_step=0.6,
        without=0,
        not_finite=0,
    ),
    inspected(
        Stage.NOISE_INDEPENDENCE,
        "noise.correlations",
        steps=100,
        sampled=100,
        step_cosine=0.1,
        step_places=182,
        coordinate_cosine=0.1,
        coordinate_places=100,
        beyond_chance=False,
    ),
    inspected(Stage.ACCOUNTING, "accounting.compared", steps=100),
    inspected(
        Stage.SIDE_PATHS, "interference.compared", batches=6, compared=700, kept=0
    ),
    inspected(Stage.RELEASED_MODEL, "released.as_left", steps=100),
)
TOO_LARGE = fault(
    Stage.CLIPPING, "probe.too_large", (), change=9.794, cause="not_clipped"
)


@pytest.fixture(scope="module")
def training():
    return KINDS["training"]().result


def audited(made, checks=CHECKED, faults=(), p_value=0.5, remarks=()):
    """A result of training with this coverage."""
    test = ClaimTest(claim=CLAIM, p_value=p_value, alpha=0.05)
    record = replace(
        made.training,
        coverage=Coverage.of(checks, faults),
        accountant=test,
        remarks=remarks,
    )
    return replace(made, training=record, design_test=test, sanity_checks=())


def statuses(result):
    return {row.name: row.status for row in screen_of(result).rows}


def without(*stages):
    kept = [each for each in CHECKED if each.stage not in stages]
    return [*kept, *(not_checked(each, "probe.offered") for each in stages)]


def test_a_run_that_passed_has_a_row_for_each_hypothesis(training):
    result = audited(training)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    rows = screen_of(result).rows
    assert len(rows) == len(Hypothesis)
    assert {row.status for row in rows} == {"passed"}
    assert [row.measured for row in rows] == [
        "rate 0.101 ± 0.003 (accounted: 0.1)",
        "one record adds at most 1 clipping norm",
        "0.999 ± 0.005 of configured, 100 steps",
        "no other dependence on records was found",
        "100 steps, each as accounted",
        "as left by the last of 100 steps",
    ]
    assert "This does not prove the claim." in str(result)


def test_a_failed_check_says_so_in_its_row_and_unfolds_its_stages(training):
    result = audited(training, faults=[TOO_LARGE])
    assert result.verdict is Verdict.FAULT_FOUND
    found = statuses(result)
    assert found["sensitivity"] == found["clipping"] == "failed"
    assert found["per-example gradients"] == "passed"
    assert found["gradient aggregation"] == "n/a"
    said = str(result)
    assert "9.79 C" in said
    assert "does not apply to this run" in said
    assert "no evidence against" not in result.details()
    assert "failed" in result._repr_html_()


def test_what_was_not_checked_is_unfolded_and_says_what_would_check_it(training):
    result = audited(training, without(Stage.CLIPPING, Stage.SAMPLING))
    assert result.verdict is Verdict.INCONCLUSIVE
    found = statuses(result)
    assert found["batch sampling"] == found["clipping"] == "not checked"
    assert found["sensitivity"] == "not checked"
    assert found["noise"] == "passed"
    assert "audit.probe(...) checks it" in str(result)


@pytest.mark.parametrize(
    "detectable", [None, DetectableFault(factor=None), DetectableFault(factor=1.7)]
)
def test_stages_that_only_canaries_tested_pass_only_if_the_power_is_known(
    training, detectable
):
    stages = Stage.NOISE_SCALE, Stage.ACCOUNTING
    tested = [canary_tested(each, "canaries") for each in stages]
    kept = [each for each in CHECKED if each.stage not in stages]
    result = audited(training, [*kept, *tested])
    record = replace(result.training, detectable=detectable)
    found = statuses(replace(result, training=record))
    known = detectable is not None and detectable.factor is not None
    assert found["noise"] == ("passed" if known else "not checked")
    assert found["privacy accounting"] == found["noise"]


def test_stages_that_only_canaries_tested_are_suspect_in_a_refutation(training):
    tested = [
        canary_tested(each.stage, "canaries")
        if each.stage in (Stage.NOISE_SCALE, Stage.ACCOUNTING)
        else each
        for each in CHECKED
    ]
    result = audited(training, tested, p_value=1e-6)
    assert result.verdict is Verdict.CLAIM_REFUTED
    found = statuses(result)
    assert found["noise"] == found["noise scale"] == "suspect"
    assert found["privacy accounting"] == "suspect"
    assert found["batch sampling"] == "passed"
    assert "Likely cause" in str(result)


def test_canaries_of_an_invalid_run_checked_nothing(training):
    tested = [canary_tested(each.stage, "canaries") for each in CHECKED]
    lost = invalid("signal", outcome="lost", slope=0.0, error=0.01)
    result = replace(audited(training, tested), sanity_checks=(lost,))
    assert result.verdict is Verdict.INVALID_RUN
    assert {*statuses(result).values()} == {"not checked"}
    assert "Nothing follows about the claim." in " ".join(str(result).split())
    assert "Lower bound" not in str(result)


@pytest.mark.parametrize("faults", [(), (TOO_LARGE,) * 5])
@pytest.mark.parametrize("p_value", [0.5, 1e-9])
@pytest.mark.parametrize("stages", [(), tuple(Stage)])
def test_it_fits_a_terminal(training, faults, p_value, stages):
    remarks = (noted("noise.fixed_seed"),) * 3
    result = audited(training, without(*stages), faults, p_value, remarks)
    lines = str(result).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 20
    assert lines[0] == result.verdict.upper()


def judged(correct, guesses=100):
    design = Design(canaries=1000, rules=OneRun(guesses=guesses), claim=CLAIM)
    counts = Counts(canaries=1000, guesses=guesses, correct=correct)
    return judge(counts, design=design, commitment=None)


def test_a_saturated_bound_says_so():
    assert "the bound is saturated" in str(judged(100))
    assert "the bound is saturated" not in str(judged(99))


def test_claim_and_bound_stand_side_by_side_and_nothing_is_rounded_up():
    line = str(judged(90)).splitlines()[1]
    claim = "Claimed ε ≤ 1 at δ = 1e-05"
    assert line == f"{claim}     Lower bound ε ≥ 1.630 (95 % confidence)"


def test_details_hold_everything_below_the_screen(training):
    result = audited(training, remarks=(noted("noise.fixed_seed"),))
    details = result.details()
    assert details.startswith(str(result))
    for name in ("Claimed", "Lower bound", "Threat model", "Out of scope", "Note"):
        assert f"\n  {name}" in details


@pytest.mark.parametrize(
    ("accounted", "spread", "batches", "text"),
    [
        (0.05, 13.8, 100, "rate 0.0504 ± 0.0003 (accounted: 0.05)"),
        (1.0, 0.0, 100, "rate 0.0504 (accounted: 1)"),
        (0.5, 0.0, 100, "rate 0.0504 (accounted: 0.5)"),  # as a file may state it
        (0.5, 5e-324, 100, "rate 0.0504 (accounted: 0.5)"),
        (0.5, 3.0, -1, "rate 0.0504 (accounted: 0.5)"),
    ],
)
def test_a_rate_has_an_error_where_there_is_one(accounted, spread, batches, text):
    found = inspected(
        Stage.SAMPLING,
        "sampling.batches",
        batches=batches,
        rate=0.0504,
        accounted=accounted,
        spread=1.0,
        expected_spread=spread,
        most=3,
    )
    assert measured([found], None) == text
