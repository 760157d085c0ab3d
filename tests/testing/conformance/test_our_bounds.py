"""Every bound of ours that counts conforms; broken ones are caught by a case."""

from dataclasses import dataclass, replace
from math import ceil, inf, log, nan

import numpy as np
import pytest
from scipy import stats

from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import PureBound, SeparateRunsBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_bound import check_bound
from dpaudit.testing.conformance_games import (
    ClassedGame,
    ClassicGame,
    CountedGame,
    RankedGame,
)

ALL, FEW = CountedGame(canaries=20, guesses=20), CountedGame(canaries=100, guesses=12)
CLASSES = ClassedGame(canaries=20, weights=(3.0, 1.0), guesses=(3, 3))
RANKS = RankedGame(canaries=16, guesses=8)
RUNS = ClassicGame(runs=20)
PASSED = ClassicGame(runs=60, guesses=12)
DELTAS = (0.0, 2e-3, 0.02)


@pytest.mark.parametrize(
    ("bound", "games", "deltas"),
    [
        (ExactBound(), [ALL, FEW], DELTAS),
        (PureBound(), [ALL, FEW], (0.0,)),
        (SteinkeBound(), [FEW], DELTAS),
        (AdaptiveBound(), [FEW], (0.0, 2e-3)),
        (SeparateRunsBound(), [RUNS, PASSED], DELTAS),
        (WeightedBound(), [CLASSES], (0.0, 2e-3)),
        (AdaptiveWeightedBound(), [CLASSES], (0.0, 2e-3)),
        (RankedBound(), [RANKS], (0.0, 2e-3)),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "method") else "",
)
def test_ours_conform(bound, games, deltas):
    found = check_bound(bound, games=games, deltas=deltas, alphas=(0.05,))
    assert repr(bound) in str(found)


@dataclass(frozen=True)
class Wrapped:
    """The exact bound with something done to its question or its answer."""

    ask: object = lambda counts, delta, alpha: (counts, delta, alpha)
    say: object = lambda bound, counts: bound

    def epsilon_lower(self, counts, *, delta, alpha):
        counts, used_delta, used_alpha = self.ask(counts, delta, alpha)
        exact = ExactBound().epsilon_lower(counts, delta=used_delta, alpha=used_alpha)
        return self.say(replace(exact, delta=delta, alpha=alpha), counts)


def saying(value):
    """Return what replaces the epsilon of a bound."""
    return lambda bound, counts: replace(
        bound, epsilon_lower=value(bound.epsilon_lower, counts)
    )


def test_wrapping_alone_breaks_nothing():
    check_bound(Wrapped(), games=[ALL, FEW], deltas=DELTAS, alphas=(0.05,))


def estimate(_, counts):
    wrong = max(counts.guesses - counts.correct, 0.5)
    return max(0.0, log(max(counts.correct, 0.5) / wrong))


def lower_of_the_rate(epsilon, counts):
    """A floor forgotten: below chance the log-odds are negative."""
    return epsilon if 2 * counts.correct > counts.guesses else -0.1


BROKEN = {
    "delta forgotten": (
        Wrapped(ask=lambda counts, delta, alpha: (counts, 0.0, alpha)),
        r"wrong too often.*reaching \d+ right guesses",
    ),
    "canaries forgotten": (
        Wrapped(
            ask=lambda c, delta, alpha: (replace(c, canaries=c.guesses), delta, alpha)
        ),
        r"wrong too often.*reaching \d+ right guesses",
    ),
    "alpha doubled": (
        Wrapped(ask=lambda counts, delta, alpha: (counts, delta, 2 * alpha)),
        "wrong too often.*randomised response",
    ),
    "the grid's edge": (
        Wrapped(say=saying(lambda epsilon, _: epsilon or 0.397)),
        "must be 0 where guesses are no better than chance",
    ),
    "negative": (
        Wrapped(say=saying(lower_of_the_rate)),
        r"must be a finite epsilon, 0 or more, got epsilon_lower=-0\.1",
    ),
    "an estimate": (Wrapped(say=saying(estimate)), "wrong too often"),
    "rounded up": (
        Wrapped(say=saying(lambda epsilon, _: ceil(20 * epsilon) / 20)),
        "wrong too often",
    ),
    "less for more": (
        Wrapped(
            say=saying(
                lambda epsilon, counts: (
                    epsilon / 2 if counts.correct == counts.guesses else epsilon
                )
            )
        ),
        "is smaller.* when one more guess is correct",
    ),
    "infinite": (
        Wrapped(
            say=saying(
                lambda epsilon, counts: (
                    inf if counts.correct == counts.guesses else epsilon
                )
            )
        ),
        "epsilon_lower=inf",
    ),
    "not a number": (Wrapped(say=saying(lambda *_: nan)), "epsilon_lower=nan"),
    "never anything": (
        Wrapped(say=saying(lambda *_: 0.0)),
        "is 0 though every guess is correct",
    ),
    "a bare number": (
        Wrapped(say=lambda bound, _: bound.epsilon_lower),
        "must return a LowerBound",
    ),
    "another delta": (
        Wrapped(say=lambda bound, _: replace(bound, delta=0.0)),
        r"was asked for delta=0\.002.*states that it used delta=0\.0",
    ),
    "no reference": (
        Wrapped(say=lambda bound, _: replace(bound, reference="")),
        "where its proof stands",
    ),
    "tier B": (
        Wrapped(say=lambda bound, _: replace(bound, tier="B")),
        "return a ParameterBound",
    ),
    "a confidence taken for alpha": (
        Wrapped(ask=lambda c, delta, alpha: (c, delta, min(alpha, 1 - alpha))),
        r"must refuse delta=0\.0, alpha=0\.95",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_bound_is_caught_and_the_case_is_named(name):
    bound, message = BROKEN[name]
    with pytest.raises(ConformanceError, match=message):
        check_bound(bound, games=[ALL, FEW], deltas=DELTAS[:2], alphas=(0.05,))


def test_the_case_that_is_named_is_one():
    """What the bound says there is the limit for twice the alpha."""
    doubled, _ = BROKEN["alpha doubled"]
    with pytest.raises(ConformanceError) as caught:
        check_bound(doubled, games=[ALL], deltas=[0.0], alphas=[0.05])
    assert "Counts(canaries=20, guesses=20, correct=14" in str(caught.value)
    found = doubled.epsilon_lower(
        Counts(canaries=20, guesses=20, correct=14), delta=0.0, alpha=0.05
    )
    limit = stats.beta.ppf(0.1, 14, 7)  # Clopper's and Pearson's, at twice alpha
    assert found.epsilon_lower == pytest.approx(log(limit / (1 - limit)), abs=1e-9)


class BestPrefix:
    """The largest bound over how many guesses to count, chosen by looking."""

    def epsilon_lower(self, ranked, *, delta, alpha):
        return max(
            (
                ExactBound().epsilon_lower(
                    Counts(
                        canaries=ranked.canaries,
                        guesses=k,
                        correct=int(ranked.right[:k].sum()),
                    ),
                    delta=delta,
                    alpha=alpha,
                )
                for k in range(1, len(ranked.right) + 1)
            ),
            key=lambda bound: bound.epsilon_lower,
        )


def test_the_largest_bound_over_k_is_caught():
    with pytest.raises(ConformanceError, match=r"wrong too often.*randomised response"):
        check_bound(BestPrefix(), games=[RANKS], deltas=[0.0], alphas=[0.05])


class Moody:
    """Says a little less each time."""

    def __init__(self):
        self.asked = 0

    def epsilon_lower(self, counts, *, delta, alpha):
        self.asked += 1
        exact = ExactBound().epsilon_lower(counts, delta=delta, alpha=alpha)
        return replace(exact, epsilon_lower=exact.epsilon_lower / self.asked)


def test_a_bound_that_changes_its_mind_is_caught():
    with pytest.raises(ConformanceError, match="another value when asked again"):
        check_bound(Moody(), games=[ALL], deltas=[0.0], alphas=[0.05])


class Untested:
    """Valid, but its p-values are larger than those that it went by."""

    def log_p_value(self, counts, *, epsilon, delta):
        return 0.5 * ExactBound().log_p_value(counts, epsilon=epsilon, delta=delta)

    def epsilon_lower(self, counts, *, delta, alpha):
        return ExactBound().epsilon_lower(counts, delta=delta, alpha=alpha)


def test_an_epsilon_that_was_not_rejected_is_caught():
    with pytest.raises(ConformanceError, match=r"its own p-value.*does not reject"):
        check_bound(Untested(), games=[ALL], deltas=[0.0], alphas=[0.05])


@pytest.mark.parametrize("game", [ALL, FEW, CLASSES, RANKS, RUNS])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 2e-3), (0.5, 0.2)])
def test_a_games_laws_are_laws(game, epsilon, delta):
    outcomes = game.outcomes()
    wrong = np.arange(len(outcomes)) >= len(outcomes) - 2
    for what, distribution in game.distributions(
        epsilon=epsilon, delta=delta, wrong=wrong
    ):
        assert distribution.shape == (len(outcomes),), what
        assert distribution.sum() == pytest.approx(1), what
        assert distribution.min() >= 0, what


@pytest.mark.parametrize("v", [7, 10, 12])
@pytest.mark.parametrize("delta", [1e-3, 0.02])
def test_the_attaining_law_reaches_its_count_as_often_as_the_proof_allows(v, delta):
    """The exact bound's p-value is the largest chance there is; see test_exact."""
    wrong = np.arange(13) >= v
    _, (_, distribution) = FEW.distributions(epsilon=1.0, delta=delta, wrong=wrong)
    counts = Counts(canaries=100, guesses=12, correct=v)
    largest = ExactBound().p_value(counts, epsilon=1.0, delta=delta)
    assert distribution[v:].sum() == pytest.approx(largest, rel=1e-9)


def test_publishing_coins_costs_no_more_than_delta():
    """A linear program's constraint by hand: m = r = 2, both coins published."""
    game = ClassedGame(canaries=2, weights=(1.0,), guesses=(2,))
    delta = 0.1
    wrong = np.array([False, False, True])
    distributions = dict(game.distributions(epsilon=0.0, delta=delta, wrong=wrong))
    # With chance delta both coins are known, else each is guessed by a toss.
    assert distributions["publishing 2 of 2 coins, probability 0.1"] == pytest.approx(
        [0.9 / 4, 0.9 / 2, 0.9 / 4 + 0.1]
    )
    # With chance 2 delta one of the two is known.
    assert distributions["publishing 1 of 2 coins, probability 0.2"] == pytest.approx(
        [0.8 / 4, 0.8 / 2 + 0.2 / 2, 0.8 / 4 + 0.2 / 2]
    )
