"""Guessers: from what was seen to which coins fell how.

A one-run guesser sees the output and hands in all its guesses. An adaptive guesser is a
generator: it yields a turn's guesses and is sent the coins of those canaries. Neither
ever holds a referee or coins, so there is nothing to peek at.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import HasLoss

__all__ = [
    "AdaptiveGuesser",
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
]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)
O_contra = TypeVar("O_contra", contravariant=True)


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

    Attributes:
        mechanism: Says what an output tells about each coin.
        guesses: How many to guess.
    """

    mechanism: HasLoss[O]
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

    Attributes:
        mechanism: Says what an output tells about each coin.
    """

    mechanism: HasLoss[O]

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

    Attributes:
        mechanism: Says what an output tells about each coin.
        threshold: The least ``|log-odds|`` that is guessed, the paper's tau.
        guesses: The most that are guessed, the surest first.
    """

    mechanism: HasLoss[O]
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


def check_threshold(threshold: Any) -> None:  # noqa: ANN401 (infinity is a threshold)
    """Refuse what cannot be a least ``|log-odds|`` to guess."""
    if not threshold >= 0:
        raise InvalidInputError(
            f"threshold must be 0 or more (infinity: only certain coins), got "
            f"threshold={threshold!r}"
        )
