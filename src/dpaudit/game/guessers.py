"""Guessers: from what was seen to which coins fell how."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["most_likely"]


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
