"""The bound for independent runs: right, attained, valid, useful, silent at chance."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from dpaudit.bounds.exact import Classic, Exact, group_claim
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError


def runs(right, total, guesses=None):
    guesses = total if guesses is None else guesses
    return Counts(canaries=total, guesses=guesses, correct=right)


def p_value(counts, *, epsilon, delta):
    return math.exp(Classic().log_p_value(counts, epsilon=epsilon, delta=delta))


def lower(counts, *, delta, alpha=0.05):
    return Classic().epsilon_lower(counts, delta=delta, alpha=alpha).epsilon_lower


def best_chance(epsilon, delta):
    """Return how often one run can be guessed, from the worst pair there is.

    Four outputs: two that give the coin away, two with odds of e^epsilon.
    """
    away = delta
    likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    return away + likely


@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.sampled_from([0, Fraction(1, 10**6), Fraction(1, 100)]),
    st.data(),
)
def test_p_value_agrees_with_exact_arithmetic(total, odds, delta, data):
    v = data.draw(st.integers(0, total))
    p = (odds + delta) / Fraction(1 + odds)
    tail = sum(
        math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(v, total + 1)
    )
    one_run = Exact().p_value(runs(v, total), epsilon=math.log(odds), delta=delta)
    got = p_value(runs(v, total), epsilon=math.log(odds), delta=float(delta))
    assert got == pytest.approx(min(one_run, float(tail)), rel=1e-8)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.01), (2.0, 0.2)])
def test_one_run_is_guessed_no_more_often(epsilon, delta, largest_chance):
    most = largest_chance(
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
    v = data.draw(st.integers(0, total))
    delta = data.draw(st.sampled_from([0.0, 1e-5, 1e-2]))
    strict = p_value(runs(v, total), epsilon=epsilon, delta=delta)
    loose = p_value(runs(v, total), epsilon=epsilon + more, delta=delta)
    assert strict <= loose * (1 + 1e-9) + 1e-15


def test_independence_makes_delta_cheap():
    counts = runs(880, 1000)
    delta = 1e-3
    one_run = Exact().epsilon_lower(counts, delta=delta, alpha=0.05).epsilon_lower
    assert lower(counts, delta=delta) > one_run
    assert 1.8 < lower(counts, delta=delta) < 2.0  # of log(0.88 / 0.12), 1.99


def test_passed_runs_fall_back_on_the_one_run_bound():
    counts = runs(90, 1000, guesses=100)
    want = Exact().p_value(counts, epsilon=1.0, delta=1e-4)
    assert p_value(counts, epsilon=1.0, delta=1e-4) == want


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.3])
@pytest.mark.parametrize("right", [0, 25, 50])
def test_says_nothing_at_or_below_chance(right, delta):
    assert lower(runs(right, 100), delta=delta) == 0.0


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


@pytest.mark.parametrize(
    ("m", "k", "v", "epsilon", "delta"),
    [
        (1, 3, 1, 0.5, 0.05),
        (2, 3, 2, 1.0, 0.02),
        (2, 3, 1, 0.3, 0.02),
        (2, 4, 2, 1.0, 0.01),
    ],
)
def test_one_of_several_records_is_named_as_often_as_the_exact_bound_says(
    m, k, v, epsilon, delta
):
    """The linear program over all mechanisms of ``m`` coins with ``k`` faces each."""
    coins = list(itertools.product(range(k), repeat=m))
    n = len(coins)
    pairs = [
        (a, b)
        for a, b in itertools.permutations(range(n), 2)
        if sum(x != y for x, y in zip(coins[a], coins[b], strict=True)) == 1
    ]
    chances, excess = n * n, len(pairs) * n
    gain = np.zeros(chances + excess)
    for a, s in enumerate(coins):
        for o, t in enumerate(coins):
            hits = sum(x == y for x, y in zip(s, t, strict=True))
            gain[a * n + o] = -(hits >= v) / n
    rows = np.zeros((excess + len(pairs), chances + excess))
    for j, (a, b) in enumerate(pairs):
        for o in range(n):
            rows[j * n + o, [a * n + o, b * n + o]] = 1, -math.exp(epsilon)
            rows[j * n + o, chances + j * n + o] = -1
        rows[excess + j, chances + j * n : chances + (j + 1) * n] = 1
    whole = np.hstack([np.kron(np.eye(n), np.ones(n)), np.zeros((n, excess))])
    solved = optimize.linprog(
        gain,
        A_ub=rows,
        b_ub=np.append(np.zeros(excess), np.full(len(pairs), delta)),
        A_eq=whole,
        b_eq=np.ones(n),
    )
    counts = Counts(canaries=m, guesses=m, correct=v, alternatives=k)
    want = Exact().p_value(counts, epsilon=epsilon, delta=delta)
    assert -solved.fun == pytest.approx(want, abs=1e-8)
    assert p_value(counts, epsilon=epsilon, delta=delta) == want


@pytest.mark.parametrize("records", [2, 3])
def test_a_coin_for_several_records_is_guessed_as_often_as_they_allow_together(records):
    """A coin that moves g records may have odds of e^(g epsilon)."""
    seen = Counts(canaries=40, guesses=40, correct=35, records_per_coin=records)
    group = stats.binom.sf(34, 40, 1 / (1 + math.exp(-0.4 * records)))
    assert p_value(seen, epsilon=0.4, delta=0.0) == pytest.approx(group, rel=1e-9)


def test_a_delta_that_is_no_chance_is_refused():
    with pytest.raises(InvalidInputError, match=r"^delta must be in"):
        p_value(runs(30, 40), epsilon=1.0, delta=1.5)
