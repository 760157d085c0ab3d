"""Combining p-values: the textbook's numbers, and never more rejections than alpha."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit.stats.binomial import rate_limits
from dpaudit.stats.combine import fisher

p_values = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6)


@given(p_values)
def test_fisher_agrees_with_scipy(values):
    got = math.exp(fisher([math.log(p) for p in values]))
    want = stats.combine_pvalues(values, method="fisher").pvalue
    assert got == pytest.approx(float(want), rel=1e-9, abs=1e-300)


def test_fisher_reaches_far_below_any_float():
    """e^-x (1 + x) with x = 4000."""
    assert fisher([-2000.0, -2000.0]) == pytest.approx(math.log(4001) - 4000)


@given(p_values, st.data())
def test_a_smaller_p_value_never_makes_the_combined_one_larger(values, data):
    which = data.draw(st.integers(0, len(values) - 1))
    less = list(values)
    less[which] *= data.draw(st.floats(0.01, 1.0))
    logs, fewer = ([math.log(p) for p in x] for x in (values, less))
    assert fisher(fewer) <= fisher(logs) + 1e-12


def test_one_p_value_combines_to_itself():
    assert math.exp(fisher([math.log(0.03)])) == pytest.approx(0.03)


def test_a_p_value_of_one_says_nothing():
    assert fisher([0.0, 0.0]) == 0.0


def test_a_p_value_of_nothing_refutes_if_none_is_one():
    assert fisher([-math.inf, -1.0]) == -math.inf


@pytest.mark.nightly
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_p_values_that_lean_on_the_past_are_wrong_no_more_often_than_alpha(alpha):
    """10 000 sequences whose later p-values are inflated by what came before.

    The lower 99.9 % limit exceeds alpha, if all is well, in under one seed in 1000.
    """
    rng = np.random.default_rng(2)
    first, u = rng.random(10_000), rng.random(10_000)
    second = np.where(first < 0.2, u, np.minimum(1.0, 3 * u))  # uniform, or larger
    logs = np.log(np.stack([first, second], axis=1))
    hits = sum(math.exp(fisher(row)) <= alpha for row in logs)
    assert rate_limits(hits, 10_000, alpha=0.002)[0] <= alpha


@pytest.mark.parametrize("many", [2, 5, 50, 400])
def test_no_product_has_a_chance_above_one(many):
    """All near one: rounding alone decides, and must not decide for more than one."""
    for x in np.geomspace(1e-9, 1.0, 60):
        assert fisher([-x / many] * many) <= 0.0
