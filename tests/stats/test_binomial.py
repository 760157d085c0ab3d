"""Binomial tails and rate limits against exact and independent arithmetic."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit.stats.binomial import log_tails, rate_limits


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
