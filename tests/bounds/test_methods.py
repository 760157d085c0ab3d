"""Which bound reads what: each by its own, and all of them see a strong leak."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import ApproxDP, GaussianDP
from dpaudit.bounds import Bets, CurveCertificate, Ranked, Rounds, Weighted, methods
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.curve import lines_log_p_value
from dpaudit.bounds.exact import ExactBound, SeparateRunsBound
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.methods import METHODS, bound_counts, bound_for
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import BiasedCoinCounts, Counts
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.errors import InvalidInputError, InvalidRunError

COUNTS = Counts(canaries=10, guesses=10, correct=9)
PLAYED = Weighted(
    canaries=90, weights=(2, 1), guesses=(30, 30), correct=(30, 28), committed=True
)
READINGS = [
    (
        BiasedCoinsBound(),
        BiasedCoinCounts(
            canaries=90,
            inclusion=0.4,
            guesses_in=30,
            guesses_out=30,
            correct=58,
            committed=True,
        ),
    ),
    (RankedBound(), Ranked(canaries=90, right=np.arange(90) < 80)),
    (WeightedBound(), PLAYED),
    (
        RoundsBound(),
        Rounds(canaries=90, rounds=(PLAYED,), round_weights=(1,), uniforms=(0.5,)),
    ),
    (
        BettingBound(),
        Bets(
            canaries=90, right=np.arange(90) > 1, stated_probabilities=np.full(90, 0.95)
        ),
    ),
]


@pytest.mark.parametrize(("bound", "reading"), READINGS, ids=lambda x: type(x).__name__)
def test_every_reading_goes_to_its_bound(bound, reading):
    found = bound_for(reading).epsilon_lower(reading, delta=1e-4, alpha=0.02)
    assert found == bound.epsilon_lower(reading, delta=1e-4, alpha=0.02)
    assert found.epsilon_lower > 0.5
    assert (found.method, found.delta, found.alpha) == (bound.method, 1e-4, 0.02)
    assert found.reference == bound.reference


def test_counts_go_to_the_bound_of_how_they_were_guessed():
    counts = Counts(canaries=9, guesses=2, correct=1)
    assert bound_for(counts) == METHODS["exact"]
    assert bound_for(replace(counts, adaptive=True)) == AdaptiveBound()


@pytest.mark.parametrize(
    ("bound", "reading"),
    [*READINGS, (ExactBound(), COUNTS), (SeparateRunsBound(), COUNTS)],
    ids=lambda x: type(x).__name__,
)
def test_every_bound_refuses_levels_and_claims_that_are_none(bound, reading):
    with pytest.raises(InvalidInputError, match=r"^delta must be in"):
        bound.epsilon_lower(reading, delta=1.5, alpha=0.05)
    with pytest.raises(InvalidInputError, match=r"^alpha is the significance level"):
        bound.epsilon_lower(reading, delta=0.0, alpha=0.95)
    for epsilon in (-0.5, math.nan):
        with pytest.raises(InvalidInputError, match=r"^epsilon must be a finite numb"):
            bound.log_p_value(reading, epsilon=epsilon, delta=0.0)
    with pytest.raises(InvalidInputError, match=r"^delta must be in"):
        bound.log_p_value(reading, epsilon=0.5, delta=-0.1)


@pytest.mark.parametrize("name", METHODS)
def test_every_bound_on_counts_refuses_them_too(name):
    with pytest.raises(InvalidInputError, match=r"for confidence 0\.95 pass 0\.05"):
        bound_counts(name, COUNTS, delta=0.0, alpha=0.95)
    with pytest.raises(InvalidInputError, match=r"^(delta must be in|the pure bound)"):
        bound_counts(name, COUNTS, delta=1.5, alpha=0.05)


@pytest.mark.parametrize("name", ["exact", "adaptive", "steinke", "separate"])
def test_no_p_value_of_counts_is_above_one(name):
    for correct in (0, 3, 10):
        counts = Counts(canaries=30, guesses=10, correct=correct)
        found = METHODS[name].log_p_value(counts, epsilon=0.0, delta=0.9)
        assert -1e-9 < found <= 0.0


ADAPTIVE = Counts(canaries=90, guesses=60, correct=55, adaptive=True)
SLOTS = replace(PLAYED, adaptive=True)
LEVELS = {"delta": 0.0, "alpha": 0.05}


@pytest.mark.parametrize(
    "bounded",
    [
        *(
            lambda name=name: bound_counts(name, ADAPTIVE, **LEVELS)
            for name in METHODS
            if name != "adaptive"
        ),
        lambda: WeightedBound().epsilon_lower(SLOTS, **LEVELS),
        lambda: IndependentRunsBound().epsilon_lower([ADAPTIVE, ADAPTIVE], **LEVELS),
        lambda: CurveCertificate(counts=ADAPTIVE, alpha=0.05),
        lambda: lines_log_p_value(ADAPTIVE, GaussianDP(mu=1.0), lines=2),
    ],
)
def test_what_is_proved_for_guesses_at_once_refuses_adaptive_ones(bounded):
    with pytest.raises(InvalidRunError, match="proved for guesses made all at once"):
        bounded()


@pytest.mark.parametrize(
    ("reading", "bound"),
    [(ADAPTIVE, AdaptiveBound()), (SLOTS, AdaptiveWeightedBound())],
)
def test_adaptive_guesses_are_tested_and_bounded_by_their_own_bound(reading, bound):
    claim = ApproxDP(epsilon=1.0, delta=1e-3)
    found = methods.judge_claim(claim, reading, alpha=0.05).p_value
    own = math.exp(bound.log_p_value(reading, epsilon=1.0, delta=1e-3))
    at_once = methods.judge_claim(claim, replace(reading, adaptive=False), alpha=0.05)
    # The least at an epsilon of 1 or more: delta costs less at a larger one.
    assert 0.5 * own < found <= own * (1 + 1e-9)
    assert found > 1.05 * at_once.p_value
    if isinstance(reading, Weighted):
        lower = bound_for(reading).epsilon_lower(reading, delta=1e-3, alpha=0.05)
        assert lower == bound.epsilon_lower(reading, delta=1e-3, alpha=0.05)


def test_adaptive_weights_that_were_not_fixed_have_no_bound():
    loose = replace(SLOTS, committed=False)
    with pytest.raises(InvalidRunError, match="fixed before the run"):
        bound_for(loose).epsilon_lower(loose, delta=0.0, alpha=0.05)
    with pytest.raises(InvalidRunError, match="fixed before the run"):
        methods.judge_claim(ApproxDP(epsilon=1.0, delta=0.0), loose, alpha=0.05)
