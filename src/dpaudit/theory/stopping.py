"""What stopping at will costs: a guesser who looks, and stops when ahead.

If the number of guesses may depend on revealed coins, the binomial tail at the realised
number is no p-value: a guesser who tosses fair coins, and stops as soon as the tail is
small enough, is certified far too often. The law of where it stops is that of a
symmetric random walk that ends where it first reaches a boundary, by dynamic
programming over the number of right guesses.

Reference: docs/explanation/errata.md.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate

__all__ = ["stopping_chance", "stopping_law", "surprising_counts"]

_ROUNDING = 1e-12  # a tail that equals its level must not miss it by its last digit


def stopping_chance(canaries: int, alpha: float) -> float:
    """Return how often stopping at will "certifies" a mechanism that says nothing.

    Args:
        canaries: The most guesses that can be made.
        alpha: The nominal chance of being wrong.

    Returns:
        The chance that after some guess ``P[Bin(R, 1/2) >= V] <= alpha``.

    Example:
        >>> round(stopping_chance(1000, 0.05), 3)
        0.339
    """
    _validate.error_level("alpha", alpha)
    stopped, _ = stopping_law(canaries, alpha)
    return float(stopped.sum())


def stopping_law(
    canaries: int, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the law of right guesses of a guesser who stops when ahead.

    Returns:
        For each number of right guesses, the chance of having stopped with it, and the
        chance of having gone on to the end with it.
    """
    enough = surprising_counts(canaries, 0.0, level)
    stopped, going = np.zeros(canaries + 2), np.zeros(canaries + 2)
    going[0] = 1.0
    for guesses, ahead in enumerate(enough, start=1):
        # The walk moves by one at most, so it meets the boundary at the boundary.
        top = min(guesses, ahead)
        going[1 : top + 1] = (going[1 : top + 1] + going[:top]) / 2
        going[0] /= 2
        if guesses >= ahead:
            stopped[ahead] += going[ahead]
            going[ahead] = 0.0
    return stopped[:-1], going[:-1]


@lru_cache(maxsize=64)
def surprising_counts(
    canaries: int, log_odds: float, level: float
) -> NDArray[np.int64]:
    """Return for 1, 2, ... guesses the least count whose binomial tail is <= level.

    It never falls from one number of guesses to the next, and rises by at most one.
    Where not even all right are surprising it is one more than all.
    """
    _validate.whole_number("canaries", canaries, least=1)
    made = np.arange(1, canaries + 1)
    chance = float(special.expit(log_odds))
    spread = np.sqrt(made * chance * (1 - chance))
    start = made * chance - special.ndtri(level) * spread
    found: NDArray[np.int64] = np.clip(start.astype(np.int64), 1, made + 1)

    def surprises(right: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = np.clip(right, 1, made)
        tail = special.betainc(inside, made - inside + 1, chance)
        tail = np.where(right <= 0, 1.0, np.where(right > made, 0.0, tail))
        below: NDArray[np.bool_] = tail <= level * (1 + _ROUNDING)
        return below

    while np.any(short := ~surprises(found)):
        found = found + short
    while np.any(long := surprises(found - 1)):
        found = found - long
    found.setflags(write=False)
    return found
