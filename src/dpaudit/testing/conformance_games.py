"""Games that conformance checks of bounds play, and what such a check returns.

The checks are for people who add a bound, a guesser or an adapter of their own. A check
that passes returns what it looked at (``Conformance``). One that fails raises, and
names the case: a counterexample is worth more than a verdict.

A bound is checked in games of which every outcome can be listed. For each epsilon and
delta a game knows distributions of its outcomes under mechanisms that are (epsilon,
delta)-DP and as misleading as that allows; how often a bound is wrong under one of them
is then a sum, not a simulation.

*Randomised response* answers every coin with odds ``e^epsilon``. *Publishing* ``k`` of
``m`` coins, drawn at random, with probability ``m delta / k`` gives each coin away with
probability delta; the other guesses are randomised response. *Attaining* is the
distribution under which a count is reached as often as any mechanism can
(docs/explanation/exact-bound.md, attainment): no count of guesses made in one run is
more likely to be large. In *separate runs* coins cannot fail together: each is given
away with probability delta, else answered by randomised response, and the guesser takes
those given away first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.readings import Counts, Ranked, Weighted
from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import binomial_distribution

__all__ = [
    "ClassedGame",
    "ClassicGame",
    "Conformance",
    "CountedGame",
    "Game",
    "RankedGame",
]

R_co = TypeVar("R_co", covariant=True)
Mask: TypeAlias = NDArray[np.bool_]
Distribution: TypeAlias = NDArray[np.float64]
_MOST_RANKED = 14  # guesses; there are two to the power of them outcomes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """What a check that found nothing wrong has looked at.

    Attributes:
        subject: What was checked.
        checked: What was found to hold, one sentence each.

    Example:
        >>> print(Conformance(subject="a bound", checked=("it is silent at chance",)))
        a bound conforms:
        - it is silent at chance
    """

    subject: str
    checked: tuple[str, ...]

    def __str__(self) -> str:
        return "\n- ".join([f"{self.subject} conforms:", *self.checked])


class Game(Protocol[R_co]):
    """A game whose outcomes are listed, and distributions that it may have."""

    def outcomes(self) -> Sequence[R_co]:
        """Return every outcome, as a bound reads it; the last is the best."""
        ...

    def silent(self) -> Mask:
        """Return which outcomes are no better than chance: a bound must say 0."""
        ...

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of outcomes of which the second has one right guess more."""
        ...

    def distributions(
        self, *, epsilon: float, delta: float, wrong: Mask
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield what a mechanism does, and the probability that it gives each outcome.

        Args:
            epsilon: The mechanism is (epsilon, delta)-DP, and no more private.
            delta: As above.
            wrong: The outcomes of which a bound says too much; a game may look for
                distributions that favour them.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGame:
    """One run, all guesses counted alike.

    Attributes:
        canaries: Coins.
        guesses: How many of them are guessed, a number fixed beforehand.

    Example:
        >>> game = CountedGame(canaries=4, guesses=2)
        >>> [outcome.correct for outcome in game.outcomes()], game.silent()
        ([0, 1, 2], array([ True,  True, False]))
        >>> wrong = np.array([False, False, True])
        >>> worst = game.distributions(epsilon=0.0, delta=0.05, wrong=wrong)
        >>> for what, distribution in worst:
        ...     print(what, distribution.round(4))
        randomised response [0.25 0.5  0.25]
        reaching 2 right guesses as often as any mechanism can [0.225 0.45  0.325]
    """

    canaries: int
    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        if self.guesses > self.canaries:
            raise InvalidInputError(
                f"cannot guess guesses={self.guesses} of canaries={self.canaries}"
            )

    def outcomes(self) -> Sequence[Counts]:
        """Return every count of right guesses."""
        return [
            Counts(canaries=self.canaries, guesses=self.guesses, correct=v)
            for v in range(self.guesses + 1)
        ]

    def silent(self) -> Mask:
        """Return the counts of half the guesses, or fewer."""
        return np.asarray(2 * np.arange(self.guesses + 1) <= self.guesses)

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield neighbouring counts."""
        return ((v, v + 1) for v in range(self.guesses))

    def distributions(
        self, *, epsilon: float, delta: float, wrong: Mask
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield randomised response, and what attains each count that is wrong."""
        m, r = self.canaries, self.guesses
        response = binomial_distribution(r, epsilon)
        yield "randomised response", response
        starts = np.flatnonzero(np.diff(wrong, prepend=False) & wrong)
        for v in starts[starts > 0] if delta else ():
            yield (
                f"reaching {v} right guesses as often as any mechanism can",
                _attaining(response, int(v), price=m * delta),
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGame:
    """One coin in each of many independent runs.

    Attributes:
        runs: How many.
        guesses: How many of them are guessed, a number fixed beforehand; all if None.

    Example:
        >>> runs, wrong = ClassicGame(runs=2), np.zeros(3, bool)
        >>> worst = runs.distributions(epsilon=0.0, delta=0.2, wrong=wrong)
        >>> [distribution.round(4) for _, distribution in worst]
        [array([0.16, 0.48, 0.36])]
        >>> one = ClassicGame(runs=2, guesses=1)
        >>> worst = one.distributions(epsilon=0.0, delta=0.2, wrong=wrong)
        >>> [distribution.round(4) for _, distribution in worst]
        [array([0.32, 0.68])]
    """

    runs: int
    guesses: int | None = None

    def __post_init__(self) -> None:
        _validate.whole_number("runs", self.runs, least=1)
        self._counted.outcomes()  # refuses what has no meaning

    @property
    def _counted(self) -> CountedGame:
        guesses = self.runs if self.guesses is None else self.guesses
        return CountedGame(canaries=self.runs, guesses=guesses)

    def outcomes(self) -> Sequence[Counts]:
        """Return every count of right guesses."""
        return self._counted.outcomes()

    def silent(self) -> Mask:
        """Return the counts of half the guesses, or fewer."""
        return self._counted.silent()

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield neighbouring counts."""
        return self._counted.better()

    def distributions(
        self,
        *,
        epsilon: float,
        delta: float,
        wrong: Mask,  # noqa: ARG002 (one law is the worst, whatever is wrong)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield the distribution of runs that are each guessed as well as can be."""
        r = self._counted.guesses
        distribution = np.zeros(r + 1)
        given = [1.0]
        if delta:
            given = binomial_distribution(
                self.runs, float(special.logit(delta))
            ).tolist()
        for k, probability in enumerate(given):
            distribution[min(k, r) :] += probability * binomial_distribution(
                r - min(k, r), epsilon
            )
        yield "each run gives its coin away as often as it may", distribution


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClassedGame:
    """One run, guesses in classes of different weight.

    Attributes:
        canaries: Coins.
        weights: The weight of each class, the heaviest first.
        guesses: How many guesses of each, fixed beforehand.
    """

    canaries: int
    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    def __post_init__(self) -> None:
        if list(self.weights) != sorted(self.weights, reverse=True):
            raise InvalidInputError(
                f"weights must have the heaviest first, got weights={self.weights}"
            )
        self.outcomes()  # refuses what has no meaning

    def outcomes(self) -> Sequence[Weighted]:
        """Return every choice of right guesses in each class."""
        return [
            Weighted(
                canaries=self.canaries,
                weights=self.weights,
                guesses=self.guesses,
                correct=correct,
                committed=True,
            )
            for correct in self._correct()
        ]

    def silent(self) -> Mask:
        """Return the outcomes with half the guesses right in each class, or fewer."""
        half = np.array(self.guesses) / 2
        return np.array([bool(np.all(c <= half)) for c in np.array(self._correct())])

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield outcomes that differ by one guess of one class."""
        place = {correct: i for i, correct in enumerate(self._correct())}
        for correct, here in place.items():
            for c, v in enumerate(correct):
                more = (*correct[:c], v + 1, *correct[c + 1 :])
                if more in place:
                    yield here, place[more]

    def distributions(
        self,
        *,
        epsilon: float,
        delta: float,
        wrong: Mask,  # noqa: ARG002 (the laws are the same, whatever is wrong)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield randomised response, and what publishes some coins for sure guesses."""
        knowing = partial(self._distribution, epsilon)
        return _publishing(self.canaries, sum(self.guesses), delta, knowing)

    def _correct(self) -> list[tuple[int, ...]]:
        return list(product(*(range(r + 1) for r in self.guesses)))

    def _distribution(self, epsilon: float, known: int) -> Distribution:
        """Return the distribution if the ``known`` heaviest guesses are certain."""
        distribution = np.ones(1)
        for r in self.guesses:
            sure = min(r, known)
            known -= sure
            alone = np.append(np.zeros(sure), binomial_distribution(r - sure, epsilon))
            distribution = np.multiply.outer(distribution, alone).ravel()
        return distribution


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGame:
    """One run, guesses in order of confidence.

    Attributes:
        canaries: Coins.
        guesses: How many are ranked; small, as there are 2^guesses outcomes.
    """

    canaries: int
    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        if self.guesses > min(self.canaries, _MOST_RANKED):
            raise InvalidInputError(
                f"guesses must be at most {_MOST_RANKED} and no more than canaries="
                f"{self.canaries}, got guesses={self.guesses}"
            )

    def outcomes(self) -> Sequence[Ranked]:
        """Return every pattern of right and wrong guesses."""
        return [Ranked(canaries=self.canaries, right=row) for row in self._right()]

    def silent(self) -> Mask:
        """Return the patterns that are never ahead, however few guesses are taken."""
        ahead = 2 * np.cumsum(self._right(), axis=1) > np.arange(1, self.guesses + 1)
        return np.asarray(~ahead.any(axis=1))

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield patterns that differ by one guess."""
        for here, row in enumerate(self._right()):
            for i in np.flatnonzero(~row):
                yield here, here + (1 << int(i))

    def distributions(
        self,
        *,
        epsilon: float,
        delta: float,
        wrong: Mask,  # noqa: ARG002 (the laws are the same, whatever is wrong)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield randomised response, and what publishes coins, which come first."""
        knowing = partial(self._distribution, epsilon)
        return _publishing(self.canaries, self.guesses, delta, knowing)

    def _right(self) -> Mask:
        """Return all patterns; bit i of a row's number is guess i."""
        number, place = np.arange(1 << self.guesses), np.arange(self.guesses)
        return np.asarray((number[:, np.newaxis] >> place) & 1, np.bool_)

    def _distribution(self, epsilon: float, known: int) -> Distribution:
        """Return the distribution if the first ``known`` guesses are certain."""
        right = self._right()
        odds = np.where(np.arange(self.guesses) < known, np.inf, epsilon)
        return np.asarray(special.expit(np.where(right, odds, -odds)).prod(axis=1))


def _publishing(
    canaries: int,
    guesses: int,
    delta: float,
    knowing: Callable[[int], Distribution],
) -> Iterator[tuple[str, Distribution]]:
    """Yield randomised response, and what publishes some coins, guessed first.

    Args:
        canaries: Coins.
        guesses: How many of them are guessed.
        delta: What publishing spends.
        knowing: The distribution of outcomes if so many guesses are surely correct.
    """
    response = knowing(0)
    yield "randomised response", response
    for k in range(1, guesses + 1) if delta else ():
        probability = min(1.0, canaries * delta / k)
        distribution = probability * knowing(k) + (1 - probability) * response
        yield (
            f"publishing {k} of {canaries} coins, chance {probability:.3g}",
            distribution,
        )


def _attaining(response: Distribution, v: int, *, price: float) -> Distribution:
    """Return the distribution that spends ``price = m delta`` on reaching ``v``.

    It is the binomial distribution, lower by one factor below v and higher by another
    from there on; the largest price of use makes v certain.
    """
    tail = float(response[v:].sum())
    slack = min(price / (v * float(response[v])), 1 / tail)
    factors = 1 - slack * tail + slack * (np.arange(len(response)) >= v)
    return np.asarray(factors * response)
