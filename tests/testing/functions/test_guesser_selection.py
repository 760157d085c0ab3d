"""What is fixed before the coins are flipped, against binomials of scipy's."""

import math

import numpy as np
import pytest
from scipy import stats

from dpaudit import ApproxDP, PureDP
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.testing.guesser_selection import Aim, choose

CLAIM = PureDP(epsilon=1.0)
RIGHT = math.e / (1 + math.e)


def aim(**changes):
    fixed = {"claim": CLAIM, "delta": 0.0, "alpha": 1e-3, "separate": False}
    return Aim(**(fixed | changes))


def held_out(rates, *, n=3000, seed=0):
    """Scores of some sizes; those of size i are right with chance rates[i]; coins."""
    rng = np.random.default_rng(seed)
    bits, size = rng.integers(0, 2, n), rng.integers(0, len(rates), n)
    right = rng.random(n) < np.array(rates)[size]
    signs = np.where(right, 2 * bits - 1, 1 - 2 * bits)
    return {"it": signs * (size + 1.0)}, bits


@pytest.mark.parametrize("calls", [40, 500, 20_000])
def test_the_leak_that_is_caught_is_that_of_the_binomial(calls):
    """Found again from scipy: threshold at epsilon = 1, then the chance to reach it."""
    caught = aim().detectable_epsilon(canaries=calls, guesses=calls)
    counts = np.arange(calls + 1)
    least = counts[stats.binom.sf(counts - 1, calls, RIGHT) <= 1e-3][0]

    def power(epsilon):
        return stats.binom.sf(least - 1, calls, 1 / (1 + math.exp(-epsilon)))

    # 0.9 is stated; learning a guesser may lose the difference (test_functions.py).
    assert power(caught) == pytest.approx(0.97, abs=1e-9)


def test_nothing_is_caught_by_too_few_guesses():
    assert aim().detectable_epsilon(canaries=20, guesses=20) is None  # 0.731^20 > 0.001
    assert aim().detectable_epsilon(canaries=23, guesses=23) is not None


def test_few_sure_guesses_are_taken_if_they_refute_most_clearly():
    """A fifth of the calls is always right, the others say nothing."""
    found = choose(*held_out([0.5, 0.5, 0.5, 0.5, 1.0]), calls=3000, aim=aim())
    assert 350 < found.rules.guesses < 650
    assert found.canaries == 3000


def test_all_guesses_are_taken_if_all_are_equally_right():
    found = choose(*held_out([0.9]), calls=3000, aim=aim())
    assert found.rules.guesses == 3000


def test_of_two_guessers_the_better_is_taken():
    scores, bits = held_out([0.6, 0.8])
    both = {"wrong": -scores["it"], "right": scores["it"]}
    found = choose(both, bits, calls=3000, aim=aim())
    assert found.name == "right"


def test_a_few_lucky_guesses_do_not_decide():
    """Pure noise: the surest few may all be right, and are not believed."""
    for seed in range(5):
        found = choose(*held_out([0.5] * 3000, seed=seed), calls=3000, aim=aim())
        assert found.rules.guesses > 100


def test_what_must_be_caught_forbids_few_guesses():
    parts = held_out([0.5, 0.5, 0.5, 0.5, 1.0])
    loose = choose(*parts, calls=3000, aim=aim())
    strict = choose(*parts, calls=3000, aim=aim(must_catch=1.3))
    assert loose.detectable_epsilon > 1.3 >= strict.detectable_epsilon
    assert strict.rules.guesses > loose.rules.guesses


@pytest.mark.parametrize(
    ("changes", "calls", "said"),
    [
        ({}, 20, "20 calls cannot refute"),
        ({"must_catch": 1.05}, 500, "500 calls are too few to detect"),
    ],
)
def test_a_test_that_could_not_fail_is_refused(changes, calls, said):
    with pytest.raises(InvalidRunError, match=said):
        choose(*held_out([0.9]), calls=calls, aim=aim(**changes))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, math.nan])
def test_a_leak_no_larger_than_the_claim_cannot_be_caught(epsilon):
    with pytest.raises(InvalidInputError, match="must_catch"):
        aim(must_catch=epsilon)


def test_delta_is_counted_in_the_choice():
    """At delta = 0.3 certain guesses about a quarter of the calls refute nothing."""
    claim = ApproxDP(epsilon=1.0, delta=0.3)
    found = choose(
        *held_out([0.5, 0.5, 0.5, 1.0]),
        calls=3000,
        aim=aim(claim=claim, delta=0.3, separate=True),
    )
    assert found.event is not None
    assert found.event.growth <= 0
