"""Adaptive guessing for any mechanism that has a posterior given revealed coins.

The adaptive guesser goes through the batches that a posterior proposes. It guesses the
elements whose log-odds, given the output and the coins revealed so far, reach a
threshold, the most confident of a batch first, and learns the coins of all. The numbers
of its guesses, ``R``, and of its correct guesses, ``V``, have a distribution that
follows from the mechanism alone:

- if the distribution of all outputs is known and small, by a walk over all outputs and
  coins: the guesses depend on nothing else;
- otherwise by simulated games, with intervals that hold for any number of them.

Coins are revealed after abstentions too, so one game gives the result for every
threshold and every committed number of guesses. This is used to plan the number: in
separate games, before the run, the number and threshold with the best mean bound are
chosen on one half of the games and evaluated on the other half. A committed guess that
is not made counts as wrong, so a number that is seldom reached gives a weak bound.

Reference: Keinan, Shenfeld and Ligett, section "Adaptive ORA improves ORA",
https://arxiv.org/abs/2503.07199, for counts and a threshold of infinity;
docs/explanation/bounds.md#what-they-are-worth-on-dp-sgd.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import check_threshold
from dpaudit.game.mechanism import Posterior
from dpaudit.game.rules import AdaptiveCount
from dpaudit.theory.capabilities import (
    Enumerable,
    can_be_enumerated,
    can_be_played,
)
from dpaudit.theory.enumeration import enumerate_mechanism
from dpaudit.theory.gap_levels import Estimate

__all__ = [
    "AdaptiveGuessing",
    "GameByTurn",
    "PlannedCount",
    "adaptive_guessing",
    "plan_count",
    "play",
    "played_games",
]


_INTERVAL_ALPHA = 0.01  # for the interval of a median, as in theory/gap_levels.py
_SHARES = np.geomspace(1.0, 1e-3, 25)  # of all coins that reach a candidate threshold
_ROUNDING = 1e-12  # a loss equal to the threshold must not miss it by rounding
_NUMBERS_TRIED = 60  # committed numbers that are tried for a threshold
_Batches: TypeAlias = tuple[tuple[int, ...], ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GameByTurn:
    """One game: all elements in the order in which an adaptive guesser treats them.

    Attributes:
        confidence: Absolute log-odds given the output and all earlier coins.
        right: Whether the coin has the likelier value.
    """

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]

    def reaching(self, threshold: float) -> NDArray[np.bool_]:
        """Return which of the guesses that reach a threshold are correct, in order."""
        return self.right[self.confidence >= threshold]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveGuessing:
    """The outcome of adaptive guessing with a threshold, coins revealed in turn.

    Attributes:
        guesses: The expected number of guesses.
        right: The expected number of correct guesses.
        efficacy: The expected share of correct guesses if any guess is made, E[V / R];
            None if none ever is.
        silent: The probability that no guess is made.
        how: How the numbers were computed.
    """

    guesses: Estimate
    right: Estimate
    efficacy: Estimate | None
    silent: Estimate
    how: str


def adaptive_guessing(
    mechanism: object,
    *,
    elements: int,
    threshold: float,
    rng: np.random.Generator | None = None,
    runs: int = 2000,
) -> AdaptiveGuessing:
    """Return how many guesses reach a threshold, and how many of them are correct.

    Args:
        mechanism: Has ``distribution``, ``outputs`` and ``pairs``, for at most 12
            elements (with ``posterior``, its batches are followed; without, elements
            come one by one); or ``run``, ``posterior`` and ``pairs``.
        elements: Number of elements.
        threshold: Smallest absolute log-odds to guess; may be infinite.
        rng: For simulation only.
        runs: For simulation only.

    Example:
        >>> from dpaudit.mechanisms.sets import count
        >>> found = adaptive_guessing(count(10), elements=10, threshold=inf)
        >>> print(found.guesses, found.efficacy, found.silent)  # 2 - 2^-9
        1.998 1 0
    """
    _validate.whole_number("elements", elements, least=1)
    check_threshold(threshold)
    if can_be_enumerated(mechanism, elements):
        distribution = _guess_distribution(mechanism, elements, threshold)
        return _exactly(distribution, f"enumeration of 2^{elements} coins")
    _validate.whole_number("runs", runs, least=2)
    games = list(played_games(mechanism, elements, runs, rng))
    return _measured([game.reaching(threshold) for game in games], elements)


def play(posterior: Posterior, bits: NDArray[np.uint8]) -> GameByTurn:
    """Return a game with these coins, each batch in order of decreasing confidence.

    Example:
        >>> from dpaudit.mechanisms.parity import XorInPairs
        >>> output = XorInPairs(elements=4).posterior([1, 0])
        >>> play(output, np.array([1, 0, 1, 1])).confidence
        array([ 0.,  0., inf, inf])
    """
    confidence, right = [], []
    for index in posterior.batches():
        odds, ones = posterior.log_odds(index), bits[index] > 0
        order = np.argsort(-np.abs(odds), kind="stable")
        confidence.append(np.abs(odds)[order])
        right.append(((odds >= 0) == ones)[order])
        posterior.reveal(index, np.where(ones, 1, -1).astype(np.int8))
    return GameByTurn(
        confidence=np.concatenate(confidence), right=np.concatenate(right)
    )


def played_games(
    mechanism: object, elements: int, runs: int, rng: np.random.Generator | None
) -> Iterator[GameByTurn]:
    """Yield games of independent runs with independent fair coins."""
    if not can_be_played(mechanism) or rng is None:
        raise InvalidInputError(
            f"{type(mechanism).__name__} must be played to know how it is guessed in "
            "turns: give it run, posterior and pairs, and pass "
            "rng=np.random.default_rng(seed)"
        )
    mechanism.pairs.check(elements)
    for _ in range(runs):
        bits = rng.integers(0, 2, size=elements, dtype=np.uint8)
        output = mechanism.run(mechanism.pairs.choose(bits), rng)
        yield play(mechanism.posterior(output), bits)


# A committed number


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCount:
    """A committed number of adaptive guesses, and the expected outcome.

    Attributes:
        guesses: How many guesses to commit to.
        threshold: Smallest absolute log-odds to guess.
        expected: The mean of the lower bound on epsilon.
        median: Its median.
        made: The expected number of guesses made.
        short: The probability that fewer than the committed number are made.
        runs: Games used for these estimates; as many more were used for the search.
    """

    guesses: int
    threshold: float
    expected: Estimate
    median: Estimate
    made: Estimate
    short: Estimate
    runs: int

    @property
    def rules(self) -> AdaptiveCount:
        """The rules to put into the design."""
        return AdaptiveCount(guesses=self.guesses)

    def __str__(self) -> str:
        return (
            f"commit to {self.guesses} guesses, of log-odds {self.threshold:.4g} or "
            f"more: a bound of {self.expected} on average, median {self.median}; "
            f"{self.made} guesses made on average, fewer than committed to with "
            f"probability {self.short}"
        )


def plan_count(
    mechanism: object,
    *,
    elements: int,
    delta: float = 0.0,
    alpha: float = 0.05,
    threshold: float | None = None,
    rng: np.random.Generator,
    runs: int = 1000,
) -> PlannedCount:
    """Return the number of adaptive guesses to commit to, from simulated games.

    It does not depend on the audited run: both the number and the games belong to the
    design, before the key is drawn.

    Args:
        mechanism: Has ``run``, ``posterior`` and ``pairs``.
        elements: Canaries of the audit.
        delta: The delta of the bound.
        alpha: Probability that the bound is wrong.
        threshold: Smallest absolute log-odds to guess; by default the best.
        rng: For the games.
        runs: Number of games, half of them for the search.

    Example:
        >>> from dpaudit.mechanisms.sets import CountInSets
        >>> sets = CountInSets(elements=100, set_size=10)
        >>> rng = np.random.default_rng(1)
        >>> plan = plan_count(sets, elements=100, rng=rng, runs=400)
        >>> plan.rules, plan.threshold
        (AdaptiveCount(guesses=16), inf)
    """
    _validate.whole_number("elements", elements, least=1)
    _validate.whole_number("runs", runs, least=20)
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    games = list(played_games(mechanism, elements, runs, rng))
    bound = _Bound(canaries=elements, delta=delta, alpha=alpha)
    searched, read = games[: runs // 2], games[runs // 2 :]
    if threshold is None:
        thresholds = _thresholds(searched)
    else:
        check_threshold(threshold)
        thresholds = [threshold]
    number, at = _best_number(searched, thresholds, bound)
    made = [game.reaching(at) for game in read]
    reached = np.array([min(len(right), number) for right in made])
    shown = np.array([bound.at(int(right[:number].sum()), number) for right in made])
    return PlannedCount(
        guesses=number,
        threshold=at,
        expected=Estimate.mean(shown, span=(0.0, bound.at(number, number))),
        median=_median(shown),
        made=Estimate.mean(reached, span=(0.0, number)),
        short=Estimate.mean(reached < number, span=(0.0, 1.0)),
        runs=len(read),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """The bound for adaptive guesses, by the number correct."""

    canaries: int
    delta: float
    alpha: float

    def at(self, right: int, guesses: int) -> float:
        return _epsilon_lower(self, right, guesses)

    def at_most(
        self, right: NDArray[np.int64], guesses: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the bounds at delta = 0, which are never smaller."""
        some = np.maximum(right, 1)
        limit = special.betaincinv(some, guesses - some + 1, self.alpha)
        return np.where(right > 0, np.maximum(0.0, special.logit(limit)), 0.0)


@lru_cache(maxsize=4096)
def _epsilon_lower(bound: _Bound, right: int, guesses: int) -> float:
    counts = Counts(
        canaries=bound.canaries, guesses=guesses, correct=right, adaptive=True
    )
    lower = AdaptiveBound().epsilon_lower(counts, delta=bound.delta, alpha=bound.alpha)
    return lower.epsilon_lower


def _thresholds(games: list[GameByTurn]) -> list[float]:
    """Return candidate thresholds: quantiles of the confidence of guesses."""
    confidence = np.concatenate([game.confidence for game in games])
    quantiles = np.quantile(confidence, 1 - _SHARES, method="lower")
    return [float(threshold) for threshold in np.unique([0.0, *quantiles])]


class _Try(NamedTuple):
    """A candidate: a committed number at a threshold."""

    mean: float  # of the bound at delta = 0
    number: int
    threshold: float
    middle: int  # the median of the number correct

    def shown(self, bound: _Bound) -> float:
        """Return the mean bound, with the effect of delta taken at the median."""
        right, number = np.array([self.middle]), np.array([self.number])
        pure = float(bound.at_most(right, number)[0])
        return self.mean - pure + bound.at(self.middle, self.number)


def _best_number(
    games: list[GameByTurn], thresholds: list[float], bound: _Bound
) -> tuple[int, float]:
    """Return the number and the threshold with the largest mean bound."""
    tried = []
    for threshold in thresholds:
        made = [game.reaching(threshold) for game in games]
        numbers = _numbers(max(map(len, made)))
        right = np.array([_right_up_to(game, numbers) for game in made])
        means = bound.at_most(right, numbers).mean(axis=0)
        middles = np.sort(right, axis=0)[len(made) // 2]
        for mean, number, middle in zip(means, numbers, middles, strict=True):
            tried.append(_Try(float(mean), int(number), threshold, int(middle)))
    if not tried:
        raise InvalidInputError(
            f"no guess reached threshold={thresholds[0]:g} in {len(games)} games; "
            "choose a smaller one, or leave it out"
        )
    # In decreasing order of an upper bound, until no candidate can be better.
    tried.sort(key=lambda candidate: -candidate.mean)
    best, most = tried[0], -inf
    for candidate in tried:
        if candidate.mean <= most:
            break
        shown = candidate.shown(bound)
        if shown > most:
            best, most = candidate, shown
    return best.number, best.threshold


def _numbers(most: int) -> NDArray[np.int64]:
    """Return candidate numbers to commit to: all small ones and some larger ones."""
    if not most:
        return np.zeros(0, np.int64)
    spread = np.geomspace(1, most, _NUMBERS_TRIED).round().astype(np.int64)
    return np.union1d(np.arange(1, min(most, _NUMBERS_TRIED) + 1), spread)


def _right_up_to(
    right: NDArray[np.bool_], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many of the first guesses are correct, for each number of guesses."""
    counts = np.append(0, np.cumsum(right))
    return np.asarray(counts[np.minimum(numbers, len(right))])


def _median(draws: NDArray[np.float64]) -> Estimate:
    """Return the sample median with a distribution-free 99 % interval for the median.

    Its ends are order statistics: the number of draws on one side of the true median is
    binomial with probability 1/2.
    """
    ranked, n = np.sort(draws), len(draws)
    few = int(np.searchsorted(special.bdtr(np.arange(n), n, 0.5), _INTERVAL_ALPHA / 2))
    low, high = max(0, few - 1), min(n - 1, n - few)
    return Estimate(
        value=float(ranked[n // 2]), low=float(ranked[low]), high=float(ranked[high])
    )


# The distribution of a threshold guesser


def _guess_distribution(
    mechanism: Enumerable, elements: int, threshold: float
) -> NDArray[np.float64]:
    """Return P[R = r, V = v], a row for each r, by a walk over outputs and coins."""
    table = enumerate_mechanism(mechanism, mechanism.pairs, elements=elements).table
    distribution = np.zeros((elements + 1, elements + 1))
    for batches, columns in _orders(mechanism, elements).items():
        probabilities = table[:, columns] / len(table)
        made, right = _walk(probabilities, elements, batches, threshold)
        np.add.at(distribution, (made, right), probabilities)
    return distribution


def _orders(mechanism: Enumerable, elements: int) -> dict[_Batches, list[int]]:
    """Return the columns of outputs that are guessed in the same batches."""
    whole: Any = mechanism
    columns: dict[_Batches, list[int]] = {}
    for column, output in enumerate(mechanism.outputs(elements)):
        batches: _Batches = tuple((i,) for i in range(elements))
        if hasattr(mechanism, "posterior"):
            proposed = whole.posterior(output).batches()
            batches = tuple(tuple(map(int, batch)) for batch in proposed)
        columns.setdefault(batches, []).append(column)
    return columns


def _walk(
    probabilities: NDArray[np.float64],
    elements: int,
    batches: _Batches,
    threshold: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many guesses are made and correct, for all coins and outputs."""
    # An axis for each coin, the last element's first, and one for the output.
    cube = probabilities.reshape(*(2,) * elements, -1)
    made, right = (np.zeros(cube.shape, np.int64) for _ in range(2))
    hidden = set(range(elements))
    for batch in batches:
        for i in batch:
            axis = elements - 1 - i
            others = tuple(elements - 1 - j for j in hidden - {i})
            zero, one = np.split(cube.sum(axis=others, keepdims=True), 2, axis=axis)
            with np.errstate(divide="ignore", invalid="ignore"):
                size = np.abs(np.log(one) - np.log(zero))
            guessed = size >= threshold - _ROUNDING  # NaN where nothing can occur
            fell = np.arange(2).reshape((-1,) + (1,) * (cube.ndim - 1 - axis)) > 0
            made += guessed
            right += guessed & (fell == (one >= zero))
        hidden -= set(batch)
    return made.reshape(probabilities.shape), right.reshape(probabilities.shape)


def _exactly(distribution: NDArray[np.float64], how: str) -> AdaptiveGuessing:
    r, v = np.arange(len(distribution))[:, np.newaxis], np.arange(len(distribution))
    silent = float(distribution[0].sum())
    share = float((distribution[1:] * v / r[1:]).sum())
    return AdaptiveGuessing(
        guesses=Estimate.exact(float((distribution * r).sum())),
        right=Estimate.exact(float((distribution * v).sum())),
        efficacy=Estimate.exact(share / (1 - silent))
        if distribution[1:].any()
        else None,
        silent=Estimate.exact(silent),
        how=how,
    )


def _measured(made: list[NDArray[np.bool_]], elements: int) -> AdaptiveGuessing:
    r = np.array([len(right) for right in made], np.int64)
    v = np.array([right.sum() for right in made], np.int64)
    some = r > 0
    efficacy = None
    if some.any():
        efficacy = Estimate.mean(v[some] / r[some], span=(0.0, 1.0))
    return AdaptiveGuessing(
        guesses=Estimate.mean(r, span=(0.0, elements)),
        right=Estimate.mean(v, span=(0.0, elements)),
        efficacy=efficacy,
        silent=Estimate.mean(~some, span=(0.0, 1.0)),
        how=f"simulation of {len(made)} games, each interval holds with 99 %",
    )
