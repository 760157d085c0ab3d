"""Learned log-odds: find what is there, and nothing where nothing is."""

import numpy as np
import pytest
from scipy import special

from dpaudit import Pairs
from dpaudit.game.learned_log_odds import fit_log_odds
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.sets import count
from dpaudit.theory.levels import levels


def accuracy(mechanism, *, pairs, canaries=2000, runs=5, seed=0):
    rng = np.random.default_rng(seed)
    loss = fit_log_odds(mechanism, pairs=pairs, canaries=canaries, runs=runs, rng=rng)
    bits = rng.integers(0, 2, canaries)
    output = mechanism.run(pairs.choose(bits), rng)
    return np.mean((loss.log_odds(output) > 0) == (bits == 1))


SPREAD = 5 * 0.5 / np.sqrt(2000)  # five standard deviations: false alarm 6e-7


def test_randomised_response_is_learned_to_the_optimum():
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    found = accuracy(mechanism, pairs=mechanism.pairs)
    assert abs(found - special.expit(1.0)) < SPREAD


def test_laplace_noise_is_learned_to_the_optimum():
    mechanism = LocalLaplace(epsilon=2.0)
    found = accuracy(mechanism, pairs=mechanism.pairs)
    assert found > 1 - np.exp(-1.0) / 2 - SPREAD - 0.02


class LowBit:
    """Writes the coin into the last bit of the mantissa."""

    def run(self, data, rng):
        noise = rng.standard_normal(len(data))
        whole = noise.view(np.int64)
        return ((whole & ~1) | data).view(np.float64)


class Word:
    def run(self, data, rng):
        return np.where(data == 1, "yes", "no")


class Silent:
    def run(self, data, rng):
        return rng.standard_normal(len(data))


class Strange:
    def run(self, data, rng):
        return np.where(data == 1, np.nan, np.inf * rng.choice([-1, 1], len(data)))


PAIRS = Pairs(x=0, y=1)


@pytest.mark.parametrize("mechanism", [LowBit(), Word(), Strange()])
def test_a_leak_in_bits_in_words_or_in_no_numbers_is_found(mechanism):
    assert accuracy(mechanism, pairs=PAIRS) > 0.99


def test_an_output_without_rows_is_seen_by_every_canary():
    """One noisy sum for three coins: as good as its likelihood, to a hundredth."""
    mechanism = count(3, GaussianNoise(sigma=1.0))
    rng = np.random.default_rng(0)
    loss = fit_log_odds(
        mechanism, pairs=mechanism.pairs, canaries=3, runs=1000, rng=rng
    )
    bits = rng.integers(0, 2, (4000, 3))
    found = [loss.log_odds(mechanism.run(row, rng)) for row in bits]
    optimum = levels(mechanism, elements=3).average_element_accuracy.value
    rate = np.mean((np.array(found) > 0) == (bits == 1))
    # Five standard deviations of 4,000 runs whose three coins go together.
    assert abs(rate - optimum) < 5 * 0.5 / np.sqrt(4000) + 0.01
    assert optimum > 0.6


class Seldom:
    """Says nothing but sometimes; then everything."""

    def run(self, data, rng):
        return data * 1.0 if rng.random() < 0.2 else None


def test_an_output_of_another_kind_than_was_learned_says_nothing():
    rng = np.random.default_rng(0)
    loss = fit_log_odds(Seldom(), pairs=PAIRS, canaries=20, runs=20, rng=rng)
    assert not loss.log_odds(None).any()
    assert not loss.log_odds([[1, 2], [3]]).any()
    data = np.arange(20) % 2
    assert np.array_equal(loss.log_odds(data * 1.0) > 0, data == 1)


def test_where_nothing_is_nothing_is_found():
    assert abs(accuracy(Silent(), pairs=PAIRS) - 0.5) < SPREAD


def test_learning_does_not_touch_the_coins_of_an_audit():
    """The same calibration, whatever the audit's key: it is not even an argument."""
    fits = [
        fit_log_odds(
            Silent(), pairs=PAIRS, canaries=50, runs=2, rng=np.random.default_rng(0)
        ).weights
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*fits)
