"""Measured levels: the intervals hold the exact values as often as they say."""

from dataclasses import dataclass
from itertools import product
from math import inf, log

import numpy as np
import pytest
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import Submission
from dpaudit.mechanisms.exposure import AllOrNothing
from dpaudit.mechanisms.local import LocalGaussian, LocalRandomisedResponse
from dpaudit.mechanisms.noise import LaplaceNoise
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory import levels_from_loss
from dpaudit.theory.simulation import efficacy, simulate


def measured(mechanism, *, seed, elements=12, guesses=5, delta=0.0, runs=400):
    return simulate(
        mechanism,
        mechanism.pairs,
        elements=elements,
        guesses=guesses,
        delta=delta,
        runs=runs,
        rng=np.random.default_rng(seed),
    )


def covers(interval, value, slack=1e-12):
    return interval.low - slack <= value <= interval.high + slack


MECHANISMS = [
    LocalGaussian(sigma=1.0),
    LocalRandomisedResponse(epsilon=1.0),
    AllOrNothing(elements=12, probability=0.4),
    CountInSets(elements=12, set_size=3),
    CountInSets(elements=12, set_size=4, noise=LaplaceNoise(epsilon=1.0)),
]


def test_the_intervals_hold_the_exact_values(subtests):
    for delta, mechanism in product([0.0, 0.1, 1e-5], MECHANISMS):
        with subtests.test(delta=delta, mechanism=mechanism):
            # 60 intervals at 99 % that are wider than they need be; fixed seeds
            found = measured(mechanism, seed=3, delta=delta)
            law = mechanism.loss_distribution(12)
            assert covers(found.average_element, levels_from_loss.average_element(law))
            assert covers(found.average_case, levels_from_loss.average_case(law))
            assert covers(found.best, levels_from_loss.best(law, 5))
            assert covers(
                found.distributional,
                levels_from_loss.epsilon_at(law, delta),
                slack=1e-9,
            )
            assert found.average_element.high - found.average_element.low < 0.13


@pytest.mark.nightly
def test_intervals_are_wrong_no_more_often_than_they_say():
    # 500 intervals at 99 %: more than 14 wrong would have a chance of 1e-4
    mechanism = AllOrNothing(elements=3, probability=0.3)
    law = mechanism.loss_distribution(3)
    wrong = dict.fromkeys(("average", "level"), 0)
    for seed in range(500):
        found = measured(
            mechanism, seed=seed, elements=3, guesses=1, delta=0.31, runs=40
        )
        wrong["average"] += not covers(found.best, levels_from_loss.best(law, 1))
        level = levels_from_loss.epsilon_at(law, 0.31)
        wrong["level"] += not covers(found.distributional, level, slack=1e-9)
    assert max(wrong.values()) <= 14


def test_the_interval_is_that_of_maurer_and_pontil():
    # every run of randomised response has the same accuracy: no variance is left
    runs = 1000
    found = measured(LocalRandomisedResponse(epsilon=0.8), seed=1, runs=runs)
    value = special.expit(0.8)
    reach = 0.5 * 7 * log(2 / 0.005) / (3 * (runs - 1))
    assert found.best.value == pytest.approx(value)
    assert found.best.high == pytest.approx(value + reach)
    assert found.best.low == pytest.approx(value - reach)


def test_without_delta_only_a_lower_bound_is_known():
    found = measured(LocalGaussian(sigma=1.0), seed=2)
    assert found.distributional.high == inf
    assert 0 < found.distributional.low == found.distributional.value < 10


def test_a_small_delta_needs_many_runs_for_an_upper_end():
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    few = measured(mechanism, seed=2, delta=0.01, runs=100)
    assert few.distributional.high == inf
    many = measured(mechanism, seed=2, delta=0.01, runs=2000)
    assert many.distributional.high < inf
    assert many.distributional.low > 0.9


@dataclass(frozen=True)
class Guess:
    """Guesses the ``k`` surest of a mechanism that knows its log-odds."""

    mechanism: object
    k: int
    sign: int = 1

    def guess(self, output):
        odds = self.mechanism.log_odds(output)
        index = np.argsort(-np.abs(odds), kind="stable")[: self.k]
        guess = np.where(odds[index] >= 0, self.sign, -self.sign).astype(np.int8)
        return Submission(index=index, guess=guess)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_surest_guesses_have_the_best_efficacy(mechanism):
    found = efficacy(
        mechanism,
        Guess(mechanism, 5),
        mechanism.pairs,
        elements=12,
        runs=500,
        rng=np.random.default_rng(4),
    )
    assert covers(found, levels_from_loss.best(mechanism.loss_distribution(12), 5))


def test_guessing_the_opposite_is_wrong_as_often_as_right_was_right():
    mechanism = LocalRandomisedResponse(epsilon=2.0)
    found = efficacy(
        mechanism,
        Guess(mechanism, 12, sign=-1),
        mechanism.pairs,
        elements=12,
        runs=500,
        rng=np.random.default_rng(4),
    )
    assert covers(found, special.expit(-2.0))
    assert found.high < 0.3


class Broken:
    """Returns log-odds that are none."""

    pairs = LocalGaussian(sigma=1.0).pairs

    def run(self, data, rng):
        return data

    def log_odds(self, output):
        return np.full(len(output), np.nan)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InvalidInputError, match="log_odds must return a number"):
        measured(Broken(), seed=0)
    with pytest.raises(InvalidInputError, match="runs"):
        measured(LocalGaussian(sigma=1.0), seed=0, runs=1)
    with pytest.raises(InvalidInputError, match="ask for fewer runs"):
        measured(LocalGaussian(sigma=1.0), seed=0, delta=0.1, runs=10**8)
    mechanism = LocalGaussian(sigma=1.0)
    with pytest.raises(InvalidInputError, match="no guess"):
        efficacy(
            mechanism,
            Guess(mechanism, 0),
            mechanism.pairs,
            elements=12,
            runs=2,
            rng=np.random.default_rng(0),
        )
