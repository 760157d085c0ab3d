"""Rules about curves, pairs of runs and unequal coins: against sums made here."""

from dataclasses import replace
from itertools import combinations, product
from math import comb, log

import numpy as np
import pytest
from scipy import stats

from dpaudit.bounds.curve import CurveCertificate
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.methods import judge_claim as verdict_on
from dpaudit.bounds.readings import BiasedCoinCounts, Counts
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.calibration.half import NamedOfHalf, RandomHalfRule
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    SharedScore,
    Silent,
)
from dpaudit_lab.calibration.nulls import curve_of, right_tail
from dpaudit_lab.calibration.several import (
    CERTIFICATE,
    CLAIM_TEST,
    IndependentRule,
)
from dpaudit_lab.calibration.unequal import BiasedCoins, UnequalRule

CURVES = [
    RandomisedResponse(epsilon=1.0),
    SharedScore(mu=1.0, delta=0.01),
    AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.04), loud=3.0),
]


@pytest.mark.parametrize("null", CURVES, ids=lambda null: type(null).__name__)
def test_a_curve_is_refuted_from_one_count_on(null):
    claim = curve_of(null)
    for rule in (CLAIM_TEST, CERTIFICATE):
        v = rule.critical(60, null, 0.05)
        for correct in range(v - 2, min(v + 2, 61)):
            counts = Counts(canaries=60, guesses=60, correct=correct)
            if rule is CLAIM_TEST:
                refuted = verdict_on(claim, counts, alpha=0.05).refuted
            else:
                certificate = CurveCertificate(counts=counts, alpha=0.05)
                refuted = certificate.refutes(claim)
            assert refuted == (correct >= v)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize(
    "null",
    [
        Silent(),
        RandomisedResponse(epsilon=1.0),
        AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.1), loud=3.0),
    ],
    ids=lambda null: type(null).__name__,
)
def test_two_runs_are_rejected_as_often_as_summing_all_pairs_says(null, alpha):
    n, claim, brute = 14, null.claim, 0.0
    tails = [right_tail(null, canaries=n, guesses=n, correct=v) for v in range(n + 2)]
    law = -np.diff(tails)
    for pair in product(range(n + 1), repeat=2):
        runs = [Counts(canaries=n, guesses=n, correct=v) for v in pair]
        found = IndependentRunsBound().log_p_value(
            runs, epsilon=claim.epsilon, delta=claim.delta
        )
        if found <= log(alpha):
            brute += law[pair[0]] * law[pair[1]]
    found = IndependentRule().chance(null, canaries=n, alpha=alpha)
    assert found == pytest.approx(brute, rel=1e-9)
    assert found <= alpha


def test_a_random_half_is_drawn_as_its_law_says_and_counted_from_the_top():
    rule = RandomHalfRule(share=4)
    for epsilon, delta in ((0.0, 0.0), (1.0, 0.0), (1.0, 0.2)):
        null = NamedOfHalf(guesses=5, claim=ApproxDP(epsilon=epsilon, delta=delta))
        law = stats.nchypergeom_fisher(20, 10, 5, np.exp(epsilon)).pmf(np.arange(6))
        law = (1 - delta) * law + delta * np.eye(6)[5]
        assert null.law(20) == pytest.approx(law, rel=1e-6)
        draws = null.draw(np.random.default_rng(1), canaries=20, audits=4000)
        assert (draws.bits.sum(axis=1) == 10).all()
        v = rule.critical(20, null.claim, 0.2)
        found = rule.rejects(draws, null.claim, 0.2, np.random.default_rng(0))
        right = (draws.bits * (draws.log_odds > 0)).sum(axis=1)
        assert np.array_equal(found, right >= v)
        tail = rule.chance(null, canaries=20, alpha=0.2)
        assert tail == pytest.approx(law[v:].sum(), rel=1e-6)
        assert np.mean(found) == pytest.approx(tail, abs=0.02)
        assert tail <= 0.2


def test_naming_canaries_of_a_half_is_exactly_as_private_as_it_claims():
    """Every output and every swap of two canaries, of six."""
    claim = ApproxDP(epsilon=1.0, delta=0.1)
    law = NamedOfHalf(guesses=2, claim=replace(claim, delta=0.0)).law(6)
    ratios, ways = [], [comb(3, v) * comb(3, 2 - v) for v in range(3)]
    for half, i, j in product(combinations(range(6), 3), range(6), range(6)):
        other = {*half} - {i} | {j}
        if i not in half or j in half:
            continue
        for named in combinations(range(6), 2):
            one, two = (
                law[v] / ways[v]
                for v in (len({*named} & {*each}) for each in (half, other))
            )
            ratios.append(one / two)
    assert max(ratios) == pytest.approx(np.exp(1.0))
    published = NamedOfHalf(guesses=2, claim=claim).law(6)
    assert published == pytest.approx(0.9 * law + [0, 0, 0.1])


def test_unequal_coins_are_counted_from_both_ends():
    claim = ApproxDP(epsilon=1.0, delta=0.0)
    rule, null = UnequalRule(), BiasedCoins(inclusion=0.9, claim=claim)
    draws = null.draw(np.random.default_rng(1), canaries=100, audits=300)
    found = rule.rejects(draws, claim, 0.2, np.random.default_rng(0))
    expected = []
    for log_odds, bits in zip(draws.log_odds, draws.bits, strict=True):
        order = np.argsort(-log_odds, kind="stable")
        right = bits[order[:50]].sum() + (bits[order[-5:]] == 0).sum()
        reading = BiasedCoinCounts(
            canaries=100,
            inclusion=0.9,
            guesses_in=50,
            guesses_out=5,
            correct=right,
            committed=True,
        )
        p = BiasedCoinsBound().log_p_value(reading, epsilon=1.0, delta=0.0)
        expected.append(p <= log(0.2))
    assert any(expected)
    assert list(found) == expected
