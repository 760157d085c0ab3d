"""The rules: that they decide what their bounds decide, only faster."""

from itertools import product
from math import log

import numpy as np
import pytest

from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    Silent,
)
from dpaudit_lab.calibration.nulls import Exposed, Stopping, right_tail
from dpaudit_lab.calibration.ours import EXACT_ON_ALL, OURS
from dpaudit_lab.calibration.rules import CountRule, WeightedRule, score_law
from dpaudit_lab.calibration.sequences import (
    BettingRule,
    RankedRule,
    RoundsRule,
)

CLAIM = ApproxDP(epsilon=1.0, delta=1e-4)
# Nulls that are often rejected at this level, so that both answers are seen.
LEVEL = 0.2
NULLS = [
    RandomisedResponse(epsilon=1.0),
    Silent(),
    Silent(clip=0.0),
    Exposed(claim=CLAIM),
    Stopping(level=0.2),
]


def drawn(null, *, canaries=80, audits=60):
    return null.draw(np.random.default_rng(5), canaries=canaries, audits=audits)


def rejected(bound, reading, claim):
    found = bound.log_p_value(reading, epsilon=claim.epsilon, delta=claim.delta)
    return found <= log(LEVEL)


@pytest.mark.parametrize("rule", [r for r in OURS if isinstance(r, CountRule)], ids=str)
def test_the_critical_count_is_the_least_that_rejects(rule):
    claim = ApproxDP(epsilon=1.0, delta=0.0 if "pure" in rule.name else 1e-4)
    r, v = rule.guesses(200), rule.critical(200, claim, 0.05)
    assert 0 < v <= r

    def rejects(correct):
        counts = Counts(
            canaries=200,
            guesses=r,
            correct=correct,
        )
        found = rule.bound.log_p_value(counts, epsilon=1.0, delta=claim.delta)
        return found <= log(0.05)

    assert rejects(v)
    assert not rejects(v - 1)


def test_a_bound_above_the_truth_is_a_rejection_of_the_claim():
    v = EXACT_ON_ALL.critical(100, CLAIM, 0.05)
    for correct in (v - 1, v):
        counts = Counts(canaries=100, guesses=100, correct=correct)
        found = ExactBound().epsilon_lower(counts, delta=CLAIM.delta, alpha=0.05)
        assert (found.epsilon_lower >= CLAIM.epsilon) == (correct >= v)


def test_a_count_rule_rejects_as_often_as_the_exact_sum_says():
    null = AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.1), loud=3.0)
    rng = np.random.default_rng(2)
    draws = null.draw(rng, canaries=50, audits=5000)
    hits = int(EXACT_ON_ALL.rejects(draws, null.claim, 0.2, rng).sum())
    low, high = rate_limits(hits, 5000, alpha=1e-6)
    v = EXACT_ON_ALL.critical(50, null.claim, 0.2)
    assert low <= right_tail(null, canaries=50, guesses=50, correct=v) <= high


def test_guesses_not_made_count_as_wrong():
    rng = np.random.default_rng(3)
    draws = drawn(Stopping(level=0.2))
    assert np.any(draws.made < 80)
    for right, made in zip(draws.right, draws.made, strict=True):
        assert right[:made].sum() <= made
    v = EXACT_ON_ALL.critical(80, ApproxDP(epsilon=0.0, delta=0.0), LEVEL)
    expected = [
        right[:made].sum() >= v
        for right, made in zip(draws.right, draws.made, strict=True)
    ]
    claim = ApproxDP(epsilon=0.0, delta=0.0)
    found = EXACT_ON_ALL.rejects(draws, claim, LEVEL, rng)
    assert list(found) == expected


def test_the_law_of_a_score_is_what_counting_all_answers_gives():
    brute = np.zeros(9)
    for right in product((0, 1), repeat=5):
        chance = np.prod([0.7 if x else 0.3 for x in right])
        brute[np.dot(right, (3, 2, 1, 1, 1))] += chance
    found = score_law((3, 2, 1), (1, 1, 3), log(0.7 / 0.3))
    np.testing.assert_allclose(found, brute, atol=1e-15)


def test_weighted_guesses_are_rejected_as_often_as_the_exact_sum_says():
    rule, null = WeightedRule(), RandomisedResponse(epsilon=1.0)
    score = rule.critical(80, null.claim, LEVEL)
    rng = np.random.default_rng(4)
    draws = null.draw(rng, canaries=80, audits=5000)
    hits = int(rule.rejects(draws, null.claim, LEVEL, rng).sum())
    low, high = rate_limits(hits, 5000, alpha=1e-6)
    found = rule.chance(null, canaries=80, score=score)
    assert low <= found <= min(high, LEVEL)


@pytest.mark.parametrize("null", NULLS[:-1], ids=repr)
def test_no_ranking_is_left_out_that_the_bound_rejects(null):
    draws = drawn(null)
    found = RankedRule().rejects(draws, null.claim, LEVEL, np.random.default_rng(0))
    expected = []
    for log_odds, right in zip(draws.log_odds, draws.right, strict=True):
        order = np.argsort(-np.abs(log_odds), kind="stable")
        ranked = Ranked(canaries=80, right=right[order])
        expected.append(rejected(RankedBound(level=LEVEL), ranked, null.claim))
    assert any(expected)
    assert list(found) == expected


@pytest.mark.parametrize(
    "limit", [{}, {"max_jump": 0.5, "randomness_share": 0.05}], ids=str
)
@pytest.mark.parametrize("null", NULLS, ids=repr)
def test_no_rounds_are_left_out_that_the_bound_rejects(null, limit):
    draws, rule = drawn(null), RoundsRule(**limit)
    found = rule.rejects(draws, null.claim, LEVEL, np.random.default_rng(9))
    rng = np.random.default_rng(9)
    uniforms, noise = rng.random((60, 4)), rng.random(60)
    stated = (null.claim.epsilon + 2, null.claim.epsilon + 1)
    expected = []
    for audit in range(60):
        played = []
        for start in range(0, 80, 20):
            part = slice(start, start + 20)
            order = np.argsort(-np.abs(draws.log_odds[audit, part]), kind="stable")
            right = draws.right[audit, part][order]
            begun = start < draws.made[audit]
            played.append(
                Weighted(
                    canaries=80,
                    weights=stated,
                    guesses=(2, 10) if begun else (0, 0),
                    correct=(int(right[:2].sum()), int(right[2:12].sum()))
                    if begun
                    else (0, 0),
                    committed=True,
                )
            )
        reading = Rounds(
            canaries=80,
            rounds=tuple(played),
            round_weights=(1.0,) * 4,
            uniforms=tuple(uniforms[audit]),
            noise_uniform=noise[audit],
            **limit,
        )
        expected.append(rejected(RoundsBound(), reading, null.claim))
    assert any(expected)
    assert list(found) == expected


def test_bets_end_when_the_guesser_stops():
    draws = drawn(Stopping(level=0.2))
    claim = ApproxDP(epsilon=0.0, delta=0.0)
    found = BettingRule().rejects(draws, claim, LEVEL, np.random.default_rng(0))
    stake = 1 / (1 + np.exp(-0.5))
    for right, made, answer in zip(draws.right, draws.made, found, strict=True):
        bets = Bets(
            canaries=80, right=right[:made], stated_probabilities=np.full(made, stake)
        )
        assert answer == rejected(BettingBound(), bets, claim)
