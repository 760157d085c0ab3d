"""Bounds against whole curves: published values, oracles, validity, certificates."""

import bisect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from dpaudit import ApproxDP, GaussianDP, PrivacyCurve, PureDP
from dpaudit.bounds import Counts, CurveCertificate, ExactBound, judge_claim
from dpaudit.bounds.curve import (
    GaussianFamily,
    certified_tail,
    curve_log_p_value,
    lines_log_p_value,
    pointwise_log_p_value,
    recursion,
)
from dpaudit.errors import InvalidInputError


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
        return judge_claim(
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
        ExactBound().p_value(seen, epsilon=e, delta=d)
        for e, d in ((0.5, 0.2), (1.0, 1e-3), (2.0, 1e-6))
    ]
    assert judge_claim(claim, seen, alpha=0.05).p_value <= min(points) * (1 + 1e-9)
    single = judge_claim(ApproxDP(epsilon=1.0, delta=1e-3), seen, alpha=0.05)
    assert single.p_value == pytest.approx(points[1])


# Several points of a curve together: exact, certified, and silent at chance.


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
    want = ExactBound().log_p_value(counts(m, r, v), epsilon=0.6, delta=1e-4)
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
    seen = counts(1000, 200, 150)
    mu = GaussianFamily().parameter_lower(seen, delta=1e-5, alpha=0.05).parameter_lower
    claim = GaussianDP(mu=1.005 * mu)
    got = lines_log_p_value(seen, claim, lines=8)
    assert got <= math.log(0.05) < curve_log_p_value(seen, claim)
    assert lines_log_p_value(seen, GaussianDP(mu=1.1 * mu), lines=8) > math.log(0.05)


def test_several_points_say_nothing_at_chance():
    claim = GaussianDP(mu=1.0)
    assert lines_log_p_value(counts(40, 40, 20), claim, lines=6) > math.log(0.5)
    assert lines_log_p_value(counts(40, 40, 0), claim, lines=6) == 0.0


# The whole-curve certificate: consistent, simultaneous, valid.


@pytest.mark.parametrize(
    ("m", "r", "v"), [(1000, 100, 90), (100_000, 1510, 1439), (300, 300, 240)]
)
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_at_its_delta_the_exact_p_value_is_alpha(m, r, v, alpha):
    seen = Counts(canaries=m, guesses=r, correct=v)
    certificate = CurveCertificate(counts=seen, alpha=alpha)
    for epsilon in (0.1, 0.5, 0.8):
        (delta,) = certificate.delta_lower(epsilon)
        if 0 < delta < 1:
            p_value = ExactBound().p_value(seen, epsilon=epsilon, delta=delta)
            assert p_value == pytest.approx(alpha, rel=1e-9)


def test_it_says_nothing_above_the_pure_bound_and_falls_with_epsilon():
    seen = Counts(canaries=1000, guesses=100, correct=90)
    certificate = CurveCertificate(counts=seen, alpha=0.05)
    top = ExactBound().epsilon_lower(seen, delta=0.0, alpha=0.05).epsilon_lower
    assert certificate.delta_lower([top + 1e-6, 20.0]).tolist() == [0.0, 0.0]
    deltas = certificate.delta_lower(np.linspace(0, top - 0.01, 50))
    assert np.all(np.diff(deltas) < 0)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_it_crosses_the_true_curve_no_more_often_than_alpha(alpha):
    """Exact: 300 coins share one loss drawn from the law of 1-GDP."""
    n = 300
    loss = np.abs(special.ndtri((np.arange(4000) + 0.5) / 4000) + 0.5)
    v = np.arange(n + 1)
    law = stats.binom.pmf(v[:, None], n, special.expit(loss)).mean(axis=1)
    truth = GaussianDP(mu=1.0)

    def crosses(correct):
        seen = Counts(canaries=n, guesses=n, correct=correct)
        return CurveCertificate(counts=seen, alpha=alpha).refutes(truth)

    least = bisect.bisect_left(range(n + 1), True, lo=n // 2, key=crosses)
    assert not crosses(least - 1)
    assert law[least:].sum() <= alpha
    assert alpha < 0.05 or law[least:].sum() > 0.1 * alpha  # it is not idle either


def test_a_leak_is_refuted_and_an_honest_mechanism_is_not():
    right = {mu: round(1000 * math.erf(mu / 2 / 2**0.5) / 2 + 500) for mu in (1, 4)}
    honest = Counts(canaries=1000, guesses=1000, correct=right[1])
    leaking = Counts(canaries=1000, guesses=1000, correct=right[4])
    claim = GaussianDP(mu=1.0)
    assert not CurveCertificate(counts=honest, alpha=0.05).refutes(claim)
    assert CurveCertificate(counts=leaking, alpha=0.05).refutes(claim)


@pytest.mark.parametrize("correct", [0, 50, 57])
def test_what_says_nothing_refutes_nothing(correct):
    seen = Counts(canaries=100, guesses=100, correct=correct)
    certificate = CurveCertificate(counts=seen, alpha=0.05)
    assert not certificate.refutes(PureDP(epsilon=1.0))
    assert not certificate.refutes(GaussianDP(mu=1.0))


def test_a_chance_of_being_wrong_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match=r"^alpha is the significance level"):
        CurveCertificate(counts=Counts(canaries=1, guesses=1, correct=1), alpha=0.95)
