"""The adaptive guesser: each coin the likelier way, given the coins revealed before.

What the rules let it put on a guess is a purse: a number of guesses, slots of some
weight, log-odds, chances.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.game.guessers import Play, Submission, check_threshold
from dpaudit.game.mechanism import HasConditionalLoss, Posterior
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
)

__all__ = ["AdaptiveMostLikely", "stated_log_odds"]

_FINENESS = 128  # steps of stated log-odds in one unit
_SUREST = 40.0  # the largest log-odds that are stated

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveMostLikely(Generic[O]):
    """Guesses each coin the likelier way, given all coins revealed before it.

    It goes through the batches that the mechanism's posterior proposes, guesses what
    reaches the threshold, passes the rest, and learns from both. What it puts on a
    guess follows the rules: nothing for a count, its chance for bets, its log-odds for
    rounds, the free slot of the weight nearest to its confidence for classes. If the
    rules say which round a canary is played in, it keeps to that.

    Attributes:
        mechanism: Says what an output and revealed coins tell about the next ones.
        threshold: The least ``|log-odds|`` that is guessed, the paper's tau.
        rules: What the game was opened with.
    """

    mechanism: HasConditionalLoss[O]
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
        self, surety: NDArray[np.float64], guess: NDArray[np.int8], threshold: float
    ) -> NDArray[np.float64] | None: ...


@final
class _Number:
    def __init__(self, guesses: int) -> None:
        self._left = guesses

    def spend(
        self,
        surety: NDArray[np.float64],
        guess: NDArray[np.int8],
        threshold: float,  # noqa: ARG002 (each purse uses what it needs)
    ) -> None:
        made = np.flatnonzero(guess)
        best = made[np.argsort(-surety[made], kind="stable")]
        guess[best[self._left :]] = 0
        self._left -= min(self._left, len(best))


@final
class _Slots:
    def __init__(self, rules: AdaptiveClasses) -> None:
        self._weights = np.array(rules.weights)
        self._left = np.array(rules.guesses)

    def spend(
        self, surety: NDArray[np.float64], guess: NDArray[np.int8], threshold: float
    ) -> NDArray[np.float64]:
        stake, excess = np.zeros(len(guess)), _excess(surety, threshold)
        made = np.flatnonzero(guess)
        for i in made[np.argsort(-surety[made], kind="stable")]:
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
        surety: NDArray[np.float64],
        guess: NDArray[np.int8],
        threshold: float,  # noqa: ARG002 (each purse uses what it needs)
    ) -> NDArray[np.float64]:
        return np.where(guess != 0, stated_log_odds(surety), 0.0)


@final
class _Chances:
    def spend(
        self,
        surety: NDArray[np.float64],
        guess: NDArray[np.int8],  # noqa: ARG002 (each purse uses what it needs)
        threshold: float,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        return np.asarray(special.expit(surety))


def stated_log_odds(surety: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is stated of log-odds in rounds: one of some thousand values.

    They are rounded down: a guess may well be surer than is stated.

    Example:
        >>> stated_log_odds(np.array([0.5, 1.2345, np.inf]))
        array([ 0.5     ,  1.234375, 40.      ])
    """
    steps = np.clip(np.floor(surety * _FINENESS), 1, _SUREST * _FINENESS)
    return np.asarray(steps / _FINENESS)


def _batches(
    posterior: Posterior,
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets,
) -> Iterator[NDArray[np.int64]]:
    """Return what is submitted together, turn by turn."""
    if not isinstance(rules, AdaptiveRounds):
        return posterior.batches()
    rounds = len(rules.weights)
    if rules.jump is None:
        return islice(posterior.batches(), rounds)
    n = sum(len(batch) for batch in posterior.batches())
    return (np.arange(r, n, rounds) for r in range(rounds))


def _excess(surety: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return by how much log-odds exceed a threshold, cut where more says little."""
    largest = 8.0
    if threshold == np.inf:
        return np.zeros(len(surety))
    return np.clip(surety - threshold, 0.0, largest)


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
