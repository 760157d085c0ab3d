"""Chapter "DP-SGD": what of it is computable without a model.

One step of DP-SGD on gradients that are zero but for one coordinate each is a noisy
count-in-sets; what many subsampled steps say is a product. Training and the paper's
figures come with the DP-SGD auditor and are not tested here.
"""

from itertools import product

import numpy as np
import pytest
from scipy import special

from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.theory.levels import levels
from dpaudit.training.probe import probe_sum


def clipped_sum(gradients, *, clip):
    """The sum of the printed algorithm, before noise."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    factor = np.minimum(1.0, clip / np.where(norms > 0, norms, clip))
    return (factor * gradients).sum(axis=0)


def dp_sgd_step(gradients, *, clip, sigma, rate, weights, rng):
    """One step of the printed algorithm on a batch, line by line."""
    noise = rng.normal(scale=sigma * clip, size=gradients.shape[1])
    noisy = clipped_sum(gradients, clip=clip) + noise
    return weights - rate * noisy


def dirac(bits, *, coordinates, size):
    """Gradients of the given size at coordinate i // s for element i, zero if out."""
    s = len(bits) // coordinates
    gradients = np.zeros((len(bits), coordinates))
    gradients[np.arange(len(bits)), np.arange(len(bits)) // s] = size * np.asarray(bits)
    return gradients


@pytest.mark.parametrize("size", [0.7, 1.0, 25.0])
@pytest.mark.parametrize("per_coordinate", [1, 4])
def test_alg_dp_sgd_step_at_dirac_gradients_is_a_noisy_count_in_sets(
    per_coordinate, size
):
    # The adversary knows the learning rate and both weights, so it knows the noisy sum
    # over the clipping norm: the counts of included elements plus N(0, sigma^2), once
    # gradients reach the clipping norm. Same randomness, same numbers.
    d, clip, sigma, rate = 6, 0.7, 1.3, 0.05
    n = d * per_coordinate
    bits = np.random.default_rng(1).integers(0, 2, n)
    before = np.random.default_rng(2).normal(size=d)
    after = dp_sgd_step(
        dirac(bits, coordinates=d, size=size),
        clip=clip,
        sigma=sigma,
        rate=rate,
        weights=before,
        rng=np.random.default_rng(3),
    )
    seen = (before - after) / (rate * clip)
    mechanism = CountInSets(
        elements=n, set_size=per_coordinate, noise=GaussianNoise(sigma=sigma)
    )
    printed = mechanism.run(bits, np.random.default_rng(3))
    np.testing.assert_allclose(seen, printed, atol=1e-9)


def test_alg_dp_sgd_clips_and_does_not_stretch():
    # A gradient below the clipping norm stays as it is: it counts for its size only.
    arguments = {"clip": 1.0, "sigma": 0.0, "rate": 1.0, "weights": np.zeros(2)}
    rng = np.random.default_rng(0)
    found = dp_sgd_step(dirac([1, 1], coordinates=2, size=0.25), rng=rng, **arguments)
    np.testing.assert_allclose(found, [-0.25, -0.25])
    found = dp_sgd_step(dirac([1, 1], coordinates=2, size=9.0), rng=rng, **arguments)
    np.testing.assert_allclose(found, [-1.0, -1.0])
    # The package's probe takes records out of the printed sum: one changes it by the
    # clipping norm if its gradient is larger, and by its own norm if it is smaller.
    large = np.random.default_rng(1).normal(size=(8, 5))
    for gradients, change in ((large, 0.7), (large * 1e-3, None)):
        norms = np.linalg.norm(gradients, axis=1)
        found = probe_sum(lambda g: clipped_sum(g, clip=0.7), gradients, norm=0.7)
        assert not found.faults
        assert found.change * 0.7 == pytest.approx(change or norms.max())
    # Without line 7 there is no such limit, and the probe says so.
    assert probe_sum(lambda g: g.sum(axis=0), large, norm=0.7).faults


@pytest.mark.parametrize("per_coordinate", [1, 3])
def test_alg_dp_sgd_step_is_guarded_by_its_noise_not_by_aggregation(per_coordinate):
    # "The aggregation of the gradients does not contribute to formal privacy": the
    # guarantee is that of one Gaussian count, whatever the size of the sets.
    mechanism = CountInSets(
        elements=6, set_size=per_coordinate, noise=GaussianNoise(sigma=1.3)
    )
    assert isinstance(mechanism.guarantee, GaussianDP)
    assert mechanism.guarantee.mu == pytest.approx(1 / 1.3)


def test_alg_dp_sgd_step_says_about_a_coin_what_bayes_rule_says():
    # Sets of three: all eight values of their coins, weighted by the normal density.
    sigma, seen = 0.9, 1.7
    mechanism = CountInSets(elements=3, set_size=3, noise=GaussianNoise(sigma=sigma))
    weight = [0.0, 0.0]
    for r in range(8):
        density = np.exp(-((seen - r.bit_count()) ** 2) / (2 * sigma**2))
        weight[r & 1] += density
    found = mechanism.log_odds(np.array([seen]))
    np.testing.assert_allclose(found, np.log(weight[1] / weight[0]))


def test_alg_dp_sgd_of_many_subsampled_steps_says_what_bayes_rule_says():
    # Five steps at sampling rate 0.4; all weights are seen. At each coordinate, of two
    # elements: all values of their coins, and for each all batches of every step.
    d, s, clip, sigma, eta, rate, steps = 3, 2, 0.7, 0.6, 0.05, 0.4, 5
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, d * s)
    gradients = dirac(bits, coordinates=d, size=9.0)
    weights = [rng.normal(size=d)]
    for _ in range(steps):
        batch = rng.random(d * s) < rate
        weights.append(
            dp_sgd_step(
                gradients[batch],
                clip=clip,
                sigma=sigma,
                rate=eta,
                weights=weights[-1],
                rng=rng,
            )
        )
    seen = -np.diff(weights, axis=0) / (eta * clip)
    likelihood = CountLikelihood(
        coordinates=d, per_coordinate=s, sampling=Poisson(rate=rate)
    )
    for sums in seen:
        likelihood.observe(sums, sigma)
    found = canary_log_odds(likelihood.log_likelihood)
    for coordinate in range(d):
        weight = [0.0, 0.0]
        for coins in product((0, 1), repeat=s):
            probability = 1.0
            for x in seen[:, coordinate]:
                probability *= sum(
                    rate ** sum(batch)
                    * (1 - rate) ** (s - sum(batch))
                    * np.exp(-((x - np.dot(coins, batch)) ** 2) / (2 * sigma**2))
                    for batch in product((0, 1), repeat=s)
                )
            weight[coins[0]] += probability
        assert found[s * coordinate] == pytest.approx(np.log(weight[1] / weight[0]))


def test_alg_dp_sgd_step_interferes_more_with_more_elements_per_coordinate():
    # Efficacy without abstention of one step at sigma = 1, by summing total variation
    # numerically; one element per coordinate is Phi(1 / (2 sigma)).
    x = np.linspace(-12, 20, 64_001)
    found = []
    for s in (1, 2, 4, 8):
        given = np.zeros((2, len(x)))
        for ones in range(s):
            others = special.binom(s - 1, ones) / 2 ** (s - 1)
            for bit in (0, 1):
                centred = x - ones - bit
                density = np.exp(-(centred**2) / 2) / np.sqrt(2 * np.pi)
                given[bit] += others * density
        found.append(0.5 + np.abs(given[1] - given[0]).sum() * (x[1] - x[0]) / 4)
    assert found[0] == pytest.approx(float(special.ndtr(0.5)), abs=1e-6)
    assert found == sorted(found, reverse=True)
    for s, value in zip((1, 2, 4, 8), found, strict=True):
        mechanism = CountInSets(elements=8, set_size=s, noise=GaussianNoise(sigma=1.0))
        average = levels(mechanism, elements=8).average_element_accuracy.value
        assert average == pytest.approx(value, abs=1e-6)
