"""Binomial tails and rate limits against exact and independent arithmetic."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit.stats.binomial import (
    log_complement,
    log_mass,
    log_odds_limit,
    log_tails,
    masses,
    rate_limits,
)


@given(st.integers(1, 80), st.integers(1, 40), st.data())
def test_tails_agree_with_exact_arithmetic(r, odds, data):
    v = data.draw(st.integers(0, r))
    q = Fraction(odds, 1 + odds)
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    upper, lower = log_tails(v, r, math.log(odds))
    assert math.exp(upper) == pytest.approx(float(sum(pmf[v:])), rel=1e-9)
    assert math.exp(lower) == pytest.approx(float(sum(pmf[:v])), rel=1e-9, abs=1e-300)


def test_a_tail_far_below_any_float():
    assert log_tails(21_000, 30_000, 0.0)[0] == pytest.approx(-2473.2199657, abs=1e-7)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (200, 201)])
def test_rate_limits_are_clopper_pearson(hits, trials):
    want = stats.binomtest(hits, trials).proportion_ci(0.99, method="exact")
    assert rate_limits(hits, trials, alpha=0.01) == pytest.approx((want.low, want.high))


def far_out(v, r, log_odds):
    """The log of a tail by a Mills sum in sixty digits."""
    with mpmath.workdps(60):
        odds = mpmath.e ** mpmath.mpf(log_odds)
        p = odds / (1 + odds)
        mass = (
            mpmath.loggamma(r + 1)
            - mpmath.loggamma(v + 1)
            - mpmath.loggamma(r - v + 1)
            + v * mpmath.log(p)
            + (r - v) * mpmath.log(1 - p)
        )
        term = total = mpmath.mpf(1)
        for i in range(1, r - v + 1):
            term *= mpmath.mpf(r - v - i + 1) / (v + i) * odds
            total += term
            if term < total * mpmath.mpf(10) ** -25:
                break
        return mass + mpmath.log(total)


@pytest.mark.parametrize(
    ("v", "r", "log_odds"),
    [
        (990_000_000, 10**9, 4.59),
        (990_000_000, 10**9, 4.5),
        (999_999_000, 10**9, 13.0),
        (10**9, 10**9, 14.0),
        (1_439, 1_510, 2.7),
        (700, 10**6, -8.0),
    ],
)
def test_a_billion_trials_keep_nine_digits(v, r, log_odds):
    want = far_out(v, r, log_odds)
    assert abs(log_tails(v, r, log_odds)[0] / want - 1) < 1e-9


def test_a_limit_at_a_level_of_1e_300_keeps_nine_digits():
    v, r, log_alpha = 990_000_000, 10**9, -300 * math.log(10)
    found = log_odds_limit(v, r, log_alpha=log_alpha)
    assert far_out(v, r, found) <= log_alpha
    assert far_out(v, r, found + 1e-9) > log_alpha


def test_masses_far_out_agree_with_sixty_digits(subtests):
    for v, log_odds in product([0, 1, 37, 99, 100], [-800.0, -3.0, 0.0, 3.0, 800.0]):
        with subtests.test(v=v, log_odds=log_odds):
            with mpmath.workdps(60):
                p = 1 / (1 + mpmath.e ** mpmath.mpf(-log_odds))
                q = 1 / (1 + mpmath.e ** mpmath.mpf(log_odds))
                want = mpmath.log(mpmath.binomial(100, v)) + (
                    v * mpmath.log(p) + (100 - v) * mpmath.log(q)
                )
            assert float(log_mass(v, 100, log_odds)) == pytest.approx(
                float(want), rel=1e-13
            )


@given(st.integers(1, 3000), st.floats(-6, 6))
def test_a_window_holds_the_whole_law(r, log_odds):
    low, chances = masses(r, log_odds, spread=9)
    k = range(low, low + len(chances))
    want = stats.binom.pmf(k, r, 1 / (1 + math.exp(-log_odds)))
    assert chances == pytest.approx(want, rel=1e-9, abs=1e-250)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("log_p", [-1e-20, -1e-3, -0.6931, -0.7, -50.0, -1e5])
def test_the_complement_loses_nothing(log_p):
    with mpmath.workdps(60):
        want = mpmath.log(-mpmath.expm1(mpmath.mpf(log_p)))
    assert log_complement(log_p) == pytest.approx(float(want), rel=1e-12, abs=0)


@pytest.mark.parametrize("log_p", [0.0, 1e-17, 1e-3])
def test_nothing_is_left_of_all(log_p):
    """Rounding may bring a log chance to 0 or a little above."""
    assert log_complement(log_p) == -math.inf


def test_every_count_of_few_trials_agrees_with_exact_arithmetic(subtests):
    for r, odds in product(range(1, 7), [1, 3, 40]):
        with subtests.test(r=r, odds=odds):
            q = Fraction(odds, 1 + odds)
            pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
            for v in range(r + 1):
                upper, lower = log_tails(v, r, math.log(odds))
                assert math.exp(upper) == pytest.approx(float(sum(pmf[v:])), rel=1e-13)
                assert math.exp(lower) == pytest.approx(float(sum(pmf[:v])), rel=1e-12)
                mass = float(log_mass(v, r, math.log(odds)))
                assert math.exp(mass) == pytest.approx(float(pmf[v]), rel=1e-13)


def test_more_than_all_never_happens_and_a_sure_success_never_fails():
    assert log_tails(11, 10, 0.3) == (-math.inf, 0.0)
    upper, lower = log_tails(5, 10, 800.0)
    assert upper == 0.0
    assert lower < 6 * -800 + math.log(math.comb(10, 4)) + 1e-6  # six must fail


def test_no_tail_is_above_one():
    """Near one, rounding must not carry a chance across."""
    for r in (1, 7, 100, 5000):
        for log_odds in (0.0, 0.7, 3.0, 12.0, 35.0):
            for v in {1, 2, r // 2, int(r / (1 + math.exp(-log_odds))), r - 1, r}:
                assert max(log_tails(v, r, log_odds)) <= 0.0
                assert max(log_tails(v, r, -log_odds)) <= 0.0


@pytest.mark.parametrize("v", [15, 16, 17, 19, 25, 60])
def test_the_mass_in_the_middle_keeps_twelve_digits(v):
    """Where the table of Stirling's errors ends and their series begins."""
    with mpmath.workdps(40):
        want = mpmath.log(mpmath.binomial(2 * v, v)) - 2 * v * mpmath.log(2)
    found = float(log_mass(v, 2 * v, 0.0))
    assert found == pytest.approx(float(want), rel=3e-13, abs=0)


@given(
    st.integers(1, 10**12).flatmap(
        lambda r: st.tuples(st.just(r), st.lists(st.integers(-1, r + 1), min_size=1))
    ),
    st.floats(-50, 50),
)
def test_the_mass_of_one_count_is_that_of_many_to_the_last_bit(counts, log_odds):
    r, several = counts
    many = log_mass(several, r, log_odds)
    assert [float(log_mass(v, r, log_odds)) for v in several] == many.tolist()


def test_of_no_trials_none_succeeds_for_sure():
    assert log_mass([0, 0, 0], 0, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert float(log_mass(0, 0, 1.0)) == 0.0
