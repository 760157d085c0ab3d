"""The bound for weighted guesses: right, paid for, valid, useful, silent at chance."""

import itertools
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts, Weighted
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound, weighted_price


def guesses(weights, sizes, correct, *, canaries=None, committed=True):
    return Weighted(
        canaries=canaries or max(1, sum(sizes)),
        weights=tuple(weights),
        guesses=tuple(sizes),
        correct=tuple(correct),
        committed=committed,
    )


def p_value(weighted, *, epsilon, delta):
    return math.exp(WeightedBound().log_p_value(weighted, epsilon=epsilon, delta=delta))


def lower(weighted, *, delta, alpha=0.05):
    found = WeightedBound().epsilon_lower(weighted, delta=delta, alpha=alpha)
    return found.epsilon_lower


def outcomes(weights, sizes, p):
    """Return for every outcome its counts, its weight and its chance."""
    laws = [stats.binom.pmf(np.arange(n + 1), n, p) for n in sizes]
    for counts in itertools.product(*(range(n + 1) for n in sizes)):
        chance = math.prod(law[c] for law, c in zip(laws, counts, strict=True))
        yield counts, float(np.dot(weights, counts)), chance


@pytest.mark.parametrize("weights", [(3, 1), (2.5, 1.2), (1.0, 1.0)])
@pytest.mark.parametrize("epsilon", [0.0, 1.3])
def test_without_delta_the_p_value_is_the_chance_of_so_much_weight(weights, epsilon):
    sizes = (4, 7)
    every = list(outcomes(weights, sizes, special.expit(epsilon)))
    for counts, weight, _ in every:
        want = sum(chance for _, w, chance in every if w >= weight - 1e-9)
        got = p_value(guesses(weights, sizes, counts), epsilon=epsilon, delta=0.0)
        assert want * (1 - 1e-9) <= got <= want * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize(
    ("weights", "sizes", "threshold", "epsilon", "delta", "m"),
    [
        ((2, 1), (1, 2), 3, 0.5, 0.03, 3),
        ((2, 1), (1, 2), 2, 0.5, 0.03, 3),
        ((3, 1), (1, 2), 3, 1.0, 0.02, 3),
        ((1.5, 1), (2, 1), 2.5, 0.0, 0.05, 3),
        ((1,), (2,), 2, 0.5, 0.05, 3),
        ((2, 1), (1, 3), 4, 0.5, 0.02, 4),
        ((2, 1), (2, 2), 5, 0.0, 0.02, 4),
    ],
)
def test_no_mechanism_gathers_so_much_weight_more_often(
    weights, sizes, threshold, epsilon, delta, m, largest_p_value
):
    """The linear program over all mechanisms, class assignments and guesses."""
    spread = [*sizes, m - sum(sizes)]
    labels = np.repeat(np.arange(len(spread)), spread).tolist()
    value = [*weights, 0.0]
    outputs = [
        (order, signs)
        for order in sorted(set(itertools.permutations(labels)))
        for signs in itertools.product([False, True], repeat=m)
    ]

    def heavy(output, coins):
        right = zip(*output, coins, strict=True)
        return sum(value[c] for c, g, b in right if g == b) >= threshold

    most = largest_p_value(
        m=m, outputs=outputs, wins=heavy, epsilon=epsilon, delta=delta
    )
    correct = next(c for c, w, _ in outcomes(weights, sizes, 0.5) if w == threshold)
    for committed in (True, False):
        reading = guesses(weights, sizes, correct, canaries=m, committed=committed)
        assert most <= p_value(reading, epsilon=epsilon, delta=delta) + 1e-9


@pytest.mark.parametrize("level", [0.3, 0.4, 0.45])
def test_no_output_may_choose_the_classes_to_be_refuted_more_often(
    level, largest_p_value
):
    """Sizes not committed to: any subset of three canaries, in either class."""
    m, weights, epsilon, delta = 3, (2, 1), 0.3, 0.03
    outputs = [
        (classes, signs)
        for classes in itertools.product([0, 1, None], repeat=m)
        for signs in itertools.product([False, True], repeat=m)
    ]

    def refuted(output, coins):
        classes, signs = output
        sizes = [classes.count(c) for c in (0, 1)]
        right = [c for c, g, b in zip(classes, signs, coins, strict=True) if g == b]
        counts = [right.count(c) for c in (0, 1)]
        reading = guesses(weights, sizes, counts, canaries=m, committed=False)
        return p_value(reading, epsilon=epsilon, delta=delta) <= level

    most = largest_p_value(
        m=m, outputs=outputs, wins=refuted, epsilon=epsilon, delta=delta
    )
    assert 0 < most <= level


def deciding(weights, threshold):
    """Return f(x) = 1[weight of x >= threshold] on all patterns of right guesses."""
    patterns = list(itertools.product([0, 1], repeat=len(weights)))
    return {x: float(np.dot(weights, x) >= threshold) for x in patterns}


def mixed_solution(f, i, x, p):
    """Return the Stein solution of guess i: (1 - p) times the chance it decides.

    Each other guess is kept with chance u or drawn afresh; averaged over u, exactly,
    as the chance is a polynomial in u.
    """
    nodes, shares = np.polynomial.legendre.leggauss(len(x))
    total = 0.0
    for u, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        for others in f:
            if others[i]:
                continue
            chance = math.prod(
                u * (s == z) + (1 - u) * (p if z else 1 - p)
                for j, (s, z) in enumerate(zip(x, others, strict=True))
                if j != i
            )
            up = (*others[:i], 1, *others[i + 1 :])
            total += share * chance * (f[up] - f[others])
    return (1 - p) * total


@pytest.mark.parametrize(
    ("weights", "sizes", "threshold"),
    [((1,), (5,), 4), ((2, 1), (2, 3), 5), ((3, 1), (1, 4), 4), ((1.7, 1), (3, 2), 5)],
)
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_price_is_at_least_the_stein_solution(weights, sizes, threshold, epsilon):
    """And the solution does solve its equation, pattern by pattern."""
    p = float(special.expit(epsilon))
    f = deciding(np.repeat(weights, sizes), threshold)
    mean = sum(v * math.prod(p if z else 1 - p for z in x) for x, v in f.items())
    price = weighted_price(guesses(weights, sizes, sizes), epsilon)
    for x, value in f.items():
        y = [mixed_solution(f, i, x, p) for i in range(len(x))]
        signed = sum(
            a if right else -math.exp(epsilon) * a
            for a, right in zip(y, x, strict=True)
        )
        assert signed == pytest.approx(value - mean, abs=1e-12)
        assert min(y) >= 0
        assert max(y) <= price + 1e-12


def test_a_sum_of_coins_is_nowhere_denser_than_the_constant_says():
    """0.46883 over the standard deviation: its closed form, and a random search."""
    x = np.linspace(0.01, 20, 200_001)
    assert 0.4688 < (np.sqrt(x) * special.ive(0, x)).max() < 0.46883
    rng = np.random.default_rng(3)
    for _ in range(300):
        chances = rng.beta(*rng.uniform(0.05, 2, 2), size=rng.integers(1, 40))
        law = np.ones(1)
        for p in chances:
            law = np.append(law * (1 - p), 0) + np.append(0, law * p)
        assert law.max() <= 0.46883 / math.sqrt(
            (chances * (1 - chances)).sum() + 1e-300
        )


@pytest.mark.parametrize("weight", [1, 4, 0.7])
def test_one_class_without_delta_is_the_exact_bound(weight):
    counts = Counts(canaries=100, guesses=60, correct=45)
    want = ExactBound().epsilon_lower(counts, delta=0.0, alpha=0.05).epsilon_lower
    reading = guesses([weight], [60], [45], canaries=100)
    assert lower(reading, delta=0.0) == pytest.approx(want, abs=2e-4)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.floats(0, 3),
    st.floats(0, 1),
    st.sampled_from([0.0, 1e-4]),
    st.data(),
)
def test_more_right_guesses_and_a_stricter_claim_only_lower_the_p_value(
    weights, epsilon, more, delta, data
):
    sizes = [data.draw(st.integers(1, 12)) for _ in weights]
    correct = [data.draw(st.integers(0, n - 1)) for n in sizes]
    here = p_value(guesses(weights, sizes, correct), epsilon=epsilon, delta=delta)
    correct[0] += 1
    after = p_value(guesses(weights, sizes, correct), epsilon=epsilon, delta=delta)
    assert after <= here * (1 + 1e-9) + 1e-12
    if delta == 0:  # the search for the largest rejected epsilon begins here
        looser = p_value(
            guesses(weights, sizes, correct), epsilon=epsilon + more, delta=0.0
        )
        assert after <= looser * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_bound_is_wrong_no_more_often_than_it_says(epsilon, alpha):
    """Exact coverage on randomised response: every outcome of two classes."""
    weights, sizes = (3, 1), (6, 8)
    wrong = sum(
        chance
        for counts, _, chance in outcomes(weights, sizes, special.expit(epsilon))
        if lower(guesses(weights, sizes, counts), delta=0.0, alpha=alpha) > epsilon
    )
    assert wrong <= alpha


def test_weights_show_more_than_counts_where_confidence_differs():
    sizes, correct = (50, 400), (49, 250)
    flat = guesses((1, 1), sizes, correct, canaries=1000)
    weighted = guesses((6, 1), sizes, correct, canaries=1000)
    assert lower(weighted, delta=1e-5) > lower(flat, delta=1e-5) + 0.15
    assert lower(weighted, delta=1e-5) > 0.8


def test_sizes_fixed_before_the_run_pay_less_for_delta():
    sizes, correct = (200, 400), (190, 320)
    fixed, free = (
        guesses((3, 1), sizes, correct, canaries=2000, committed=committed)
        for committed in (True, False)
    )
    assert weighted_price(fixed, 1.0) < weighted_price(free, 1.0) / 2
    assert lower(fixed, delta=1e-5) > lower(free, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_says_nothing_at_or_below_chance(delta):
    assert lower(guesses((2, 1), (20, 30), (10, 15)), delta=delta) == 0.0
    assert lower(guesses((2, 1), (20, 30), (0, 0)), delta=delta) == 0.0
    assert lower(guesses((2, 1), (0, 0), (0, 0)), delta=delta) == 0.0


def test_without_delta_it_does_not_matter_who_chose_the_classes():
    found = [
        WeightedBound().epsilon_lower(
            Weighted(
                canaries=200,
                weights=(3.0, 1.0),
                guesses=(40, 60),
                correct=(38, 50),
                committed=committed,
            ),
            delta=0.0,
            alpha=0.05,
        )
        for committed in (False, True)
    ]
    assert found[0].epsilon_lower == found[1].epsilon_lower > 1


def price_written_out(weights, sizes, epsilon):
    """Each guess is waited for by the class that needs the least for its weight."""
    most = 1 / (1 + math.exp(epsilon))
    dearest = 0.0
    for c, weight in enumerate(weights):
        if not sizes[c]:
            continue
        least = most
        for d, other in enumerate(weights):
            left = sizes[d] - (1 if d == c else 0)
            if left:
                steps = math.ceil(weight / other)
                spread = math.sqrt(math.exp(-epsilon) / left)
                least = min(least, 2 * 0.46883 * steps * spread)
        dearest = max(dearest, least)
    return dearest


def test_the_price_is_that_of_the_theorem(subtests):
    for epsilon, (weights, sizes) in product(
        [0.0, 1.0, 3.0],
        [
            ((2.0, 1.0), (50, 100)),
            ((5.0, 1.0), (40, 3000)),
            ((3.0,), (1,)),
            ((3.0,), (400,)),
            ((1.0, 2.5), (0, 60)),
            ((1.0, 7.0), (1, 1)),
        ],
    ):
        with subtests.test(epsilon=epsilon, weights=weights, sizes=sizes):
            weighted = Weighted(
                canaries=4000,
                weights=weights,
                guesses=sizes,
                correct=(0,) * len(sizes),
                committed=True,
            )
            want = price_written_out(weights, sizes, epsilon)
            assert weighted_price(weighted, epsilon) == pytest.approx(want, rel=1e-12)


# Adaptive slots: valid however the guesser fills them, useful, silent at chance.


WEIGHTS, SIZES = (3, 2, 1), (2, 2, 2)


def slots(correct, sizes=SIZES, canaries=6):
    return Weighted(
        canaries=canaries,
        weights=WEIGHTS,
        guesses=sizes,
        correct=correct,
        committed=True,
    )


def slots_p_value(reading, epsilon, delta=0.0):
    found = AdaptiveWeightedBound().log_p_value(reading, epsilon=epsilon, delta=delta)
    return math.exp(found)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("threshold", range(1, 13))
def test_no_order_of_slots_beats_the_tail(threshold, epsilon):
    """Optimal control: the guesser picks the next slot, or stops, knowing the score."""
    p = special.expit(epsilon)

    @cache
    def best(left, score):
        if score >= threshold:
            return 1.0
        chances = [0.0]
        for c, size in enumerate(left):
            if size:
                rest = (*left[:c], size - 1, *left[c + 1 :])
                won = best(rest, score + WEIGHTS[c])
                chances.append(p * won + (1 - p) * best(rest, score))
        return max(chances)

    reached = [
        correct
        for correct in product(*(range(n + 1) for n in SIZES))
        if sum(w * v for w, v in zip(WEIGHTS, correct, strict=True)) == threshold
    ]
    assert reached
    for correct in reached:
        assert best(SIZES, 0) <= slots_p_value(slots(correct), epsilon) * (1 + 1e-9)


def test_delta_costs_the_coupling():
    plain, with_delta = (slots_p_value(slots((2, 2, 1)), 1.0, d) for d in (0.0, 1e-3))
    assert with_delta - plain == pytest.approx(6 * 1e-3 / (1 + math.e), rel=1e-9)


def test_sure_guesses_show_most_of_a_large_epsilon():
    reading = slots((199, 196, 190), sizes=(200, 200, 200), canaries=600)
    found = AdaptiveWeightedBound().epsilon_lower(reading, delta=1e-6, alpha=0.05)
    assert 3.2 < found.epsilon_lower < math.log(585 / 15) + 0.5


def test_slots_say_nothing_at_chance():
    reading = slots((100, 100, 100), sizes=(200, 200, 200), canaries=600)
    found = AdaptiveWeightedBound().epsilon_lower(reading, delta=1e-6, alpha=0.05)
    assert found.epsilon_lower == 0.0
