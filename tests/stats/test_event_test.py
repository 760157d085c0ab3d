"""The exact test of an event, against sums over all outcomes."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import xlogy

from dpaudit.stats.event_test import (
    ConcaveLimit,
    Line,
    nearest_on,
    p_value,
    signed_deviance,
)


def limit(epsilon, delta, share=1.0):
    slopes = np.exp([epsilon, -epsilon])
    starts = np.array([delta, 1 - np.exp(-epsilon) * (1 - delta)])
    return ConcaveLimit.of_lines(slopes, starts).scaled(share)


def probabilities(n, a, b):
    """Return the probability of every outcome (correct, wrong)."""
    v, w = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    inside = v + w <= n
    law = np.zeros(v.shape)
    counts = np.stack([v[inside], w[inside], (n - v - w)[inside]], axis=-1)
    law[inside] = stats.multinomial.pmf(counts, n, [a, b, 1 - a - b])
    return law


def table(n, g, line):
    found = np.ones((n + 1, n + 1))
    for v, w in product(range(n + 1), repeat=2):
        if v + w <= n:
            found[v, w] = p_value(v, w, calls=n, limit=g, line=line)
    return found


def worst_level(n, g, p_values, alpha):
    """Return the largest probability of p <= alpha on the boundary of the claim."""
    bs = np.concatenate([np.linspace(0, g.last, 60), np.geomspace(1e-4, g.last, 40)])
    level = 0.0
    for b in bs.tolist():
        a = min(float(g(b)), 1 - b)
        level = max(level, float(probabilities(n, a, b)[p_values <= alpha].sum()))
    return level


@pytest.mark.parametrize(
    ("n", "epsilon", "delta", "share", "at"),
    [
        (24, 1.0, 0.02, 1.0, 0.1),
        (18, 0.5, 0.05, 1.0, 0.02),
        (20, 0.0, 0.2, 0.5, 0.05),
        (16, 2.0, 0.0, 1.0, 0.05),
    ],
)
def test_the_level_is_never_above_alpha(n, epsilon, delta, share, at):
    g = limit(epsilon, delta, share)
    p_values = table(n, g, g.tangent(at))
    for alpha in (0.2, 0.05, 0.01):
        level = worst_level(n, g, p_values, alpha)
        assert level <= alpha * (1 + 1e-9)
    assert worst_level(n, g, p_values, 0.2) > 0.08  # and not far below it


def test_a_test_of_a_weaker_claim_would_be_found_out():
    """The oracle can fail: p-values of a smaller claim exceed the level."""
    smaller, true = limit(0.8, 0.0), limit(1.0, 0.02)
    p_values = table(20, smaller, true.tangent(0.1))
    assert worst_level(20, true, p_values, 0.05) > 0.06


@pytest.mark.parametrize("at", [0.0, 0.03, 0.2])
def test_p_values_fall_in_correct_and_rise_in_wrong_answers(at):
    g = limit(1.0, 0.02)
    n = 15
    p_values = table(n, g, g.tangent(at))
    slack = 1.11  # each is at most a tenth above the supremum
    for v, w in product(range(n), repeat=2):
        if v + w < n:
            assert p_values[v + 1, w] <= p_values[v, w] * slack
            assert p_values[v, w + 1] >= p_values[v, w] / slack


@pytest.mark.parametrize("slope", [0.3, 1.0, 2.7, 50.0])
@pytest.mark.parametrize("intercept", [0.0, 1e-5, 0.1, 0.6])
def test_the_deviance_is_that_of_the_nearest_point_and_monotone(slope, intercept):
    line, n = Line(slope=slope, intercept=intercept), 40
    v, w = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    v, w = v[v + w <= n], w[v + w <= n]
    found = signed_deviance(line, v, w, n)
    b = np.linspace(0, (1 - intercept) / (1 + slope), 4001)[:, np.newaxis]
    a = slope * b + intercept
    u = n - v - w

    def log_likelihood(a, b):
        return xlogy(v, a) + xlogy(w, b) + xlogy(u, np.maximum(1 - a - b, 0))

    best = log_likelihood(a, b).max(axis=0)
    nearest = nearest_on(line, v, w, n)
    here = log_likelihood(slope * nearest + intercept, nearest)
    assert (here >= best - 1e-9).all()
    by_outcome = dict(zip(zip(v.tolist(), w.tolist(), strict=True), found, strict=True))
    for (i, j), value in by_outcome.items():
        if (i + 1, j) in by_outcome:
            assert by_outcome[i + 1, j] >= value - 1e-9
        if (i, j + 1) in by_outcome:
            assert by_outcome[i, j + 1] <= value + 1e-9


def test_at_delta_zero_it_is_about_the_conditional_binomial_test():
    g = limit(1.0, 0.0)
    found = p_value(800, 200, calls=1200, limit=g, line=g.tangent(0.2))
    exact = stats.binom.sf(799, 1000, 1 / (1 + np.exp(-1.0)))
    assert 0.7 * exact <= found <= 1.3 * exact  # ordered alike, but not the same


def test_p_values_rise_with_the_claim():
    line = limit(1.0, 0.02).tangent(0.05)
    found = [
        p_value(190, 20, calls=2000, limit=limit(epsilon, 0.02), line=line)
        for epsilon in np.linspace(0.0, 3.0, 13)
    ]
    assert (np.diff(found) >= -0.1 * np.array(found[:-1])).all()
    assert found[0] < 1e-6
    assert found[-1] > 0.9


@pytest.mark.parametrize("counts", [(0, 0), (30, 0), (0, 30), (15, 15)])
def test_extreme_outcomes_have_p_values(counts):
    g = limit(1.0, 0.02)
    found = p_value(*counts, calls=30, limit=g, line=g.tangent(0.1))
    assert 0 < found <= 1
    assert found < 0.01 if counts == (30, 0) else found > 0.3


def test_a_limit_is_the_least_of_its_lines():
    rng = np.random.default_rng(3)
    slopes, starts = rng.exponential(size=20), rng.random(20)
    g = ConcaveLimit.of_lines(slopes, starts)
    at = np.linspace(0, 1, 501)
    least = np.minimum((np.outer(slopes, at) + starts[:, np.newaxis]).min(axis=0), 1.0)
    np.testing.assert_allclose(g(at), least, atol=1e-12)
    lines = g.lines
    np.testing.assert_allclose(
        (np.outer(lines.slope, at) + lines.intercept[:, np.newaxis]).min(axis=0),
        least,
        atol=1e-12,
    )
