"""Bounds against whole curves: published values, oracles, validity, labels."""

import bisect
import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from dpaudit import ApproxDP, GaussianDP, PrivacyCurve
from dpaudit.bounds import Counts, Exact, test_claim
from dpaudit.bounds.curve import (
    GaussianFamily,
    curve_log_p_value,
    pointwise_log_p_value,
    recursion,
)


def counts(m, r, v):
    return Counts(canaries=m, guesses=r, correct=v)


def recursion_p_value(m, r, v, mu):
    """The least tail that algorithm 3 refutes, by bisection, with scipy's normal
    law."""

    def refuted(tau):
        right, wrong = tau * v / m, tau * (r - v) / m
        for i in range(v - 1, -1, -1):
            new = max(wrong, special.ndtr(special.ndtri(min(right, 1.0)) - mu))
            right, wrong = right + i / (r - i) * (new - wrong), new
        return right + wrong > r / m

    return optimize.bisect(lambda tau: refuted(tau) - 0.5, 1e-9, 1.0, xtol=1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "p_value"),
    [
        (10, 10, 9, 0.320413),
        (30, 30, 27, 0.178571),
        (300, 30, 29, 0.335653),
        (1000, 1000, 800, 0.469437),
    ],
)
def test_the_recursion_gives_the_vectors(m, r, v, p_value):
    """Vectors computed elsewhere, and a plain restatement of the algorithm."""
    claim = GaussianDP(mu=1.0)
    assert recursion_p_value(m, r, v, 1.0) == pytest.approx(p_value, abs=2e-6)
    for log_tail, want in (
        (math.log(p_value) + 1e-5, True),
        (math.log(p_value) - 1e-5, False),
    ):
        assert recursion(counts(m, r, v), claim, log_tail=log_tail) is want


@pytest.mark.parametrize(("r", "v", "exact"), [(10, 9, 0.2865), (30, 27, 0.1492)])
def test_no_p_value_is_below_the_linear_program(r, v, exact):
    """The optimum over all 1-GDP mechanisms, by a linear program in the law of V."""
    epsilons = np.linspace(0, 6, 80)
    deltas = [GaussianDP(mu=1.0).delta_at(float(e)) for e in epsilons]
    rows, limits = [], []
    n = 2 * r  # slack variables per line: one per step up and down
    width = r + 1 + n * len(epsilons)
    for j, (epsilon, delta) in enumerate(zip(epsilons, deltas, strict=True)):
        base, odds = r + 1 + n * j, math.exp(epsilon)
        for k in range(1, r + 1):
            row = np.zeros(width)
            row[k], row[k - 1], row[base + k - 1] = k / r, -odds * (r - k + 1) / r, -1
            rows.append(row)
            limits.append(0.0)
        for k in range(r):
            row = np.zeros(width)
            row[k], row[k + 1], row[base + r + k] = (r - k) / r, -odds * (k + 1) / r, -1
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(width)
        row[base : base + n] = 1
        rows.append(row)
        limits.append(delta)
    goal = np.zeros(width)
    goal[v : r + 1] = -1
    total = np.zeros((1, width))
    total[0, : r + 1] = 1
    best = -optimize.linprog(goal, np.array(rows), limits, total, [1.0]).fun
    assert best == pytest.approx(exact, abs=2e-4)
    assert (
        math.exp(curve_log_p_value(counts(r, r, v), GaussianDP(mu=1.0))) >= best - 1e-6
    )


@pytest.mark.parametrize(("r", "v"), [(10, 9), (30, 27), (40, 31), (60, 60)])
def test_halvings_at_once_end_where_one_by_one_they_would(r, v):
    epsilons = np.linspace(0.0, 6.0, 50)
    curve = PrivacyCurve(epsilons=epsilons, deltas=0.3 * np.exp(-2 * epsilons))
    for claim in (GaussianDP(mu=1.0), curve):
        low, high = -700.0, pointwise_log_p_value(counts(r, r, v), claim)
        if recursion(counts(r, r, v), claim, log_tail=high - 1e-9):
            while high - low > 1e-6:
                middle = (low + high) / 2
                if recursion(counts(r, r, v), claim, log_tail=middle):
                    high = middle
                else:
                    low = middle
        assert curve_log_p_value(counts(r, r, v), claim) == high


def test_the_smaller_of_both_is_taken():
    small, large = counts(30, 30, 27), counts(10**5, 10**4, 8000)
    claim = GaussianDP(mu=1.0)
    assert curve_log_p_value(small, claim) < pointwise_log_p_value(small, claim) - 0.01
    assert curve_log_p_value(large, claim) <= pointwise_log_p_value(large, claim)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon"), [(1000, 200, 150, 1.2969), (10_000, 2000, 1400, 1.0895)]
)
def test_the_gaussian_family_gives_what_others_print(m, r, v, epsilon):
    """jax-privacy 2.0.0, epsilon_one_run_fdp, delta 1e-5, 95 %."""
    found = GaussianFamily().parameter_lower(counts(m, r, v), delta=1e-5, alpha=0.05)
    assert found.model_epsilon >= epsilon - 2e-4
    assert found.model_epsilon < epsilon + 0.02


def test_the_family_says_that_it_is_one():
    """Randomised response is pure 1-DP, yet its Gaussian reading exceeds 1."""
    right = round(10_000 * special.expit(1.0))
    found = GaussianFamily().parameter_lower(
        counts(10_000, 10_000, right), delta=1e-5, alpha=0.05
    )
    assert found.model_epsilon > 1.5
    assert found.tier == "B"
    assert "Gaussian privacy only" in str(found)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("canaries", [100, 1000])
def test_a_shared_score_is_refuted_no_more_often_than_alpha(canaries, alpha):
    """Exact: one loss for all coins, drawn from the law of 1-GDP; V is a mixture."""
    claim = GaussianDP(mu=1.0)
    chances = (np.arange(4000) + 0.5) / 4000
    loss = np.abs(
        special.ndtri(chances) + 0.5
    )  # |log-likelihood ratio| under N(1/2, 1)
    v = np.arange(canaries + 1)
    law = stats.binom.pmf(v[:, None], canaries, special.expit(loss)).mean(axis=1)

    def refutes(correct):
        return test_claim(
            claim, counts(canaries, canaries, correct), alpha=alpha
        ).refuted

    least = bisect.bisect_left(range(canaries + 1), True, lo=canaries // 2, key=refutes)
    assert law[least:].sum() <= alpha


def test_nothing_is_said_at_chance():
    found = GaussianFamily().parameter_lower(
        counts(1000, 100, 50), delta=1e-5, alpha=0.05
    )
    assert found.parameter_lower == 0.0


def test_a_curve_is_tested_at_its_best_point_without_a_charge():
    claim = PrivacyCurve(
        epsilons=np.array([0.5, 1.0, 2.0]), deltas=np.array([0.2, 1e-3, 1e-6])
    )
    seen = counts(2000, 400, 350)
    points = [
        Exact().p_value(seen, epsilon=e, delta=d)
        for e, d in ((0.5, 0.2), (1.0, 1e-3), (2.0, 1e-6))
    ]
    assert test_claim(claim, seen, alpha=0.05).p_value <= min(points) * (1 + 1e-9)
    single = test_claim(ApproxDP(epsilon=1.0, delta=1e-3), seen, alpha=0.05)
    assert single.p_value == pytest.approx(points[1])
