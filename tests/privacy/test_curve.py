"""Curves: valid once built, compared by content, never stronger than their points."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, PrivacyCurve

EPSILON = st.floats(0, 12)


def gaussian_delta(mu, epsilons):
    """The exact curve of N(0, 1) against N(mu, 1); good to about 1e-15."""
    e = np.asarray(epsilons)
    far = stats.norm.logcdf(-e / mu - mu / 2)
    return stats.norm.cdf(-e / mu + mu / 2) - np.exp(e + far)


@st.composite
def sampled_gaussians(draw):
    """A Gaussian curve known only at a few epsilons, with its mu."""
    mu = draw(st.floats(0.3, 3))
    epsilons = np.unique(draw(st.lists(EPSILON, min_size=1, max_size=8)))
    deltas = np.clip(gaussian_delta(mu, epsilons) + 1e-14, 0, 1)
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    return mu, PrivacyCurve(epsilons=epsilons, deltas=deltas)


@given(sampled_gaussians(), st.floats(0, 15))
def test_between_its_points_a_curve_is_never_below_the_truth(sampled, epsilon):
    mu, curve = sampled
    assert curve.delta_at(epsilon) >= gaussian_delta(mu, epsilon) - 1e-15


@given(sampled_gaussians(), st.floats(0.001, 0.999))
def test_its_false_alarm_rate_is_never_above_the_truth(sampled, chance):
    mu, curve = sampled
    exact = stats.norm.cdf(stats.norm.ppf(chance) - mu)
    assert curve.complement_inverse(chance) <= exact * (1 + 1e-9) + 1e-14


@given(sampled_gaussians(), st.floats(1e-10, 1))
def test_the_epsilon_at_a_delta_has_at_most_that_delta(sampled, delta):
    _, curve = sampled
    epsilon = curve.epsilon_at(delta)
    assert math.isinf(epsilon) or curve.delta_at(epsilon) <= delta


@given(sampled_gaussians(), st.floats(0, 15), st.floats(0, 3))
def test_delta_never_rises_with_epsilon(sampled, epsilon, more):
    _, curve = sampled
    assert curve.delta_at(epsilon + more) <= curve.delta_at(epsilon) * (1 + 1e-12)


@given(sampled_gaussians(), st.integers(0, 7), st.floats(0, 15), st.floats(0, 1))
def test_a_curve_with_fewer_points_is_weaker(sampled, index, epsilon, chance):
    _, curve = sampled
    rest = np.arange(len(curve.epsilons)) != index % len(curve.epsilons)
    if rest.any():
        less = PrivacyCurve(epsilons=curve.epsilons[rest], deltas=curve.deltas[rest])
        assert less.delta_at(epsilon) >= curve.delta_at(epsilon) - 1e-13
        assert less.complement_inverse(chance) <= curve.complement_inverse(chance)


def test_a_chord_is_straight_in_e_to_the_epsilon():
    curve = PrivacyCurve(epsilons=np.log([2.0, 6.0]), deltas=np.array([0.4, 0.2]))
    assert curve.delta_at(math.log(3)) == pytest.approx(0.35, rel=1e-14)
    assert curve.epsilon_at(0.25) == pytest.approx(math.log(5), rel=1e-11)


def test_left_of_its_first_point_the_line_reaches_one_at_minus_one():
    curve = PrivacyCurve(epsilons=np.log([3.0]), deltas=np.array([0.2]))
    # From (-1, 1) to (3, 0.2) the line falls by 0.2 each: 0.6 at e^epsilon = 1.
    assert curve.delta_at(0.0) == pytest.approx(0.6, rel=1e-14)


def test_right_of_its_last_point_delta_stays():
    curve = PrivacyCurve(epsilons=np.array([1.0]), deltas=np.array([1e-5]))
    assert curve.delta_at(50.0) == 1e-5
    assert curve.epsilon_at(1e-6) == math.inf


def test_chords_survive_epsilons_whose_exponential_does_not_fit():
    curve = PrivacyCurve(epsilons=np.array([0.0, 5000.0]), deltas=np.array([0.5, 0.0]))
    assert curve.delta_at(4999.0) == pytest.approx(0.5 * (1 - math.exp(-1)), rel=1e-12)
    assert curve.complement_inverse(1.0) == pytest.approx(1.0)


@given(EPSILON, st.floats(0, 1), EPSILON, st.floats(0, 1))
def test_a_curve_of_one_point_is_that_approximate_claim(epsilon, delta, at, chance):
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    curve = PrivacyCurve(epsilons=np.array([epsilon]), deltas=np.array([delta]))
    assert curve.delta_at(at) == claim.delta_at(at)
    assert curve.epsilon_at(delta) == claim.epsilon_at(delta) <= epsilon
    assert curve.complement_inverse(chance) == claim.complement_inverse(chance)


def test_curves_are_compared_by_content():
    one = PrivacyCurve(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.5, 0.0]))
    same = PrivacyCurve(epsilons=np.array([-0.0, 1.0]), deltas=np.array([0.5, -0.0]))
    longer = PrivacyCurve(epsilons=np.array([0.0]), deltas=np.array([0.5]))
    elsewhere = PrivacyCurve(
        epsilons=one.epsilons, deltas=one.deltas, adjacency=Adjacency.REPLACE_ONE
    )
    assert one == same
    assert hash(one) == hash(same)
    assert longer != one != elsewhere
    assert one != "a curve"


def test_a_curve_keeps_its_own_copy_and_cannot_be_changed():
    epsilons = np.array([0.0, 1.0])
    curve = PrivacyCurve(epsilons=epsilons, deltas=np.array([0.5, 0.1]))
    epsilons[0] = 0.5
    assert curve.epsilons[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        curve.points()[1][0] = 0.0


@pytest.mark.parametrize(
    ("epsilons", "deltas", "message"),
    [
        ([], [], "epsilons must be one row of at least one number"),
        ([[0.0]], [[0.5]], "epsilons must be one row"),
        ([0.0, 1.0], [0.5], "got 1 deltas for 2 epsilons"),
        ([-1.0, 1.0], [0.5, 0.1], r"epsilons\[0\] must be a finite number >= 0"),
        ([0.0, math.inf], [0.5, 0.1], "epsilons must be finite"),
        ([0.0, 0.0], [0.5, 0.1], "epsilons must be .* strictly increasing"),
        ([0.0, math.nan, 1.0], [0.5, 0.1, 0.1], "epsilons must be"),
        ([0.0, 1.0], [0.1, 0.5], "deltas must be .* never increase"),
        ([0.0, 1.0], [1.5, 0.5], r"deltas\[0\] must be in \[0, 1\]"),
        ([0.0, 1.0], [0.5, -0.1], "deltas must be >= 0"),
        ([0.0, 1.0, 2.0], [0.5, math.nan, 0.1], "deltas must be"),
    ],
)
def test_a_curve_without_meaning_is_refused(epsilons, deltas, message):
    with pytest.raises(InvalidInputError, match=message):
        PrivacyCurve(epsilons=np.array(epsilons), deltas=np.array(deltas))
