"""The bound for a uniformly random half: theorem, level, power, null.

Independent oracles: exact rationals, and linear programs over all mechanisms.
"""

from fractions import Fraction
from itertools import combinations, product
from math import comb, exp, log

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.optimize import linprog

from dpaudit import (
    Adjacency,
    ApproxDP,
    Coins,
    Design,
    GaussianDP,
    Key,
    OneRun,
    PureDP,
    RandomHalf,
    Result,
    audit_scores,
    explain,
)
from dpaudit.bounds import HalfCounts, HypergeometricBound, judge_claim
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Referee
from dpaudit.game.text.findings import sentence


def p_value(n, r, t, epsilon, delta=0.0, records=2):
    counts = HalfCounts(canaries=n, guesses=r, correct=t, records_per_swap=records)
    return exp(HypergeometricBound().log_p_value(counts, epsilon=epsilon, delta=delta))


def best_on_halves(n, r, t, c, d):
    """The largest P[V >= t] of any mechanism that swaps cost (c, d), by an LP.

    Every half S has a law over guessed sets G. Nothing else of an output matters.
    """
    halves = list(map(set, combinations(range(n), n // 2)))
    return best(halves, halves, n, r, t, c, d, apart=2)


def best_on_all(n, r, t, epsilon, delta):
    """The same of any mechanism on all subsets, of which one record more costs."""
    every = [set(s) for k in range(n + 1) for s in combinations(range(n), k)]
    halves = [s for s in every if len(s) == n // 2]
    return best(every, halves, n, r, t, epsilon, delta, apart=1)


def best(sets, halves, n, r, t, c, d, *, apart):
    guessed = list(map(set, combinations(range(n), r)))
    pairs = [
        (a, b)
        for a, b in product(range(len(sets)), repeat=2)
        if len(sets[a] ^ sets[b]) == apart
    ]
    size, slack = len(sets) * len(guessed), len(pairs) * len(guessed) if d else 0
    cost = np.zeros(size + slack)
    for i, s in enumerate(sets):
        for j, g in enumerate(guessed):
            if s in halves and len(s & g) >= t:
                cost[i * len(guessed) + j] = -1 / len(halves)
    ones = sparse.kron(sparse.eye(len(sets)), np.ones((1, len(guessed))))
    rows = [
        (k * len(guessed) + j, (b, a), j)
        for k, (a, b) in enumerate(pairs)
        for j in range(len(guessed))
    ]
    above = sparse.lil_matrix((len(rows), size + slack))
    for row, (b, a), j in rows:
        above[row, b * len(guessed) + j] = 1
        above[row, a * len(guessed) + j] = -exp(c)
        if d:
            above[row, size + row] = -1
    limits = np.zeros(len(rows))
    if d:
        sums = sparse.kron(sparse.eye(len(pairs)), np.ones((1, len(guessed))))
        above = sparse.vstack(
            [above, sparse.hstack([sparse.csr_matrix((len(pairs), size)), sums])]
        )
        limits = np.append(limits, np.full(len(pairs), d))
    found = linprog(
        cost,
        A_ub=above.tocsr(),
        b_ub=limits,
        A_eq=sparse.hstack([ones, sparse.csr_matrix((len(sets), slack))]).tocsr(),
        b_eq=np.ones(len(sets)),
        method="highs",
    )
    assert found.success
    return -found.fun


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_no_mechanism_on_halves_does_better_and_one_does_as_well(n):
    """Over all mechanisms of pure privacy under swaps, all numbers of guesses."""
    for r in range(1, n // 2 + 1):
        for t in range(1, r + 1):
            expected = p_value(n, r, t, 0.7, records=1)
            assert best_on_halves(n, r, t, 0.7, 0.0) == pytest.approx(
                expected, abs=1e-7
            )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_no_mechanism_with_delta_on_halves_does_better(n):
    for r in range(1, n // 2 + 1):
        for t in range(1, r + 1):
            found = best_on_halves(n, r, t, 0.5, 0.03)
            bound = p_value(n, r, t, 0.5, 0.03, records=1)
            assert p_value(n, r, t, 0.5, records=1) < found <= bound + 1e-9


@pytest.mark.parametrize("delta", [0.0, 0.02])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_no_mechanism_on_all_subsets_does_better(n, delta):
    """Add/remove: neighbours of all sizes limit a mechanism no less than swaps."""
    for r in range(1, n // 2 + 1):
        for t in range(1, r + 1):
            found = best_on_all(n, r, t, 0.5, delta)
            assert found <= p_value(n, r, t, 0.5, delta) + 1e-9


@pytest.mark.parametrize(("n", "r"), [(7, 3), (20, 4), (60, 30), (61, 17)])
def test_at_delta_0_it_is_the_tail_in_exact_rationals(n, r):
    h, odds = n // 2, Fraction(9, 4)
    terms = [comb(r, v) * comb(n - r, h - v) * odds**v for v in range(r + 1)]
    for t in range(r + 1):
        exact = float(sum(terms[t:]) / sum(terms))
        found = p_value(n, r, t, log(odds) / 2)
        assert exact <= found * (1 + 1e-12)
        assert found == pytest.approx(exact, rel=1e-8)


def test_at_100_000_canaries_it_keeps_its_digits():
    """Against scipy where scipy can, and far out where only ratios are known."""
    n, r = 100_000, 50_000
    for t in (25_000, 25_100, 25_300):
        expected = stats.hypergeom(n, n // 2, r).sf(t - 1)
        assert p_value(n, r, t, 0.0) == pytest.approx(expected, rel=1e-6)
    counts = HalfCounts(canaries=n, guesses=r, correct=r)
    far = HypergeometricBound().log_p_value(counts, epsilon=0.0, delta=0.0)
    exact = -(np.log(np.arange(r + 1, n + 1)).sum() - np.log(np.arange(1, r + 1)).sum())
    assert far == pytest.approx(exact, rel=1e-9)


def test_p_values_rise_with_epsilon_and_delta_and_fall_with_correct_guesses():
    grid = np.linspace(0, 3, 40)
    for n, r, t in ((50, 25, 20), (51, 7, 7), (400, 200, 130)):
        rising = [p_value(n, r, t, e) for e in grid]
        assert np.all(np.diff(rising) >= 0)
        assert p_value(n, r, t, 1.0, 1e-3) > p_value(n, r, t, 1.0, 1e-6) > rising[13]
        falling = [p_value(n, r, v, 0.5, 1e-4) for v in range(r + 1)]
        assert np.all(np.diff(falling) <= 1e-12)


@pytest.mark.parametrize(
    ("n", "r"),
    [
        (8, 4),
        (9, 3),
        *(pytest.param(n, 20, marks=pytest.mark.nightly) for n in (40, 200)),
    ],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.6])
def test_the_level_is_exact_under_the_worst_mechanism(n, r, epsilon):
    """The exponential mechanism attains the theorem; summed over all its counts."""
    h = n // 2
    law = np.array(
        [comb(r, v) * comb(n - r, h - v) * exp(2 * epsilon * v) for v in range(r + 1)]
    )
    law /= law.sum()
    for alpha in (0.01, 0.05, 0.3):
        counts = [HalfCounts(canaries=n, guesses=r, correct=v) for v in range(r + 1)]
        lower = [
            HypergeometricBound().epsilon_lower(c, delta=0.0, alpha=alpha).epsilon_lower
            for c in counts
        ]
        wrong = law[np.array(lower) > epsilon].sum()
        assert wrong <= alpha + 1e-9
        refuted = [
            judge_claim(PureDP(epsilon=epsilon), c, alpha=alpha).refuted for c in counts
        ]
        assert law[refuted].sum() <= alpha + 1e-9


def test_nothing_is_shown_by_half_of_the_guesses():
    counts = HalfCounts(canaries=1000, guesses=200, correct=100)
    assert (
        HypergeometricBound().epsilon_lower(counts, delta=0, alpha=0.05).epsilon_lower
        == 0
    )


def test_it_shows_about_what_as_many_independent_coins_show():
    """N(1, 1) against N(0, 1), 2,000 canaries, delta = 1e-5; 6 runs of each kind."""
    rng, claim, n = np.random.default_rng(1), ApproxDP(epsilon=8.0, delta=1e-5), 2000
    found = np.empty((6, 2))
    for row in found:
        noise = rng.standard_normal(n)
        half = rng.permutation(np.arange(n) < n // 2)
        coins = rng.integers(0, 2, n)
        for i, (rules, bits) in enumerate(
            ((RandomHalf(guesses=100), half), (OneRun(guesses=100), coins))
        ):
            design = Design(canaries=n, rules=rules, claim=claim)
            said = {"coins_were_independent": rules.independent_coins}
            result = audit_scores(
                np.arange(n), bits, noise + bits, design=design, **said
            )
            row[i] = result.bound.epsilon_lower
    half, coins = found.mean(0)
    assert half > 0.3 * coins > 0.3


CLAIM = PureDP(epsilon=0.5)
DESIGN = Design(canaries=200, rules=RandomHalf(guesses=100), claim=CLAIM)
HALF = np.random.default_rng(3).permutation(np.arange(200) % 2)


def test_a_random_half_is_audited_from_a_table_and_written():
    scores = HALF * 2.0 + np.random.default_rng(4).standard_normal(200)
    result = audit_scores(np.arange(200), HALF, scores, design=DESIGN)
    top = np.argsort(scores)[-100:]
    assert result.reading.correct == HALF[top].sum()
    assert result.refuted
    assert result.could_refute
    assert Result.from_json(result.to_json()) == result
    assert "hypergeometric" in result.details()
    explained = explain(result)
    assert "a uniformly random half" in str(explained)
    likely = dict((step.name, step.leaves) for step in explained.steps)["exposure"]
    assert result.bound.epsilon_lower < likely < 2 * result.bound.epsilon_lower


def test_ties_are_broken_against_the_auditor_here_too():
    result = audit_scores(np.arange(200), HALF, np.zeros(200), design=DESIGN)
    assert result.reading.correct == 0
    assert "ties decided 100 of 100" in sentence(result.sanity_checks[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: audit_scores(
                np.arange(200),
                Coins(key=Key(bytes(32)), count=200),
                HALF,
                design=DESIGN,
            ),
            "with a key every canary has a coin of its own",
        ),
        (lambda: Referee(DESIGN, Key(bytes(32))), "with a key every canary"),
        (
            lambda: audit_scores(np.arange(200), HALF * 0, HALF, design=DESIGN),
            "0 of 200 canaries were included, and a random half, rounded down, is 100",
        ),
        (
            lambda: audit_scores(
                np.arange(200), HALF, HALF, design=DESIGN, coins_were_independent=True
            ),
            "it cannot be both",
        ),
        (
            lambda: audit_scores(
                np.arange(200),
                HALF,
                HALF,
                design=Design(canaries=200, rules=OneRun(guesses=9), claim=CLAIM),
            ),
            r"play by RandomHalf\(guesses=...\)",
        ),
        (
            lambda: judge_claim(
                CLAIM,
                HalfCounts(canaries=9, guesses=2, correct=2, records_per_swap=1),
                alpha=0.05,
            ),
            "a swap of two canaries changes two records",
        ),
    ],
)
def test_what_is_no_random_half_is_refused(call, message):
    with pytest.raises(InvalidRunError, match=message):
        call()


@pytest.mark.parametrize(
    "odd",
    [{"guesses": 5}, {"correct": 4}, {"records_per_swap": 3}, {"guesses": 0}],
)
def test_counts_that_no_half_has_are_refused(odd):
    with pytest.raises(InvalidInputError):
        HalfCounts(**{"canaries": 8, "guesses": 3, "correct": 2} | odd)
    with pytest.raises(InvalidInputError, match="guesses=101 are more"):
        Design(canaries=200, rules=RandomHalf(guesses=101), claim=CLAIM)


def test_replacing_one_record_needs_half_the_epsilon_of_two():
    both = [
        HypergeometricBound().epsilon_lower(
            HalfCounts(canaries=300, guesses=60, correct=50, records_per_swap=records),
            delta=0.0,
            alpha=0.05,
        )
        for records in (1, 2)
    ]
    assert both[0].epsilon_lower == pytest.approx(2 * both[1].epsilon_lower, rel=1e-6)
    claim = PureDP(epsilon=0.5, adjacency=Adjacency.REPLACE_ONE)
    one = HalfCounts(canaries=300, guesses=60, correct=50, records_per_swap=1)
    assert judge_claim(claim, one, alpha=0.05).refuted


def test_a_whole_curve_is_tested_at_once():
    counts = HalfCounts(canaries=2000, guesses=200, correct=199)
    curve = judge_claim(GaussianDP(mu=0.3), counts, alpha=0.05)
    assert curve.refuted
