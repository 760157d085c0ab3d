"""Canary users by themselves."""

import numpy as np
import pytest
from pfl.data.dataset import Dataset

from dpaudit.training.pfl.users import CanaryUser, canary_of, user_id, with_canaries


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
