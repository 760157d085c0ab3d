"""No violation is found only where one could have been: for every rule there is."""

from dataclasses import replace

import numpy as np
import pytest

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    ApproxDP,
    Design,
    GaussianDP,
    Key,
    OneRun,
    PureDP,
    RandomHalf,
    Ranking,
    RunByRun,
    SeparateRuns,
    WeightClasses,
)
from dpaudit.bounds import (
    Bets,
    Counts,
    EventCounts,
    HalfCounts,
    Ranked,
    Rounds,
    Weighted,
    judge_claim,
)
from dpaudit.errors import InvalidInputError
from dpaudit.game import Commitment, Referee
from dpaudit.game.combining import combine_runs
from dpaudit.game.result import conclude, judge
from dpaudit.game.rules import Rules
from dpaudit.privacy.guarantees import PrivacyCurve

N = 40
ROUND = Weighted(
    canaries=N, weights=(2.0, 3.0), guesses=(10, 10), correct=(7, 8), committed=False
)
CLASSES = {"weights": (2.0, 1.0), "guesses": (20, 20)}
SLOTS = Weighted(canaries=N, **CLASSES, correct=(15, 13), committed=True)
COUNTS = Counts(canaries=N, guesses=N, correct=28)
# A game by each rule, not good enough to refute much.
GAMES = {
    "one-run": (OneRun(guesses=N), COUNTS),
    "separate-runs": (SeparateRuns(guesses=N), COUNTS),
    "ranking": (
        Ranking(guesses=N),
        Ranked(canaries=N, right=np.arange(N) % 10 > 2),
    ),
    "random-half": (
        RandomHalf(guesses=N // 2),
        HalfCounts(canaries=N, guesses=N // 2, correct=14),
    ),
    "classes": (WeightClasses(**CLASSES), SLOTS),
    "run-by-run": (
        RunByRun(slope=2.0, intercept=0.0),
        EventCounts(canaries=N, correct=28, wrong=12, slope=2.0, intercept=0.0),
    ),
    "adaptive-count": (AdaptiveCount(guesses=N), replace(COUNTS, adaptive=True)),
    "adaptive-classes": (AdaptiveClasses(**CLASSES), replace(SLOTS, adaptive=True)),
    "adaptive-rounds": (
        AdaptiveRounds(round_weights=(1.0, 1.0)),
        Rounds(
            canaries=N,
            rounds=(ROUND, ROUND),
            round_weights=(1.0, 1.0),
            uniforms=(0.5, 0.5),
        ),
    ),
    "adaptive-bets": (
        AdaptiveBets(),
        Bets(
            canaries=N,
            right=np.arange(N) % 10 > 2,
            stated_probabilities=np.full(N, 0.9),
        ),
    ),
}


def drawn(claim, *, top):
    """Return eight points of a curve."""
    epsilons = np.linspace(0.0, top, 8)
    deltas = np.array([claim.delta_at(each) for each in epsilons])
    return PrivacyCurve(epsilons=epsilons, deltas=deltas)


POINTS = {
    "pure, small": (PureDP(epsilon=0.7), True),
    "pure, large": (PureDP(epsilon=5.0), False),
    "small": (ApproxDP(epsilon=0.7, delta=1e-5), True),
    "large": (ApproxDP(epsilon=5.0, delta=1e-5), False),
}
CURVES = {
    "small": (drawn(GaussianDP(mu=0.2), top=1.0), True),
    "large": (drawn(GaussianDP(mu=4.0), top=30.0), False),
    "two points, small": (
        PrivacyCurve(epsilons=np.array([0.5, 1.0]), deltas=np.array([1e-3, 1e-6])),
        True,
    ),
    "two points, large": (
        PrivacyCurve(epsilons=np.array([4.5, 6.0]), deltas=np.array([1e-3, 1e-6])),
        False,
    ),
}


def kinds():
    return [
        kind
        for kind, rules in Rules.kinds.known().items()
        if rules.__module__.startswith("dpaudit.")
    ]


def game(kind):
    assert kind in GAMES, f"give the rule {kind!r} a game here"
    return GAMES[kind]


def check(result, *, could):
    """All right refutes or it does not, and the word follows it."""
    test, rules = result.claim_test, result.design.rules
    best = result.reading.perfect()
    refuting = judge_claim(test.claim, best, alpha=test.alpha, bound=rules.bound())
    assert refuting.refuted is result.could_refute is could
    assert result.verdict.exit_code in ((0, 1) if could else (3,))
    luckiest = judge(best, design=result.design, commitment=None)
    assert luckiest.verdict.exit_code == (1 if could else 3)
    assert ("not enough to refute" in " ".join(result.details().split())) is not could


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("claim", POINTS)
def test_what_all_right_guesses_would_not_refute_is_inconclusive(kind, claim):
    (rules, reading), (claimed, could) = game(kind), POINTS[claim]
    design = Design(canaries=N, rules=rules, claim=claimed)
    check(judge(reading, design=design, commitment=None), could=could)


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("claim", CURVES)
def test_a_curve_that_all_right_guesses_would_not_refute_is_inconclusive(kind, claim):
    (rules, reading), (claimed, could) = game(kind), CURVES[claim]
    if rules.one_point:
        with pytest.raises(InvalidInputError, match="one point"):
            Design(canaries=N, rules=rules, claim=claimed, delta=1e-5)
        return
    design = Design(canaries=N, rules=rules, claim=claimed, delta=1e-5)
    check(judge(reading, design=design, commitment=None), could=could)


@pytest.mark.parametrize(
    ("canaries", "guesses", "delta", "epsilon"),
    [(1000, 1000, 0.06, 1.0), (20_000, 100, 1e-3, 1.0), (50_000, 40, 1e-4, 2.0)],
)
def test_a_ranking_that_delta_leaves_no_room_is_inconclusive(
    canaries, guesses, delta, epsilon
):
    """At delta = 0 all right would refute; at its own delta they do not."""
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    design = Design(canaries=canaries, rules=Ranking(guesses=guesses), claim=claim)
    right = Ranked(canaries=canaries, right=np.ones(guesses, bool))
    result = judge(right, design=design, commitment=None)
    assert result.verdict.exit_code == 3
    assert result.ceiling < epsilon


@pytest.mark.parametrize("rules", [OneRun, Ranking, AdaptiveCount])
def test_guesses_that_were_not_made_could_not_have_been_right(rules):
    design = Design(canaries=100, rules=rules(guesses=100), claim=PureDP(epsilon=1.0))
    referee = Referee(design, Key(bytes(32)))
    referee.submit(np.arange(5), np.ones(5))
    result = conclude(referee.close(), commitment=referee.commitment)
    assert result.reading.abstained == 95
    assert result.reading.perfect().correct_and_guesses()[0] == 5
    assert result.verdict.exit_code == 3
    assert type(result).from_json(result.to_json()) == result


def test_slots_that_were_not_taken_could_not_have_been_right():
    rules = WeightClasses(weights=(2.0, 1.0), guesses=(50, 50))
    design = Design(canaries=100, rules=rules, claim=PureDP(epsilon=1.0))
    referee = Referee(design, Key(bytes(32)))
    referee.submit(np.arange(4), np.ones(4), [2.0, 1.0, 2.0, 2.0])
    result = conclude(referee.close(), commitment=referee.commitment)
    assert result.reading.abstained == (47, 49)
    assert result.reading.perfect().correct == (3, 1)
    assert result.verdict.exit_code == 3


def test_runs_that_together_could_not_refute_are_inconclusive():
    """Each committed to 100 guesses and made three."""
    design = Design(canaries=100, rules=OneRun(guesses=100), claim=PureDP(epsilon=1.0))
    made = Counts(canaries=100, guesses=100, correct=3, abstained=97)
    keys = [Commitment.to(Key(bytes([i] * 32)), design) for i in range(2)]
    runs = [judge(made, design=design, commitment=key) for key in keys]
    assert combine_runs(runs).verdict.exit_code == 3


def test_more_guesses_left_out_than_were_wrong_is_no_reading():
    with pytest.raises(InvalidInputError, match="counts as wrong"):
        Counts(canaries=9, guesses=5, correct=4, abstained=2)
    with pytest.raises(InvalidInputError, match="counts as wrong"):
        Ranked(canaries=3, right=np.array([False, False, True]), abstained=1)
    with pytest.raises(InvalidInputError, match="one entry per class"):
        replace(SLOTS, abstained=(1,))
    with pytest.raises(InvalidInputError, match="counts as wrong"):
        replace(SLOTS, abstained=(6, 0))
