"""How well the guesses of one audit did, and what bound such guesses typically give.

Guesses that count alike have an accuracy, the share that was right. Where they count by
their weight, so do right ones: the accuracy is the weight of right guesses over that of
all. Rounds and bets weigh a guess by how much its log-odds exceed the epsilon that is
tested. As an epsilon an accuracy is ``ln(a / (1 - a))``, that of randomised response
which is guessed as well.

The *typical* bound is that of a run with exactly as much luck as is to be expected. For
counts it is the mean of the bound over the binomial law of the accuracy that was seen.
For other readings right guesses are spread evenly over the guesses: where guesses have
stated log-odds, in proportion to the chance ``p(c l)`` of each, with one ``c`` (for
each round) such that the weight of the right ones is what was seen; in rankings, at the
rate seen in each stretch of ranks. Committed uniform numbers are those of the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, log
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import (
    Bets,
    Counts,
    HalfCounts,
    Ranked,
    Reading,
    Rounds,
    Weighted,
)
from dpaudit.dpsgd.planning.expected_one_run import Expected
from dpaudit.game.design import Design
from dpaudit.game.result import Result, bound_of
from dpaudit.stats.binomial import rate_limits
from dpaudit.theory.gap_levels import Estimate

__all__ = [
    "GuessAccuracy",
    "accuracy_of",
    "as_epsilon",
    "excess",
    "expected_bound",
    "likely_accuracies",
]

_SURE = 0.95  # that an accuracy lies in its interval
_POINTS = 33  # of a binomial law
_STEEPEST = 60.0
_STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
_WAYS = (0.1, 0.43, 0.77)  # fewer, as a bound from rounds takes longer
_GOLDEN = 0.618  # from one round to the next, so that they do not round alike
_STRETCH = 1.5  # from one stretch of ranks to the next


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GuessAccuracy:
    """How well guesses did.

    Attributes:
        accuracy: The share that was right, by weight, and its interval.
        guesses: How many of them there were.
        typical: The bound that such guesses typically give.
    """

    accuracy: Estimate
    guesses: int
    typical: float


def accuracy_of(audit: Result, at: float) -> GuessAccuracy:
    """Return how well the guesses of an audit did.

    Args:
        audit: The audit.
        at: Where guesses of different weight are weighed: the epsilon that is tested.
    """
    reading, design, bound = audit.reading, audit.design, bound_of(audit)

    def lower(read: Reading) -> float:
        found = bound.epsilon_lower(read, delta=design.bound_delta, alpha=design.alpha)
        return found.epsilon_lower

    match reading:
        case Counts(guesses=r, correct=v):
            return _counted(v, r, expected_bound(audit, reading).mean)
        case Ranked():
            k, tried = _best_number(reading, design)
            typical = _averaged(
                _evenly_ranked(reading.right),
                lambda right: lower(replace(reading, right=right)),
            )
            return _counted(int(reading.right[:k].sum()), k, typical, looks=tried)
        case Weighted():
            return _played((reading,), 0.0, lambda played: lower(played[0]))
        case Rounds(rounds=rounds):
            return _played(
                rounds, at, lambda played: lower(replace(reading, rounds=played))
            )
        case Bets():
            return _staked(reading, at, lower)
        case _:
            right, made = reading.correct_and_guesses()
            return _counted(right, made, lower(reading))


def expected_bound(
    audit: Result, counts: Counts, accuracies: NDArray[np.float64] | None = None
) -> Expected:
    """Return what to expect of the bound if guesses are right independently.

    Args:
        audit: For its bound, delta and alpha.
        counts: How many canaries and guesses, and which share of these is right.
        accuracies: Equally likely chances of being right, if not that share.
    """
    bound, design = bound_of(audit), audit.design
    numbers, chances = _likely_counts(counts, accuracies)
    bounds = np.array(
        [
            bound.epsilon_lower(
                replace(counts, correct=int(v)),
                delta=design.bound_delta,
                alpha=design.alpha,
            ).epsilon_lower
            for v in numbers
        ]
    )
    mean = float(chances @ bounds)
    return Expected(mean=mean, spread=float(np.sqrt(chances @ (bounds - mean) ** 2)))


def _likely_counts(
    counts: Counts, accuracies: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return numbers of right guesses that stand for their law."""
    middle = (np.arange(_POINTS) + 0.5) / _POINTS
    if accuracies is None:
        accuracies = np.array([counts.correct / max(1, counts.guesses)])
    quantiles = _binomial_quantiles(middle, counts.guesses, accuracies)
    numbers, times = np.unique(quantiles, return_counts=True)
    return numbers, times / _POINTS


def as_epsilon(accuracy: Estimate, reading: Reading | None = None) -> Estimate:
    """Return the epsilon at which guesses are as accurate; never negative.

    Args:
        accuracy: The share that is right.
        reading: Of what; a random half may have been included.
    """
    share = reading.records_per_swap if isinstance(reading, HalfCounts) else 1
    ends = (accuracy.value, accuracy.low, accuracy.high)
    value, low, high = (
        max(0.0, float(special.logit(each)) + _not_guessed(each, reading)) / share
        for each in ends
    )
    return Estimate(value=value, low=low, high=high)


def _not_guessed(accuracy: float, reading: Reading | None) -> float:
    """Return the log-odds that those not guessed of a half were excluded, or else 0."""
    if not isinstance(reading, HalfCounts):
        return 0.0
    n, r, h = reading.canaries, reading.guesses, reading.included
    missed = h - accuracy * r
    return log(n - r - missed) - log(missed) if missed > 0 else inf


def likely_accuracies(counts: Counts) -> NDArray[np.float64]:
    """Return accuracies that are equally likely, given what was seen (Jeffreys)."""
    middle = (np.arange(_POINTS) + 0.5) / _POINTS
    v, wrong = counts.correct, counts.guesses - counts.correct
    return np.asarray(special.betaincinv(v + 0.5, wrong + 0.5, middle))


def _counted(right: int, made: int, typical: float, *, looks: int = 1) -> GuessAccuracy:
    """Return the share that was right; its interval holds for all looks together."""
    if not made:
        nothing = Estimate(value=0.5, low=0.5, high=0.5)
        return GuessAccuracy(accuracy=nothing, guesses=0, typical=typical)
    limits = rate_limits(right, made, alpha=(1 - _SURE) / looks)
    accuracy = _around(right / made, limits)
    return GuessAccuracy(accuracy=accuracy, guesses=made, typical=typical)


def _around(seen: float, limits: tuple[float, float]) -> Estimate:
    low, high = limits
    return Estimate(value=seen, low=min(low, seen), high=max(high, seen))


def _binomial_quantiles(
    at: NDArray[np.float64], trials: int, chances: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the least numbers that a mixture of binomials exceeds no more often."""
    low, high = np.zeros(len(at), np.int64), np.full(len(at), trials)
    while np.any(low < high):
        middle = (low + high) // 2
        below = special.bdtr(middle[:, np.newaxis], trials, chances).mean(axis=1)
        enough = below >= at
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def _best_number(ranked: Ranked, design: Design) -> tuple[int, int]:
    """Return the number that would, alone, have shown the most; how many were tried."""
    right = np.cumsum(ranked.right)
    numbers = np.unique(np.geomspace(1, len(right), 40).round().astype(int))
    shown = [
        ExactBound()
        .epsilon_lower(
            Counts(canaries=ranked.canaries, guesses=int(k), correct=int(right[k - 1])),
            delta=design.bound_delta,
            alpha=design.alpha,
        )
        .epsilon_lower
        for k in numbers
    ]
    # Where nothing is shown, all guesses say how accurate they were.
    if not max(shown) > 0:
        return len(right), 1
    return int(numbers[int(np.argmax(shown))]), len(numbers)


def _evenly_ranked(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the rate of right guesses in each stretch of ranks, for every rank."""
    ends = [0]
    while ends[-1] < len(right):
        ends.append(min(len(right), int(_STRETCH * ends[-1]) + 20))
    parts = [np.full(b - a, right[a:b].mean()) for a, b in pairwise(ends)]
    return np.concatenate(parts)


def _averaged(
    chances: NDArray[np.float64], lower: Callable[[NDArray[np.bool_]], float]
) -> float:
    """Return the bound if right ones come evenly, each at its own rate.

    Where wrong ones are few it matters which they are: the mean of a few ways.
    """
    at = np.cumsum(chances)
    ways = [np.diff(np.floor(at + start), prepend=0.0) > 0 for start in _STARTS]
    return float(np.mean([lower(right) for right in ways]))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Guesses:
    """Guesses in classes: how sure each is, how many, how many right."""

    odds: NDArray[np.float64]
    counts: NDArray[np.float64]
    right: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def against(
        cls,
        epsilon: float,
        odds: NDArray[np.float64],
        counts: NDArray[np.float64],
        right: NDArray[np.float64],
    ) -> Self:
        """Return guesses with the weight they have where an epsilon is tested."""
        weights = excess(odds, epsilon)
        if not np.dot(weights, counts):
            weights = odds
        return cls(odds=odds, counts=counts, right=right, weights=weights)

    def chances(self) -> NDArray[np.float64]:
        """Return chances p(c l) that give right guesses the weight that was seen."""
        wanted = float(np.dot(self.weights, self.right))
        low, high = -_STEEPEST, _STEEPEST
        for _ in range(80):
            c = (low + high) / 2
            given = np.dot(self.counts * self.weights, special.expit(c * self.odds))
            low, high = (c, high) if given < wanted else (low, c)
        return np.asarray(special.expit(low * self.odds))

    def seen(self, typical: float) -> GuessAccuracy:
        """Return the accuracy by weight."""
        whole = float(np.dot(self.weights, self.counts))
        if not whole:
            return _counted(0, 0, typical)
        a = float(np.dot(self.weights, self.right)) / whole
        # As many equal guesses as have the same variance; an interval for the eye.
        squares = float(np.dot(self.weights**2, self.counts))
        like = whole**2 / squares
        return GuessAccuracy(
            accuracy=_around(a, rate_limits(a * like, like, alpha=1 - _SURE)),
            guesses=int(self.counts[self.weights > 0].sum()),
            typical=typical,
        )


def excess(odds: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return what guesses count where an epsilon is tested."""
    return np.maximum(odds - epsilon, 0.0)


def _played(
    rounds: tuple[Weighted, ...],
    at: float,
    lower: Callable[[tuple[Weighted, ...]], float],
) -> GuessAccuracy:
    columns = [
        tuple(np.array(each, float) for each in (one.weights, one.guesses, one.correct))
        for one in rounds
    ]
    each = [_Guesses.against(at, *column) for column in columns]
    bounds = [
        lower(
            tuple(
                replace(one, correct=_even(guesses, (way + number * _GOLDEN) % 1))
                for number, (one, guesses) in enumerate(zip(rounds, each, strict=True))
            )
        )
        for way in _WAYS
    ]
    odds, counts, right = (np.concatenate(part) for part in zip(*columns, strict=True))
    return _Guesses.against(at, odds, counts, right).seen(float(np.mean(bounds)))


def _even(guesses: _Guesses, start: float) -> tuple[int, ...]:
    """Return how many are right in each class if right ones come evenly."""
    so_far = np.floor(np.cumsum(guesses.counts * guesses.chances()) + start)
    right = np.clip(np.diff(so_far, prepend=0.0), 0.0, guesses.counts)
    return tuple(right.astype(int).tolist())


def _staked(bets: Bets, at: float, lower: Callable[[Reading], float]) -> GuessAccuracy:
    odds = special.logit(np.clip(bets.stated_probabilities, 0.5, 1 - 1e-9))
    ones, right = np.ones(len(odds)), bets.right.astype(float)
    guesses = _Guesses.against(at, odds, ones, right)
    typical = _averaged(
        guesses.chances(), lambda right: lower(replace(bets, right=right))
    )
    return guesses.seen(typical)
