"""Who takes part in which round, by name."""

import numpy as np
import pytest

from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.training.visits import Visits


def visited(*cohorts, users=None):
    visits = Visits(users)
    for cohort in cohorts:
        visits.begin()
        for user in cohort:
            visits.came(user)
        visits.end()
    return visits


def faults(visits, rate=1.0, **claimed):
    found = visits.findings(rate, **claimed)
    return [each for each in found if each.status is Status.FAULT]


def test_users_in_turn_are_no_fault():
    visits = visited("ab", "cd", "ab", "cd")
    (check,) = visits.findings(1.0, separation=2, most=2)
    said = sentence(check, "user")
    assert said == (
        "4 cohorts as they come: no user twice in one, none in more than 2 of them; "
        "the soonest came back 2 rounds later, where 2 are counted on"
    )


@pytest.mark.parametrize(
    ("cohorts", "measured"), [(("aab",), "2 times"), (("ab", "ca"), "after 1 rounds")]
)
def test_users_who_come_too_often_are_named(cohorts, measured):
    (fault,) = faults(visited(*cohorts), separation=2)
    assert fault.stage is Stage.SAMPLING
    assert fault_parts(fault, "user")[1] == measured
    assert fault.probability == 0


def test_users_who_take_part_more_often_than_is_accounted_for_are_named():
    visits = visited("ab", "cd", "ae")
    assert not faults(visits, most=2)
    again = Visits()
    again.restore(visits.saved())  # counts outlive a checkpoint
    again.came("a")
    again.end()
    (fault,) = faults(again, most=2)
    assert fault.stage is Stage.ACCOUNTING
    what, measured, expected, _ = fault_parts(fault, "user")
    assert what == "a user takes part more often than is accounted for"
    assert (measured, expected) == ("3 times in 4 rounds", "at most 2")
    assert not faults(again)


def test_users_without_names_are_not_counted():
    visits = visited([None, None], [None])
    assert not [*visits.findings(1.0, most=0)]


def test_a_round_that_begins_anew_is_forgotten():
    visits = Visits()
    visits.came("a")
    visits.begin()
    visits.came("a")
    visits.end()
    assert not faults(visits, most=1)


def test_users_of_a_known_number_are_held_against_the_rate():
    """Cohorts of a fixed size, of 100 users, are as often there as sampled users."""
    rng = np.random.default_rng(0)
    cohorts = [rng.choice(100, 20, replace=False).tolist() for _ in range(40)]
    assert not faults(visited(*cohorts, users=100), 0.2)
    (fault,) = faults(visited(*cohorts, users=100), 0.15)
    assert fault.code == "sampling.too_often"
    cohorts = [
        [*range(5), *rng.choice(range(5, 100), 15, replace=False).tolist()]
        for _ in range(40)
    ]
    often = faults(visited(*cohorts, users=100), 0.2)
    assert "sampling.favoured" in {fault.code for fault in often}
    assert "users in" in fault_parts(often[0], "user")[1]


def test_canaries_that_the_sampler_picks_are_tested_by_themselves():
    """Ten rounds of a hundred: at 0.2 there are 200 visits, give or take 13."""
    named = {}
    for each in (20, 24, 30):
        visits = Visits(canaries=100)
        rng = np.random.default_rng(0)
        for _ in range(10):
            for canary in rng.choice(100, each, replace=False).tolist():
                visits.picked(canary)
            visits.end()
        again = Visits(canaries=100)
        again.restore(visits.saved())
        named[each] = [fault.code for fault in faults(again, 0.2)]
    assert named == {20: [], 24: [], 30: ["sampling.too_often"]}
