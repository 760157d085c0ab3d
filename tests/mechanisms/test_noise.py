"""Noise: densities, draws, and what each guarantees."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.noise import (
    GaussianNoise,
    GeometricNoise,
    LaplaceNoise,
    NoNoise,
)
from dpaudit.privacy.guarantees import Adjacency

WIDE = np.arange(-4000, 4001)


@given(st.floats(0.05, 20.0))
def test_geometric_chances_add_up_and_fall_by_e_to_the_epsilon(epsilon):
    chances = np.exp(GeometricNoise(epsilon=epsilon).log_density(WIDE))
    assert math.isclose(chances.sum(), 1.0, rel_tol=1e-9)
    want = stats.dlaplace(epsilon).pmf([-2, 0, 1, 3])
    found = np.exp(GeometricNoise(epsilon=epsilon).log_density(np.array([-2, 0, 1, 3])))
    np.testing.assert_allclose(found, want, rtol=1e-9)


@given(st.floats(0.1, 5.0), st.floats(-10.0, 10.0))
def test_densities_are_those_of_scipy(scale, residual):
    at = np.array([residual])
    laplace = LaplaceNoise(epsilon=1 / scale).log_density(at)
    gauss = GaussianNoise(sigma=scale).log_density(at)
    want = stats.laplace(scale=scale).logpdf(at), stats.norm(scale=scale).logpdf(at)
    np.testing.assert_allclose(laplace, want[0], atol=1e-12)
    np.testing.assert_allclose(gauss, want[1], atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (LaplaceNoise(epsilon=2.0), stats.laplace(scale=0.5)),
        (GaussianNoise(sigma=3.0), stats.norm(scale=3.0)),
    ],
    ids=["Laplace", "Gaussian"],
)
def test_continuous_draws_follow_their_law(noise, law):
    """Fixed seed; a Kolmogorov-Smirnov test that fails by chance once in 10^6."""
    drawn = noise.draw(20_000, np.random.default_rng(6))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_geometric_draws_follow_their_law(epsilon):
    """Fixed seed; a chi-square test that fails by chance once in 10^6."""
    drawn = GeometricNoise(epsilon=epsilon).draw(20_000, np.random.default_rng(6))
    law = stats.dlaplace(epsilon)
    edges = [k for k in range(-20, 21) if 20_000 * law.pmf(k) > 20]
    low, high = min(edges), max(edges)
    want = [law.cdf(low), *law.pmf(range(low + 1, high)), law.sf(high - 1)]
    inside = [np.count_nonzero(drawn == k) for k in range(low + 1, high)]
    seen = [np.count_nonzero(drawn <= low), *inside, np.count_nonzero(drawn >= high)]
    assert stats.chisquare(seen, 20_000 * np.array(want)).pvalue > 1e-6


def test_no_noise_is_none():
    assert not NoNoise().draw(5, np.random.default_rng(1)).any()
    found = NoNoise().log_density(np.array([-1, 0, 2]))
    np.testing.assert_array_equal(found, [-np.inf, 0.0, -np.inf])
    assert NoNoise().guarantee.delta_at(100.0) == 1.0


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 0.999, 1.001])
def test_geometric_noise_guarantees_what_it_says_and_no_more(epsilon):
    noise = GeometricNoise(epsilon=1.0)
    here, there = (np.exp(noise.log_density(WIDE - shift)) for shift in (0, 1))
    delta = np.maximum(0.0, here - math.exp(epsilon) * there).sum()
    found = noise.guarantee.delta_at(epsilon)
    assert math.isclose(found, delta, rel_tol=1e-9, abs_tol=1e-12)
    assert noise.guarantee.adjacency is Adjacency.REPLACE_ONE


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 0.99, 1.01, 2.5])
@pytest.mark.parametrize(
    ("noise", "exact"),
    [(LaplaceNoise(epsilon=1.0), False), (GaussianNoise(sigma=0.8), True)],
    ids=["Laplace", "Gaussian"],
)
def test_continuous_noise_guarantees_what_it_says(noise, exact, epsilon):
    def excess(x):
        here, there = np.exp(noise.log_density(np.array([x, x - 1])))
        return max(0.0, here - math.exp(epsilon) * there)

    delta = integrate.quad(excess, -40, 40, limit=500, points=[0.0, 0.5, 1.0])[0]
    found = noise.guarantee.delta_at(epsilon)
    assert found >= delta - 1e-8
    assert not exact or math.isclose(found, delta, rel_tol=1e-6)


def test_the_epsilon_of_laplace_noise_is_reached():
    noise = LaplaceNoise(epsilon=1.7)
    assert noise.guarantee.epsilon == 1.7
    below, at = noise.log_density(np.array([-1.0, -2.0]))
    assert math.isclose(below - at, 1.7)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_noise_must_have_a_size(value):
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        GeometricNoise(epsilon=value)
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        LaplaceNoise(epsilon=value)
    with pytest.raises(InvalidInputError, match="sigma must be"):
        GaussianNoise(sigma=value)
