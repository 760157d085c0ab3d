"""The rank-sum law against enumeration and scipy; its level, summed exactly."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from dpaudit.errors import InvalidInputError
from dpaudit.stats.rank_sum import rank_sum_p_value


def p_value(first, second, seed=0):
    return rank_sum_p_value(
        np.asarray(first, float),
        np.asarray(second, float),
        tie_rng=np.random.default_rng(seed),
    )


def pairs(first, second):
    return sum(a > b for a in first for b in second)


@pytest.mark.parametrize(("k", "m"), [(1, 1), (1, 6), (3, 4), (4, 3), (5, 5)])
def test_a_p_value_is_the_share_of_divisions_as_extreme(k, m):
    everything = range(k + m)
    divisions = [
        (first, [b for b in everything if b not in first])
        for first in combinations(everything, k)
    ]
    found = [pairs(*division) for division in divisions]
    for division, own in zip(divisions, found, strict=True):
        share = sum(other >= own for other in found) / comb(k + m, k)
        assert p_value(*division) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize(("k", "m"), [(30, 30), (20, 90), (90, 20)])
def test_larger_groups_agree_with_scipy(k, m):
    rng = np.random.default_rng(1)
    for shift in (-0.3, 0.0, 0.5, 1.0):
        first, second = rng.standard_normal(k) + shift, rng.standard_normal(m)
        expected = mannwhitneyu(
            first, second, alternative="greater", method="exact"
        ).pvalue
        assert p_value(first, second) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [7, 8, 10])
def test_groups_by_lot_are_told_apart_in_no_more_than_one_of_a_thousand_cases(size):
    """Summed over all divisions that there are; the law is known from counting sums."""
    counts = {(0, 0): 1}  # of the ranks seen so far: (chosen, their sum) -> ways
    for rank in range(2 * size):
        for (chosen, total), ways in list(counts.items()):
            key = chosen + 1, total + rank
            counts[key] = counts.get(key, 0) + ways
        counts = {key: ways for key, ways in counts.items() if key[0] <= size}
    least = size * (size - 1) // 2
    told = sum(
        ways
        for (chosen, total), ways in counts.items()
        if chosen == size and p_value(*division(size, total - least)) <= 0.001
    )
    level = Fraction(told, comb(2 * size, size))
    assert 0 < level <= Fraction(1, 1000)


def division(size, above):
    """Two groups in which the first is above the other in so many pairs."""
    whole, rest = divmod(above, size)
    first = [size] * whole + [rest] * (whole < size) + [0] * (size - whole - 1)
    return np.array(first) - 0.5, np.arange(size)


def test_equal_numbers_are_divided_by_lot():
    """One of a thousand at most is told apart; 4,000 tries, false alarm 1e-6."""
    found = [p_value(np.zeros(10), np.zeros(10), seed) for seed in range(4000)]
    assert np.count_nonzero(np.array(found) <= 0.001) <= 17
    assert len(set(found)) > 50


def test_an_empty_group_is_refused():
    with pytest.raises(InvalidInputError, match="both groups need a number, got 0"):
        p_value([], [1.0])
