"""Canary users by themselves, and what cohorts say of sampling."""

import numpy as np
import pytest
from pfl.data.dataset import Dataset

from dpaudit.game.findings import FALSE_POSITIVE_RATE, Stage
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.training.pfl.users import CanaryUser, canary_of, user_id, with_canaries
from dpaudit.training.pfl.visits import Visits


@pytest.fixture
def data():
    return Dataset(
        (np.arange(10.0),),
        user_id="somebody",
        metadata={"age": 3},
        train_kwargs={"a": 1},
        eval_kwargs={"b": 2},
    )


def test_a_canary_user_holds_somebodys_data_under_its_own_name(data):
    user = CanaryUser(data, 7)
    assert user.user_id == "dpaudit-canary-7"
    assert canary_of(user.user_id) == 7
    assert len(user) == 10
    assert user.raw_data is data.raw_data
    assert user.metadata is data.metadata
    assert (user.train_kwargs, user.eval_kwargs) == ({"a": 1}, {"b": 2})
    assert [len(batch[0]) for batch in user.iter(4)] == [4, 4, 2]
    left, right = user.split(0.8)
    assert (len(left), len(right)) == (8, 2)
    assert left.user_id == right.user_id == user.get_worker_partition().user_id


def test_data_sets_of_canaries_and_others_come_from_one_maker(data):
    made = with_canaries(lambda user: f"data of {user}", data)
    assert made("somebody") == "data of somebody"
    assert made(user_id(3)).user_id == user_id(3)


def visited(*cohorts, canary=False):
    visits = Visits()
    for cohort in cohorts:
        visits.begin()
        for user in cohort:
            visits.came(user, canary=canary)
        visits.end()
    return visits


def test_users_in_turn_are_no_fault():
    visits = visited("ab", "cd", "ab", "cd")
    assert not [*visits.faults(separation=2)]
    (look,) = visits.checks(2)
    assert "no user twice in one, the soonest came back 2 later" in sentence(look)


@pytest.mark.parametrize(
    ("cohorts", "measured"), [(("aab",), "2 times"), (("ab", "ca"), "after 1 rounds")]
)
def test_users_who_come_too_often_are_named(cohorts, measured):
    (fault,) = visited(*cohorts).faults(separation=2)
    assert fault.stage is Stage.SAMPLING
    assert fault_parts(fault)[1] == measured
    assert fault.probability == 0


def test_users_who_take_part_more_often_than_is_accounted_for_are_named():
    visits = visited("ab", "cd", "ae")
    assert not [*visits.faults(separation=1, most=2)]
    again = Visits()
    again.restore(visits.saved())  # counts outlive a checkpoint
    again.came("a", canary=False)
    (fault,) = again.faults(separation=1, most=2)
    assert fault.stage is Stage.ACCOUNTING
    assert fault_parts(fault)[1] == "3 times in 3 rounds"
    assert not [*again.faults(separation=1)]


def test_users_without_names_are_not_looked_at():
    visits = visited([None, None], [None])
    assert not [*visits.checks(2)]
    assert not [*visits.faults(separation=2)]


def test_a_rate_is_accused_within_the_budget_only():
    rounds, canaries, rate = 10, 100, 0.2  # 200 are expected, give or take 12.6
    accused = {}
    for each in range(20, 30):
        visits = visited(*[range(each)] * rounds, canary=True)
        faults = [*visits.faults(separation=1, canaries=canaries, rate=rate)]
        accused[each * rounds] = bool(faults)
        assert all(fault.probability <= FALSE_POSITIVE_RATE for fault in faults)
    # The normal tail of 1e-4 is at 3.72 deviations: 247; the binomial's a little above.
    assert not accused[240]
    assert accused[260]


def test_what_was_wrong_is_kept_over_a_checkpoint():
    visits, again = visited("aab", "b"), Visits()
    again.restore(visits.saved())
    assert [*again.faults(separation=5)] == [*visits.faults(separation=5)]
    assert again.rounds == 2
