"""Bounds that others published, against the numbers they print and our own oracles."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.bounds import Counts
from dpaudit.bounds.exact import PureBound
from dpaudit.bounds.steinke import SteinkeBound


def counts(m, r, v):
    return Counts(canaries=m, guesses=r, correct=v)


def steinke_by_the_book(m, r, v, epsilon, delta):
    """The published formula, term by term, with scipy's binomial."""
    law = stats.binom(r, special.expit(epsilon))
    i = np.arange(1, v + 1)
    slope = ((law.cdf(v - 1) - law.cdf(v - 1 - i)) / i).max()
    return min(1.0, law.sf(v - 1) + 2 * m * delta * slope)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta", "p_value"),
    [
        (100, 100, 75, 0.6, 1e-4, 0.01814295946),
        (1000, 100, 75, 0.6, 1e-4, 0.02824957274),
        (100_000, 1510, 1439, 2.7, 1e-5, 0.05544665607),
        (5000, 500, 400, 1.15, 1e-5, 0.02073907091),
        (16_000, 369, 280, 0.85, 1e-5, 0.01658018037),
        (1000, 1000, 1000, 5.5, 1e-5, 0.01996357681),
    ],
)
def test_steinke_gives_the_vectors_and_the_formula(m, r, v, epsilon, delta, p_value):
    got = math.exp(
        SteinkeBound().log_p_value(counts(m, r, v), epsilon=epsilon, delta=delta)
    )
    assert got == pytest.approx(p_value, rel=1e-9)
    assert got == pytest.approx(steinke_by_the_book(m, r, v, epsilon, delta), rel=1e-7)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "epsilon_lower"),
    [
        (100, 100, 75, 1e-4, 0.699467),
        (1000, 100, 75, 1e-4, 0.672985),
        (100_000, 1510, 1439, 1e-5, 2.675851),
        (5000, 500, 400, 1e-5, 1.195218),
        (16_000, 369, 280, 1e-5, 0.927518),
    ],
)
def test_steinke_gives_the_published_bounds(m, r, v, delta, epsilon_lower):
    found = SteinkeBound().epsilon_lower(counts(m, r, v), delta=delta, alpha=0.05)
    assert found.epsilon_lower == pytest.approx(epsilon_lower, abs=6e-7)


def test_steinke_agrees_with_the_formula_at_every_corner(subtests):
    for v, epsilon, delta in product([1, 50, 75, 100], [0.0, 0.5, 4.0], [0.0, 1e-3]):
        with subtests.test(v=v, epsilon=epsilon, delta=delta):
            got = SteinkeBound().log_p_value(
                counts(300, 100, v), epsilon=epsilon, delta=delta
            )
            want = steinke_by_the_book(300, 100, v, epsilon, delta)
            assert math.exp(got) == pytest.approx(want, rel=1e-6, abs=1e-12)


def test_the_published_formula_can_be_exceeded_where_it_is_large():
    """An explicit mechanism: m = r = 2, epsilon = 1, delta = 0.01, chance 0.93108."""
    law, odds, m, r = (0.06892, 0.39467, 0.53641), math.e, 2, 2
    up = [k / r * law[k] - odds * (r - k + 1) / r * law[k - 1] for k in (1, 2)]
    down = [(r - k) / r * law[k] - odds * (k + 1) / r * law[k + 1] for k in (0, 1)]
    assert sum(max(x, 0) for x in up + down) <= m / r * 0.01 + 1e-4  # it is legal
    published = math.exp(
        SteinkeBound().log_p_value(counts(2, 2, 1), epsilon=1.0, delta=0.01)
    )
    assert published < law[1] + law[2] - 4e-4


@pytest.mark.parametrize(
    ("r", "v"), [(100, 75), (10_000, 10_000), (1000, 982), (30, 16)]
)
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_pure_is_a_beta_quantile(r, v, alpha):
    rate = special.betaincinv(v, r - v + 1, alpha)
    want = max(0.0, math.log(rate / (1 - rate)))
    found = PureBound().epsilon_lower(counts(r, r, v), delta=0.0, alpha=alpha)
    assert found.epsilon_lower == pytest.approx(want, abs=1e-8)
