"""Averages over tails, against mpmath's quadrature and sums in closed form."""

import mpmath
import numpy as np
import pytest
from scipy import special

from dpaudit.mechanisms.loss_distribution import DiscreteLoss, SmoothLoss
from dpaudit.theory.integrals import tail_average


@pytest.mark.parametrize("low", [0.0, 0.5, 2.0, 30.0])
def test_an_exponential_tail_has_a_known_average(low):
    # P[|l| >= t] = e^-t: with u = e^-t the average is (1 + e^low) times the integral
    # of u / (1 + u)^2 from 0 to e^-low, ln(1 + u) - u / (1 + u) there
    loss = SmoothLoss(tail_at=lambda t: np.exp(-t), breaks=(0.0, 5.0, 60.0, 200.0))
    with mpmath.workdps(50):
        u = mpmath.exp(-low)
        expected = float((mpmath.log1p(u) - u / (1 + u)) * (1 + 1 / u))
    assert tail_average(loss, lambda q: q, low=low) == pytest.approx(
        expected, rel=1e-11
    )


@pytest.mark.parametrize("groups", [1, 1000, 10**8])
def test_a_function_that_turns_sharply_is_resolved_where_it_turns(groups):
    loss = SmoothLoss(tail_at=lambda t: np.exp(-t), breaks=(0.0, 200.0))

    def some(q):
        with np.errstate(divide="ignore"):
            return -np.expm1(groups * np.log1p(-q))

    with mpmath.workdps(30):
        expected = mpmath.quad(
            lambda t: (
                (1 - (1 - mpmath.exp(-t)) ** groups)
                * mpmath.exp(-t)
                / (1 + mpmath.exp(-t)) ** 2
            ),
            np.linspace(0, 60, 61).tolist(),
        )
    assert tail_average(loss, some) == pytest.approx(float(2 * expected), rel=1e-10)


def test_a_jump_that_was_not_announced_is_found():
    loss = SmoothLoss(
        tail_at=lambda t: np.where(t <= 1.23, 0.5, 0.0), breaks=(0.0, 9.0)
    )
    expected = 0.5 * (2 * special.expit(1.23) - 1)
    assert tail_average(loss, lambda q: q) == pytest.approx(expected, rel=1e-9)


def test_nothing_lies_above_the_last_break():
    loss = SmoothLoss(tail_at=np.ones_like, breaks=(0.0, 2.0))
    assert tail_average(loss, lambda q: q, low=2.0) == 0.0
    assert tail_average(loss, lambda q: q, low=5.0) == 0.0


@pytest.mark.parametrize("low", [0.0, 0.7, 1.0, 4.0])
def test_a_discrete_loss_is_a_sum_over_its_values(low):
    values, chances = np.array([0.5, 1.0, 3.0, np.inf]), np.array([0.1, 0.2, 0.3, 0.4])
    loss = DiscreteLoss(values=values, probabilities=chances)
    # the mean of (1 - (1 + e^low) p(-|l|))_+, value by value
    expected = sum(
        c * max(0.0, 1 - (1 + np.exp(low)) * special.expit(-v))
        for v, c in zip(values, chances, strict=True)
    )
    assert tail_average(loss, lambda q: q, low=low) == pytest.approx(expected)
