"""Guessers: from what was seen to which coins fell how, at once or one after the other.

A one-run guesser sees the output and hands in all its guesses. An adaptive guesser is a
generator: it yields a turn's guesses and is sent the coins of those canaries. Neither
ever holds a referee or coins, so there is nothing to peek at.

``AdaptiveMostLikely`` guesses each coin the likelier way, given the coins revealed
before. What the rules let it put on a guess is kept by a purse: a number of guesses,
slots of some weight, log-odds, probabilities.
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
    """One turn's guesses, as a referee takes them.

    Attributes:
        index: Canaries, counted from 0.
        guess: For each +1, -1, or 0 for a pass.
        stake: For each what is put on it, if the rules have stakes.
    """

    index: NDArray[np.int64]
    guess: NDArray[np.int8]
    stake: NDArray[np.float64] | None = None


Play: TypeAlias = Generator[Submission, NDArray[np.int8], None]


class Guesser(Protocol[O_contra]):
    """Guesses all at once."""

    def guess(self, output: O_contra) -> Submission:
        """Return the guesses for an output, the surest first."""
        ...


class AdaptiveGuesser(Protocol[O_contra]):
    """Guesses in turns and learns coins in between."""

    def play(self, output: O_contra) -> Play:
        """Yield a turn's guesses, receive its coins, and so on."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MostLikely(Generic[O]):
    """Guesses the coins that are known best: the optimal guesser of ``guesses`` coins.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy",
    "thm-restated:optimal-efficacy-with-abstentions".

    Attributes:
        mechanism: Says what an output tells about each coin.
        guesses: How many to guess.
    """

    mechanism: HasLogOdds[O]
    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)

    def guess(self, output: O) -> Submission:
        """Return the ``guesses`` best guesses, the surest first."""
        log_odds = self.mechanism.log_odds(output)
        index, guess = most_likely(log_odds, guesses=self.guesses)
        return Submission(index=index, guess=guess)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone(Generic[O]):
    """Guesses every coin the likelier way, in order: without abstention.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy".

    Attributes:
        mechanism: Says what an output tells about each coin.
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
    """Guesses what it sees, where an output is one sign per canary.

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
    """Guesses only coins whose log-odds reach a threshold, and never too many.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy".

    Attributes:
        mechanism: Says what an output tells about each coin.
        threshold: The least ``|log-odds|`` that is guessed, the paper's tau.
        guesses: The most that are guessed, the surest first.
    """

    mechanism: HasLogOdds[O]
    threshold: float
    guesses: int

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        _validate.whole_number("guesses", self.guesses, least=1)

    def guess(self, output: O) -> Submission:
        """Return the guesses that reach the threshold, the surest first."""
        log_odds = self.mechanism.log_odds(output)
        index, guess = most_likely(log_odds, guesses=self.guesses)
        sure = np.abs(log_odds[index]) >= self.threshold
        return Submission(index=index[sure], guess=guess[sure])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes(Generic[O]):
    """Guesses +1 for the highest scores and -1 for the lowest.

    Reference: Keinan, Shenfeld and Ligett, "subsec:experiments".

    Attributes:
        score: Gives each canary a score, higher where +1 is more likely.
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
        """Return the guesses; ties go to the smaller index."""
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
    """Return the numbers of all canaries in order: one array, not to be written to."""
    index = np.arange(canaries)
    index.setflags(write=False)
    return index


def most_likely(
    log_odds: NDArray[np.float64], *, guesses: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Guess the coins that are known best, each the way it more likely fell.

    Among all guessers that make as many guesses, this one expects the most right.
    Ties go to the smaller index, so that nothing but the log-odds decides.

    Args:
        log_odds: ln P[S = +1 | output] / P[S = -1 | output] for each canary.
        guesses: How many to guess.

    Returns:
        The canaries guessed and the guess for each, as a referee takes them.

    Example:
        >>> most_likely(np.array([0.1, -3.0, 2.0]), guesses=2)
        (array([1, 2]), array([-1,  1], dtype=int8))
    """
    index = np.argsort(-np.abs(log_odds), kind="stable")[:guesses]
    return index, np.where(log_odds[index] >= 0, 1, -1).astype(np.int8)


def check_threshold(threshold: float) -> None:
    """Refuse what cannot be a least ``|log-odds|`` to guess."""
    if not threshold >= 0:
        raise InvalidInputError(
            f"threshold must be 0 or more (infinity: only certain coins), got "
            f"threshold={threshold!r}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveMostLikely(Generic[O]):
    """Guesses each coin the likelier way, given all coins revealed before it.

    It goes through the batches that the mechanism's posterior proposes, guesses what
    reaches the threshold, passes the rest, and learns from both. What it puts on a
    guess follows the rules: nothing for a count, its chance for bets, its log-odds for
    rounds, the free slot of the weight nearest to its confidence for classes. If the
    rules say which round a canary is played in, it keeps to that.

    Reference: Keinan, Shenfeld and Ligett, "subsec:adaptive-ora".

    Attributes:
        mechanism: Says what an output and revealed coins tell about the next ones.
        threshold: The least ``|log-odds|`` that is guessed, the paper's tau.
        rules: What the game was opened with.
    """

    mechanism: HasPosterior[O]
    threshold: float
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    def play(self, output: O) -> Play:
        """Yield each batch's guesses and learn its coins."""
        posterior = self.mechanism.posterior(output)
        purse = _purse(self.rules)
        for index in _batches(posterior, self.rules):
            log_odds = posterior.log_odds(index)
            sure = np.abs(log_odds) >= self.threshold
            guess = np.where(sure, np.where(log_odds >= 0, 1, -1), 0).astype(np.int8)
            stake = purse.spend(np.abs(log_odds), guess, self.threshold)
            truth = yield Submission(index=index, guess=guess, stake=stake)
            posterior.reveal(index, truth)


class _Purse(Protocol):
    """Turns guesses into passes where the rules allow no more, and sets stakes."""

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
        threshold: float,  # noqa: ARG002 (each purse uses what it needs)
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
        threshold: float,  # noqa: ARG002 (each purse uses what it needs)
    ) -> NDArray[np.float64]:
        return np.where(guess != 0, stated_log_odds(confidence), 0.0)


@final
class _Chances:
    def spend(
        self,
        confidence: NDArray[np.float64],
        guess: NDArray[np.int8],  # noqa: ARG002 (each purse uses what it needs)
        threshold: float,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        return np.asarray(special.expit(confidence))


def stated_log_odds(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is stated of log-odds in rounds: one of some thousand values.

    They are rounded down: a guess may well be surer than is stated.

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
    """Return what is submitted together, turn by turn."""
    if not isinstance(rules, AdaptiveRounds):
        return posterior.batches()
    rounds = len(rules.round_weights)
    if rules.max_jump is None:
        return islice(posterior.batches(), rounds)
    n = sum(len(batch) for batch in posterior.batches())
    return (np.arange(r, n, rounds) for r in range(rounds))


def _excess(confidence: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return by how much log-odds exceed a threshold, cut where more says little."""
    largest = 8.0
    if threshold == np.inf:
        return np.zeros(len(confidence))
    return np.clip(confidence - threshold, 0.0, largest)


def _purse(
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets,
) -> _Purse:
    match rules:
        case AdaptiveCount():
            return _Number(rules.guesses)
        case AdaptiveClasses():
            return _Slots(rules)
        case AdaptiveRounds():
            return _LogOdds()
        case AdaptiveBets():
            return _Chances()
