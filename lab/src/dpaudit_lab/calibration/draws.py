"""Many simulated audits at once, and the binomial laws that judge them.

A null draws audits as rows of log-odds and coins. The sums here use the incomplete beta
function, not the tails that the bounds use, so that the two can disagree.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "BOAST",
    "Draws",
    "binomial_tail",
    "every_guess",
    "fair_coins",
    "most_confident_first",
    "signed",
    "whole",
]

BOAST = 1.0  # guessers overstate their log-odds by this, so that betting rules bet


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """Many simulated audits, one a row.

    Attributes:
        log_odds: What the guesser says of each coin: the sign is the guess, the size
            the confidence.
        bits: The coins.
        made: How many guesses, in the order of the columns, were made before the
            guesser stopped.
    """

    log_odds: NDArray[np.float64]
    bits: NDArray[np.uint8]
    made: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each guess matches its coin."""
        return np.asarray((self.log_odds >= 0) == (self.bits == 1))

    def most_confident_right(self, guesses: int) -> NDArray[np.bool_]:
        """Return which of the surest guesses were made and right, surest first."""
        canaries = self.bits.shape[1]
        good = self.right & (np.arange(canaries) < self.made[:, np.newaxis])
        order = most_confident_first(self.log_odds)[:, :guesses]
        return np.take_along_axis(good, order, axis=1)

    def count(self, guesses: int) -> NDArray[np.int64]:
        """Return how many of the surest guesses were made and right."""
        canaries = self.bits.shape[1]
        if guesses == canaries:  # no need to sort them
            good = self.right & (np.arange(canaries) < self.made[:, np.newaxis])
            return np.asarray(good.sum(axis=1))
        return np.asarray(self.most_confident_right(guesses).sum(axis=1))


def every_guess(log_odds: NDArray[np.float64], bits: NDArray[np.uint8]) -> Draws:
    """Return audits in which nobody stopped."""
    audits, canaries = bits.shape
    return Draws(log_odds=log_odds, bits=bits, made=np.full(audits, canaries))


def fair_coins(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Return fair coins."""
    return rng.integers(2, size=shape, dtype=np.uint8)


def signed(bits: NDArray[np.uint8], truthful: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return +1 where the coin is said to be 1, else -1."""
    return np.where((bits == 1) == truthful, 1.0, -1.0)


def most_confident_first(log_odds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order of confidence along the last axis; ties stay in order."""
    return np.argsort(-np.abs(log_odds), axis=-1, kind="stable")


def binomial_tail(
    correct: ArrayLike, guesses: ArrayLike, log_odds: ArrayLike
) -> NDArray[np.float64]:
    """Return P[B >= correct], ``B ~ Bin(guesses, expit(log_odds))``, all broadcast.

    Example:
        >>> binomial_tail([0, 1, 2, 3], 2, 0.0)
        array([1.  , 0.75, 0.25, 0.  ])
    """
    v, r = np.asarray(correct, np.float64), np.asarray(guesses, np.float64)
    inner = (v > 0) & (v <= r)
    a, b = np.where(inner, v, 1.0), np.where(inner, r - v + 1, 1.0)
    return np.where(inner, special.betainc(a, b, special.expit(log_odds)), v <= 0)


def whole(law: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a law whose rounding errors are gone, as numpy's sampling asks for."""
    return np.asarray(law / law.sum())
