"""Converted curves: never below the truth, close to it, refused when meaningless."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.privacy.conversions import (
    curve_of_rdp,
    curve_of_trade_off,
    curve_of_zcdp,
)
from dpaudit.privacy.guarantees import Adjacency

EPSILONS = np.array([0.0, 0.3, 1.0, 2.0, 4.0, 6.0])


def gaussian_delta(mu, epsilons):
    """The exact curve of N(0, 1) against N(mu, 1); good to about 1e-15."""
    e = np.asarray(epsilons)
    far = stats.norm.logcdf(-e / mu - mu / 2)
    return stats.norm.cdf(-e / mu + mu / 2) - np.exp(e + far)


def by_the_paper(order, divergence, epsilon):
    """Proposition 12 of Canonne, Kamath and Steinke, term by term in 30 digits."""
    with mpmath.workdps(30):
        a = mpmath.mpf(order)
        grown = mpmath.exp((a - 1) * (mpmath.mpf(divergence) - mpmath.mpf(epsilon)))
        return min(1.0, float(grown / (a - 1) * (1 - 1 / a) ** a))


def test_zcdp_finds_the_best_order(subtests):
    for rho, epsilon in product([0.005, 0.5, 3.0], EPSILONS):
        with subtests.test(rho=rho, epsilon=epsilon):
            got = curve_of_zcdp(rho, epsilons=[epsilon]).deltas[0]
            orders = 1 + np.geomspace(1e-4, 1e4, 4001)
            grown = (orders - 1) * (rho * orders - epsilon) - np.log(orders - 1)
            rough = grown + orders * np.log1p(-1 / orders)  # in double precision
            best = orders[np.argsort(rough)[:9]]
            want = min(by_the_paper(a, rho * a, epsilon) for a in best)
            assert got <= want * (1 + 1e-11) + 1e-307
            if want > 1e-290:
                assert got >= want * (1 - 1e-2 - 2e-5 * epsilon**2 / rho)


@given(st.floats(0.05, 4))
def test_zcdp_is_weaker_than_the_gaussian_mechanism_that_attains_it(rho):
    curve = curve_of_zcdp(rho)
    exact = gaussian_delta(math.sqrt(2 * rho), curve.epsilons)
    assert (curve.deltas >= exact).all()


def test_zcdp_beats_the_classical_conversion():
    rho, delta = 0.5, 1e-5
    classical = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert 4.377 < curve_of_zcdp(rho).epsilon_at(delta) < classical - 0.3


def test_zcdp_of_nothing_implies_almost_nothing():
    assert curve_of_zcdp(0.0).delta_at(0.0) < 1e-20


def test_rdp_takes_the_best_of_its_orders():
    orders, divergences = [1.5, 3.0, 8.0, 40.0], [0.7, 1.6, 4.1, math.inf]
    curve = curve_of_rdp(orders, divergences, epsilons=EPSILONS)
    pairs = list(zip(orders[:3], divergences[:3], strict=True))
    want = [min(by_the_paper(a, d, e) for a, d in pairs) for e in EPSILONS]
    assert curve.deltas == pytest.approx(want, rel=1e-11)
    assert (curve.deltas >= want).all()


def test_rdp_with_many_orders_agrees_with_zcdp():
    orders = 1 + np.geomspace(1e-2, 1e3, 3000)
    fine = curve_of_rdp(orders, 0.5 * orders, epsilons=EPSILONS).deltas
    exact = curve_of_zcdp(0.5, epsilons=EPSILONS).deltas
    assert (fine >= exact).all()
    assert fine == pytest.approx(exact, rel=1e-4)


@given(st.floats(0.3, 2.0))
def test_a_trade_off_curve_is_never_below_the_truth_and_close_to_it(mu):
    curve = curve_of_trade_off(lambda x: special.ndtr(-special.ndtri(x) - mu))
    exact = gaussian_delta(mu, curve.epsilons)
    assert (curve.deltas >= exact).all()
    some = exact > 1e-5
    assert curve.deltas[some] == pytest.approx(exact[some], rel=1e-3)


@pytest.mark.parametrize("samples", [10, 30, 100])
def test_few_samples_of_a_trade_off_are_still_safe(samples):
    def f(x):
        return special.ndtr(-special.ndtri(x) - 1.0)

    curve = curve_of_trade_off(f, samples=samples, epsilons=EPSILONS)
    assert (curve.deltas >= gaussian_delta(1.0, EPSILONS)).all()


@given(st.floats(0, 5), st.sampled_from([0.0, 1e-5, 0.1]))
def test_a_trade_off_made_of_lines_gives_its_line_back(epsilon, delta):
    odds = math.exp(epsilon)

    def f(x):
        return max(0.0, 1 - delta - odds * x, (1 - delta - x) / odds)

    curve = curve_of_trade_off(f, epsilons=[epsilon])
    assert delta <= curve.deltas[0] <= delta + 1e-11
    assert curve_of_trade_off(f).epsilon_at(delta + 1e-6) <= epsilon + 0.01


@given(st.floats(0.2, 1.0))
def test_perfect_privacy_among_a_fraction_is_that_fraction(kept):
    """Of those outside the fraction nothing is hidden: delta is the rest, always."""
    curve = curve_of_trade_off(lambda x: kept * (1 - x))
    assert curve.delta_at(0.0) == pytest.approx(1 - kept, abs=1e-9)


def test_an_adjacency_is_passed_on():
    words = Adjacency.REPLACE_ONE
    assert curve_of_zcdp(1.0, adjacency=words).adjacency == words
    assert curve_of_rdp([2.0], [1.0], adjacency=words).adjacency == words
    assert curve_of_trade_off(lambda x: 1 - x, adjacency=words).adjacency == words


@pytest.mark.parametrize(
    ("orders", "divergences", "message"),
    [
        ([], [], "at least one"),
        ([2.0, 3.0], [1.0], "divergences must be as many as orders"),
        ([1.0], [1.0], "orders must be finite and > 1"),
        ([2.0], [-1.0], "divergences must be >= 0"),
        ([2.0], [math.nan], "divergences must be >= 0"),
        ([2.0], [math.inf], "one of them finite"),
    ],
)
def test_renyi_bounds_without_meaning_are_refused(orders, divergences, message):
    with pytest.raises(InvalidInputError, match=message):
        curve_of_rdp(orders, divergences)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: 1 - x * x, "between 0 and 1 - x"),
        (lambda x: 0.5 - x, "between 0 and 1 - x"),
        (lambda x: math.nan, "between 0 and 1 - x"),
        (lambda x: 0.25 * (1 - x * x) if x < 1 else 0.0, "convex and decreasing"),
    ],
)
def test_what_is_no_trade_off_function_is_refused(f, message):
    with pytest.raises(InvalidInputError, match=message):
        curve_of_trade_off(f)


def test_a_negative_rho_is_refused():
    with pytest.raises(InvalidInputError, match="rho must be a finite number >= 0"):
        curve_of_zcdp(-0.5)
