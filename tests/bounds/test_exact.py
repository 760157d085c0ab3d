"""The exact bound: right, attained, monotone, valid, useful, clear when misused."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.exact import PureBound
from dpaudit.errors import InvalidInputError, InvalidRunError


@st.composite
def counts(draw, max_canaries=60):
    canaries = draw(st.integers(1, max_canaries))
    guesses = draw(st.integers(0, canaries))
    correct = draw(st.integers(0, guesses))
    return Counts(canaries=canaries, guesses=guesses, correct=correct)


def by_the_book(counts, odds, delta):
    """The p-value in exact arithmetic, summed term by term."""
    m, r, v = counts.canaries, counts.guesses, counts.correct
    if v == 0:
        return Fraction(1)
    q = odds / (1 + odds)
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    beta = sum(pmf[v:], Fraction(0))
    return min(Fraction(1), beta + m * delta * beta * (1 - beta) / (v * pmf[v]))


@given(counts(), st.integers(1, 50), st.sampled_from([0, 1e-6, 1e-3]))
def test_p_value_agrees_with_exact_arithmetic(counts, odds, delta):
    got = ExactBound().p_value(counts, epsilon=math.log(odds), delta=delta)
    want = by_the_book(counts, Fraction(odds), Fraction(delta))
    assert got == pytest.approx(float(want), rel=1e-7, abs=1e-13)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta", "largest_p_value"),
    [
        (2, 2, 1, 1.0, 0.01, 0.93108322),
        (3, 3, 2, 1.0, 0.01, 0.82700799),
        (4, 4, 3, 2.0, 0.05, 0.94141459),
        (4, 2, 2, 0.5, 0.1, 0.50996450),
    ],
)
def test_some_mechanism_attains_it(m, r, v, epsilon, delta, largest_p_value):
    """The optimum of a linear program over all mechanisms, solved elsewhere."""
    counts = Counts(canaries=m, guesses=r, correct=v)
    got = ExactBound().p_value(counts, epsilon=epsilon, delta=delta)
    assert got == pytest.approx(largest_p_value, abs=1e-8)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta", "p_value"),
    [
        (100, 100, 75, math.log(3), 0.0, 0.5534708238),
        (100, 100, 75, 0.6, 1e-4, 0.01732059226),
        (1000, 100, 75, 0.6, 1e-4, 0.02002590079),
        (100_000, 1510, 1439, 2.7, 1e-5, 0.007166941627),
        (5000, 500, 400, 1.15, 1e-5, 0.01843366143),
        (16_000, 369, 280, 0.85, 1e-5, 0.009626046077),
        (1000, 1000, 1000, 5.5, 1e-5, 0.01694363716),
    ],
)
def test_p_value_gives_the_published_vectors(m, r, v, epsilon, delta, p_value):
    """Computed elsewhere, printed to ten digits."""
    counts = Counts(canaries=m, guesses=r, correct=v)
    got = ExactBound().p_value(counts, epsilon=epsilon, delta=delta)
    assert float(f"{got:.10g}") == pytest.approx(p_value, rel=1.1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "epsilon_lower"),
    [
        (100, 100, 75, 0.0, 0.702214),
        (100, 100, 75, 1e-4, 0.701518),
        (1000, 100, 75, 1e-4, 0.695126),
        (100_000, 1510, 1439, 1e-5, 2.802838),
        (5000, 500, 400, 1e-5, 1.198044),
        (16_000, 369, 280, 1e-5, 0.938374),
    ],
)
def test_epsilon_lower_gives_the_published_vectors(m, r, v, delta, epsilon_lower):
    counts = Counts(canaries=m, guesses=r, correct=v)
    found = ExactBound().epsilon_lower(counts, delta=delta, alpha=0.05).epsilon_lower
    assert found == pytest.approx(epsilon_lower, abs=6e-7)


@given(counts(), st.floats(0, 8), st.floats(0, 2), st.sampled_from([0, 1e-5]))
def test_p_value_never_falls_as_the_claim_gets_weaker(counts, epsilon, more, delta):
    strict = ExactBound().p_value(counts, epsilon=epsilon, delta=delta)
    loose = ExactBound().p_value(counts, epsilon=epsilon + more, delta=delta)
    assert strict <= loose * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_the_bound_is_wrong_no_more_often_than_it_says(epsilon, alpha):
    """Exact coverage on randomised response: every count, weighted, no sampling."""
    canaries = 100
    chance = stats.binom.pmf(np.arange(canaries + 1), canaries, special.expit(epsilon))

    def bound(correct):
        counts = Counts(canaries=canaries, guesses=canaries, correct=correct)
        return ExactBound().epsilon_lower(counts, delta=0.0, alpha=alpha).epsilon_lower

    wrong = sum(p for correct, p in enumerate(chance) if bound(correct) > epsilon)
    assert wrong <= alpha


def test_the_bound_finds_most_of_a_large_epsilon():
    counts = Counts(canaries=1000, guesses=1000, correct=982)  # about expit(4)
    found = ExactBound().epsilon_lower(counts, delta=1e-5, alpha=0.05).epsilon_lower
    assert 3.4 < found < 4.0


@pytest.mark.parametrize("correct", [0, 25, 50])
def test_says_nothing_at_or_below_chance(correct):
    counts = Counts(canaries=1000, guesses=100, correct=correct)
    assert (
        ExactBound().epsilon_lower(counts, delta=1e-5, alpha=0.05).epsilon_lower == 0.0
    )


@pytest.mark.parametrize("v", [12, 17, 19, 20])
def test_the_worst_mechanism_is_refuted_as_often_as_the_p_value_says(v):
    """The law of V under the mechanism that attains the bound, in rationals."""
    m, r, delta, odds = 40, 20, Fraction(1, 1000), Fraction(3)
    q = odds / (1 + odds)
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    beta = sum(pmf[v:])
    more = m * delta / (v * pmf[v])
    less = 1 - more * beta
    law = [less * b + (more * b if k >= v else 0) for k, b in enumerate(pmf)]
    assert sum(law) == 1
    assert min(law) >= 0
    # Each coin's hockey-stick divergence at this epsilon is delta: the law is legal.
    steps = [
        Fraction(k, r) * law[k] - odds * Fraction(r - k + 1, r) * law[k - 1]
        for k in range(1, r + 1)
    ]
    down = [
        Fraction(r - k, r) * law[k] - odds * Fraction(k + 1, r) * law[k + 1]
        for k in range(r)
    ]
    assert sum(max(x, 0) for x in steps + down) <= Fraction(m, r) * delta
    counts = Counts(canaries=m, guesses=r, correct=v)
    got = ExactBound().p_value(counts, epsilon=math.log(3), delta=float(delta))
    assert got == pytest.approx(float(sum(law[v:])), rel=1e-10)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("bound", [ExactBound(), PureBound()])
def test_a_function_of_epsilon_says_what_a_p_value_says(bound, delta):
    seen = Counts(canaries=50, guesses=40, correct=31)
    if delta and bound == PureBound():
        with pytest.raises(InvalidInputError, match="pure bound is for delta=0"):
            bound.log_p_of(seen, delta=delta)
        return
    found = bound.log_p_of(seen, delta=delta)
    for epsilon in (0.0, 0.3, 2.0, 50.0):
        want = bound.log_p_value(seen, epsilon=epsilon, delta=delta)
        assert found(epsilon) == want


def test_a_function_of_epsilon_is_refused_where_a_p_value_is():
    seen = Counts(canaries=50, guesses=40, correct=31)
    with pytest.raises(InvalidInputError, match="delta must be"):
        ExactBound().log_p_of(seen, delta=1.5)
    revealed = replace(seen, adaptive=True)
    for bound in (ExactBound(), PureBound()):
        with pytest.raises(InvalidRunError, match="use the adaptive bound"):
            bound.log_p_of(revealed, delta=0.0)


def test_points_together_are_points_one_by_one():
    seen = Counts(canaries=50, guesses=40, correct=31)
    epsilons, deltas = np.array([0.0, 0.5, 2.0]), np.array([0.1, 1e-3, 0.0])
    want = [
        ExactBound().log_p_value(seen, epsilon=epsilon, delta=delta)
        for epsilon, delta in zip(epsilons, deltas, strict=True)
    ]
    assert ExactBound().log_p_values(seen, epsilons, deltas).tolist() == want
