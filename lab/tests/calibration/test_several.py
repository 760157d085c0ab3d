"""Rules about curves, pairs of runs and unequal coins: against sums made here."""

from itertools import product
from math import log

import numpy as np
import pytest

from dpaudit.bounds.curve import CurveCertificate
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.methods import judge_claim as verdict_on
from dpaudit.bounds.readings import BiasedCoinCounts, Counts
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.privacy.guarantees import ApproxDP
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
