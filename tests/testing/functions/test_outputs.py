"""Outputs as a table: equal outputs, and only those, have equal codes."""

import math
from itertools import combinations

import numpy as np
import pytest

from dpaudit.testing.outputs import tabulate

DIFFERENT = [
    0,
    0.0,
    -0.0,
    False,
    None,
    "",
    "0",
    b"0",
    "None",
    math.nan,
    math.inf,
    1e-300,
    2**60,
    2**60 + 1,
    10**400,
    (0,),
    [0],
    (0, 0),
    (0, "0"),
    ("0", 0),
    {"a": 1},
    {"a": 2},
    {"b": 1},
    frozenset({1}),
    np.zeros(1),
    np.zeros(2),
    np.zeros((2, 1)),
    np.zeros(2, np.float32),
    np.zeros(2, int),
    np.array(["x"]),
    np.float32(0),
    1 + 2j,
    1 + 3j,
    ((1, 2), 3),
    (1, (2, 3)),
]


def test_outputs_that_differ_in_anything_have_different_codes():
    codes = tabulate(DIFFERENT).whole
    same = [
        (DIFFERENT[i], DIFFERENT[j])
        for i, j in combinations(range(len(DIFFERENT)), 2)
        if codes[i] == codes[j]
    ]
    assert not same


def test_equal_outputs_have_equal_codes_in_every_table():
    first, second = tabulate(DIFFERENT), tabulate([*DIFFERENT[::-1]])
    np.testing.assert_array_equal(first.whole, second.whole[::-1])
    np.testing.assert_array_equal(first.kinds, second.kinds[::-1])


@pytest.mark.parametrize(
    "outputs",
    [
        [0.5, 1.5, -0.0, 0.0],
        [1, 2, -3, 2**60],
        [True, False, True],
        [np.float64(0.1), np.float64(0.2)],
        [np.int64(2**60), np.int64(2**60 + 1)],
        ["a", "b", "a"],
        [np.arange(3.0), np.arange(3.0) + 1],
    ],
)
def test_the_quick_ways_keep_what_the_long_way_keeps(outputs):
    """None between them sends the same outputs the long way round."""
    quick, slow = tabulate(outputs), tabulate([*outputs, None])
    n = len(outputs)
    np.testing.assert_array_equal(quick.numbers, slow.numbers[:n])
    for i, j in combinations(range(n), 2):
        equal = quick.whole[i] == quick.whole[j]
        assert equal == (slow.whole[i] == slow.whole[j])


def test_numbers_stand_in_their_places_and_what_is_absent_is_nan():
    table = tabulate([(1, "a", 2.5), (3,), "b"])
    np.testing.assert_array_equal(
        table.numbers, [[1, 2.5], [3, math.nan], [math.nan, math.nan]]
    )


def test_what_does_not_depend_on_order_does_not():
    table = tabulate([np.array([3.0, 0.0, -1.0]), np.array([-1.0, 3.0, 0.0])])
    first, second = table.ordered()
    order_free = [0, 1, 2, 5, 6, 7, 8]  # all but where least and largest stand
    np.testing.assert_array_equal(first[order_free], second[order_free])
    np.testing.assert_array_equal(first[:6], [2, -1, 3, 2, 0, 2])


def test_a_number_alone_has_no_order():
    assert tabulate([1.0, 2.0]).ordered().shape == (2, 0)
