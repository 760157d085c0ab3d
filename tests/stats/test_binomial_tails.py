"""Binomial tails at many chances, against sums of exact rationals and of mpmath."""

from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest

from dpaudit.stats.binomial_tails import at_least, fewer


@pytest.mark.parametrize("trials", [0, 1, 5, 40])
def test_tails_are_sums_of_rationals(trials):
    chances = [Fraction(k, 16) for k in range(17)]
    floats = np.array([float(p) for p in chances])
    for count in range(-1, trials + 3):
        below = [
            float(
                sum(
                    comb(trials, b) * p**b * (1 - p) ** (trials - b)
                    for b in range(min(count, trials + 1))
                )
            )
            for p in chances
        ]
        np.testing.assert_allclose(fewer(count, trials, floats), below, atol=1e-13)
        above = 1 - np.array(below)
        np.testing.assert_allclose(at_least(count, trials, floats), above, atol=1e-13)


@pytest.mark.parametrize("trials", [10**4, 10**8])
@pytest.mark.parametrize("count", [1, 2, 10, 50, 128, 129, 400])
def test_rare_successes_keep_their_digits(trials, count):
    chances = count / trials * np.array([0.1, 0.7, 0.98, 1.0, 1.3, 3.0])
    with mpmath.workdps(350):
        expected = []
        for chance in chances:
            p = mpmath.mpf(float(chance))
            mass, below = (1 - p) ** trials, mpmath.mpf(0)
            for b in range(count):
                below += mass
                mass *= mpmath.mpf(trials - b) / (b + 1) * p / (1 - p)
            expected.append((float(below), float(1 - below)))
    below, above = np.array(expected).T
    np.testing.assert_allclose(fewer(count, trials, chances), below, rtol=3e-12)
    np.testing.assert_allclose(at_least(count, trials, chances), above, rtol=3e-12)


@pytest.mark.parametrize("trials", [3, 90, 10**5])
def test_no_chance_is_below_nothing_or_above_one(trials):
    """Where a tail is nearly all or nothing, rounding must not cross the edge."""
    chances = np.concatenate(
        [np.geomspace(1e-17, 0.5, 200), 1 - np.geomspace(1e-16, 1)]
    )
    for count in range(1, min(trials, 128) + 1, 3):
        for tail in (fewer(count, trials, chances), at_least(count, trials, chances)):
            assert tail.min() >= 0
            assert tail.max() <= 1
