"""What revealing coins is worth, and what stopping at will costs.

A noiseless count of ``s`` elements is published. The maximum-likelihood guesser with a
threshold guesses an element when the size of its loss, ``|ln(h / (a - h))|`` with ``h``
ones among ``a`` elements not yet revealed, is at least the threshold; it guesses what
the majority is.

In one-run auditing nothing is revealed: either all ``s`` elements are guessed or none.
With an infinite threshold that happens when all coins fell the same way, with chance
``2^-(s-1)``, so that ``s 2^-(s-1)`` guesses are expected (the paper prints the chance
for the number). Adaptively, each coin is revealed after the guesser had its turn at it,
guessed or passed, and the tail of the sequence in which all remaining coins are alike
is guessed: ``2 - 2^-(s-1)`` guesses are expected.

Both laws are found exactly by a forward pass over (elements left, ones left, guesses so
far): given the count all sequences are equally likely, so the next coin is a one with
chance ``h / a``.

``stopping_chance`` is the other side. If the number of guesses may depend on revealed
coins, the binomial tail at the realised number is no p-value: a guesser who tosses fair
coins, and stops as soon as the tail is small enough, is certified far too often. It is
the chance that a symmetric random walk ever crosses the boundary, by dynamic
programming over the number of right guesses.

Reference: Keinan, Shenfeld and Ligett, section "Adaptive ORA improves ORA",
https://arxiv.org/abs/2503.07199.
"""

from dataclasses import dataclass
from math import inf, isnan, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import log_mass

__all__ = ["GuessLaw", "adaptive_guesses", "one_run_guesses", "stopping_chance"]

_ROUNDING = 1e-12  # a tail that equals alpha must not miss it by its last digit


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessLaw:
    """How many guesses are made about one set, and how many are right.

    Attributes:
        guesses: The chances of 0, 1, 2, ... guesses.
        right: The chances of 0, 1, 2, ... right guesses.
    """

    guesses: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def expected_guesses(self) -> float:
        """The expected number of guesses."""
        return float(self.guesses @ np.arange(len(self.guesses)))

    @property
    def expected_right(self) -> float:
        """The expected number of right guesses."""
        return float(self.right @ np.arange(len(self.right)))


def one_run_guesses(size: int, threshold: float) -> GuessLaw:
    """Return the law of guesses about one count when no coin is revealed.

    Args:
        size: Elements that were counted.
        threshold: Smallest size of loss at which an element is guessed; may be
            infinite: only what is certain.

    Example:
        >>> one_run_guesses(10, inf).expected_guesses == 10 * 2**-9
        True
    """
    _check(size, threshold)
    ones = np.arange(size + 1)
    chance = np.exp(log_mass(ones, size, 0.0))
    made = np.array([_speaks(size, int(h), threshold) for h in ones])
    guesses, right = np.zeros(size + 1), np.zeros(size + 1)
    np.add.at(guesses, size * made, chance)
    np.add.at(right, np.maximum(ones, size - ones) * made, chance)
    return GuessLaw(guesses=guesses, right=right)


def adaptive_guesses(size: int, threshold: float) -> GuessLaw:
    """Return the law of guesses about one count when coins are revealed in turn.

    Args:
        size: Elements that were counted.
        threshold: Smallest size of loss at which an element is guessed; may be
            infinite: only what is certain.

    Example:
        >>> round(adaptive_guesses(10, inf).expected_guesses, 6)
        1.998047
    """
    _check(size, threshold)
    return GuessLaw(
        guesses=_forward(size, threshold, only_right=False),
        right=_forward(size, threshold, only_right=True),
    )


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
    _validate.whole_number("canaries", canaries, least=1)
    _validate.error_level("alpha", alpha)
    boundary = _boundary(canaries, alpha)
    walk = np.zeros(canaries + 2)  # chance of v right so far, never having crossed
    walk[0] = 1.0
    crossed = 0.0
    for made, limit in enumerate(boundary, start=1):
        top = min(made, limit)
        walk[1 : top + 1] = (walk[1 : top + 1] + walk[:top]) / 2
        walk[0] /= 2
        if made >= limit:
            crossed += float(walk[limit])
            walk[limit] = 0.0
    return crossed


def _boundary(canaries: int, alpha: float) -> NDArray[np.int64]:
    """Return for 1, 2, ... guesses the least number right whose tail is alpha or less.

    It never falls from one number of guesses to the next, and rises by at most one.
    """
    made = np.arange(1, canaries + 1)
    start = made / 2 - special.ndtri(alpha) * np.sqrt(made) / 2
    found: NDArray[np.int64] = np.clip(start.astype(np.int64), 1, made + 1)

    def crosses(right: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = np.clip(right, 1, made)
        tail = special.betainc(inside, made - inside + 1, 0.5)
        tail = np.where(right <= 0, 1.0, np.where(right > made, 0.0, tail))
        below: NDArray[np.bool_] = tail <= alpha * (1 + _ROUNDING)
        return below

    while np.any(short := ~crosses(found)):
        found = found + short
    while np.any(long := crosses(found - 1)):
        found = found - long
    return found


def _forward(size: int, threshold: float, *, only_right: bool) -> NDArray[np.float64]:
    """Return the law of the number of guesses, or of the right ones only."""
    state = np.zeros((size + 1, size + 1))  # ones left, counted so far
    state[:, 0] = np.exp(log_mass(np.arange(size + 1), size, 0.0))
    for left in range(size, 0, -1):
        ones = np.arange(left + 1)
        made = np.array([_speaks(left, int(h), threshold) for h in ones])
        says_one = ones >= left - ones
        after = np.zeros_like(state)
        for bit in (0, 1):
            chance = np.where(bit, ones, left - ones) / left
            moved = state[: left + 1] * chance[:, np.newaxis]
            counted = made & (says_one == bool(bit)) if only_right else made
            moved[counted] = np.roll(moved[counted], 1, axis=1)
            after[: left + 1 - bit] += moved[bit:]
        state = after
    law: NDArray[np.float64] = state[0]
    return law


def _speaks(left: int, ones: int, threshold: float) -> bool:
    """Whether the loss of each of the elements left is as large as the threshold."""
    more, fewer = max(ones, left - ones), min(ones, left - ones)
    return (log(more / fewer) if fewer else inf) >= threshold


def _check(size: int, threshold: float) -> None:
    _validate.whole_number("size", size, least=1)
    if isnan(threshold) or threshold < 0:
        raise InvalidInputError(
            "threshold must be 0 or more; inf guesses only what is certain, got "
            f"threshold={threshold!r}"
        )
