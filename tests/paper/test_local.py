"""Appendix "Local Algorithms", and the corollary that one run audits them tightly."""

from fractions import Fraction
from itertools import product
from math import exp, inf, log

import numpy as np
import pytest
from scipy import integrate, special

from dpaudit import Design, OneRun, PureDP, audit_one_run
from dpaudit.bounds import Counts
from dpaudit.bounds.exact import PureBound
from dpaudit.game import Confident, Everyone
from dpaudit.game.auditors import play_one_run
from dpaudit.mechanisms.exposure import Identity
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.theory.levels import levels
from dpaudit.theory.tightness import tightness

HALF = Fraction(1, 2)
# A sub-algorithm with three outputs; its worst loss, ln 6, shows in 7 runs of 40.
SUB = [
    [Fraction(1, 20), Fraction(8, 20), Fraction(11, 20)],
    [Fraction(6, 20), Fraction(8, 20), Fraction(6, 20)],
]


def p(epsilon):
    return 1 / (1 + exp(-epsilon))


def local(n):
    """The table of the local algorithm of SUB on n elements."""
    return [
        [
            np.prod([SUB[r >> i & 1][o] for i, o in enumerate(outputs)])
            for outputs in product(range(3), repeat=n)
        ]
        for r in range(1 << n)
    ]


def design(n, guesses, epsilon=1.0):
    claim = PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)
    return Design(canaries=n, rules=OneRun(guesses=guesses), claim=claim)


def test_def_local_algorithms_apply_one_sub_algorithm_to_each_element():
    # To all elements at once or to one after the other, with the same randomness.
    data = np.random.default_rng(2).choice([-1, 1], 50)
    for mechanism in (LocalRandomisedResponse(epsilon=0.8), LocalLaplace(epsilon=0.8)):
        rng = np.random.default_rng(3)
        one_by_one = [mechanism.run(data[i : i + 1], rng)[0] for i in range(50)]
        whole = mechanism.run(data, np.random.default_rng(3))
        np.testing.assert_array_equal(whole, one_by_one)
    # Randomised response: the law on three elements is a product of three laws.
    mechanism = LocalRandomisedResponse(epsilon=0.8)
    for data in product((-1, 1), repeat=3):
        whole = mechanism.distribution(np.array(data))
        parts = [mechanism.distribution(np.array([value])) for value in data]
        for number, chance in enumerate(whole):
            factors = [parts[i][number >> i & 1] for i in range(3)]
            assert chance == pytest.approx(np.prod(factors))


def test_def_local_algorithms_have_the_loss_of_their_sub_algorithm(exact):
    # No interference: p(|l_i(o)|) depends on o_i alone, and is that of SUB.
    alone = exact(SUB)
    table = exact(local(2))
    for o, outputs in enumerate(product(range(3), repeat=2)):
        for i in (0, 1):
            assert table.accuracy(i, o) == alone.accuracy(0, outputs[i])


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_def_local_laplace_adds_noise_of_scale_two_over_epsilon(epsilon):
    mechanism = LocalLaplace(epsilon=epsilon)
    found = mechanism.run(np.array([-1, 1]), np.random.default_rng(3))
    noise = np.random.default_rng(3).laplace(scale=2 / epsilon, size=2)
    np.testing.assert_allclose(found, np.array([-1, 1]) + noise)
    # ln of the ratio of the densities of 1 + Lap and -1 + Lap
    for o in (-3.0, -0.4, 0.0, 0.7, 5.0):
        ratio = (abs(o + 1) - abs(o - 1)) * epsilon / 2
        assert mechanism.log_odds(np.array([o]))[0] == pytest.approx(ratio)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_prop_local_laplace_efficacy_without_abstentions(epsilon):
    printed = 1 - exp(-epsilon / 2) / 2
    for n in (1, 1000):
        found = levels(
            LocalLaplace(epsilon=epsilon), elements=n
        ).average_element_accuracy.value
        assert found == pytest.approx(printed, abs=1e-10)

    # An oracle that is neither: the integral of the larger of the two densities.
    def larger(o):
        densities = (exp(-abs(o - s) * epsilon / 2) * epsilon / 4 for s in (-1, 1))
        return max(densities) / 2

    upper, _ = integrate.quad(larger, 0, 80 / epsilon + 2, points=[1], limit=200)
    assert 2 * upper == pytest.approx(printed, abs=1e-7)


def test_prop_local_laplace_efficacy_without_abstentions_in_a_whole_audit():
    epsilon, n = 2.0, 400_000
    mechanism = LocalLaplace(epsilon=epsilon)
    result = audit_one_run(
        mechanism,
        Everyone(mechanism=mechanism),
        pairs=mechanism.pairs,
        design=design(n, n),
        rng=np.random.default_rng(0),
        key=fixed_key(bytes(32)),
    )
    printed = 1 - exp(-epsilon / 2) / 2
    # Four deviations: a false alarm has chance below 1e-4.
    assert abs(result.reading.correct / n - printed) < 4 * 0.5 / n**0.5
    # Figure "results of ORA for local Laplace": p^-1 of it is ln(2 e^(epsilon/2) - 1).
    limit = log(2 * exp(epsilon / 2) - 1)
    assert special.logit(printed) == pytest.approx(limit)
    assert limit - 0.03 < result.bound.epsilon_lower < limit + 0.01


@pytest.mark.parametrize("beta", [0.01, 0.05, 0.4])
def test_lem_bounds_approach_efficacy_for_local_algorithms(
    binomial, fewest_right, beta
):
    # SUB guessed without abstention: V ~ Bin(n, E*), and E* is computed by definition.
    found = sum(max(SUB[0][o], SUB[1][o]) for o in range(3)) / 2
    assert levels(
        FiniteTable(rows=np.array(SUB, float)), elements=1
    ).average_element_accuracy.value == pytest.approx(float(found))
    limit = float(special.logit(float(found)))
    near = []
    for n in (100, 3000, 100_000):
        close = slice(*(fewest_right(n, limit + off, beta) for off in (-0.1, 0.1)))
        near.append(binomial.float_law(n, float(found))[close].sum())
    assert near == sorted(near)
    assert near[-1] > 1 - 1e-6


def test_lem_bounds_approach_efficacy_for_local_algorithms_not_at_its_edges(binomial):
    # Printed for beta in [0, 1): at beta = 0 nothing is ever shown, since
    # P[Bin(n, q) >= v] <= 0 for no q > 0; the bound is 0 for every n.
    assert binomial.cpl(50, 50, 0.0) == pytest.approx(0.0, abs=1e-6)
    all_right = Counts(canaries=50, guesses=50, correct=50)
    assert PureBound().log_p_value(all_right, epsilon=0.0, delta=0.0) > -inf
    # And where E* = 1 the difference to p^-1(1) is infinite for every n; bounds grow
    # beyond all levels, which is what can be said.
    assert levels(Identity(), elements=10).average_element_accuracy.value == 1.0
    sizes = np.array([10**2, 10**4, 10**6])
    bounds = [
        PureBound()
        .epsilon_lower(Counts(canaries=n, guesses=n, correct=n), delta=0.0, alpha=0.05)
        .epsilon_lower
        for n in sizes.tolist()
    ]
    assert bounds == pytest.approx(binomial.bound(sizes, sizes, 0.05), abs=1e-6)
    assert np.all(special.logit(1.0) - np.array(bounds) == inf)
    assert np.all(np.diff(bounds) > 4)


def test_theorem_ora_is_tight_for_local_algorithms_with_any_worst_output(binomial):
    # Guess where the loss is ln 6 and nowhere else: output 0 names y. Each guess is
    # right with chance p(ln 6) = 6/7, and there are n 7/40 on average.
    chance = (SUB[0][0] + SUB[1][0]) / 2
    right = SUB[1][0] / 2 / chance
    assert chance == Fraction(7, 40)
    assert right == Fraction(6, 7)
    assert p(log(6)) == pytest.approx(6 / 7)
    reached = []
    for n in (200, 5000, 50_000):
        made = binomial.float_law(n, float(chance))
        few = int(np.flatnonzero(np.cumsum(made) > 1e-9)[0])  # fewer with chance 1e-9
        v = np.arange(few + 1)
        good = binomial.reaches(few, v, log(6) - 0.2, 0.05)
        reached.append(binomial.float_law(few, float(right))[good].sum())
    assert reached == sorted(reached)
    assert reached[-1] > 0.99


def test_theorem_ora_is_tight_for_local_algorithms_by_the_condition():
    for mechanism, top in [
        (LocalLaplace(epsilon=2.0), 2.0),
        (LocalRandomisedResponse(epsilon=0.5), 0.5),
    ]:
        evidence = tightness(
            mechanism.loss_distribution,
            thresholds=[0.9 * top, top],
            sizes=[100, 1000, 10_000],
        )
        assert evidence.verdict is True


def test_theorem_ora_is_tight_for_local_algorithms_in_a_whole_audit():
    # Local Laplace noise at its worst outputs, as many as are there for sure: 68 % at
    # epsilon = 1. The bound is within 0.1 of epsilon but with chance below 1e-4.
    n = 100_000
    mechanism = LocalLaplace(epsilon=1.0)
    result = audit_one_run(
        mechanism,
        Confident(mechanism=mechanism, threshold=1.0, guesses=60_000),
        pairs=mechanism.pairs,
        design=design(n, 60_000),
        rng=np.random.default_rng(5),
        key=fixed_key(bytes(range(32))),
    )
    assert 0.93 < result.bound.epsilon_lower < 1.04


def test_theorem_ora_is_tight_for_local_algorithms_as_it_simulates_classic_auditing():
    # One run on n elements and n runs on one element: the same counts, from the same
    # coins and the same randomness.
    n, key = 300, fixed_key(bytes(range(32)))
    mechanism = LocalLaplace(epsilon=1.0)
    together = play_one_run(
        mechanism,
        Everyone(mechanism=mechanism),
        pairs=mechanism.pairs,
        design=design(n, n),
        rng=np.random.default_rng(9),
        key=key,
    )
    rng = np.random.default_rng(9)
    correct = 0
    for sign in together.truth:
        output = mechanism.run(np.array([sign]), rng)[0]
        correct += (1 if output >= 0 else -1) == sign
    assert together.reading().correct == correct
