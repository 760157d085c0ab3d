"""Guessers: from an output to guesses of the coins, all at once or adaptively.

A one-run guesser sees the output and returns all its guesses. An adaptive guesser is a
generator: it yields a turn's guesses and is sent the coins of those canaries. Neither
ever has access to a referee or to other coins.

``AdaptiveMostLikely`` guesses the more likely value of each coin, given the coins
revealed before. A budget tracks the stakes that the rules still allow: a number of
guesses, slots of each weight, log-odds, probabilities.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Generic, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import HasLogOdds, HasPosterior, Posterior
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
)

__all__ = [
    "AdaptiveGuesser",
    "AdaptiveMostLikely",
    "Confident",
    "Echo",
    "Everyone",
    "Extremes",
    "Guesser",
    "MostLikely",
    "Play",
    "Submission",
    "check_threshold",
    "everyone",
    "most_likely",
    "stated_log_odds",
]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)
O_contra = TypeVar("O_contra", contravariant=True)

_STEPS_PER_UNIT = 128  # of stated log-odds
_LARGEST_STATED = 40.0  # log-odds


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submission:
    """One turn's guesses, as a referee accepts them.

    Attributes:
        index: Canaries, counted from 0.
        guess: For each +1, -1, or 0 to abstain.
        stake: The stake on each, if the rules have stakes.
    """

    index: NDArray[np.int64]
    guess: NDArray[np.int8]
    stake: NDArray[np.float64] | None = None


Play: TypeAlias = Generator[Submission, NDArray[np.int8], None]


class Guesser(Protocol[O_contra]):
    """Makes all guesses at once."""

    def guess(self, output: O_contra) -> Submission:
        """Return the guesses for an output, the most confident first."""
        ...


class AdaptiveGuesser(Protocol[O_contra]):
    """Guesses in turns and learns the coins of each turn before the next."""

    def play(self, output: O_contra) -> Play:
        """Yield the guesses of each turn and receive its coins."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MostLikely(Generic[O]):
    """Guesses the coins with the largest ``|log-odds|``: optimal for ``guesses`` coins.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy",
    "thm-restated:optimal-efficacy-with-abstentions".

    Attributes:
        mechanism: Gives the log-odds of each coin given an output.
        guesses: How many to guess.
    """

    mechanism: HasLogOdds[O]
    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)

    def guess(self, output: O) -> Submission:
        """Return the ``guesses`` best guesses, the most confident first."""
        log_odds = self.mechanism.log_odds(output)
        index, guess = most_likely(log_odds, guesses=self.guesses)
        return Submission(index=index, guess=guess)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone(Generic[O]):
    """Guesses the more likely value of every coin, in order, without abstention.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy".

    Attributes:
        mechanism: Gives the log-odds of each coin given an output.
    """

    mechanism: HasLogOdds[O]

    def guess(self, output: O) -> Submission:
        """Return a guess for every canary, in the order of the canaries."""
        likely = self.mechanism.log_odds(output) >= 0
        guess = 2 * likely.view(np.int8) - np.int8(1)
        return Submission(index=everyone(len(guess)), guess=guess)


@final
@dataclass(frozen=True, slots=True)
class Echo:
    """Returns the output as the guesses, for outputs of one sign per canary.

    For randomised response that is the optimal guesser without abstention.

    Reference: Keinan, Shenfeld and Ligett,
    "prop:ora-is-tight-for-local-randomized-response".

    Example:
        >>> Echo().guess(np.array([1, -1], np.int8)).guess
        array([ 1, -1], dtype=int8)
    """

    def guess(self, output: NDArray[np.int8]) -> Submission:
        """Return the output as the guess for every canary."""
        return Submission(index=everyone(len(output)), guess=output)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Confident(Generic[O]):
    """Guesses only coins whose ``|log-odds|`` reach a threshold, up to a maximum.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy".

    Attributes:
        mechanism: Gives the log-odds of each coin given an output.
        threshold: The smallest ``|log-odds|`` that is guessed, the paper's tau.
        guesses: The maximum number of guesses, the most confident first.
    """

    mechanism: HasLogOdds[O]
    threshold: float
    guesses: int

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        _validate.whole_number("guesses", self.guesses, least=1)

    def guess(self, output: O) -> Submission:
        """Return the guesses that reach the threshold, the most confident first."""
        log_odds = self.mechanism.log_odds(output)
        index, guess = most_likely(log_odds, guesses=self.guesses)
        confident = np.abs(log_odds[index]) >= self.threshold
        return Submission(index=index[confident], guess=guess[confident])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes(Generic[O]):
    """Guesses +1 for the highest scores and -1 for the lowest.

    Reference: Keinan, Shenfeld and Ligett, "subsec:experiments".

    Attributes:
        score: Returns a score for each canary, higher where +1 is more likely.
        top: How many of the highest are guessed +1.
        bottom: How many of the lowest are guessed -1.

    Example:
        >>> guesser = Extremes(score=np.asarray, top=1, bottom=1)
        >>> guesser.guess([0.3, 9.0, -2.0, 0.1]).index
        array([1, 2])
    """

    score: Callable[[O], NDArray[np.float64]]
    top: int
    bottom: int

    def __post_init__(self) -> None:
        _validate.whole_number("top", self.top)
        _validate.whole_number("bottom", self.bottom)
        if not callable(self.score):
            raise InvalidInputError(
                "score must be a function from an output to a score for each canary, "
                f"got score={self.score!r:.60}"
            )

    def guess(self, output: O) -> Submission:
        """Return the guesses; ties are broken by the smaller index."""
        scores = np.asarray(self.score(output), np.float64)
        if self.top + self.bottom > len(scores):
            raise InvalidInputError(
                f"cannot guess top={self.top} and bottom={self.bottom} of "
                f"{len(scores)} canaries"
            )
        high = np.argsort(-scores, kind="stable")[: self.top]
        rest = np.setdiff1d(np.arange(len(scores)), high)
        low = rest[np.argsort(scores[rest], kind="stable")[: self.bottom]]
        guess = np.repeat(np.array([1, -1], np.int8), [len(high), len(low)])
        return Submission(index=np.concatenate([high, low]), guess=guess)


@lru_cache(maxsize=8)
def everyone(canaries: int) -> NDArray[np.int64]:
    """Return the numbers of all canaries in order, as one cached read-only array."""
    index = np.arange(canaries)
    index.setflags(write=False)
    return index


def most_likely(
    log_odds: NDArray[np.float64], *, guesses: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return the more likely value of the coins with the largest ``|log-odds|``.

    Among all guessers that make as many guesses, this one has the most correct guesses
    in expectation. Ties are broken by the smaller index, so that nothing but the
    log-odds decides.

    Args:
        log_odds: ln P[S = +1 | output] / P[S = -1 | output] for each canary.
        guesses: How many to guess.

    Returns:
        The canaries guessed and the guess for each, as a referee accepts them.

    Example:
        >>> most_likely(np.array([0.1, -3.0, 2.0]), guesses=2)
        (array([1, 2]), array([-1,  1], dtype=int8))
    """
    index = np.argsort(-np.abs(log_odds), kind="stable")[:guesses]
    return index, np.where(log_odds[index] >= 0, 1, -1).astype(np.int8)


def check_threshold(threshold: float) -> None:
    """Refuse a threshold on ``|log-odds|`` that is negative or not a number."""
    if not threshold >= 0:
        raise InvalidInputError(
            f"threshold must be 0 or more (infinity: only certain coins), got "
            f"threshold={threshold!r}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveMostLikely(Generic[O]):
    """Guesses the more likely value of each coin, given all coins revealed before it.

    It goes through the batches that the mechanism's posterior proposes, guesses the
    coins that reach the threshold, abstains on the rest, and learns from both. The
    stake of a guess follows the rules: none for a count, its probability for bets, its
    log-odds for rounds, the free slot of the weight nearest to its confidence for
    classes. If the rules fix the round in which a canary is played, it follows them.

    Reference: Keinan, Shenfeld and Ligett, "subsec:adaptive-ora".

    Attributes:
        mechanism: Gives the log-odds of coins given an output and revealed coins.
        threshold: The smallest ``|log-odds|`` that is guessed, the paper's tau.
        rules: The rules of the game.
    """

    mechanism: HasPosterior[O]
    threshold: float
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    def play(self, output: O) -> Play:
        """Yield the guesses of each batch and learn its coins."""
        posterior = self.mechanism.posterior(output)
        budget = _budget(self.rules)
        for index in _batches(posterior, self.rules):
            log_odds = posterior.log_odds(index)
            made = np.abs(log_odds) >= self.threshold
            guess = np.where(made, np.where(log_odds >= 0, 1, -1), 0).astype(np.int8)
            stake = budget.spend(np.abs(log_odds), guess, self.threshold)
            truth = yield Submission(index=index, guess=guess, stake=stake)
            posterior.reveal(index, truth)


class _Budget(Protocol):
    """Sets stakes, and turns guesses into abstentions where the rules allow no more."""

    def spend(
        self, confidence: NDArray[np.float64], guess: NDArray[np.int8], threshold: float
    ) -> NDArray[np.float64] | None: ...


@final
class _Number:
    def __init__(self, guesses: int) -> None:
        self._left = guesses

    def spend(
        self,
        confidence: NDArray[np.float64],
        guess: NDArray[np.int8],
        threshold: float,  # noqa: ARG002 (each budget uses what it needs)
    ) -> None:
        made = np.flatnonzero(guess)
        best = made[np.argsort(-confidence[made], kind="stable")]
        guess[best[self._left :]] = 0
        self._left -= min(self._left, len(best))


@final
class _Slots:
    def __init__(self, rules: AdaptiveClasses) -> None:
        self._weights = np.array(rules.weights)
        self._left = np.array(rules.guesses)

    def spend(
        self, confidence: NDArray[np.float64], guess: NDArray[np.int8], threshold: float
    ) -> NDArray[np.float64]:
        stake, excess = np.zeros(len(guess)), _excess(confidence, threshold)
        made = np.flatnonzero(guess)
        for i in made[np.argsort(-confidence[made], kind="stable")]:
            free = np.flatnonzero(self._left)
            if not len(free):
                guess[i] = 0
                continue
            slot = free[np.argmin(np.abs(self._weights[free] - excess[i]))]
            self._left[slot] -= 1
            stake[i] = self._weights[slot]
        return stake


@final
class _LogOdds:
    def spend(
        self,
        confidence: NDArray[np.float64],
        guess: NDArray[np.int8],
        threshold: float,  # noqa: ARG002 (each budget uses what it needs)
    ) -> NDArray[np.float64]:
        return np.where(guess != 0, stated_log_odds(confidence), 0.0)


@final
class _Probabilities:
    def spend(
        self,
        confidence: NDArray[np.float64],
        guess: NDArray[np.int8],  # noqa: ARG002 (each budget uses what it needs)
        threshold: float,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        return np.asarray(special.expit(confidence))


def stated_log_odds(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log-odds as stated in rounds, rounded down to multiples of 1/128.

    Rounding down is valid: a guess may be more confident than stated.

    Example:
        >>> stated_log_odds(np.array([0.5, 1.2345, np.inf]))
        array([ 0.5     ,  1.234375, 40.      ])
    """
    steps = np.clip(
        np.floor(confidence * _STEPS_PER_UNIT), 1, _LARGEST_STATED * _STEPS_PER_UNIT
    )
    return np.asarray(steps / _STEPS_PER_UNIT)


def _batches(
    posterior: Posterior,
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets,
) -> Iterator[NDArray[np.int64]]:
    """Return the canaries to submit in each turn."""
    if not isinstance(rules, AdaptiveRounds):
        return posterior.batches()
    rounds = len(rules.round_weights)
    if rules.max_jump is None:
        return islice(posterior.batches(), rounds)
    n = sum(len(batch) for batch in posterior.batches())
    return (np.arange(r, n, rounds) for r in range(rounds))


def _excess(confidence: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return by how much log-odds exceed a threshold, capped at 8."""
    largest = 8.0
    if threshold == np.inf:
        return np.zeros(len(confidence))
    return np.clip(confidence - threshold, 0.0, largest)


def _budget(
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets,
) -> _Budget:
    match rules:
        case AdaptiveCount():
            return _Number(rules.guesses)
        case AdaptiveClasses():
            return _Slots(rules)
        case AdaptiveRounds():
            return _LogOdds()
        case AdaptiveBets():
            return _Probabilities()
