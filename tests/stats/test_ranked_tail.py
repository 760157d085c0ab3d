"""Crossing chances and their price against rationals, plain sums, and each other."""

import itertools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.stats.binomial import log_mass, log_tails
from dpaudit.stats.ranked_tail import (
    cap_bound,
    crossing,
    least_log_tail,
    shell_cap,
    thresholds,
)


@st.composite
def designs(draw, most=9):
    """Draw looks, and for each a threshold between 0 and one more than can be."""
    looks = sorted(draw(st.sets(st.integers(1, most), min_size=1, max_size=4)))
    return looks, [draw(st.integers(0, k + 1)) for k in looks]


def pmf(n, p):
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def chance_by_enumeration(looks, counts, p):
    """Add up every sequence of trials that crosses, in exact arithmetic."""
    total = Fraction(0)
    for walk in itertools.product([0, 1], repeat=looks[-1]):
        if any(sum(walk[:k]) >= c for k, c in zip(looks, counts, strict=True)):
            total += p ** sum(walk) * (1 - p) ** (len(walk) - sum(walk))
    return total


def stein_solutions(looks, counts, p):
    """Return the exact Stein solutions, one list for each shell.

    Nothing of the formula is used: ``k y_k - odds (n - k) y_{k+1} = g(k) - mean`` is
    solved upwards from ``k = 0``, for every count with which a shell may begin.
    """
    sizes = [b - a for a, b in itertools.pairwise([0, *looks])]
    odds = p / (1 - p)

    def hit(j, v):  # chance of a crossing from look j on, with v successes there
        if v >= counts[j]:
            return Fraction(1)
        if j + 1 == len(looks):
            return Fraction(0)
        return sum(b * hit(j + 1, v + c) for c, b in enumerate(pmf(sizes[j + 1], p)))

    found = []
    for j, n in enumerate(sizes):
        begins = range(looks[j] - n + 1) if j else [0]
        shell = []
        for w in begins:
            if j and w >= counts[j - 1]:
                continue
            g = [hit(j, w + c) for c in range(n + 1)]
            mean = sum(b * x for b, x in zip(pmf(n, p), g, strict=True))
            y = Fraction(0)
            for k in range(n):
                y = (k * y - (g[k] - mean)) / (odds * (n - k))
                shell.append(y)
            assert n * y == g[n] - mean  # the last equation, left over as a check
        found.append(shell)
    return found


@given(designs(), st.integers(1, 8))
def test_the_chance_agrees_with_every_walk_counted(design, odds):
    looks, counts = design
    want = float(chance_by_enumeration(looks, counts, Fraction(odds, 1 + odds)))
    got = crossing(looks, counts, math.log(odds)).probability
    assert want <= got + 1e-15
    assert got <= want + 1e-11


@given(designs(most=7), st.integers(1, 8))
def test_the_price_is_at_least_every_stein_solution(design, odds):
    looks, counts = design
    solutions = stein_solutions(looks, counts, Fraction(odds, 1 + odds))
    got = crossing(looks, counts, math.log(odds)).price
    assert all(y >= 0 for shell in solutions for y in shell)
    assert all(float(y) <= got * (1 + 1e-15) for shell in solutions for y in shell)


@given(st.integers(1, 12), st.integers(1, 8), st.data())
def test_the_price_of_one_look_is_its_largest_stein_solution(k, odds, data):
    count = data.draw(st.integers(1, k))
    (solutions,) = stein_solutions([k], [count], Fraction(odds, 1 + odds))
    got = crossing([k], [count], math.log(odds)).price
    assert got == pytest.approx(float(max(solutions)), rel=2e-9, abs=1e-12)


def plain_walk(looks, counts, p):
    """Follow the law of the count trial by trial; return what crossed."""
    law, crossed = np.ones(1), 0.0
    for k in range(1, looks[-1] + 1):
        law = np.append(law * (1 - p), 0.0) + np.append(0.0, law * p)
        if k in looks:
            stop = counts[looks.index(k)]
            crossed += law[stop:].sum()
            law[stop:] = 0.0
    return crossed


def test_the_chance_agrees_with_a_walk_of_thousands_of_trials(subtests):
    for epsilon, level, looks in product(
        [0.0, 1.0, 4.0],
        [0.05, 1e-6],
        [[20, 60, 120, 240, 2000], [500, 1500, 3000], [3, 9, 1500], [2000]],
    ):
        with subtests.test(epsilon=epsilon, level=level, looks=looks):
            counts = thresholds(looks, epsilon, level * 0.5 ** np.arange(len(looks)))
            want = plain_walk(looks, counts, float(special.expit(epsilon)))
            got = crossing(looks, counts, epsilon).probability
            assert want <= got + 1e-14
            assert got <= want + 1e-11


def test_one_look_is_never_understated_however_many_trials(subtests):
    for n, epsilon, level in product(
        [1000, 10**6, 10**9], [0.0, 2.0, 8.0], [0.3, 0.01, 1e-8]
    ):
        with subtests.test(n=n, epsilon=epsilon, level=level):
            (count,) = thresholds([n], epsilon, [level])
            found = crossing([n], [count], epsilon)
            upper, lower = log_tails(count, n, epsilon)
            assert math.exp(upper) <= found.probability <= math.exp(upper) + 1e-11
            if count <= n:
                mass = float(log_mass(count, n, epsilon))
                solution = math.exp(upper + lower - mass) / count
                assert solution <= found.price <= solution * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 3.0])
def test_splitting_a_million_trials_into_looks_that_never_cross_changes_nothing(
    epsilon,
):
    n = 10**6
    (count,) = thresholds([n], epsilon, [0.02])
    looks = [1000, 30_000, 400_000, n]
    many = crossing(looks, [k + 1 for k in looks[:-1]] + [count], epsilon)
    tail = math.exp(log_tails(count, n, epsilon)[0])
    assert tail <= many.probability <= tail + 1e-11


@given(st.integers(1, 25), st.integers(1, 40))
def test_the_cap_of_a_shell_agrees_with_exact_arithmetic(n, odds):
    b = pmf(n, Fraction(odds, 1 + odds))
    want = max(sum(b[k:]) * sum(b[:k]) / (k * b[k]) for k in range(1, n + 1))
    got = shell_cap(n, math.log(odds))
    assert float(want) <= got <= float(want) * (1 + 1e-8)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.0, 4.0, 8.0])
def test_the_cap_falls_with_the_shell_as_concentration_says(epsilon):
    """T4: at most 0.938 sqrt(e^-epsilon / (n - 1)), so larger shells cost less."""
    sizes = np.array([1, 2, 3, 5, 10, 30, 100, 1000, 10**5, 10**7])
    bounds = cap_bound(sizes, epsilon)
    assert bounds[0] == np.inf
    for n, most in zip(sizes[1:].tolist(), bounds[1:], strict=True):
        assert most == pytest.approx(0.938 * math.sqrt(math.exp(-epsilon) / (n - 1)))
        assert shell_cap(n, epsilon) <= most


@pytest.mark.parametrize("looks", [[20, 60, 120, 240, 2000], [30, 90, 150], [5, 10]])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_no_shell_is_dearer_than_the_price(looks, epsilon):
    """Those that are left out, as T4 has them cheaper, included."""
    counts = thresholds(looks, epsilon, 0.02 * 0.5 ** np.arange(len(looks)))
    found = crossing(looks, counts, epsilon)
    caps = [shell_cap(n, epsilon) for n in np.diff(looks).tolist()]
    assert found.price >= max(caps)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_the_least_tail_is_that_of_asking_all(epsilon, share):
    """Also where all of them, or some, are below the smallest float."""
    weights = np.maximum(0.5 ** np.arange(6), 0.02)
    for first in (3, 40, 3000):
        looks = first * np.array([1, 3, 6, 12, 24, 48])
        counts = (share * looks).astype(int)
        pairs = zip(counts.tolist(), looks.tolist(), strict=True)
        all_tails = [log_tails(v, k, epsilon)[0] for v, k in pairs]
        want = min(np.array(all_tails) - np.log(weights))
        assert least_log_tail(looks, counts, epsilon, weights) == want


@given(st.integers(1, 300), st.floats(0, 5), st.floats(1e-9, 0.6))
def test_a_threshold_is_the_least_count_whose_tail_is_small_enough(k, epsilon, level):
    (found,) = thresholds([k], epsilon, [level])
    tail = stats.binom.sf(np.array([found - 2, found - 1]), k, special.expit(epsilon))
    assert tail[1] <= level * (1 + 1e-9)
    assert tail[0] > level * (1 - 1e-9)


@given(designs(), st.floats(0, 3), st.floats(0, 1))
def test_the_chance_never_falls_as_trials_get_better(design, epsilon, more):
    looks, counts = design
    before = crossing(looks, counts, epsilon).probability
    assert before <= crossing(looks, counts, epsilon + more).probability + 1e-11


def test_a_crossing_that_cannot_be_has_no_chance_and_one_that_must_be_has_one():
    assert crossing([5, 10], [6, 11], 1.0).probability <= 1e-12
    assert crossing([5, 10], [6, 0], 1.0).probability == 1.0


@pytest.mark.parametrize("n", [300, 1000, 100_000])
def test_a_threshold_far_out_is_not_priced_too_low(n):
    """Eight to twelve standard deviations out, where the windows end."""
    for deviations in [*np.arange(8, 12, 0.25), *np.arange(-12, -8, 0.25)]:
        count = min(n, int(n / 2 + deviations * math.sqrt(n) / 2))
        upper, lower = log_tails(count, n, 0.0)
        want = math.exp(upper + lower - float(log_mass(count, n, 0.0))) / count
        assert crossing([n], [count], 0.0).price >= want * (1 - 1e-12)


def test_a_look_that_nearly_always_crosses_leaves_nothing_to_the_next():
    """Ten of a thousand fair coins, 31 standard deviations below what they show."""
    found = crossing([1000, 2000], [10, 1500], 0.0)
    assert 1 - 1e-12 <= found.probability <= 1.0
    assert 1 - 1e-12 <= crossing([1000], [10], 0.0).probability <= 1.0


def test_a_tail_that_is_exactly_the_level_is_small_enough():
    """One head of one has chance 1/2, two of two 1/4: both are floats."""
    assert thresholds([1, 2], 0.0, [0.5, 0.25]) == [1, 2]
