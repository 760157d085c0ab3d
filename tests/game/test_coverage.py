"""Coverage: one check of each stage, the stronger of two, faults by their chance."""

import pytest

from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.coverage import Check, Coverage
from dpaudit.game.findings import Finding, Stage, Status, fault, passed


def made(stage, status, code="seen"):
    return Finding(code=code, status=status, stage=stage)


def wrong(chance):
    return fault(Stage.NOISE_SCALE, "noise.scale", probability=chance)


def test_a_stage_that_nobody_checked_is_entered_as_such():
    inspected = made(Stage.CLIPPING, Status.INSPECTED)
    coverage = Coverage.of([inspected], otherwise="nobody")
    assert [each.stage for each in coverage.checks] == list(Stage)
    others = [each for each in coverage.checks if each.stage is not Stage.CLIPPING]
    assert {each.findings[0].code for each in others} == {"nobody"}
    assert coverage.stages(Status.INSPECTED) == (Stage.CLIPPING,)
    assert len(coverage.stages(Status.NOT_CHECKED)) == len(Stage) - 1


@pytest.mark.parametrize(
    ("first", "second", "status", "codes"),
    [
        (Status.NOT_CHECKED, Status.NOT_CHECKED, Status.NOT_CHECKED, "b"),
        (Status.NOT_CHECKED, Status.INSPECTED, Status.INSPECTED, "b"),
        (Status.INSPECTED, Status.NOT_CHECKED, Status.INSPECTED, "a"),
        (Status.INSPECTED, Status.TESTED, Status.TESTED, "ba"),
        (Status.TESTED, Status.INSPECTED, Status.TESTED, "ab"),
        (Status.INSPECTED, Status.INSPECTED, Status.INSPECTED, "ab"),
    ],
)
def test_of_two_checks_the_stronger_counts_and_both_are_kept(
    first, second, status, codes
):
    one = made(Stage.NOISE_SCALE, first, "a")
    two = made(Stage.NOISE_SCALE, second, "b")
    checks = Coverage.of([one, two]).checks
    (found,) = (each for each in checks if each.stage is Stage.NOISE_SCALE)
    assert found.status is status
    assert "".join(each.code for each in found.findings) == codes


def test_the_fault_least_likely_by_chance_comes_first():
    coverage = Coverage.of((), [wrong(1e-5), wrong(0.0), wrong(1e-9)])
    assert [each.probability for each in coverage.faults] == [0.0, 1e-9, 1e-5]


@pytest.mark.parametrize(
    "stages", [list(Stage)[:-1], [*Stage, Stage.NOISE_SCALE], [*Stage][::-1]]
)
def test_coverage_of_other_stages_is_refused(stages):
    checks = tuple(
        Check(stage=stage, status=Status.INSPECTED, findings=()) for stage in stages
    )
    with pytest.raises(InvalidInputError, match="one check of each stage"):
        Coverage(checks=checks)


def test_only_checks_of_stages_make_coverage_and_only_faults_are_faults():
    with pytest.raises(InvalidInputError, match="inspected"):
        Coverage.of([passed("signal")])
    with pytest.raises(InvalidInputError, match="fault"):
        Coverage.of((), [passed("signal")])


def test_a_probability_is_one():
    with pytest.raises(InvalidInputError, match="probability"):
        wrong(1.5)


def test_it_is_written_and_read_like_any_record():
    coverage = Coverage.of([made(Stage.SAMPLING, Status.TESTED)], [wrong(1e-6)])
    assert decode(Coverage, encode(coverage), "coverage") == coverage


def test_a_hypothesis_passes_if_all_its_stages_were_checked_and_fails_by_any():
    every = [made(stage, Status.INSPECTED) for stage in Stage]
    left_out = [each for each in every if each.stage is not Stage.AGGREGATION]
    for checks in (every, left_out):  # in one process nothing is added up
        assert {*Coverage.of(checks).hypotheses().values()} == {Status.PASSED}
    for stage in Stage:
        found = Coverage.of(every, [fault(stage, "probe.skips")]).hypotheses()
        failed = [each for each in found if found[each] is Status.FAULT]
        assert failed == [stage.hypothesis]
    for left in {*Stage} - {Stage.AGGREGATION}:
        some = [each for each in every if each.stage is not left]
        found = Coverage.of(some).hypotheses()
        assert found.pop(left.hypothesis) is Status.NOT_CHECKED
        assert {*found.values()} == {Status.PASSED}
        accepted = Coverage.of(some, accepted=[left]).hypotheses()
        assert accepted[left.hypothesis] is Status.ACCEPTED
