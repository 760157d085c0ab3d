"""Curves of accountants: above the truth everywhere, close to it, well refused."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dpaudit.accounting import accountant_curve, claim_of
from dpaudit.accounting.curves import _breakpoints
from dpaudit.accounting.distribution import GRID, composed, deltas_at
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency


def gaussian_delta(mu, epsilons):
    """The exact curve of N(0, 1) against N(mu, 1); good to about 1e-15."""
    e = np.asarray(epsilons)
    far = stats.norm.logcdf(-e / mu - mu / 2)
    return stats.norm.cdf(-e / mu + mu / 2) - np.exp(e + far)


def gaussian_epsilon(mu, delta):
    return optimize.brentq(lambda e: gaussian_delta(mu, e) - delta, 0, 100, xtol=1e-13)


def sampled_delta(noise, rate, epsilon):
    """The hockey-stick divergence of one sampled step, integrated, both ways."""

    def absent(x):
        return stats.norm.pdf(x, 0, noise)

    def present(x):
        return (1 - rate) * absent(x) + rate * stats.norm.pdf(x, 1, noise)

    def one_way(p, q):
        def excess(x):
            return max(0.0, p(x) - math.exp(epsilon) * q(x))

        # Where the two densities stand at the ratio, if they do: a kink.
        inside = (math.exp(epsilon) - 1 + rate) / rate
        inside = inside if p is present else (math.exp(-epsilon) - 1 + rate) / rate
        kink = [noise**2 * math.log(inside) + 0.5] if inside > 0 else []
        ends = sorted([-12 * noise, *kink, 1 + 12 * noise])
        pieces = itertools.pairwise(ends)
        return sum(
            integrate.quad(excess, a, b, epsabs=1e-14, epsrel=1e-11, limit=200)[0]
            for a, b in pieces
        )

    return max(one_way(present, absent), one_way(absent, present))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("history", "mu"),
    [
        ([(1.0, 1.0, 1)], 1.0),
        ([(4.0, 1.0, 64)], 2.0),
        ([(10.0, 1, 1), (10.0, 1, 24), (2.0, 1.0, 3)], 1.0),
        ([(0.4, 1.0, 1)], 2.5),
    ],
)
def test_without_sampling_the_curve_is_the_gaussian_one_from_above(history, mu):
    curve = accountant_curve(history)
    assert (curve.deltas >= gaussian_delta(mu, curve.epsilons)).all()
    for delta in [0.1, 1e-3, 1e-5, 1e-8]:
        exact = gaussian_epsilon(mu, delta)
        assert exact <= curve.epsilon_at(delta) <= exact * (1 + 1e-3)


def test_one_step_gives_the_published_epsilon():
    epsilon = accountant_curve([(1.9938, 1.0, 1)]).epsilon_at(1e-5)
    assert epsilon == pytest.approx(2.0, abs=5e-4)


def test_a_hundred_sampled_steps_give_the_published_epsilon():
    """Noise that the Renyi accountant asks for at epsilon = 2 in truth gives less."""
    epsilon = accountant_curve([(2.42241, 0.1, 100)]).epsilon_at(1e-5)
    assert epsilon == pytest.approx(1.815, abs=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.8, 0.5)])
def test_one_sampled_step_is_the_integral_from_above(noise, rate):
    curve = accountant_curve([(noise, rate, 1)])
    for epsilon in [0.0, 0.05, 0.3, 1.0, 2.0]:
        exact = sampled_delta(noise, rate, epsilon)
        assert exact - 1e-13 <= curve.delta_at(epsilon) <= exact * 1.001 + 1e-11


def test_many_small_steps_approach_the_gaussian_of_the_central_limit():
    """mu = q sqrt(T (e^(1/noise^2) - 1)) of Bu, Dong, Long and Su."""
    noise, rate, steps = 4.0, 0.01, 4000
    mu = rate * math.sqrt(steps * math.expm1(1 / noise**2))
    curve = accountant_curve([(noise, rate, steps)])
    # Steps of another kind, half and half, must not change what they add up to.
    halves = accountant_curve([(noise, rate, steps // 2)] * 2)
    assert curve == halves
    assert curve.epsilon_at(1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=0.05)


@pytest.mark.parametrize("kinds", [{(1.5, 0.02): 60}, {(4.0, 1.0): 10}])
def test_deltas_are_those_that_dp_accounting_computes_one_by_one(kinds):
    distribution, epsilons = composed(kinds), np.linspace(0.0, 3.0, 50)
    found = deltas_at(distribution, epsilons)
    wanted = distribution.get_delta_for_epsilon(epsilons)
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-15)


@pytest.mark.nightly
def test_composed_kinds_spend_more_than_each_alone_and_less_than_their_sum():
    sampled, full = (1.0, 0.05, 50), (5.0, 1.0, 4)
    both = accountant_curve([sampled, full]).epsilon_at(1e-5)
    parts = [accountant_curve([kind]).epsilon_at(5e-6) for kind in (sampled, full)]
    alone = [accountant_curve([kind]).epsilon_at(1e-5) for kind in (sampled, full)]
    assert max(alone) < both < sum(parts)


@pytest.mark.nightly
def test_sampling_every_record_with_almost_certainty_is_not_sampling():
    almost = accountant_curve([(4.0, 1 - 1e-9, 4)])
    full = accountant_curve([(4.0, 1.0, 4)])
    assert almost.epsilon_at(1e-5) == pytest.approx(full.epsilon_at(1e-5), rel=1e-3)


@pytest.mark.nightly
def test_a_curve_is_about_adding_or_removing_and_not_too_long():
    curve = accountant_curve([(1.0, 0.2, 10)])
    assert curve.adjacency == Adjacency.ADD_REMOVE
    assert 100 < len(curve.epsilons) <= 2000
    assert curve.epsilons[0] == 0
    assert curve.deltas[-1] < 1e-11


@pytest.mark.parametrize("end", [0.00321, 0.2, 4.66747, 61.83])
def test_points_do_not_depend_on_where_rounding_ends_a_curve(end):
    """Versions of scipy put the end of one curve a point of the grid apart."""
    first, second = (
        _breakpoints(
            SimpleNamespace(
                get_delta_for_epsilon=lambda _: 0.0,
                get_epsilon_for_delta=lambda _, at=at: at,
            )
        )
        for at in (end, end - 1.07e-4 if end > 1 else end)
    )
    assert first.tolist() == second.tolist()
    assert len(first) <= 2000
    assert end <= first[-1] <= end + first[1]
    apart = np.diff(first) / GRID
    assert apart == pytest.approx(np.full(len(apart), round(apart[0])))


def test_the_claim_of_an_accountant_is_the_curve_of_its_history():
    history = [(1.5, 0.2, 3), (1.2, 0.2, 2)]
    assert claim_of(SimpleNamespace(history=history)) == accountant_curve(history)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([], "history is empty: no step has been accounted for"),
        ([(1.0, 0.1)], r"history\[0\] must be \(noise multiplier, sample rate, steps"),
        ([(1.0, 0.1, 5), "abc"], r"history\[1\] must be"),
        ([3.0], r"history\[0\] must be"),
        ([(0.0, 0.1, 5)], r"history\[0\]: noise multiplier .* without noise"),
        ([(math.nan, 0.1, 5)], r"history\[0\]: noise multiplier"),
        ([(1.0, 1.2, 5)], r"history\[0\]: sample rate must be in \(0, 1\]"),
        (
            [(1.0, 0.1, 0)],
            r"^history\[0\]: steps must be a whole number >= 1, got steps=0",
        ),
        ([(1.0, 0.1, 2.5)], r"history\[0\]: steps must be a whole number >= 1"),
        (None, "accountant must have a history"),
        ("steps", "accountant must have a history"),
    ],
)
def test_a_history_without_meaning_is_refused(history, message):
    with pytest.raises(InvalidInputError, match=message):
        claim_of(SimpleNamespace(history=history))


def test_what_is_no_accountant_is_refused():
    with pytest.raises(InvalidInputError, match="got object with history=None"):
        claim_of(object())
