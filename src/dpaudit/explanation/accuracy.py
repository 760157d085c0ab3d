"""The accuracy of an audit's guesses, and the bound that such guesses typically give.

For guesses that all count the same, the accuracy is the share of correct ones. For
weighted guesses it is the weight of the correct guesses over that of all. Rounds and
bets weigh a guess by how much its log-odds exceed the tested epsilon. As an epsilon an
accuracy is ``ln(a / (1 - a))``, that of randomised response guessed equally well.

The *typical* bound is that of a run with exactly the expected luck. For counts it is
the mean of the bound over the binomial distribution at the observed accuracy. For other
readings, correct guesses are spread evenly over the guesses: where guesses have stated
log-odds, in proportion to the probability ``p(c l)`` of each, with one ``c`` (for each
round) such that the weight of the correct ones is the observed one; in rankings, at the
rate observed in each stretch of ranks. Committed uniform numbers are those of the run.
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

_CONFIDENCE = 0.95  # of the interval of an accuracy
_QUANTILES = 33  # of a binomial distribution
_MAX_SLOPE = 60.0
_OFFSETS = (0.1, 0.3, 0.5, 0.7, 0.9)
_ROUND_OFFSETS = (0.1, 0.43, 0.77)  # fewer, as a bound from rounds takes longer
_OFFSET_STEP = 0.618  # between rounds, so that they are not all rounded the same way
_STRETCH_RATIO = 1.5  # between the ends of successive stretches of ranks


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GuessAccuracy:
    """The accuracy of guesses.

    Attributes:
        accuracy: The share of correct guesses, by weight, and its interval.
        guesses: The number of guesses.
        typical: The bound that such guesses typically give.
    """

    accuracy: Estimate
    guesses: int
    typical: float


def accuracy_of(audit: Result, at: float) -> GuessAccuracy:
    """Return the accuracy of an audit's guesses.

    Args:
        audit: The audit.
        at: The tested epsilon, at which guesses of different weight are weighed.
    """
    reading, design, bound = audit.reading, audit.design, bound_of(audit)

    def lower(read: Reading) -> float:
        limit = bound.epsilon_lower(read, delta=design.bound_delta, alpha=design.alpha)
        return limit.epsilon_lower

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
    """Return mean and spread of the bound if guesses are correct independently.

    Args:
        audit: Gives the bound, delta and alpha.
        counts: Number of canaries and guesses, and the share of correct guesses.
        accuracies: Equally likely probabilities of being correct, instead of that
            share.
    """
    bound, design = bound_of(audit), audit.design
    numbers, weights = _likely_counts(counts, accuracies)
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
    mean = float(weights @ bounds)
    return Expected(mean=mean, spread=float(np.sqrt(weights @ (bounds - mean) ** 2)))


def _likely_counts(
    counts: Counts, accuracies: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return numbers of correct guesses and their weights: a discrete distribution."""
    middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    if accuracies is None:
        accuracies = np.array([counts.correct / max(1, counts.guesses)])
    quantiles = _binomial_quantiles(middle, counts.guesses, accuracies)
    numbers, times = np.unique(quantiles, return_counts=True)
    return numbers, times / _QUANTILES


def as_epsilon(accuracy: Estimate, reading: Reading | None = None) -> Estimate:
    """Return the epsilon of randomised response guessed as accurately; at least 0.

    Args:
        accuracy: The share of correct guesses.
        reading: The guesses; a random half of the canaries may have been included.
    """
    share = reading.records_per_swap if isinstance(reading, HalfCounts) else 1
    ends = (accuracy.value, accuracy.low, accuracy.high)
    value, low, high = (
        max(0.0, float(special.logit(each)) + _not_guessed(each, reading)) / share
        for each in ends
    )
    return Estimate(value=value, low=low, high=high)


def _not_guessed(accuracy: float, reading: Reading | None) -> float:
    """Return the log-odds that canaries not guessed were excluded; 0 unless a half."""
    if not isinstance(reading, HalfCounts):
        return 0.0
    n, r, h = reading.canaries, reading.guesses, reading.included
    missed = h - accuracy * r
    return log(n - r - missed) - log(missed) if missed > 0 else inf


def likely_accuracies(counts: Counts) -> NDArray[np.float64]:
    """Return accuracies that are equally likely given the counts (Jeffreys prior)."""
    middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    v, wrong = counts.correct, counts.guesses - counts.correct
    return np.asarray(special.betaincinv(v + 0.5, wrong + 0.5, middle))


def _counted(right: int, made: int, typical: float, *, looks: int = 1) -> GuessAccuracy:
    """Return the accuracy; its interval holds for all looks simultaneously."""
    if not made:
        coin_flip = Estimate(value=0.5, low=0.5, high=0.5)
        return GuessAccuracy(accuracy=coin_flip, guesses=0, typical=typical)
    limits = rate_limits(right, made, alpha=(1 - _CONFIDENCE) / looks)
    accuracy = _around(right / made, limits)
    return GuessAccuracy(accuracy=accuracy, guesses=made, typical=typical)


def _around(seen: float, limits: tuple[float, float]) -> Estimate:
    low, high = limits
    return Estimate(value=seen, low=min(low, seen), high=max(high, seen))


def _binomial_quantiles(
    at: NDArray[np.float64], trials: int, probabilities: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return quantiles of an equal mixture of binomials."""
    low, high = np.zeros(len(at), np.int64), np.full(len(at), trials)
    while np.any(low < high):
        middle = (low + high) // 2
        below = special.bdtr(middle[:, np.newaxis], trials, probabilities).mean(axis=1)
        enough = below >= at
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def _best_number(ranked: Ranked, design: Design) -> tuple[int, int]:
    """Return the number of guesses with the largest bound, and how many were tried."""
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
    # If every bound is 0, the accuracy is that of all guesses.
    if not max(shown) > 0:
        return len(right), 1
    return int(numbers[int(np.argmax(shown))]), len(numbers)


def _evenly_ranked(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return for every rank the rate of correct guesses in its stretch of ranks."""
    ends = [0]
    while ends[-1] < len(right):
        ends.append(min(len(right), int(_STRETCH_RATIO * ends[-1]) + 20))
    parts = [np.full(b - a, right[a:b].mean()) for a, b in pairwise(ends)]
    return np.concatenate(parts)


def _averaged(
    probabilities: NDArray[np.float64], lower: Callable[[NDArray[np.bool_]], float]
) -> float:
    """Return the bound if correct guesses are spread evenly, each at its own rate.

    It is a mean over offsets: if few guesses are incorrect it matters which ones.
    """
    at = np.cumsum(probabilities)
    spread = [np.diff(np.floor(at + start), prepend=0.0) > 0 for start in _OFFSETS]
    return float(np.mean([lower(right) for right in spread]))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Guesses:
    """Guesses in classes: log-odds, number and number correct of each class."""

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
        """Return guesses with their weights in the test of an epsilon."""
        weights = excess(odds, epsilon)
        if not np.dot(weights, counts):
            weights = odds
        return cls(odds=odds, counts=counts, right=right, weights=weights)

    def probabilities(self) -> NDArray[np.float64]:
        """Return p(c l) of each class, with c fitted to the weight of correct ones."""
        wanted = float(np.dot(self.weights, self.right))
        low, high = -_MAX_SLOPE, _MAX_SLOPE
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
        # The effective number of equal guesses; the interval is only indicative.
        squares = float(np.dot(self.weights**2, self.counts))
        n = whole**2 / squares
        return GuessAccuracy(
            accuracy=_around(a, rate_limits(a * n, n, alpha=1 - _CONFIDENCE)),
            guesses=int(self.counts[self.weights > 0].sum()),
            typical=typical,
        )


def excess(odds: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return the weight of guesses in the test of an epsilon."""
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
                replace(
                    one, correct=_even(guesses, (start + number * _OFFSET_STEP) % 1)
                )
                for number, (one, guesses) in enumerate(zip(rounds, each, strict=True))
            )
        )
        for start in _ROUND_OFFSETS
    ]
    odds, counts, right = (np.concatenate(part) for part in zip(*columns, strict=True))
    return _Guesses.against(at, odds, counts, right).seen(float(np.mean(bounds)))


def _even(guesses: _Guesses, start: float) -> tuple[int, ...]:
    """Return how many are correct in each class if correct ones are spread evenly."""
    so_far = np.floor(np.cumsum(guesses.counts * guesses.probabilities()) + start)
    right = np.clip(np.diff(so_far, prepend=0.0), 0.0, guesses.counts)
    return tuple(right.astype(int).tolist())


def _staked(bets: Bets, at: float, lower: Callable[[Reading], float]) -> GuessAccuracy:
    odds = special.logit(np.clip(bets.stated_probabilities, 0.5, 1 - 1e-9))
    ones, right = np.ones(len(odds)), bets.right.astype(float)
    guesses = _Guesses.against(at, odds, ones, right)
    typical = _averaged(
        guesses.probabilities(), lambda right: lower(replace(bets, right=right))
    )
    return guesses.seen(typical)
