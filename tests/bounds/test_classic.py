"""The bound for independent runs: right, attained, valid, useful, silent at chance."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from dpaudit.bounds.exact import ExactBound, SeparateRunsBound
from dpaudit.bounds.hypergeometric import group_claim
from dpaudit.bounds.readings import Counts
from dpaudit.privacy.guarantees import GaussianDP


def runs(right, total, guesses=None):
    guesses = total if guesses is None else guesses
    return Counts(canaries=total, guesses=guesses, correct=right)


def p_value(counts, *, epsilon, delta):
    return math.exp(
        SeparateRunsBound().log_p_value(counts, epsilon=epsilon, delta=delta)
    )


def lower(counts, *, delta, alpha=0.05):
    return (
        SeparateRunsBound()
        .epsilon_lower(counts, delta=delta, alpha=alpha)
        .epsilon_lower
    )


def best_chance(epsilon, delta):
    """Return how often one run can be guessed, from the worst pair there is.

    Four outputs: two that give the coin away, two with odds of e^epsilon.
    """
    away = delta
    likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    return away + likely


def tail(v, trials, p):
    terms = range(max(v, 0), trials + 1)
    return sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in terms)


@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from([0, Fraction(1, 10**6), Fraction(1, 100), Fraction(1, 3)]),
    st.data(),
)
def test_p_value_agrees_with_exact_arithmetic(total, odds, delta, data):
    """The sum over how many coins are given away, passes or none, in rationals."""
    r = data.draw(st.integers(1, total))
    v = data.draw(st.integers(0, r))
    p = Fraction(odds, 1 + odds)
    want = sum(
        math.comb(total, k)
        * delta**k
        * (1 - delta) ** (total - k)
        * tail(v - min(k, r), r - min(k, r), p)
        for k in range(total + 1)
    )
    got = p_value(runs(v, total, r), epsilon=math.log(odds), delta=float(delta))
    assert got == pytest.approx(float(want), rel=1e-9)


def test_without_passes_it_is_one_binomial_as_it_always_was():
    for v, delta in ((30, 1e-3), (33, 0.2), (40, 0.0)):
        p = best_chance(1.0, delta)
        got = p_value(runs(v, 40), epsilon=1.0, delta=delta)
        assert got == pytest.approx(stats.binom.sf(v - 1, 40, p), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "r", "v", "epsilon", "delta"),
    [
        (20_000, 2000, 1600, 1.2, 1e-3),
        (50_000, 1000, 950, 2.5, 1e-4),
        (10**6, 10**5, 80_000, 1.3, 1e-2),
    ],
)
def test_p_values_of_many_runs_are_the_plain_sum(n, r, v, epsilon, delta):
    k = np.arange(r + 1)
    rest = stats.binom.sf(v - k - 1, r - k, best_chance(epsilon, 0.0))
    given_away = stats.binom.pmf(k, n, delta)
    want = math.log(given_away @ rest + stats.binom.sf(r, n, delta))
    got = SeparateRunsBound().log_p_value(runs(v, n, r), epsilon=epsilon, delta=delta)
    assert got == pytest.approx(want, rel=1e-9)


def test_p_values_far_below_any_float_are_right_too():
    """All of 10,000 guesses right: the sum over coins given away has a closed form."""
    n, r, delta, p = 10**6, 10**4, 1e-4, best_chance(1.0, 0.0)
    k = np.arange(2000)  # P[K > 2000] is nothing beside what is summed
    logs = stats.binom.logpmf(k, n, delta) + (r - k) * math.log(p)
    want = float(np.logaddexp.reduce(logs))
    got = SeparateRunsBound().log_p_value(runs(r, n, r), epsilon=1.0, delta=delta)
    assert want < -2000
    assert got == pytest.approx(want, rel=1e-10)


# The oracle: what independent runs can do, without any theorem about one of them


def best_guesses(laws, r, v):
    """Return P[V >= v] of the best guesser of ``r`` coins, and its odds of a win.

    ``laws[i][coin][output]`` is run i's. For every way to fill the outputs the best
    runs to name are tried out, all of them.
    """
    n, letters = len(laws), len(laws[0][0])
    won = np.zeros((2,) * n + (letters,) * n)
    total = 0.0
    for outputs in itertools.product(range(letters), repeat=n):
        joint = [laws[i][:, o] / 2 for i, o in enumerate(outputs)]
        best, chosen = -1.0, None
        for named in itertools.combinations(range(n), r):
            for guess in itertools.product((0, 1), repeat=r):
                wins = {
                    coins
                    for coins in itertools.product((0, 1), repeat=n)
                    if sum(coins[i] == g for i, g in zip(named, guess, strict=True))
                    >= v
                }
                chance = sum(
                    math.prod(joint[i][c] for i, c in enumerate(coins))
                    for coins in wins
                )
                if chance > best + 1e-15:
                    best, chosen = chance, wins
        total += best
        for coins in chosen:
            won[(*coins, *outputs)] = 1.0
    return total, won


def best_run(laws, i, won, epsilon, delta):
    """Return the (epsilon, delta)-DP law of run i that wins most often, by LP."""
    n, letters = len(laws), len(laws[0][0])
    gain = np.zeros((2, letters))
    for coins in itertools.product((0, 1), repeat=n):
        for outputs in itertools.product(range(letters), repeat=n):
            others = math.prod(
                laws[j][c, o] / 2
                for j, (c, o) in enumerate(zip(coins, outputs, strict=True))
                if j != i
            )
            gain[coins[i], outputs[i]] += others / 2 * won[(*coins, *outputs)]
    rows, limits = [], []
    for size in range(1, letters + 1):
        for event in itertools.combinations(range(letters), size):
            for one, other in ((0, 1), (1, 0)):
                row = np.zeros((2, letters))
                row[one, list(event)] = 1
                row[other, list(event)] = -math.exp(epsilon)
                rows.append(row.ravel())
                limits.append(delta)
    solved = optimize.linprog(
        -gain.ravel(),
        A_ub=rows,
        b_ub=limits,
        A_eq=np.kron(np.eye(2), np.ones(letters)),
        b_eq=[1, 1],
        bounds=(0, 1),
    )
    return np.clip(solved.x.reshape(2, letters), 0, 1)


@pytest.mark.parametrize(
    ("n", "r", "v", "epsilon", "delta"),
    [
        (2, 1, 1, 0.5, 0.1),
        (2, 1, 1, 0.0, 0.3),
        (2, 2, 2, 1.0, 0.05),
        (3, 1, 1, 1.0, 0.1),
        (3, 2, 1, 0.5, 0.2),
        (3, 2, 2, 0.5, 0.2),
    ],
)
def test_no_independent_runs_are_guessed_so_well_more_often(n, r, v, epsilon, delta):
    """Runs and guesser answer each other with their best, from several beginnings.

    A run is any pair of laws on four outputs; all events of them are constrained.
    Nothing found is above the p-value, and some of it reaches it.
    """
    rng = np.random.default_rng(1)
    want = p_value(runs(v, n, r), epsilon=epsilon, delta=delta)
    found = []
    for _ in range(12):
        laws = [rng.dirichlet(np.ones(4), size=2) for _ in range(n)]
        _, won = best_guesses(laws, r, v)  # of runs that are not private at all
        for _ in range(3):
            for i in range(n):
                laws[i] = best_run(laws, i, won, epsilon, delta)
            chance, won = best_guesses(laws, r, v)
        found.append(chance)
    assert max(found) <= want + 1e-9
    assert max(found) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.2), (1.0, 0.05), (2.0, 0.4)])
def test_coins_given_away_or_answered_attain_it(n, epsilon, delta):
    """The best guesser of the worst runs, found by trying all, whatever r and v."""
    p = best_chance(epsilon, 0.0)
    answered = [(1 - delta) * p, (1 - delta) * (1 - p)]
    law = np.array([[delta, 0, *answered], [0, delta, *answered[::-1]]])
    for r in range(1, n + 1):
        for v in range(1, r + 1):
            most, _ = best_guesses([law] * n, r, v)
            got = p_value(runs(v, n, r), epsilon=epsilon, delta=delta)
            assert got == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.01), (2.0, 0.2)])
def test_one_run_is_guessed_no_more_often(epsilon, delta, largest_p_value):
    most = largest_p_value(
        m=1,
        outputs=[False, True],
        wins=lambda guess, coins: guess == coins[0],
        epsilon=epsilon,
        delta=delta,
    )
    assert most == pytest.approx(best_chance(epsilon, delta), abs=1e-9)
    assert p_value(runs(1, 1), epsilon=epsilon, delta=delta) == pytest.approx(most)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.01), (2.0, 1e-3)])
def test_the_bound_is_wrong_no_more_often_than_it_says(epsilon, delta, alpha):
    """Exact, with delta: runs of the worst pair of outputs, every count weighted."""
    p = best_chance(epsilon, delta)
    chances = stats.binom.pmf(np.arange(81), 80, p)
    wrong = sum(
        chance
        for v, chance in enumerate(chances)
        if lower(runs(v, 80), delta=delta, alpha=alpha) > epsilon
    )
    assert wrong <= alpha


@given(st.integers(1, 60), st.floats(0, 4), st.floats(0, 1), st.data())
def test_the_p_value_never_falls_as_the_claim_gets_weaker(total, epsilon, more, data):
    r = data.draw(st.integers(1, total))
    v = data.draw(st.integers(0, r))
    delta = data.draw(st.sampled_from([0.0, 1e-5, 1e-2]))
    strict = p_value(runs(v, total, r), epsilon=epsilon, delta=delta)
    loose = p_value(runs(v, total, r), epsilon=epsilon + more, delta=delta)
    assert strict <= loose * (1 + 1e-9) + 1e-15


def test_independence_makes_delta_cheap():
    counts = runs(880, 1000)
    delta = 1e-3
    one_run = ExactBound().epsilon_lower(counts, delta=delta, alpha=0.05).epsilon_lower
    assert lower(counts, delta=delta) > one_run
    assert 1.8 < lower(counts, delta=delta) < 2.0  # of log(0.88 / 0.12), 1.99


@pytest.mark.parametrize(
    ("n", "r", "v", "delta", "before", "after"),
    [
        (20_000, 2000, 1600, 1e-3, 0.0, 1.202),
        (50_000, 1000, 950, 1e-4, 0.0, 2.508),
        (5000, 500, 450, 1e-5, 1.738, 1.75),
    ],
)
def test_passed_runs_cost_what_independent_runs_cost(n, r, v, delta, before, after):
    """Not what coins of one run do: m delta is 20 and 5 in the first two."""
    counts = runs(v, n, r)
    was = ExactBound().epsilon_lower(counts, delta=delta, alpha=0.001)
    assert was.epsilon_lower == pytest.approx(before, abs=1e-3)
    assert lower(counts, delta=delta, alpha=0.001) == pytest.approx(after, abs=1e-3)


@given(st.integers(1, 60), st.floats(0, 4), st.data())
def test_it_is_never_more_than_what_holds_for_one_run(total, epsilon, data):
    r = data.draw(st.integers(1, total))
    v = data.draw(st.integers(0, r))
    delta = data.draw(st.sampled_from([0.0, 1e-5, 1e-2, 0.5]))
    counts = runs(v, total, r)
    one_run = ExactBound().p_value(counts, epsilon=epsilon, delta=delta)
    assert p_value(counts, epsilon=epsilon, delta=delta) <= one_run * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_with_passes_it_is_wrong_no_more_often_than_it_says(alpha):
    """Exact: the worst runs, the guesser that names coins given away first."""
    n, r, epsilon, delta = 60, 20, 1.0, 0.1
    chances = np.zeros(r + 1)
    for k, chance in enumerate(stats.binom.pmf(np.arange(n + 1), n, delta)):
        sure = min(k, r)
        rest = stats.binom.pmf(np.arange(r - sure + 1), r - sure, best_chance(1.0, 0))
        chances[sure:] += chance * rest
    assert chances.sum() == pytest.approx(1)
    bounds = [lower(runs(v, n, r), delta=delta, alpha=alpha) for v in range(r + 1)]
    wrong = sum(c for c, b in zip(chances, bounds, strict=True) if b > epsilon)
    forgetful = [lower(runs(v, n, r), delta=0.0, alpha=alpha) for v in range(r + 1)]
    careless = sum(c for c, b in zip(chances, forgetful, strict=True) if b > epsilon)
    assert 0 < wrong <= alpha < careless


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.3])
@pytest.mark.parametrize("right", [0, 25, 50])
def test_says_nothing_at_or_below_chance(right, delta):
    assert lower(runs(right, 100), delta=delta) == 0.0


@pytest.mark.parametrize(("n", "r", "v"), [(60, 20, 19), (500, 50, 30), (80, 80, 70)])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_of_a_curve_the_least_p_value_of_all_its_points_counts(n, r, v, mu):
    claim, counts = GaussianDP(mu=mu), runs(v, n, r)
    every = [
        SeparateRunsBound().log_p_value(counts, epsilon=e, delta=d)
        for e, d in zip(*claim.points(), strict=True)
    ]
    found = SeparateRunsBound().log_p_claim(counts, claim, alpha=0.05)
    assert found == pytest.approx(min(every), rel=1e-12, abs=1e-12)


def test_a_claim_of_nothing_is_never_refuted():
    assert p_value(runs(100, 100), epsilon=0.0, delta=1.0) == 1.0


def largest_group_delta(epsilon, delta, group, at):
    """Return the largest hockey-stick divergence ``group`` steps apart, over laws on
    three outputs, each (epsilon, delta)-close to its neighbours: a linear program.
    """
    outputs, laws = 3, group + 1
    e = math.exp(epsilon)
    size, found = outputs * laws, 0.0
    subsets = [s for n in (1, 2) for s in itertools.combinations(range(outputs), n)]
    rows = []
    for a, b in itertools.permutations(range(laws), 2):
        if abs(a - b) == 1:
            for subset in subsets:
                row = np.zeros(size)
                row[[a * outputs + o for o in subset]] = 1
                row[[b * outputs + o for o in subset]] -= e
                rows.append(row)
    whole = np.kron(np.eye(laws), np.ones(outputs))
    for subset in subsets:
        gain = np.zeros(size)
        gain[list(subset)] = -1
        gain[[(laws - 1) * outputs + o for o in subset]] += math.exp(at)
        solved = optimize.linprog(
            gain, A_ub=rows, b_ub=[delta] * len(rows), A_eq=whole, b_eq=np.ones(laws)
        )
        found = max(found, -solved.fun)
    return found


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.01), (1.0, 0.001), (0.0, 0.02)])
def test_what_a_claim_implies_for_groups_is_what_the_worst_laws_attain(
    group, epsilon, delta
):
    more, grown = group_claim(epsilon, delta, records=group)
    assert more == pytest.approx(group * epsilon)
    found = largest_group_delta(epsilon, delta, group, more)
    assert found == pytest.approx(grown, rel=1e-6)
