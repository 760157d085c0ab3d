"""Binomial tails at many chances, against sums of exact rationals and of mpmath."""

from fractions import Fraction
from itertools import product
from math import comb, exp, log

import mpmath
import numpy as np
import pytest

from dpaudit.stats.binomial import log_tails
from dpaudit.stats.binomial_tails import at_least, attained_tails, fewer, upper_tails


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


def test_rare_successes_keep_their_digits(subtests):
    for trials, count in product([10**4, 10**8], [1, 2, 10, 50, 128, 129, 400]):
        with subtests.test(trials=trials, count=count):
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
            np.testing.assert_allclose(
                at_least(count, trials, chances), above, rtol=3e-12
            )


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


def tails_of(trials, odds):
    """Return P[B >= 0], ..., P[B >= trials + 1] exactly."""
    p = Fraction(odds, 1 + odds)
    law = [comb(trials, b) * p**b * (1 - p) ** (trials - b) for b in range(trials + 1)]
    return [sum(law[count:], Fraction(0)) for count in range(trials + 2)]


@pytest.mark.parametrize("odds", [1, 3, 20])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_a_tail_that_is_rounded_up_is_never_less_than_it_should_be(trials, odds):
    exact = tails_of(trials, odds)
    counts = np.arange(trials + 2)
    found = upper_tails(counts, np.full_like(counts, trials), log(odds))
    for got, want in zip(found.tolist(), exact, strict=True):
        assert want <= Fraction(got) <= want * (1 + Fraction(3, 10**6))


@pytest.mark.parametrize("trials", [10**5, 10**9])
@pytest.mark.parametrize("log_odds", [0.0, 2.0, 9.0])
def test_it_is_none_less_with_very_many_trials(trials, log_odds):
    p, q = 1 / (1 + exp(-log_odds)), 1 / (1 + exp(log_odds))
    deviations = np.linspace(-1, 12, 14)
    counts = np.ceil(trials * p + deviations * (trials * p * q) ** 0.5).astype(int)
    counts = counts[counts <= trials]
    found = upper_tails(counts, np.full_like(counts, trials), log_odds)
    want = [exp(log_tails(int(count), trials, log_odds)[0]) for count in counts]
    assert np.all(found >= want)
    np.testing.assert_allclose(found, want, rtol=3e-6)


@pytest.mark.parametrize("odds", [1, 3, 20])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_what_is_attained_within_a_level_is_never_understated(trials, odds):
    """At every tail exactly, a little to each side of it, and in between."""
    exact = tails_of(trials, odds)
    close = [float(t) * by for t in exact for by in (1 - 1e-9, 1, 1 + 1e-9, 1.01)]
    levels = np.array([*close, *np.geomspace(1e-12, 0.49, 50)])
    levels = levels[(levels > 1e-15) & (levels < 0.5)]
    found = attained_tails(levels, np.full(len(levels), trials), log(odds))
    for got, level in zip(found.tolist(), levels.tolist(), strict=True):
        assert Fraction(got) >= max(t for t in exact if t <= Fraction(level))
    assert np.all(found <= levels * (1 + 4e-6))


@pytest.mark.nightly
@pytest.mark.parametrize("odds", [1, 3, 20])
@pytest.mark.parametrize("trials", [60, 500])
def test_what_is_attained_is_found_at_levels_that_matter(trials, odds):
    exact = np.array([float(tail) for tail in tails_of(trials, odds)])
    levels = np.geomspace(1e-3, 0.45, 40)
    found = attained_tails(levels, np.full(len(levels), trials), log(odds))
    want = [exact[exact <= level].max() for level in levels]
    np.testing.assert_allclose(found, want, rtol=3e-6)
