"""Our guessers play fair; those that peek, boast, forget or break rules are caught.

Random, with fixed seeds: each check of a fair guesser fails with chance 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    Design,
    Extremes,
    MostLikely,
    OneRun,
    Ranking,
    WeightClasses,
)
from dpaudit.errors import ConformanceError, InvalidInputError
from dpaudit.game import Confident, Everyone, Submission
from dpaudit.game.guessers import Echo
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.noise import LaplaceNoise
from dpaudit.mechanisms.parity import XorInPairs
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.testing.conformance_guesser import check_guesser

LAPLACE = LocalLaplace(epsilon=2.0)
N = 60


def check(guesser, rules, mechanism=LAPLACE, *, games=20, seed=0, of=None):
    subject = mechanism if of is None else of
    design = Design(canaries=N, rules=rules, claim=mechanism.guarantee)
    return check_guesser(
        guesser,
        subject,
        pairs=mechanism.pairs,
        design=design,
        rng=np.random.default_rng(seed),
        games=games,
    )


@pytest.mark.parametrize(
    ("guesser", "rules"),
    [
        (Everyone(mechanism=LAPLACE), OneRun(guesses=N)),
        (MostLikely(mechanism=LAPLACE, guesses=10), Ranking(guesses=10)),
        (Confident(mechanism=LAPLACE, threshold=1.0, guesses=20), OneRun(guesses=20)),
        (Extremes(score=np.asarray, top=5, bottom=5), OneRun(guesses=10)),
    ],
)
def test_our_one_run_guessers_conform(guesser, rules):
    assert "knows no coin" in str(check(guesser, rules))


def test_echo_conforms_on_randomised_response():
    check(Echo(), OneRun(guesses=N), LocalRandomisedResponse(epsilon=1.0))


COUNTS = CountInSets(elements=N, set_size=3, noise=LaplaceNoise(epsilon=1.0))
RULES = [
    AdaptiveCount(guesses=20),
    AdaptiveClasses(weights=(1.0, 0.1), guesses=(10, 20)),
    AdaptiveRounds(round_weights=(1.0, 1.0, 1.0)),
    AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=0.5, randomness_share=0.1),
    AdaptiveBets(),
]


@pytest.mark.parametrize("mechanism", [LAPLACE, COUNTS])
@pytest.mark.parametrize("rules", RULES)
def test_our_adaptive_guesser_conforms(rules, mechanism):
    guesser = AdaptiveMostLikely(mechanism=mechanism, threshold=0.1, rules=rules)
    found = str(check(guesser, rules, mechanism))
    states = isinstance(rules, AdaptiveRounds | AdaptiveBets)
    assert ("is correct as often as it states" in found) == states


def test_revealed_coins_may_be_used():
    """Of each pair the second coin is known for certain once the first is revealed."""
    rules, mechanism = AdaptiveBets(), XorInPairs(elements=N)
    guesser = AdaptiveMostLikely(mechanism=mechanism, threshold=0.5, rules=rules)
    check_guesser(
        guesser,
        mechanism,
        pairs=mechanism.pairs,
        design=Design(canaries=N, rules=rules, claim=LAPLACE.guarantee),
        rng=np.random.default_rng(1),
    )


class Remembering:
    """Laplace noise, by a class that keeps the data it was given."""

    def run(self, data, rng):
        self.last = data
        return LAPLACE.run(data, rng)


@dataclass
class Peeking:
    mechanism: Remembering

    def guess(self, output):
        return Submission(index=np.arange(N), guess=self.mechanism.last)


@dataclass
class PeekingAtTheEnd:
    """Guesses fairly by the output, and one coin of ten by what the mechanism kept."""

    mechanism: Remembering

    def play(self, output):
        for i in range(N):
            fair = 1 if output[i] > 0 else -1
            guess = self.mechanism.last[i] if i % 10 == 0 else fair
            yield Submission(index=np.array([i]), guess=np.array([guess], np.int8))


def test_a_guesser_that_finds_the_data_is_caught():
    mechanism = Remembering()
    with pytest.raises(ConformanceError, match="knows coins that the output does not"):
        check(Peeking(mechanism), OneRun(guesses=N), of=mechanism)


def test_a_guesser_that_peeks_now_and_then_is_caught():
    mechanism = Remembering()
    with pytest.raises(ConformanceError, match="knows coins that the output does not"):
        check(
            PeekingAtTheEnd(mechanism), AdaptiveCount(guesses=N), of=mechanism, games=60
        )


class Tossing:
    def __init__(self):
        self.rng = np.random.default_rng(1)

    def guess(self, output):
        guess = self.rng.choice(np.array([-1, 1], np.int8), N)
        return Submission(index=np.arange(N), guess=guess)


class Learning:
    """Remembers every coin that it was ever shown, output by output."""

    def __init__(self):
        self.known = {}

    def play(self, output):
        known = self.known.setdefault(output.tobytes(), {})
        for i in range(N):
            fair = 1 if output[i] > 0 else -1
            guess = np.array([known.get(i, fair)], np.int8)
            truth = yield Submission(index=np.array([i]), guess=guess)
            known[i] = truth[0]


@pytest.mark.parametrize(
    ("guesser", "rules"),
    [(Tossing(), OneRun(guesses=N)), (Learning(), AdaptiveCount(guesses=N))],
)
def test_what_is_not_said_again_is_caught(guesser, rules):
    with pytest.raises(ConformanceError, match="differently from the same output"):
        check(guesser, rules)


class Sorting:
    def guess(self, output):
        output.sort()
        return Submission(index=np.arange(5), guess=np.ones(5, np.int8))


def test_a_guesser_that_changes_the_output_is_caught():
    with pytest.raises(ConformanceError, match="changes the output"):
        check(Sorting(), OneRun(guesses=N))


class Twice:
    def guess(self, output):
        return Submission(index=np.zeros(2, int), guess=np.ones(2, np.int8))


@pytest.mark.parametrize(
    ("guesser", "rules", "message"),
    [
        (Twice(), OneRun(guesses=5), "named twice"),
        (Everyone(mechanism=LAPLACE), OneRun(guesses=5), "the design allows guesses=5"),
        (
            Everyone(mechanism=LAPLACE),
            WeightClasses(weights=(1.0,), guesses=(N,)),
            "needs a stake",
        ),
    ],
)
def test_a_broken_rule_is_named(guesser, rules, message):
    with pytest.raises(ConformanceError, match=f"breaks the rules.*{message}"):
        check(guesser, rules)


@dataclass(frozen=True)
class Boasting:
    """States log-odds that are off by some amount."""

    rules: object
    more: float

    def play(self, output):
        fair = AdaptiveMostLikely(
            mechanism=LAPLACE, threshold=1.2, rules=self.rules
        ).play(output)
        turn = next(fair)
        odds = np.abs(LAPLACE.log_odds(output)) + self.more
        stake = special.expit(odds) if self.rules == AdaptiveBets() else odds
        yield Submission(index=turn.index, guess=turn.guess, stake=stake)


@pytest.mark.parametrize(
    "rules", [AdaptiveBets(), AdaptiveRounds(round_weights=(1.0,))]
)
@pytest.mark.parametrize(("more", "games"), [(-1.0, 200), (1.0, 80)])
def test_stakes_that_are_off_are_caught(rules, more, games):
    with pytest.raises(ConformanceError, match="not correct as often as it states"):
        check(Boasting(rules, more), rules, games=games)


@pytest.mark.parametrize(
    "rules", [AdaptiveBets(), AdaptiveRounds(round_weights=(1.0,))]
)
def test_stakes_that_are_right_are_not(rules):
    check(Boasting(rules, 0.0), rules, games=200)


def test_the_false_alarm_is_what_it_says():
    """Of 200 checks at a false alarm of one in twenty, about ten or fewer fail.

    More than 25 have a chance of at most 1e-5 (binomial tail at 0.05).
    """
    rules = AdaptiveBets()
    guesser = AdaptiveMostLikely(mechanism=LAPLACE, threshold=0.0, rules=rules)
    design = Design(canaries=20, rules=rules, claim=LAPLACE.guarantee)
    rng, refused = np.random.default_rng(7), 0
    for _ in range(200):
        try:
            check_guesser(
                guesser,
                LAPLACE,
                pairs=LAPLACE.pairs,
                design=design,
                rng=rng,
                games=2,
                false_alarm=0.05,
            )
        except ConformanceError:
            refused += 1
    assert refused <= 25


def test_a_guesser_of_the_other_kind_is_refused():
    with pytest.raises(InvalidInputError, match="adaptive rules need a guesser with"):
        check(Everyone(mechanism=LAPLACE), AdaptiveCount(guesses=5))
