"""The ramp bound: right, valid for guessers that learn and stop, useful, silent."""

import itertools
import math
import operator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts


def p_value(counts, *, epsilon, delta):
    return math.exp(AdaptiveBound().log_p_value(counts, epsilon=epsilon, delta=delta))


def lower(counts, *, delta, alpha=0.05):
    return AdaptiveBound().epsilon_lower(counts, delta=delta, alpha=alpha).epsilon_lower


@st.composite
def all_counts(draw, most=40):
    canaries = draw(st.integers(1, most))
    guesses = draw(st.integers(0, canaries))
    correct = draw(st.integers(0, guesses))
    return Counts(canaries=canaries, guesses=guesses, correct=correct)


@given(all_counts(), st.integers(1, 20), st.sampled_from([0, 1e-6, 1e-3, 0.1]))
@example(Counts(canaries=1, guesses=1, correct=1), 3, 0.1)
@example(Counts(canaries=2, guesses=2, correct=1), 3, 0)
@example(Counts(canaries=2, guesses=2, correct=0), 3, 0)
def test_p_value_agrees_with_every_ramp_in_exact_arithmetic(counts, odds, delta):
    m, r, v = counts.canaries, counts.guesses, counts.correct
    q = Fraction(odds, 1 + odds)
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    price = m * Fraction(delta) / (1 + odds)
    ramps = [
        (sum(sum(pmf[max(0, v - x) :]) for x in range(length)) + price) / length
        for length in range(1, v + 2)
    ]
    got = p_value(counts, epsilon=math.log(odds), delta=delta)
    assert got == pytest.approx(float(min(1, *ramps)), rel=1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta", "p"),
    [
        (100, 100, 75, 0.6, 1e-4, 0.02056343937),
        (1000, 100, 75, 0.6, 1e-4, 0.04061140396),
        (100_000, 1510, 1439, 2.7, 1e-5, 0.02235427669),
        (5000, 500, 400, 1.15, 1e-5, 0.02662790494),
        (16_000, 369, 280, 0.85, 1e-5, 0.0248627392),
        (1000, 1000, 1000, 5.5, 1e-5, 0.01697450788),
    ],
)
def test_p_value_gives_the_vectors_computed_elsewhere(m, r, v, epsilon, delta, p):
    counts = Counts(canaries=m, guesses=r, correct=v)
    assert p_value(counts, epsilon=epsilon, delta=delta) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "epsilon_lower"),
    [
        (100, 100, 75, 1e-4, 0.695029),
        (1000, 100, 75, 1e-4, 0.633214),
        (100_000, 1510, 1439, 1e-5, 2.766065),
        (5000, 500, 400, 1e-5, 1.186086),
        (16_000, 369, 280, 1e-5, 0.906147),
    ],
)
def test_epsilon_lower_gives_the_vectors_computed_elsewhere(
    m, r, v, delta, epsilon_lower
):
    counts = Counts(canaries=m, guesses=r, correct=v)
    assert lower(counts, delta=delta) == pytest.approx(epsilon_lower, abs=6e-7)


def trees(unknown, guesses):
    """Return every plan: which canary, which guess, and a plan for either coin."""
    if not unknown or not guesses:
        return [None]
    return [
        (i, guess, after)
        for i in unknown[:1]
        for guess in (False, True)
        for after in itertools.product(trees(unknown[1:], guesses - 1), repeat=2)
    ]


def right(plan, coins):
    if plan is None:
        return 0
    i, guess, after = plan
    return (guess == coins[i]) + right(after[coins[i]], coins)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta"),
    [
        (2, 2, 1, 0.5, 0.05),
        (2, 2, 2, 1.0, 0.05),
        (3, 3, 2, 0.5, 0.03),
        (3, 3, 3, 0.2, 0.05),
        (3, 2, 2, 1.0, 0.03),
    ],
)
def test_no_mechanism_and_plan_is_right_so_often_more_often(
    m, r, v, epsilon, delta, largest_p_value
):
    """The linear program over all mechanisms whose output is a plan of guessing."""
    counts = Counts(canaries=m, guesses=r, correct=v)
    most = largest_p_value(
        m=m,
        outputs=trees(tuple(range(m)), r),
        wins=lambda plan, coins: right(plan, coins) >= v,
        epsilon=epsilon,
        delta=delta,
    )
    assert most <= p_value(counts, epsilon=epsilon, delta=delta) + 1e-9
    # Nor, where it has been computed, more often than without learning.
    assert most <= ExactBound().p_value(counts, epsilon=epsilon, delta=delta) + 1e-9


@cache
def winning(unknown, slots, goal, score=0):
    """Return where plans win, every one, as sets of coins: {(canary, coin), ...}.

    The next canary may be any; it is passed, or guessed in one of the slots left. A
    plan wins if the weight of its right guesses is in ``goal``.
    """
    if not slots:
        every = itertools.product((False, True), repeat=len(unknown))
        coins = (frozenset(zip(unknown, bits, strict=True)) for bits in every)
        return {frozenset(coins) if score in goal else frozenset()}
    found = set()
    for i in unknown:
        others = tuple(j for j in unknown if j != i)
        choices = [(w, slots[:k] + slots[k + 1 :]) for k, w in enumerate(slots)]
        if others[len(slots) - 1 :]:
            choices.append((0, slots))
        for weight, left in choices:
            right = winning(others, left, goal, score + weight)
            wrong = winning(others, left, goal, score)
            for guess, a, b in itertools.product((False, True), right, wrong):
                sides = ((guess, a), (not guess, b))
                found.add(
                    frozenset(s | {(i, coin)} for coin, side in sides for s in side)
                )
    return found


def best_of_plans(m, slots, goal, epsilon, delta, largest_p_value):
    return largest_p_value(
        m=m,
        outputs=sorted(winning(tuple(range(m)), slots, frozenset(goal)), key=str),
        wins=lambda won, coins: frozenset(enumerate(coins)) in won,
        epsilon=epsilon,
        delta=delta,
    )


def best_at_once(m, slots, goal, epsilon, delta, largest_p_value):
    weights = itertools.permutations([*slots, *[0] * (m - len(slots))])
    guesses = itertools.product((False, True), repeat=m)

    def wins(made, coins):
        right = map(operator.eq, made[1], coins)
        return sum(map(operator.mul, made[0], right)) in goal

    return largest_p_value(
        m=m,
        outputs=list(itertools.product(sorted(set(weights)), guesses)),
        wins=wins,
        epsilon=epsilon,
        delta=delta,
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (0.7, 0.03)])
@pytest.mark.parametrize("r", [1, 2, 3])
def test_no_plan_whatsoever_for_three_canaries_gains_by_what_it_learns(
    r, epsilon, delta, largest_p_value
):
    """All plans, with passes and in any order, beside the exact bound: conjectured."""
    for v in range(1, r + 1):
        goal = range(v, r + 1)
        most = best_of_plans(3, (1,) * r, goal, epsilon, delta, largest_p_value)
        counts = Counts(canaries=3, guesses=r, correct=v)
        exact = ExactBound().p_value(counts, epsilon=epsilon, delta=delta)
        assert most == pytest.approx(exact, abs=1e-8)
        assert most <= p_value(counts, epsilon=epsilon, delta=delta) + 1e-9


@pytest.mark.parametrize("slots", [(2, 1), (2, 1, 1), (3, 2, 1)])
def test_nor_does_any_plan_that_fills_slots(slots, largest_p_value):
    for need in range(1, sum(slots) + 1):
        game = (3, slots, range(need, sum(slots) + 1), 0.5, 0.03, largest_p_value)
        assert best_of_plans(*game) == pytest.approx(best_at_once(*game), abs=1e-8)


def test_where_more_right_guesses_are_not_better_learning_does_help(largest_p_value):
    """Exactly one of two right: who knows the first coin aims at one coin, not two."""
    game = (2, (1, 1), {1}, 0.0, 0.05, largest_p_value)
    assert best_at_once(*game) == pytest.approx(0.525, abs=1e-8)
    assert best_of_plans(*game) == pytest.approx(0.55, abs=1e-8)


def law_of_a_stopping_guesser(r):
    """Return chances of (guesses made, right ones) for one who stops when ahead.

    The coins are fair and nothing is leaked. After every guess the coin is seen, and
    as soon as so many right ones would be surprising at five percent, it stops.
    """
    stopped, going = {}, {(0, 0): 1.0}
    for _ in range(r):
        after = {}
        for (n, v), chance in going.items():
            for win in (0, 1):
                seen = (n + 1, v + win)
                ahead = stats.binom.sf(seen[1] - 1, seen[0], 0.5) <= 0.05
                place = stopped if ahead else after
                place[seen] = place.get(seen, 0.0) + chance / 2
        going = after
    return stopped | going


def test_stopping_when_ahead_is_no_use_if_the_number_of_guesses_was_fixed():
    """Exact: unused guesses count as wrong. With the guesses made it would be 20 %."""
    law = law_of_a_stopping_guesser(100)
    assert sum(law.values()) == pytest.approx(1)
    committed = naive = 0.0
    for (made, v), chance in law.items():
        fixed = Counts(canaries=100, guesses=100, correct=v)
        committed += chance * (p_value(fixed, epsilon=0.0, delta=0.0) <= 0.05)
        stopped = Counts(canaries=100, guesses=made, correct=v)
        naive += chance * (p_value(stopped, epsilon=0.0, delta=0.0) <= 0.05)
    assert committed <= 0.05
    assert naive > 0.15


@given(all_counts(), st.floats(0, 5), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_one_more_right_guess_never_makes_the_p_value_larger(counts, epsilon, delta):
    m, r, v = counts.canaries, counts.guesses, counts.correct
    if v < r:
        better = Counts(canaries=m, guesses=r, correct=v + 1)
        before = p_value(counts, epsilon=epsilon, delta=delta)
        assert p_value(better, epsilon=epsilon, delta=delta) <= before * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_the_bound_is_wrong_no_more_often_than_it_says(epsilon, alpha):
    """Exact coverage on randomised response: every count, weighted, no sampling."""
    chances = stats.binom.pmf(np.arange(31), 30, special.expit(epsilon))
    for delta in (0.0, 1e-3):
        wrong = sum(
            chance
            for v, chance in enumerate(chances)
            if lower(
                Counts(canaries=30, guesses=30, correct=v), delta=delta, alpha=alpha
            )
            > epsilon
        )
        assert wrong <= alpha


@pytest.mark.parametrize("v", [14, 17, 19, 20])
def test_the_worst_mechanism_is_refuted_no_more_often_than_it_says(v):
    """Under the law that attains the exact bound, so many right are no more likely."""
    counts = Counts(canaries=40, guesses=20, correct=v)
    worst = ExactBound().p_value(counts, epsilon=math.log(3), delta=1e-3)
    assert worst <= p_value(counts, epsilon=math.log(3), delta=1e-3)


def test_the_bound_finds_most_of_a_large_epsilon():
    counts = Counts(canaries=1000, guesses=1000, correct=982)  # about expit(4)
    assert 3.4 < lower(counts, delta=1e-5) < 4.0


@pytest.mark.parametrize("correct", [0, 25, 50])
def test_says_nothing_at_or_below_chance(correct):
    counts = Counts(canaries=1000, guesses=100, correct=correct)
    assert lower(counts, delta=1e-5) == 0.0
