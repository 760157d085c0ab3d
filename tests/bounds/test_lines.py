"""Several points of a curve together: exact, certified, and silent at chance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpaudit import ApproxDP, GaussianDP
from dpaudit.bounds import Counts, Exact
from dpaudit.bounds.curve import (
    GaussianFamily,
    certified_tail,
    curve_log_p_value,
    lines_log_p_value,
)


def counts(m, r, v):
    return Counts(canaries=m, guesses=r, correct=v)


@pytest.mark.parametrize(
    ("r", "v", "exact"), [(10, 9, 0.2865), (30, 27, 0.1492), (60, 54, 0.1084)]
)
def test_many_points_reach_the_optimum_over_all_mechanisms(r, v, exact):
    """Optima of 1-GDP by a primal linear program, computed elsewhere to four digits."""
    got = math.exp(lines_log_p_value(counts(r, r, v), GaussianDP(mu=1.0), lines=40))
    assert exact - 6e-5 < got < exact * 1.005


@pytest.mark.parametrize(("m", "r", "v"), [(100, 100, 75), (1000, 100, 75), (5, 3, 3)])
def test_one_point_gives_the_exact_bound(m, r, v):
    claim = ApproxDP(epsilon=0.6, delta=1e-4)
    want = Exact().log_p_value(counts(m, r, v), epsilon=0.6, delta=1e-4)
    got = lines_log_p_value(counts(m, r, v), claim, lines=5)
    assert got == pytest.approx(want, abs=1e-5)


@settings(max_examples=60)
@given(st.integers(1, 12), st.floats(0.2, 2.0), st.integers(0, 2**32 - 1), st.data())
def test_any_numbers_prove_a_bound_that_holds(r, mu, seed, data):
    """Two mu-GDP mechanisms whose counts have a known law: one score for all coins
    (a mixture of binomials), and one for each.
    """
    v = data.draw(st.integers(1, r))
    rng = np.random.default_rng(seed)
    epsilons = np.sort(rng.uniform(0, 4, 3))
    claim = GaussianDP(mu=mu)
    deltas = np.array([claim.delta_at(float(e)) for e in epsilons])
    y = rng.exponential(rng.choice([0.001, 0.03, 0.3]), (3, r)) * rng.integers(0, 2)
    bound = certified_tail(counts(r, r, v), epsilons, deltas, y - 0.001)
    own = stats.binom.sf(v - 1, r, stats.norm.cdf(mu / 2))
    # The log-odds of one score have the law N(mu^2/2, mu^2), signed by the truth.
    x = np.linspace(-9, 9, 4001)
    odds = np.abs(mu**2 / 2 + mu * x)
    right = stats.binom.sf(v - 1, r, 1 / (1 + np.exp(-odds)))
    shared = float(np.sum(right * stats.norm.pdf(x)) * (x[1] - x[0]))
    assert bound >= max(own, shared) - 1e-6


def test_more_is_rejected_than_by_the_other_p_values_but_not_much():
    plain, sharp = (
        GaussianFamily(lines=n).parameter_lower(
            counts(1000, 200, 150), delta=1e-5, alpha=0.05
        )
        for n in (0, 8)
    )
    assert plain.parameter_lower * 1.005 < sharp.parameter_lower
    assert sharp.parameter_lower < plain.parameter_lower * 1.1
    claim = GaussianDP(mu=sharp.parameter_lower)
    got = lines_log_p_value(counts(1000, 200, 150), claim, lines=8)
    assert got <= math.log(0.05) < curve_log_p_value(counts(1000, 200, 150), claim)


def test_nothing_is_said_at_chance():
    claim = GaussianDP(mu=1.0)
    assert lines_log_p_value(counts(40, 40, 20), claim, lines=6) > math.log(0.5)
    assert lines_log_p_value(counts(40, 40, 0), claim, lines=6) == 0.0
