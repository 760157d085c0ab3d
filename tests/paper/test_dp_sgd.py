"""Chapter "DP-SGD": what of it is computable without a model.

One step of DP-SGD on gradients that are zero but for one coordinate each is a noisy
count-in-sets; what many subsampled steps say is a product. The mechanism and the
guesser of the paper's experiments are here; its figures are in ``lab/tests/paper``.
"""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums, canary_log_odds
from dpaudit.game import Extremes
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


# The experiments: d = 1000, T = 100, sample rate 1/10, noise for epsilon = 2

D, T, RATE, SIGMA = 1000, 100, 0.1, 2.4224014


def run_of_experiment(s, number):
    """Coins, and what is seen of one run with so many elements per coordinate."""
    mechanism = DiracSums(
        coordinates=D,
        per_coordinate=s,
        sampling=Poisson(rate=RATE),
        sigma=SIGMA,
        steps=T,
    )
    rng = np.random.default_rng(number)
    bits = rng.integers(0, 2, D * s)
    return mechanism, bits, mechanism.run(mechanism.pairs.choose(bits), rng)


@pytest.mark.parametrize("s", [1, 5])
def test_subsec_experiments_dp_sgd_adds_up_what_is_sampled_and_noise(s):
    # The sum of all updates at a coordinate of h included elements: as many as join,
    # Bin(100 h, 1/10), and N(0, 100 sigma^2). Its distribution function at it is
    # uniform; so it is for the printed algorithm. A false alarm has chance 1e-4.
    def uniform(ones, total):
        joined = np.arange(T * s + 1)
        chances = stats.binom.pmf(joined, T * ones[:, np.newaxis], RATE)
        apart = (total[:, np.newaxis] - joined) / (SIGMA * T**0.5)
        return (chances * special.ndtr(apart)).sum(axis=1)

    def is_uniform(values):
        return stats.kstest(values, "uniform").pvalue > 1e-4

    _, bits, seen = run_of_experiment(s, 1)
    assert is_uniform(uniform(bits.reshape(D, s).sum(axis=1), seen.total))

    rng, d = np.random.default_rng(2), 200
    bits = rng.integers(0, 2, d * s)
    gradients = dirac(bits, coordinates=d, size=1.0)
    weights = np.zeros(d)
    for _ in range(T):
        batch = gradients[rng.random(d * s) < RATE]
        weights = dp_sgd_step(
            batch, clip=1.0, sigma=SIGMA, rate=-1.0, weights=weights, rng=rng
        )
    assert is_uniform(uniform(bits.reshape(d, s).sum(axis=1), weights))


@pytest.mark.parametrize("s", [1, 5])
def test_subsec_experiments_dp_sgd_says_how_likely_each_coin_is(s):
    # Of 5,000 coins or more as many are +1 as are to be expected where log-odds are
    # low, in the middle, and high: to four deviations, a chance below 1e-4 each.
    games = [run_of_experiment(s, number) for number in range(5 // s)]
    log_odds = np.concatenate([m.log_odds(seen) for m, _, seen in games])
    bits = np.concatenate([bits for _, bits, _ in games])
    chances = special.expit(log_odds)
    for part in np.array_split(np.argsort(log_odds), 3):
        spread = np.sqrt(np.sum(chances[part] * (1 - chances[part])) * s)
        assert abs(bits[part].sum() - chances[part].sum()) < 4 * spread
    assert np.ptp(chances) > 0.5


@pytest.mark.parametrize("s", [1, 5])
def test_subsec_experiments_guesser_names_the_highest_and_the_lowest_sums(s):
    # k = 100: +1 for the 50 elements at the highest sums, -1 for those at the lowest.
    _, bits, seen = run_of_experiment(s, 3)
    guesser = Extremes(score=lambda seen: np.repeat(seen.total, s), top=50, bottom=50)
    made = guesser.guess(seen)
    order = sorted(range(D), key=lambda coordinate: seen.total[coordinate])
    elements = np.arange(D * s).reshape(D, s)
    lowest, highest = elements[order[: 50 // s]], elements[order[-50 // s :]]
    assert set(made.index[made.guess == 1]) == set(highest.ravel())
    assert set(made.index[made.guess == -1]) == set(lowest.ravel())
    # About 70 of the guesses are right, and no more than half with chance below 1e-3.
    assert np.sum((made.guess == 1) == (bits[made.index] == 1)) > 50
