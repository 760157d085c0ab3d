"""Steps as they were configured, held against what an accountant was told."""

import pytest

from dpaudit.game.configuration import StepSegment
from dpaudit.game.findings import Stage
from dpaudit.game.text.findings import fault_parts
from dpaudit.training.steps import ConfiguredSteps, accounting_faults


def faults(history, *runs, before=0):
    steps = ConfiguredSteps(
        StepSegment(steps=n, noise=noise, clip=1.0, rate=rate)
        for noise, rate, n in runs
    )
    found = list(accounting_faults(history, steps, before=before))
    assert all(each.stage is Stage.ACCOUNTING for each in found)
    assert all(each.probability == 0 for each in found)
    return [fault_parts(each)[0] for each in found]


@pytest.mark.parametrize(
    ("history", "runs", "before"),
    [
        ([(1.0, 0.1, 20)], [(1.0, 0.1, 20)], 0),
        ([(1.0, 0.1, 20)], [(1.0, 0.1, 12)], 0),  # stopped early
        ([(1.0, 0.1, 5), (1.0, 0.1, 20)], [(1.0, 0.1, 20)], 5),
        ([(0.9, 0.1, 3), (1.0, 0.1, 3)], [(1.0, 0.1, 3), (0.9, 0.1, 3)], 0),
        ([(1.0, 0.2, 9)], [(1.5, 0.1, 9)], 0),  # more noise, a lower rate
        ([(1.0, 0.1, 9)], [(1.0 - 1e-9, 0.1 + 1e-9, 9)], 0),  # rounding
    ],
)
def test_a_claim_about_no_less_than_was_done_has_no_fault(history, runs, before):
    assert not faults(history, *runs, before=before)


def test_steps_that_the_accountant_was_not_told_of_are_a_fault():
    assert faults([(1.0, 0.1, 9)], (1.0, 0.1, 10)) == [
        "not every step was accounted for"
    ]
    assert faults([(1.0, 0.1, 14)], (1.0, 0.1, 10), before=5)
    assert faults([], (1.0, 0.1, 1))


@pytest.mark.parametrize("later", [(0.5, 0.1, 5), (1.0, 0.3, 5)])
def test_no_step_that_was_accounted_for_is_blamed_for_those_that_were_not(later):
    assert faults([(1.0, 0.1, 10)], (1.0, 0.1, 10), later) == [
        "not every step was accounted for"
    ]


def test_a_noise_schedule_the_accountant_was_not_told_of_is_named_by_its_step():
    assert faults([(1.0, 0.1, 20)], (1.0, 0.1, 10), (0.8, 0.1, 10)) == [
        "noise multiplier differs from the accountant's at step 11"
    ]


def test_a_rate_the_accountant_was_not_told_of_is_named_by_its_step():
    assert faults([(1.0, 0.1, 20)], (1.0, 0.1, 3), (1.0, 0.3, 17)) == [
        "sampling rate differs from the accountant's at step 4"
    ]


def test_noise_and_rate_of_a_step_must_be_accounted_for_together():
    told = [(1.0, 0.01, 5), (2.0, 0.1, 5)]
    assert faults(told, (1.0, 0.1, 5), (2.0, 0.01, 5)) == [
        "noise multiplier and sampling rate of a step were not accounted for together"
    ]
    assert not faults(told, (2.0, 0.1, 5), (1.0, 0.01, 5))
    assert not faults([*told, (1.5, 0.05, 1)], (2.0, 0.05, 6), (1.0, 0.01, 5))


def test_steps_are_kept_in_few_runs_and_come_back_from_an_array():
    steps = ConfiguredSteps()
    for k in range(100):
        noise = 2.0 if k < 60 else 1.0
        steps.add(StepSegment(steps=1, noise=noise, clip=None, rate=0.1))
    assert [(each.steps, each.noise) for each in steps.runs] == [(60, 2.0), (40, 1.0)]
    again = ConfiguredSteps.restored(steps.saved())
    assert (again.runs, again.count) == (steps.runs, 100)
