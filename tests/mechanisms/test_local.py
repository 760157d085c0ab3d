"""Local mechanisms, held against their densities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.privacy.guarantees import Adjacency, GaussianDP, PureDP

epsilons = st.floats(0.05, 8.0)
outputs = st.floats(-6.0, 6.0)


@given(epsilons, outputs)
def test_log_odds_of_local_laplace_are_the_ratio_of_densities(epsilon, output):
    here, there = (stats.laplace(x, 2 / epsilon).logpdf(output) for x in (1, -1))
    found = LocalLaplace(epsilon=epsilon).log_odds(np.array([output]))
    np.testing.assert_allclose(found, here - there, rtol=1e-9, atol=1e-12)
    assert abs(found[0]) <= epsilon


@given(st.floats(0.2, 5.0), outputs)
def test_log_odds_of_local_gaussian_are_the_ratio_of_densities(sigma, output):
    here, there = (stats.norm(x, sigma).logpdf(output) for x in (1, 0))
    found = LocalGaussian(sigma=sigma).log_odds(np.array([output]))
    np.testing.assert_allclose(found, here - there, rtol=1e-9, atol=1e-9)


@given(epsilons)
def test_randomised_response_has_one_size_of_loss(epsilon):
    mechanism = LocalRandomisedResponse(epsilon=epsilon)
    (kind,) = mechanism.loss_distribution(50).kinds
    assert (kind.probability, kind.groups, kind.size) == (1.0, 50, 1)
    assert kind.loss.tail(epsilon) == 1
    assert kind.loss.tail(np.nextafter(epsilon, 9.0)) == 0


@given(epsilons, st.floats(0.0, 1.2))
def test_the_tail_of_local_laplace_is_an_integral(epsilon, part):
    size = part * epsilon
    law = stats.laplace(1, 2 / epsilon)  # by symmetry, for a coin of +1
    edge = size / epsilon
    want = law.sf(edge) + law.cdf(-edge) if part <= 1 else 0.0
    (kind,) = LocalLaplace(epsilon=epsilon).loss_distribution(3).kinds
    assert kind.loss.supremum == epsilon
    if part < 0.999 or part > 1.001:
        assert math.isclose(kind.loss.tail(size), want, rel_tol=1e-9)


@given(st.floats(0.2, 5.0), st.floats(0.0, 20.0))
def test_the_tail_of_local_gaussian_is_an_integral(sigma, size):
    law = stats.norm(1, sigma)
    above, below = 0.5 + size * sigma**2, 0.5 - size * sigma**2
    (kind,) = LocalGaussian(sigma=sigma).loss_distribution(3).kinds
    want = law.sf(above) + law.cdf(below)
    assert math.isclose(kind.loss.tail(size), want, rel_tol=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [LocalRandomisedResponse(epsilon=1.2), LocalLaplace(epsilon=1.2)]
    + [LocalGaussian(sigma=sigma) for sigma in (0.05, 0.8, 7.0)],
    ids=str,
)
def test_runs_have_the_losses_of_the_law(mechanism):
    """Fixed seed; 5 sizes of loss, each more than 5 deviations off once in 10^6."""
    n, rng = 200_000, np.random.default_rng(4)
    data = mechanism.pairs.choose(rng.integers(0, 2, n))
    losses = np.abs(mechanism.log_odds(mechanism.run(data, rng)))
    (kind,) = mechanism.loss_distribution(n).kinds
    for size in np.quantile(losses, [0.05, 0.3, 0.5, 0.8, 0.99]):
        want = kind.loss.tail(size * (1 - 1e-12))
        seen = np.mean(losses >= size * (1 - 1e-12))
        assert abs(seen - want) <= 5 * math.sqrt(want * (1 - want) / n) + 1e-12


def test_guarantees_are_those_of_replacing_an_element():
    replace_one = Adjacency.REPLACE_ONE
    want = PureDP(epsilon=0.5, adjacency=replace_one)
    assert LocalRandomisedResponse(epsilon=0.5).guarantee == want
    assert LocalLaplace(epsilon=0.5).guarantee == want
    want = GaussianDP(mu=0.5, adjacency=replace_one)
    assert LocalGaussian(sigma=2.0).guarantee == want


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_local_gaussian_spends_exactly_its_curve(epsilon):
    here, there = stats.norm(1, 1.3), stats.norm(0, 1.3)

    def excess(x):
        return max(0.0, here.pdf(x) - math.exp(epsilon) * there.pdf(x))

    edge = 0.5 + epsilon * 1.3**2
    delta = integrate.quad(excess, edge, 30, epsabs=1e-14)[0]
    found = LocalGaussian(sigma=1.3).guarantee.delta_at(epsilon)
    assert math.isclose(found, delta, rel_tol=1e-7)


def test_randomised_response_stays_in_small_integers():
    mechanism = LocalRandomisedResponse(epsilon=0.3)
    data = mechanism.pairs.choose(np.array([0, 1, 1, 0], np.uint8))
    assert data.dtype == np.int8
    output = mechanism.run(data, np.random.default_rng(1))
    assert output.dtype == np.int8
    assert set(output.tolist()) <= {-1, 1}
    assert mechanism.log_odds(output).dtype == np.float64


@pytest.mark.parametrize(
    "mechanism",
    [
        LocalRandomisedResponse(epsilon=1.0),
        LocalLaplace(epsilon=1.0),
        LocalGaussian(sigma=1.0),
    ],
    ids=str,
)
def test_revealed_coins_say_nothing_of_others(mechanism):
    rng = np.random.default_rng(1)
    output = mechanism.run(mechanism.pairs.choose(np.array([0, 1, 1])), rng)
    posterior = mechanism.posterior(output)
    (batch,) = posterior.batches()
    np.testing.assert_array_equal(batch, [0, 1, 2])
    posterior.reveal(np.array([0]), np.array([-1], np.int8))
    rest = np.array([2, 1])
    found = posterior.log_odds(rest)
    np.testing.assert_array_equal(found, mechanism.log_odds(output)[rest])


def test_silence_is_a_privacy_level_of_randomised_response_only():
    mechanism = LocalRandomisedResponse(epsilon=0.0)
    np.testing.assert_array_equal(mechanism.log_odds(np.array([1, -1])), [0.0, 0.0])
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        LocalLaplace(epsilon=0.0)
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        LocalRandomisedResponse(epsilon=-0.1)
    with pytest.raises(InvalidInputError, match="sigma must be"):
        LocalGaussian(sigma=0.0)
