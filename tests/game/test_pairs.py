"""Pairs: bit 1 picks y, bit 0 picks x, whatever the records are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpaudit import Pairs
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency

BITS = hnp.arrays(np.uint8, st.integers(1, 20), elements=st.integers(0, 1))


@given(BITS, st.integers(-128, 127), st.integers(-128, 127))
def test_small_whole_numbers_are_chosen_exactly(bits, x, y):
    if x == y:
        return
    chosen = Pairs(x=np.int8(x), y=np.int8(y)).choose(bits)
    assert chosen.tolist() == [y if b else x for b in bits]


@given(BITS, st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_are_chosen_to_the_bit(bits, x, y):
    if x == y:
        return
    chosen = Pairs(x=x, y=y).choose(bits)
    assert chosen.tolist() == [y if b else x for b in bits]


def test_text_and_rows_are_chosen_too():
    bits = np.array([1, 0, 1], np.uint8)
    assert Pairs(x="no", y="yes").choose(bits).tolist() == ["yes", "no", "yes"]
    x, y = np.zeros((3, 2)), np.ones((3, 2))
    np.testing.assert_array_equal(
        Pairs(x=x, y=y).choose(bits), [[1, 1], [0, 0], [1, 1]]
    )


def test_a_block_is_a_block_of_the_whole():
    pairs = Pairs(x=np.arange(10), y=-np.arange(10) - 1)
    bits = np.arange(10) % 2
    whole = pairs.choose(bits)
    np.testing.assert_array_equal(pairs.choose(bits[4:7], start=4), whole[4:7])


def test_a_coin_that_changes_nothing_is_refused():
    with pytest.raises(InvalidInputError, match="must differ in every pair"):
        Pairs(x=np.array([0, 1]), y=np.array([1, 1]))
    with pytest.raises(InvalidInputError, match="must differ in every pair"):
        Pairs(x=np.zeros((2, 2)), y=np.array([[0, 1], [0, 0]]))
    Pairs(x=np.zeros((2, 2)), y=np.array([[0, 1], [1, 0]]))


def test_pairs_must_match_each_other_and_the_canaries():
    with pytest.raises(InvalidInputError, match="one shape"):
        Pairs(x=np.zeros(2), y=np.ones(3))
    with pytest.raises(InvalidInputError, match="2 pairs were given for canaries=3"):
        Pairs(x=np.zeros(2), y=np.ones(2)).check(3)
    Pairs(x=0, y=1).check(10**9)


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(x=0, y=1),
        Pairs(x=[0.5, 1.5], y=[2.0, 3.0], adjacency=Adjacency.ZERO_OUT),
        Pairs(x="a", y="b"),
    ],
)
def test_pairs_read_back_as_themselves(pairs):
    assert Pairs.from_json(pairs.to_json()) == pairs
    assert Pairs.from_json(pairs.to_json()).adjacency is pairs.adjacency


@pytest.mark.parametrize("name", ["x", "y"])
def test_rows_of_different_lengths_are_no_records(name):
    records = {"x": [[0, 1], [2, 3]], "y": [[4, 5], [6, 7]]}
    with pytest.raises(InvalidInputError, match=f"^{name} must be an array"):
        Pairs(**records | {name: [[0, 1], [2]]})


@pytest.mark.parametrize(
    ("x", "y"), [(1, 0.5), (0.5, 1), (np.uint8(3), -4), (True, 7), (2**40, 0)]
)
def test_a_pair_of_different_types_is_chosen_without_loss(x, y):
    chosen = Pairs(x=x, y=y).choose(np.array([0, 1, 1, 0], np.uint8))
    assert chosen.tolist() == [x, y, y, x]
