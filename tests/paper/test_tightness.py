"""Chapter "Efficacy", asymptotic tightness with abstentions."""

from fractions import Fraction
from math import exp, inf

import numpy as np
import pytest

from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.parity import Xor
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.theory import levels_from_loss
from dpaudit.theory.levels import levels
from dpaudit.theory.tightness import SetSize, count_in_sets_tightness, tightness

HALF = Fraction(1, 2)


def p(epsilon):
    return 1 / (1 + exp(-epsilon)) if epsilon < inf else 1.0


def exposed(mechanism, o, q):
    """How many elements are guessed with accuracy q or more."""
    return sum(mechanism.accuracy(i, o) >= q for i in mechanism.indexes)


def test_thm_condition_for_tightness_of_ora_with_abstentions_by_its_inequalities(
    mechanisms,
):
    # What the proof needs, without limits and exactly. Let N be the number of elements
    # with p(|l|) >= q. Enough of them make the best k good, and good best k need many:
    # q P[N >= k] + P[N < k] / 2 <= E*_k <= p(eps) - (p(eps) - q) E[max(0, k - N)] / k.
    for mechanism in mechanisms:
        top = mechanism.p_worst_case
        for q in {HALF, (HALF + top) / 2, (HALF + 9 * top) / 10, top}:
            for k in range(1, mechanism.n + 1):
                enough = missing = Fraction(0)
                for o in mechanism.outputs:
                    found = exposed(mechanism, o, q)
                    enough += mechanism.chance(o) * (found >= k)
                    missing += mechanism.chance(o) * max(0, k - found)
                assert q * enough + HALF * (1 - enough) <= mechanism.best(k)
                assert mechanism.best(k) <= top - (top - q) * missing / k


@pytest.mark.parametrize(
    ("mechanism_at", "epsilon", "threshold", "tight"),
    [
        (lambda n: LocalRandomisedResponse(epsilon=1.0), 1.0, 0.9, True),
        (lambda n: LocalLaplace(epsilon=1.0), 1.0, 0.9, True),
        (lambda n: CountInSets(elements=n, set_size=4), inf, 5.0, True),
        (lambda n: NameAndShame(elements=n), inf, 5.0, False),
        (lambda n: AllOrNothing(elements=n, probability=0.5), inf, 5.0, False),
        (lambda n: Xor(elements=n), inf, 5.0, False),
        (count, inf, 0.05, False),
    ],
)
def test_thm_condition_for_tightness_of_ora_with_abstentions_on_the_examples(
    mechanism_at, epsilon, threshold, tight
):
    # Both sides: does the number of exposed elements grow, and does the efficacy of
    # k = log2 n guesses, a number that grows slowly, tend to p(epsilon)?
    sizes = [2**12, 2**16, 2**20]
    evidence = tightness(
        lambda n: mechanism_at(n).loss_distribution(n),
        thresholds=[threshold],
        sizes=sizes,
    )
    assert evidence.verdict is tight
    best = [
        levels(
            mechanism_at(n), elements=n, guesses=n.bit_length() - 1
        ).best_accuracy.value
        for n in sizes
    ]
    assert (best[-1] > p(epsilon) - 1e-3) == tight


def test_thm_condition_for_tightness_of_ora_with_abstentions_at_every_level():
    # "For every epsilon'" cannot be left out. In sets of 1.5 log2 n ever more elements
    # have a loss of 1 or more, and ever fewer one of 4 or more.
    sets = SetSize(formula="1.5 log2 n", at_power=lambda m: 3 * m // 2, per_log2=1.5)
    assert count_in_sets_tightness(sets, thresholds=[1.0]).verdict is True
    assert count_in_sets_tightness(sets, thresholds=[4.0]).verdict is False
    assert not sets.is_tight


def test_thm_restated_condition_for_tightness_of_ora_with_abstentions_needs_slow_k():
    # The proof's third equivalence holds for a k(n) that grows slowly enough, not for
    # any: local Laplace noise exposes 68 % of all elements fully for epsilon = 1, so
    # k = n / 2 reaches p(1) and k = n stays at 1 - exp(-1/2) / 2, although the number
    # of exposed elements, n times a constant, grows beyond all bounds in both cases.
    mechanism = LocalLaplace(epsilon=1.0)
    for n in (10**4, 10**6):
        law = mechanism.loss_distribution(n)
        share = (1 + exp(-1.0)) / 2  # P[o >= 1 | +1] + P[o <= -1 | +1]
        assert levels_from_loss.exposed(law, 1.0) == pytest.approx(share * n, rel=1e-6)
        assert levels_from_loss.best(law, n // 2) == pytest.approx(p(1.0), abs=1e-6)
        assert levels_from_loss.best(law, n) == pytest.approx(
            1 - exp(-0.5) / 2, abs=1e-9
        )


def test_thm_condition_for_tightness_of_ora_with_abstentions_in_probability():
    # An expectation that grows is not enough: all-or-nothing exposes n / 2 elements on
    # average, and none with chance 1/2.
    for n in (10**2, 10**6):
        law = AllOrNothing(elements=n, probability=0.5).loss_distribution(n)
        assert levels_from_loss.exposed(law, 1.0) == pytest.approx(n / 2)
        assert levels_from_loss.probability_exposed(
            law, 1.0, at_least=1
        ) == pytest.approx(0.5)


def test_thm_condition_for_tightness_of_ora_with_abstentions_counts_exposed():
    # The number that the condition is about, by the definition and by the package's
    # law of losses, for a mechanism that has both.
    mechanism = CountInSets(elements=6, set_size=3)
    for threshold in (0.5, 2.0, inf):
        expected = 0.0
        for row in range(64):
            bits = (row >> np.arange(6)) & 1
            for ones in (bits[:3].sum(), bits[3:].sum()):
                size = inf if ones in (0, 3) else np.log(2.0)
                expected += 3 * (size >= threshold) / 64
        found = levels_from_loss.exposed(mechanism.loss_distribution(6), threshold)
        assert found == pytest.approx(expected)
