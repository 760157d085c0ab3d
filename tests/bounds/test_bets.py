"""The bound from betting: right, valid whenever one stops, useful, silent at chance."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import Grid
from dpaudit.bounds.independent_runs import bets_in_a_row
from dpaudit.bounds.readings import Bets
from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import rate_limits


def bets(right, stakes, *, canaries=None):
    right = np.asarray(right, bool)
    stakes = np.broadcast_to(np.asarray(stakes, float), right.shape).copy()
    return Bets(
        canaries=canaries or max(1, len(right)),
        right=right,
        stated_probabilities=stakes,
    )


def p_value(reading, *, epsilon, delta=0.0):
    return math.exp(BettingBound().log_p_value(reading, epsilon=epsilon, delta=delta))


def lower(reading, *, delta=0.0, alpha=0.05, grid=None):
    bound = BettingBound(grid=grid or Grid())
    return bound.epsilon_lower(reading, delta=delta, alpha=alpha).epsilon_lower


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 19)), max_size=12),
    st.integers(1, 9),
    st.sampled_from([0.0, 1e-3]),
)
def test_p_value_is_one_over_the_largest_wealth_in_exact_arithmetic(made, odds, delta):
    p = Fraction(odds, 1 + odds)
    wealth = most = Fraction(1)
    for right, twentieths in made:
        q = Fraction(twentieths, 20)
        if q > p:
            wealth *= q / p if right else (1 - q) / (1 - p)
        most = max(most, wealth)
    want = float(min(1, 1 / most + 12 * Fraction(delta) * (1 - p)))
    reading = bets([r for r, _ in made], [q / 20 for _, q in made], canaries=12)
    got = p_value(reading, epsilon=math.log(odds), delta=delta)
    # A stake equal to p up to rounding is a bet on nothing, either way.
    assert got == pytest.approx(want, rel=1e-9)


def refuted_at_best(stakes, epsilon, level, left, wealth=1.0):
    """Return the largest chance of being refuted by choosing a stake every time.

    The coins have the largest odds allowed; the guesser sees each before the next
    stake, and may stop.
    """
    if wealth >= 1 / level * (1 - 1e-12):
        return 1.0
    if left == 0:
        return 0.0
    p = float(special.expit(epsilon))
    return max(
        p * refuted_at_best(stakes, epsilon, level, left - 1, wealth * q / p)
        + (1 - p)
        * refuted_at_best(stakes, epsilon, level, left - 1, wealth * (1 - q) / (1 - p))
        for q in stakes
    )


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("level", [0.2, 0.3])
def test_no_plan_of_staking_is_refuted_more_often_than_it_says(epsilon, level):
    """Exact, by optimal control over seven bets with three stakes to choose from."""
    p = float(special.expit(epsilon))
    stakes = [p + share * (1 - p) for share in (0.3, 0.6, 0.95)]
    best = refuted_at_best(stakes, epsilon, level, 7)
    assert level / 4 < best <= level


@pytest.mark.parametrize("level", [0.2, 0.35])
def test_no_mechanism_is_refuted_more_often_than_it_says(level, largest_p_value):
    """The linear program, with delta: the output fixes the guesses and three stakes."""
    m, epsilon, delta = 3, 0.3, 0.02
    outputs = [
        (guesses, stakes)
        for guesses in itertools.product([False, True], repeat=m)
        for stakes in itertools.product([0.6, 0.8, 0.99], repeat=m)
    ]

    def refuted(output, coins):
        guesses, stakes = output
        right = [g == b for g, b in zip(guesses, coins, strict=True)]
        return p_value(bets(right, stakes), epsilon=epsilon, delta=delta) <= level

    most = largest_p_value(
        m=m, outputs=outputs, wins=refuted, epsilon=epsilon, delta=delta
    )
    assert most <= level


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_stopping_when_ahead_is_no_use(alpha):
    """3000 silent games, read after every guess: wrong if it ever exceeds 0.

    The lower 99.9 % limit exceeds alpha, if all is well, in under one seed in 1000.
    """
    rng = np.random.default_rng(6)
    games, ever = 3000, 0
    for _ in range(games):
        right = rng.random(60) < 0.5
        stakes = 0.5 + 0.4 * (np.cumsum(right) - right + 1) / (np.arange(60) + 2)
        ever += p_value(bets(right, stakes), epsilon=0.0) <= alpha
    assert rate_limits(ever, games, alpha=0.002)[0] <= alpha


def test_read_after_every_guess_the_bound_never_falls():
    right = np.random.default_rng(7).random(120) < 0.9
    read = [
        lower(bets(right[:n], 0.85, canaries=150), delta=1e-5) for n in range(1, 121)
    ]
    assert np.all(np.diff(read) >= 0)
    assert read[-1] > 1


def test_a_grid_that_starts_higher_pays_less_for_delta():
    reading = bets(np.ones(200, bool), 0.99, canaries=100_000)
    assert lower(reading, delta=2e-6) == 0.0
    assert lower(reading, delta=2e-6, grid=Grid(start=2.0)) > 2.5
    assert coupling_failure_probability(100_000, 0.0, 2e-6) == pytest.approx(0.1)


def test_it_finds_most_of_an_epsilon_of_two():
    right = np.arange(1000) % 25 > 2  # 88 of 100, as expit(2)
    assert 1.6 < lower(bets(right, special.expit(2.0)), delta=1e-6) < 2.0


def test_independent_runs_are_bets_in_a_row():
    run = bets(np.arange(60) % 12 > 0, 0.9)
    both = bets_in_a_row([run, run])
    assert both.canaries == 120
    assert lower(both) > lower(run) > 0
    assert p_value(both, epsilon=0.5) <= p_value(run, epsilon=0.5)


def test_no_runs_are_no_bets():
    with pytest.raises(InvalidInputError, match=r"^there must be at least one run"):
        bets_in_a_row([])


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_says_nothing_at_or_below_chance_nor_without_bets(delta):
    assert lower(bets(np.arange(200) % 2 > 0, 0.6), delta=delta) == 0.0
    assert lower(bets(np.zeros(200, bool), 0.9), delta=delta) == 0.0
    assert lower(bets(np.ones(200, bool), 0.5), delta=delta) == 0.0
    assert lower(bets([], []), delta=delta) == 0.0


def test_a_bet_of_everything_does_not_lose_everything():
    reading = bets([False] + [True] * 400, 1.0)
    assert 0 < p_value(reading, epsilon=0.0) < 1e-50
