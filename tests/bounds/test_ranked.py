"""The bound for ranked guesses: looking many times is paid for, and delta once."""

import itertools
import math
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.bounds.bound import LowerBound
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.ranked import RankedBound, _Test
from dpaudit.bounds.readings import Counts, Ranked
from dpaudit.stats.ranked_tail import crossing

LOOKS = [7, 21, 35]  # where it looks at 35 guesses, if epsilon = delta = 0


def ranked(*right_of, canaries=None):
    """Return a ranking, from (right, guesses) of each shell in turn."""
    shells = [np.arange(n) < v for v, n in right_of]
    right = np.concatenate(shells)
    return Ranked(canaries=canaries or len(right), right=right)


def p_value(reading, *, epsilon, delta, level=0.05):
    bound = RankedBound(level=level)
    return math.exp(bound.log_p_value(reading, epsilon=epsilon, delta=delta))


def p_values(sizes, *, epsilon, delta, canaries):
    """Return every outcome of the shells with its p-value."""
    return {
        counts: p_value(
            ranked(*zip(counts, sizes, strict=True), canaries=canaries),
            epsilon=epsilon,
            delta=delta,
        )
        for counts in itertools.product(*(range(n + 1) for n in sizes))
    }


def wrong_at_worst(chances, p_values):
    """Return the largest ratio of P[p <= a] to a over every a that is attained."""
    order = sorted(p_values, key=p_values.get)
    reached = np.cumsum([chances[c] for c in order])
    values = np.array([p_values[c] for c in order])
    last = np.append(np.diff(values) > 0, True)  # ties are reached together
    return float((reached[last] / values[last]).max())


@pytest.fixture(scope="module")
def fair():
    """All outcomes of 35 guesses, looked at three times, and their p-values."""
    return p_values(np.diff([0, *LOOKS]), epsilon=0.0, delta=0.0, canaries=35)


def product_distribution(sizes, p, first=None):
    laws = [stats.binom.pmf(np.arange(n + 1), n, p) for n in sizes]
    laws[0] = laws[0] if first is None else first
    ranges = (range(n + 1) for n in sizes)
    return {
        counts: math.prod(law[c] for law, c in zip(laws, counts, strict=True))
        for counts in itertools.product(*ranges)
    }


def test_without_delta_the_p_value_is_the_exact_chance_of_so_small_a_minimum(fair):
    """Against all outcomes of the three looks, each weighted, tails by scipy."""
    weights = [1.0, 0.5, 0.25]

    def least(counts):
        seen = np.cumsum(counts)
        tails = stats.binom.sf(seen - 1, LOOKS, 0.5)
        return (tails / weights).min()

    chances = product_distribution(np.diff([0, *LOOKS]), 0.5)
    found = {c: least(c) for c in chances}
    for counts, p in fair.items():
        if p < 1:
            up_to = found[counts] * (1 + 1e-9)
            want = sum(chances[c] for c in chances if found[c] <= up_to)
            assert p == pytest.approx(want, abs=1e-11)


def test_it_is_wrong_exactly_as_often_as_it_says_on_fair_coins(fair):
    chances = product_distribution(np.diff([0, *LOOKS]), 0.5)
    assert wrong_at_worst(chances, fair) <= 1 + 1e-9


M, DELTA = 60, 1e-4


@pytest.fixture(scope="module")
def fair_with_delta():
    """The same outcomes, of 60 canaries, against a claim with a delta."""
    return p_values(np.diff([0, *LOOKS]), epsilon=0.0, delta=DELTA, canaries=M)


def worst_first_look(m, k, v, epsilon, delta):
    """Return the law of right guesses that attains the exact bound at one look."""
    b = stats.binom.pmf(np.arange(k + 1), k, special.expit(epsilon))
    more = m * delta / (v * b[v])
    return b * (1 - more * b[v:].sum()) + np.where(np.arange(k + 1) >= v, more * b, 0)


@pytest.mark.parametrize("v", [5, 6, 7])
def test_the_worst_mechanism_for_the_first_look_rejects_no_more_than_it_says(
    v, fair_with_delta
):
    """Exact, with delta: every outcome of three looks under a mechanism known to
    spend its whole delta on getting ``v`` of the first seven right.
    """
    sizes = np.diff([0, *LOOKS])
    first = worst_first_look(M, 7, v, 0.0, DELTA)
    assert first.min() >= 0
    assert (
        wrong_at_worst(product_distribution(sizes, 0.5, first), fair_with_delta)
        <= 1 + 1e-9
    )


@pytest.mark.parametrize(
    ("m", "looks", "counts", "epsilon", "delta"),
    [
        (3, [1, 3], [1, 3], 1.0, 0.02),
        (3, [1, 3], [2, 3], 0.5, 0.05),
        (3, [1, 2], [2, 2], 0.5, 0.05),
        (3, [2, 3], [2, 3], 1.0, 0.02),
        (3, [1, 2, 3], [2, 2, 3], 0.5, 0.02),
        (4, [1, 4], [1, 4], 1.0, 0.03),
        pytest.param(4, [2, 4], [2, 4], 0.5, 0.02, marks=pytest.mark.nightly),
        pytest.param(4, [2, 4], [2, 3], 0.0, 0.03, marks=pytest.mark.nightly),
        (4, [3, 4], [3, 3], 1.5, 0.03),
    ],
)
def test_no_mechanism_crosses_more_often(
    m, looks, counts, epsilon, delta, largest_p_value
):
    """The linear program over all mechanisms, orders and guesses."""
    sizes = [*np.diff([0, *looks]), m - looks[-1]]
    shells = np.repeat(np.arange(len(sizes)), sizes).tolist()
    outputs = [
        (order, guesses)
        for order in sorted(set(itertools.permutations(shells)))
        for guesses in itertools.product([False, True], repeat=m)
    ]

    def crosses(output, coins):
        right = [(j, g == b) for j, g, b in zip(*output, coins, strict=True)]
        return any(
            sum(r for j, r in right if j <= look) >= c for look, c in enumerate(counts)
        )

    most = largest_p_value(
        m=m, outputs=outputs, wins=crosses, epsilon=epsilon, delta=delta
    )
    found = crossing(looks, counts, epsilon)
    assert most <= found.probability + m * delta * found.price + 1e-9
    assert most >= found.probability - 1e-9  # coins of exactly these odds are allowed


def test_more_right_guesses_never_make_the_p_value_larger():
    rng = np.random.default_rng(4)
    for _ in range(40):
        right = rng.random(100) < 0.75
        better = right.copy()
        better[rng.choice(np.flatnonzero(~right))] = True
        before, after = (
            p_value(Ranked(canaries=100, right=x), epsilon=0.3, delta=0.0)
            for x in (right, better)
        )
        assert after <= before * (1 + 1e-9) + 1e-12


def lower(reading, *, delta, alpha=0.05) -> LowerBound:
    return RankedBound().epsilon_lower(reading, delta=delta, alpha=alpha).epsilon_lower


def test_it_finds_almost_what_the_best_number_of_guesses_would_have():
    """Log-odds are quantiles of a normal, and as many guesses right as they say."""
    m, delta = 10_000, 1e-5
    log_odds = np.sort(np.abs(stats.norm.ppf((np.arange(m) + 0.5) / m)))[::-1]
    chances = special.expit(log_odds)
    right = np.diff(np.floor(np.append(0.5, np.cumsum(chances) + 0.5))) > 0
    reading = Ranked(canaries=m, right=right)
    seen = np.cumsum(right)
    best = max(
        ExactBound()
        .epsilon_lower(
            Counts(canaries=m, guesses=k, correct=int(seen[k - 1])),
            delta=delta,
            alpha=0.05,
        )
        .epsilon_lower
        for k in (50, 100, 200, 400, 800, 1600, 3200)
    )
    assert best - 0.2 < lower(reading, delta=delta) <= best + 0.02


def test_a_perfect_ranking_shows_more_than_a_good_one():
    """Few guesses and a delta that costs nearly alpha; the exact bound finds 2.70."""
    shown = [
        lower(ranked((50 - wrong, 50), canaries=1000), delta=6e-4)
        for wrong in (8, 6, 4, 2, 0)
    ]
    assert shown == sorted(shown)
    assert 2.5 < shown[-1] < 2.71


def test_a_perfect_ranking_of_many_canaries_shows_a_large_epsilon():
    reading = Ranked(canaries=5000, right=np.ones(5000, bool))
    assert 6.5 < lower(reading, delta=0.0) < 7.5
    assert 5 < lower(reading, delta=1e-6) < 7.5


def test_says_nothing_at_or_below_chance(subtests):
    for canaries, delta in product([1, 2, 10, 1000], [0.0, 1e-5, 0.1]):
        with subtests.test(canaries=canaries, delta=delta):
            even = Ranked(canaries=canaries, right=np.arange(canaries) % 2 == 1)
            none = Ranked(canaries=canaries, right=np.zeros(canaries, bool))
            assert lower(even, delta=delta) == lower(none, delta=delta) == 0.0


@pytest.mark.parametrize("epsilon", [700.0, 745.0, 746.0, 1e6])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_nothing_speaks_against_a_claim_that_expects_every_guess_to_be_right(
    epsilon, delta
):
    """From 745 on the log of the chance of a right guess is 0, or all but 0."""
    assert special.log_expit(746.0) == 0.0
    for wrong in (0, 1, 35):
        reading = ranked((35 - wrong, 35), canaries=60)
        assert p_value(reading, epsilon=epsilon, delta=delta) == 1.0


def test_of_guesses_that_are_equally_sure_the_wrong_ones_come_first():
    """Among all kinds of floats, and as a sort by two keys has it."""
    rng = np.random.default_rng(6)
    kinds = [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1 + 2**-52, 1e308, -np.inf, np.inf]
    log_odds = rng.choice([*kinds, *rng.normal(size=10)], 500)
    bits = rng.integers(0, 2, 500, np.uint8)
    right = (log_odds >= 0) == (bits == 1)
    order = np.lexsort((right, -np.abs(log_odds)))
    np.testing.assert_array_equal(Ranked.of(log_odds, bits).right, right[order])


@pytest.mark.nightly
def test_what_is_clearly_rejected_is_rejected_and_most_is_clear(subtests):
    """At every epsilon of the grid, not only up to the first that is not rejected."""
    for seed, (alpha, delta) in product(
        range(3), [(0.05, 0.0), (0.05, 1e-5), (0.05, 1e-4), (0.3, 1e-4), (1e-6, 0)]
    ):
        with subtests.test(seed=seed, alpha=alpha, delta=delta):
            rng = np.random.default_rng(seed)
            right = rng.random(600) < np.linspace(0.98 - 0.05 * seed, 0.5, 600)
            reading = Ranked(canaries=600 * (1 + seed), right=right)
            test = _Test(reading, delta=delta, alpha=alpha)
            epsilons = 0.01 * np.arange(400)
            clear = test.clearly_rejects(epsilons)
            rejected = np.array(
                [test.p_value(epsilon) <= alpha for epsilon in epsilons]
            )
            assert not np.any(clear & ~rejected)
            assert clear.sum() >= 0.7 * rejected.sum() > 20


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("guesses", [30, 600, 8000])
def test_the_union_over_looks_is_at_least_the_chance(guesses, alpha):
    """Far from alpha, where levels are added up, and near it, where tails are."""
    rng = np.random.default_rng(guesses)
    right = rng.random(guesses) < np.linspace(0.9, 0.6, guesses)
    test = _Test(Ranked(canaries=guesses, right=right), delta=0.0, alpha=alpha)
    epsilons = 0.01 * np.arange(300)
    union = test._union(*test._looks(epsilons), epsilons)
    chances = np.array([test.p_value(epsilon) for epsilon in epsilons])
    decided = chances < 1
    assert decided.any()
    assert np.all(union[decided] + 1e-300 >= chances[decided])


@pytest.mark.parametrize("wrong", [0, 1, 3])
@pytest.mark.parametrize("guesses", [1, 4, 40])
def test_what_is_clear_of_few_guesses_is_so_by_their_p_value(guesses, wrong):
    right = np.arange(guesses) >= min(wrong, guesses)
    for delta in (0.0, 1e-3):
        reading = Ranked(canaries=guesses, right=right)
        test = _Test(reading, delta=delta, alpha=0.2)
        epsilons = 0.05 * np.arange(120)
        for epsilon in epsilons[test.clearly_rejects(epsilons)]:
            assert p_value(reading, epsilon=epsilon, delta=delta, level=0.2) <= 0.2


def looks_in_words(ranked, *, epsilon, delta, alpha):
    """Choose looks as docs/explanation/bounds.md says it, one after another."""
    last, slack = len(ranked.right), ranked.canaries * delta
    first = 1
    while special.expit(epsilon) ** first > 0.012 and first <= last:
        first += 1
    while 0.63 * slack * math.exp(-epsilon / 2) / math.sqrt(first) > 0.7 * alpha:
        first += 1
    looks, following = [], first
    while following <= last - 2 * first:
        looks.append(following)
        following *= 2 if len(looks) > 1 else 3
    return [*looks, last]


def test_it_looks_where_the_design_says(subtests):
    for guesses, delta in product([1, 5, 20, 21, 700, 9000], [0.0, 1e-5, 1e-3]):
        with subtests.test(guesses=guesses, delta=delta):
            reading = Ranked(canaries=10_000, right=np.ones(guesses, bool))
            epsilons = np.array([0.0, 0.37, 1.0, 2.5, 4.1, 800.0])
            looks, number = _Test(reading, delta=delta, alpha=0.05)._looks(epsilons)
            for row, count, epsilon in zip(
                looks.tolist(), number, epsilons, strict=True
            ):
                want = looks_in_words(reading, epsilon=epsilon, delta=delta, alpha=0.05)
                assert row[:count] == want
                assert set(row[count:]) <= {guesses}


@pytest.mark.parametrize("guesses", [1, 5, 50, 777, 10_000])
def test_all_shells_but_the_first_are_at_least_twice_as_large(guesses):
    """The rough price of a ranking relies on it."""
    reading = Ranked(canaries=20_000, right=np.ones(guesses, bool))
    epsilons = 0.05 * np.arange(100)
    looks, number = _Test(reading, delta=1e-5, alpha=0.05)._looks(epsilons)
    for row, count in zip(looks, number, strict=True):
        assert np.all(np.diff(row[:count]) >= 2 * row[0])


def test_a_small_epsilon_is_found_too():
    """Two in three of a thousand are right: log-odds of 0.7, less what is paid."""
    right = np.arange(1000) % 3 > 0
    reading = Ranked(canaries=1000, right=right)
    found = RankedBound().epsilon_lower(reading, delta=0.0, alpha=0.05)
    assert 0.3 < found.epsilon_lower < 0.7
