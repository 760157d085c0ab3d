"""Games for conformance checks of bounds, and the result of such a check.

The checks are for authors of a bound, a guesser or an adapter. A check that passes
returns the list of what it checked (``Conformance``). One that fails raises, and names
the case: a counterexample is worth more than a verdict.

A bound is checked in games whose outcomes can all be listed. For each epsilon and delta
a game lists distributions of its outcomes under mechanisms that are (epsilon, delta)-DP
and as misleading as that allows; the probability that a bound is wrong under one of
them is then a sum, not a simulation.

*Randomised response* answers every coin with odds ``e^epsilon``. *Publishing* ``k`` of
``m`` coins, drawn at random, with probability ``m delta / k`` reveals each coin with
probability delta; the other guesses are randomised response. *Attaining* is the
distribution under which a count is reached with the largest probability of any
mechanism (docs/explanation/bounds.md#proof-of-the-exact-bound, attainment): no count of
guesses made in one run is more likely to be large. In *separate runs* coins cannot fail
together: each is revealed with probability delta, else answered by randomised response,
and the guesser takes the revealed ones first.
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
_MOST_RANKED = 14  # guesses; there are 2^guesses outcomes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """The result of a conformance check that passed.

    Attributes:
        subject: What was checked.
        checked: The properties that hold, one sentence each.

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
    """A game whose outcomes are listed, with distributions that they may have."""

    def outcomes(self) -> Sequence[R_co]:
        """Return the reading of every outcome; the last is the best."""
        ...

    def silent(self) -> Mask:
        """Return which outcomes are no better than chance: a bound must be 0."""
        ...

    def better(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of outcomes, the second with one more correct guess."""
        ...

    def distributions(
        self, *, epsilon: float, delta: float, wrong: Mask
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield descriptions of mechanisms with their probabilities of each outcome.

        Args:
            epsilon: The mechanism is (epsilon, delta)-DP, and no more private.
            delta: As above.
            wrong: The outcomes at which a bound exceeds epsilon; a game may search for
                distributions that favour them.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGame:
    """One run, all guesses counted alike.

    Attributes:
        canaries: The number of coins.
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
        """Return every count of correct guesses."""
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
        """Yield randomised response, and what attains each least wrong count."""
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
        runs: The number of runs.
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
        self._counted.outcomes()  # refuses invalid values

    @property
    def _counted(self) -> CountedGame:
        guesses = self.runs if self.guesses is None else self.guesses
        return CountedGame(canaries=self.runs, guesses=guesses)

    def outcomes(self) -> Sequence[Counts]:
        """Return every count of correct guesses."""
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
        wrong: Mask,  # noqa: ARG002 (one distribution is worst for any mask)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield the distribution where each run is guessed as well as possible."""
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
        canaries: The number of coins.
        weights: The weight of each class, the heaviest first.
        guesses: How many guesses of each class, fixed beforehand.
    """

    canaries: int
    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    def __post_init__(self) -> None:
        if list(self.weights) != sorted(self.weights, reverse=True):
            raise InvalidInputError(
                f"weights must have the heaviest first, got weights={self.weights}"
            )
        self.outcomes()  # refuses invalid values

    def outcomes(self) -> Sequence[Weighted]:
        """Return every combination of counts of correct guesses per class."""
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
        """Return the outcomes with at most half the guesses correct in each class."""
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
        wrong: Mask,  # noqa: ARG002 (the same distributions for any mask)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield randomised response, and publishing of some coins."""
        knowing = partial(self._distribution, epsilon)
        return _publishing(self.canaries, sum(self.guesses), delta, knowing)

    def _correct(self) -> list[tuple[int, ...]]:
        return list(product(*(range(r + 1) for r in self.guesses)))

    def _distribution(self, epsilon: float, known: int) -> Distribution:
        """Return the distribution if the ``known`` heaviest guesses are certain."""
        distribution = np.ones(1)
        for r in self.guesses:
            sure = min(r, known)  # certain guesses of this class
            known -= sure
            alone = np.append(np.zeros(sure), binomial_distribution(r - sure, epsilon))
            distribution = np.multiply.outer(distribution, alone).ravel()
        return distribution


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGame:
    """One run, guesses in order of confidence.

    Attributes:
        canaries: The number of coins.
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
        """Return every pattern of correct and wrong guesses."""
        return [Ranked(canaries=self.canaries, right=row) for row in self._right()]

    def silent(self) -> Mask:
        """Return the patterns with at most half of the first k correct, for every k."""
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
        wrong: Mask,  # noqa: ARG002 (the same distributions for any mask)
    ) -> Iterator[tuple[str, Distribution]]:
        """Yield randomised response, and publishing of coins, which rank first."""
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
    """Yield randomised response, and publishing of some coins, which rank first.

    Args:
        canaries: The number of coins.
        guesses: How many of them are guessed.
        delta: The probability that publishing reveals a given coin.
        knowing: Returns the distribution of outcomes if so many guesses are certain.
    """
    response = knowing(0)
    yield "randomised response", response
    for k in range(1, guesses + 1) if delta else ():
        probability = min(1.0, canaries * delta / k)
        distribution = probability * knowing(k) + (1 - probability) * response
        yield (
            f"publishing {k} of {canaries} coins, probability {probability:.3g}",
            distribution,
        )


def _attaining(response: Distribution, v: int, *, price: float) -> Distribution:
    """Return the distribution that spends ``price = m delta`` on reaching ``v``.

    It is the binomial distribution, scaled down by one factor below v and up by another
    from v on; at the largest useful price, a count of at least v is certain.
    """
    tail = float(response[v:].sum())
    slack = min(price / (v * float(response[v])), 1 / tail)
    factors = 1 - slack * tail + slack * (np.arange(len(response)) >= v)
    return np.asarray(factors * response)
