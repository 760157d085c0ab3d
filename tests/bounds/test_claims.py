"""One test of claims for every reading, and refusals where none would be valid."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import ApproxDP, GaussianDP, PureDP
from dpaudit.bounds import (
    Bets,
    Counts,
    ExactBound,
    Ranked,
    Rounds,
    Weighted,
    judge_claim,
)
from dpaudit.bounds.hypergeometric import group_claim
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.power import design_ceiling, estimate, mechanism_ceiling
from dpaudit.bounds.readings import BiasedCoinCounts
from dpaudit.errors import InvalidInputError

PLAYED = Weighted(
    canaries=400, weights=(2, 1), guesses=(100, 100), correct=(99, 97), committed=True
)
STRONG = [
    Counts(canaries=400, guesses=200, correct=196),
    BiasedCoinCounts(
        canaries=400,
        inclusion=0.5,
        guesses_in=100,
        guesses_out=100,
        correct=196,
        committed=True,
    ),
    Ranked(canaries=400, right=np.arange(400) < 390),
    PLAYED,
    Rounds(
        canaries=400, rounds=(PLAYED, PLAYED), round_weights=(1, 1), uniforms=(0.5, 0.5)
    ),
    Bets(
        canaries=400,
        right=np.arange(400) % 40 > 0,
        stated_probabilities=np.full(400, 0.97),
    ),
]


@pytest.mark.parametrize("reading", STRONG, ids=lambda r: type(r).__name__)
def test_every_reading_can_refute_and_can_fail_to(reading):
    assert judge_claim(PureDP(epsilon=1.0), reading, alpha=0.05).refuted
    assert judge_claim(ApproxDP(epsilon=1.0, delta=1e-5), reading, alpha=0.05).refuted
    assert not judge_claim(PureDP(epsilon=6.0), reading, alpha=0.05).refuted


@pytest.mark.parametrize(
    "reading", [STRONG[2], *STRONG[4:]], ids=lambda r: type(r).__name__
)
def test_a_curve_must_be_read_at_one_delta_where_tests_differ(reading):
    with pytest.raises(InvalidInputError, match="name a delta before the run"):
        judge_claim(GaussianDP(mu=1.0), reading, alpha=0.05)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_a_group_claim_is_the_claim_applied_record_by_record(epsilon):
    """delta_g = delta (1 + e^eps + ... + e^((g-1) eps)), one record after the other."""
    want = sum(1e-6 * math.exp(i * epsilon) for i in range(4))
    assert group_claim(epsilon, 1e-6, records=4) == pytest.approx((4 * epsilon, want))


def test_independent_runs_find_more_and_stay_valid():
    """Exact: two runs of randomised response at epsilon 1, fifty coins each."""
    n, p = 50, 1 / (1 + math.exp(-1.0))
    law = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    logs = [
        ExactBound().log_p_value(
            Counts(canaries=n, guesses=n, correct=k), epsilon=1.0, delta=0.0
        )
        for k in range(n + 1)
    ]

    def combined(x):  # P[product of two uniforms <= e^-x]
        return math.exp(-x) * (1 + x)

    wrong = sum(
        law[i] * law[j]
        for i in range(n + 1)
        for j in range(n + 1)
        if combined(-logs[i] - logs[j]) <= 0.05
    )
    assert wrong <= 0.05
    run = Counts(canaries=n, guesses=n, correct=45)
    both = IndependentRunsBound().log_p_value([run, run], epsilon=1.0, delta=0.0)
    assert math.exp(both) == pytest.approx(combined(-2 * logs[45]))
    one = ExactBound().epsilon_lower(run, delta=0.0, alpha=0.05).epsilon_lower
    two = IndependentRunsBound().epsilon_lower([run, run], delta=0.0, alpha=0.05)
    assert two.epsilon_lower > one


def test_no_runs_cannot_be_combined():
    with pytest.raises(InvalidInputError, match=r"^there must be at least one run"):
        IndependentRunsBound().epsilon_lower([], delta=0.0, alpha=0.05)


@pytest.mark.parametrize(
    ("runs", "ceiling"), [(1, 3.616), (2, 4.013), (3, 4.138), (5, 4.235)]
)
def test_more_runs_raise_the_ceiling(runs, ceiling):
    found = mechanism_ceiling(GaussianDP(mu=1.0), delta=1e-5, alpha=0.05, runs=runs)
    assert found == pytest.approx(ceiling, abs=6e-4)


def test_the_ceiling_of_a_design_is_all_guesses_right():
    found = design_ceiling(canaries=100, guesses=100, delta=0.0, alpha=0.05)
    assert found == pytest.approx(-math.log(0.05**-0.01 - 1), abs=1e-9)


@pytest.mark.parametrize(
    ("correct", "epsilon"), [(75, math.log(3)), (40, 0.0), (0, 0.0), (100, math.inf)]
)
def test_an_estimate_is_named_one(correct, epsilon):
    found = estimate(Counts(canaries=100, guesses=100, correct=correct))
    assert found.epsilon_estimate == pytest.approx(epsilon)
    assert "an estimate, not a bound" in str(found)


def test_an_estimate_needs_a_guess_and_one_is_enough():
    with pytest.raises(InvalidInputError, match=r"^an estimate needs at least one"):
        estimate(Counts(canaries=1, guesses=0, correct=0))
    one = Counts(canaries=1, guesses=1, correct=1)
    assert estimate(one).epsilon_estimate == math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1.5}, "^delta must be in"),
        ({"alpha": 0.95}, "^alpha is the significance level"),
        ({"runs": 0}, "^runs must be a whole number >= 1"),
    ],
)
def test_a_ceiling_of_no_audit_is_refused(change, message):
    plan = {"delta": 1e-5, "alpha": 0.05, "runs": 1} | change
    with pytest.raises(InvalidInputError, match=message):
        mechanism_ceiling(GaussianDP(mu=1.0), **plan)


def test_where_delta_is_above_alpha_nothing_can_be_certified():
    assert mechanism_ceiling(GaussianDP(mu=1.0), delta=0.5, alpha=0.05) == 0.0


@pytest.mark.parametrize("reading", STRONG, ids=lambda r: type(r).__name__)
def test_a_chance_of_being_wrong_that_is_none_is_refused(reading):
    with pytest.raises(InvalidInputError, match=r"^alpha is the significance level"):
        judge_claim(PureDP(epsilon=1.0), reading, alpha=0.95)


def test_classes_that_the_output_chose_are_tested_at_one_point():
    chosen = replace(PLAYED, committed=False)
    claim = ApproxDP(epsilon=1.0, delta=1e-6)
    assert judge_claim(claim, chosen, alpha=0.05).refuted
    assert not judge_claim(PureDP(epsilon=6.0), chosen, alpha=0.05).refuted
    dearer = judge_claim(claim, chosen, alpha=0.05).p_value
    assert judge_claim(claim, PLAYED, alpha=0.05).p_value < dearer
    with pytest.raises(InvalidInputError, match=r"^weighted guesses are tested at one"):
        judge_claim(GaussianDP(mu=1.0), chosen, alpha=0.05)


def test_a_group_claim_beyond_all_floats_claims_nothing():
    """300 for each of three: e^600 and more times delta."""
    assert group_claim(300.0, 1e-5, records=3) == (900.0, 1.0)
    assert group_claim(300.0, 0.0, records=3) == (900.0, 0.0)
    assert group_claim(2.0, 1e-5, records=1) == (2.0, 1e-5)
