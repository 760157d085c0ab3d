"""The bound for coins of known bias: right, paid for, valid, useful, silent."""

import itertools
import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, sparse, special, stats

from dpaudit import ApproxDP, GaussianDP
from dpaudit.bounds import methods
from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import BiasedCoinCounts, Counts
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.errors import InvalidInputError


def unequal(inclusion, ins, outs, correct, *, canaries=None, committed=True):
    return BiasedCoinCounts(
        canaries=canaries or ins + outs,
        inclusion=inclusion,
        guesses_in=ins,
        guesses_out=outs,
        correct=correct,
        committed=committed,
    )


def p_value(counts, *, epsilon, delta):
    return math.exp(
        BiasedCoinsBound().log_p_value(counts, epsilon=epsilon, delta=delta)
    )


def lower(counts, *, delta, alpha=0.05):
    found = BiasedCoinsBound().epsilon_lower(counts, delta=delta, alpha=alpha)
    return found.epsilon_lower


def law(inclusion, ins, outs, epsilon):
    """Return the law of right guesses if every coin has the largest odds allowed."""
    odds = math.exp(epsilon) * inclusion / (1 - inclusion)
    against = math.exp(epsilon) * (1 - inclusion) / inclusion
    right_in = stats.binom.pmf(np.arange(ins + 1), ins, odds / (1 + odds))
    right_out = stats.binom.pmf(np.arange(outs + 1), outs, against / (1 + against))
    return np.convolve(right_in, right_out)


@given(st.floats(0.05, 0.95), st.integers(0, 15), st.integers(0, 15), st.floats(0, 3))
def test_without_delta_the_p_value_is_the_tail_of_two_binomials(pi, ins, outs, epsilon):
    chances = law(pi, ins, outs, epsilon)
    for correct in range(ins + outs + 1):
        counts = unequal(pi, ins, outs, correct, canaries=40)
        got = p_value(counts, epsilon=epsilon, delta=0.0)
        want = chances[correct:].sum()
        assert got == pytest.approx(want, rel=1e-8)


@given(st.integers(1, 40), st.floats(0, 3), st.data())
def test_fair_coins_give_the_exact_bound_without_delta(r, epsilon, data):
    correct = data.draw(st.integers(0, r))
    counts = Counts(canaries=r, guesses=r, correct=correct)
    want = ExactBound().p_value(counts, epsilon=epsilon, delta=0.0)
    got = p_value(unequal(0.5, r // 2, r - r // 2, correct), epsilon=epsilon, delta=0.0)
    assert got == pytest.approx(want, rel=1e-8)


def test_fair_coins_pay_what_a_coupling_costs_if_the_output_chose_the_split():
    counts = unequal(0.5, 4, 4, 8, canaries=10, committed=False)
    paid = p_value(counts, epsilon=1.0, delta=1e-3)
    free = p_value(counts, epsilon=1.0, delta=0.0)
    assert paid - free == pytest.approx(coupling_failure_probability(10, 1.0, 1e-3))


@pytest.mark.parametrize("inclusion", [0.1, 0.5, 0.8])
def test_a_fixed_split_pays_for_guesses_that_decide_only(inclusion):
    """By the formula of the page, at a size at which it is below a coupling's price."""
    ins, outs, m, epsilon, delta = 300, 200, 5000, 0.7, 1e-5
    fixed = unequal(inclusion, ins, outs, 400, canaries=m)
    chosen = unequal(inclusion, ins, outs, 400, canaries=m, committed=False)
    bias = special.logit(inclusion)
    p_in, p_out = special.expit(epsilon + bias), special.expit(epsilon - bias)
    s = ins * p_in * (1 - p_in) + outs * p_out * (1 - p_out)
    failing = inclusion * (1 - p_in) + (1 - inclusion) * (1 - p_out)
    free = p_value(fixed, epsilon=epsilon, delta=0.0)
    price = p_value(fixed, epsilon=epsilon, delta=delta) - free
    full = p_value(chosen, epsilon=epsilon, delta=delta) - free
    assert full == pytest.approx(m * delta * failing, rel=1e-6)
    assert price == pytest.approx(full * 0.93766 / math.sqrt(s - 0.2), rel=0.01)


def test_a_kind_of_guess_that_is_not_made_costs_nothing():
    only_in = unequal(0.3, 1, 0, 1, canaries=5)
    free = p_value(only_in, epsilon=0.5, delta=0.0)
    price = p_value(only_in, epsilon=0.5, delta=0.01) - free
    wrong = 1 - special.expit(0.5 + special.logit(0.3))
    assert price == pytest.approx(5 * 0.01 * 0.3 * wrong)


@pytest.mark.parametrize("inclusion", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(
    ("m", "ins", "outs", "correct", "epsilon", "delta"),
    [
        (1, 1, 0, 1, 0.5, 0.05),
        (1, 0, 1, 1, 0.5, 0.05),
        (2, 1, 1, 2, 0.5, 0.05),
        (2, 1, 1, 1, 0.0, 0.1),
        (3, 2, 1, 3, 0.7, 0.02),
        (3, 1, 1, 2, 0.7, 0.02),
        (3, 0, 2, 2, 0.2, 0.05),
    ],
)
def test_no_mechanism_is_right_so_often_more_often(
    inclusion, m, ins, outs, correct, epsilon, delta, largest_p_value
):
    """The linear program over all mechanisms and ways to make so many guesses."""
    signs = [True] * ins + [False] * outs + [None] * (m - ins - outs)
    outputs = sorted(set(itertools.permutations(signs)), key=str)
    most = largest_p_value(
        m=m,
        outputs=outputs,
        wins=lambda guesses, coins: sum(map(operator.eq, guesses, coins)) >= correct,
        epsilon=epsilon,
        delta=delta,
        inclusion=inclusion,
    )
    counts = unequal(inclusion, ins, outs, correct, canaries=m)
    assert most <= p_value(counts, epsilon=epsilon, delta=delta) + 1e-9


def largest_symmetric(inclusion, ins, outs, correct, m, epsilon, delta):
    """Return how often so many guesses can be right, by a linear program over counts.

    By symmetry a mechanism is a law of how many guesses "in" and "out" are right. What
    it spends of delta is asked for on average over the coins, which lets it do more.
    """
    shape = (ins + 1, outs + 1)
    place = np.arange(math.prod(shape)).reshape(shape)
    up = math.exp(epsilon) * inclusion / (1 - inclusion)
    down = math.exp(epsilon) * (1 - inclusion) / inclusion
    spent = {True: [], False: []}  # by how the coin fell: a count, what it may exceed
    for a, b in np.ndindex(shape):
        here = place[a, b]
        if a:
            spent[True].append((here, a, place[a - 1, b], up * (ins - a + 1)))
        if b < outs:
            spent[True].append((here, outs - b, place[a, b + 1], up * (b + 1)))
        if a < ins:
            spent[False].append((here, ins - a, place[a + 1, b], down * (a + 1)))
        if b:
            spent[False].append((here, b, place[a, b - 1], down * (outs - b + 1)))
    terms = [*spent[True], *spent[False]]
    size, many = place.size, len(terms)
    rows = sparse.lil_array((many + 2, size + many))
    for j, (one, weight, other, most) in enumerate(terms):
        rows[j, one], rows[j, other], rows[j, size + j] = weight, -most, -1
    rows[many, size : size + len(spent[True])] = 1
    rows[many + 1, size + len(spent[True]) :] = 1
    right = np.add.outer(np.arange(ins + 1), np.arange(outs + 1)).ravel()
    limits = np.append(
        np.zeros(many), [m * delta * inclusion, m * delta * (1 - inclusion)]
    )
    solved = optimize.linprog(
        -np.append(right >= correct, np.zeros(many)).astype(float),
        A_ub=rows.tocsr(),
        b_ub=limits,
        A_eq=np.append(np.ones(size), np.zeros(many))[np.newaxis],
        b_eq=[1],
    )
    assert solved.status == 0
    return -solved.fun


def test_the_program_over_counts_is_the_exact_bound_for_fair_coins():
    for m, correct in ((12, 9), (40, 11)):
        most = largest_symmetric(0.5, 6, 6, correct, m, 0.5, 1e-3)
        counts = Counts(canaries=m, guesses=12, correct=correct)
        want = ExactBound().p_value(counts, epsilon=0.5, delta=1e-3)
        assert most == pytest.approx(want, abs=1e-8)


@pytest.mark.parametrize(
    ("inclusion", "m", "ins", "outs", "correct", "epsilon", "delta"),
    [
        (0.5, 60, 12, 12, 19, 0.5, 1e-3),
        (0.3, 60, 20, 0, 13, 0.5, 2e-3),
        (0.3, 100, 15, 15, 24, 1.0, 1e-3),
        (0.9, 60, 20, 4, 23, 0.5, 1e-3),
        (0.1, 50, 10, 15, 22, 0.2, 1e-3),
    ],
)
def test_the_price_of_a_fixed_split_is_enough_and_not_far_too_much(
    inclusion, m, ins, outs, correct, epsilon, delta
):
    most = largest_symmetric(inclusion, ins, outs, correct, m, epsilon, delta)
    fixed = unequal(inclusion, ins, outs, correct, canaries=m)
    chosen = unequal(inclusion, ins, outs, correct, canaries=m, committed=False)
    free = p_value(fixed, epsilon=epsilon, delta=0.0)
    price = p_value(fixed, epsilon=epsilon, delta=delta) - free
    full = p_value(chosen, epsilon=epsilon, delta=delta) - free
    assert free < most <= free + price + 1e-9
    assert price < 0.75 * full


@given(st.floats(0.1, 0.9), st.integers(0, 29), st.floats(0, 2), st.floats(0, 1))
def test_more_right_guesses_and_a_stricter_claim_only_lower_the_p_value(
    pi, correct, epsilon, more
):
    here = unequal(pi, 20, 10, correct)
    better = unequal(pi, 20, 10, correct + 1)
    p = p_value(here, epsilon=epsilon, delta=0.0)
    assert p_value(better, epsilon=epsilon, delta=0.0) <= p * (1 + 1e-9)
    assert p <= p_value(here, epsilon=epsilon + more, delta=0.0) * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize(("inclusion", "epsilon"), [(0.2, 0.0), (0.2, 1.0), (0.9, 0.5)])
def test_the_bound_is_wrong_no_more_often_than_it_says(inclusion, epsilon, alpha):
    """Exact coverage at the largest odds allowed: every count, weighted."""
    chances = law(inclusion, 12, 12, epsilon)
    wrong = sum(
        chance
        for correct, chance in enumerate(chances)
        if lower(unequal(inclusion, 12, 12, correct), delta=0.0, alpha=alpha) > epsilon
    )
    assert wrong <= alpha


def test_it_finds_most_of_an_epsilon_of_two():
    pi, epsilon = 0.2, 2.0
    expected = 500 * (
        special.expit(epsilon + special.logit(pi))
        + special.expit(epsilon - special.logit(pi))
    )
    found = lower(unequal(pi, 500, 500, int(expected), canaries=1000), delta=1e-6)
    assert 1.7 < found < 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("inclusion", [0.1, 0.5, 0.9])
def test_says_nothing_at_or_below_chance(inclusion, delta):
    """Guessing what most coins say is right most of the time, and no evidence."""
    usual = int(200 * inclusion)
    assert lower(unequal(inclusion, 200, 0, usual), delta=delta) == 0.0
    assert lower(unequal(inclusion, 0, 200, 200 - usual), delta=delta) == 0.0
    assert lower(unequal(inclusion, 100, 100, 0), delta=delta) == 0.0


# The output may decide how many guesses are "in" and how many "out"


def every_guess(m):
    return list(itertools.product([None, False, True], repeat=m))


def seen(guesses, coins, inclusion):
    """Return what a run in which the output chose the guesses is read as."""
    return unequal(
        inclusion,
        sum(guess is True for guess in guesses),
        sum(guess is False for guess in guesses),
        sum(map(operator.eq, guesses, coins)),
        canaries=len(coins),
        committed=False,
    )


CHOSEN = [
    (1, 0.3, 0.0, 0.1),
    (2, 0.3, 0.0, 0.05),
    (2, 0.1, 0.5, 0.1),
    (3, 0.8, 0, 0.05),
]


@pytest.mark.parametrize(("m", "inclusion", "epsilon", "delta"), CHOSEN)
@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.45])
def test_a_claim_is_tested_as_well_if_the_output_chooses_the_split(
    m, inclusion, epsilon, delta, alpha, largest_p_value
):
    """The linear program over all mechanisms and all guesses that look at the output.

    So a chosen split is no fault at one epsilon: the proof is in the module.
    """

    def rejects(guesses, coins):
        counts = seen(guesses, coins, inclusion)
        return p_value(counts, epsilon=epsilon, delta=delta) <= alpha

    most = largest_p_value(
        m=m,
        outputs=every_guess(m),
        wins=rejects,
        epsilon=epsilon,
        delta=delta,
        inclusion=inclusion,
    )
    assert most <= alpha + 1e-9


@pytest.mark.parametrize("alpha", [0.2, 0.45])
def test_the_bound_for_a_chosen_split_is_wrong_no_more_often_than_it_says(
    alpha, largest_p_value
):
    def wrong(guesses, coins):
        return lower(seen(guesses, coins, 0.3), delta=0.05, alpha=alpha) > 0.5

    most = largest_p_value(
        m=2,
        outputs=every_guess(2),
        wins=wrong,
        epsilon=0.5,
        delta=0.05,
        inclusion=0.3,
    )
    assert most <= alpha + 1e-9


def test_a_split_that_is_chosen_as_if_it_cost_nothing_is_wrong_too_often(
    largest_p_value,
):
    """The program can tell: without what delta costs, the level is exceeded."""

    def rejects(guesses, coins):
        counts = seen(guesses, coins, 0.3)
        return p_value(counts, epsilon=0.0, delta=0.0) <= 0.305

    most = largest_p_value(
        m=2,
        outputs=every_guess(2),
        wins=rejects,
        epsilon=0.0,
        delta=0.05,
        inclusion=0.3,
    )
    assert most > 0.32


def test_a_chosen_split_shows_no_more_and_nothing_where_delta_is_dear_below():
    """At epsilon = 0 delta costs 0.1, more than alpha: the grid ends at once."""
    chosen, fixed = (
        unequal(0.5, 500, 500, 900, canaries=20_000, committed=committed)
        for committed in (False, True)
    )
    assert lower(chosen, delta=1e-5) == 0.0
    assert lower(fixed, delta=1e-5) > 1.8
    assert lower(chosen, delta=0.0) == lower(fixed, delta=0.0) > 1.8


def test_a_curve_is_no_claim_for_a_chosen_split():
    chosen = unequal(0.5, 50, 50, 90, committed=False)
    with pytest.raises(InvalidInputError, match="tested at one point of a curve"):
        methods.judge_claim(GaussianDP(mu=1.0), chosen, alpha=0.05)
    point = methods.judge_claim(ApproxDP(epsilon=1.0, delta=0.0), chosen, alpha=0.05)
    assert point.p_value == pytest.approx(p_value(chosen, epsilon=1.0, delta=0.0))
