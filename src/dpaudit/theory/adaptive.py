"""Adaptive guessers: the value of revealed coins and the cost of optional stopping.

*The value of revealed coins*: how many guesses are made about a count. A noiseless
count of ``s`` elements is published. The maximum-likelihood guesser with a threshold
guesses an element if its absolute loss, ``|ln(h / (a - h))|`` with ``h`` ones among
``a`` elements not yet revealed, is at least the threshold; it guesses the majority
value.

In one-run auditing nothing is revealed: either all ``s`` elements are guessed or none.
With an infinite threshold all are guessed if all coins agree, with probability
``2^-(s-1)``, so the expected number of guesses is ``s 2^-(s-1)`` (the paper prints the
probability instead of the number). Adaptively, each coin is revealed after its guess or
abstention, and the end of the sequence, where all remaining coins agree, is guessed:
``2 - 2^-(s-1)`` guesses in expectation. Both distributions are computed exactly by a
forward pass over (elements left, ones left, guesses so far): given the count all
sequences are equally likely, so the next coin is a one with probability ``h / a``.

*The cost of optional stopping*: if the number of guesses may depend on revealed coins,
the binomial tail at the realised number is not a p-value. A guesser that flips fair
coins, and stops as soon as the tail is small enough, is certified far too often. Its
stopping point is that of a symmetric random walk when it first reaches a boundary,
computed by dynamic programming over the number of correct guesses.

References: Keinan, Shenfeld and Ligett, section "Adaptive ORA improves ORA",
https://arxiv.org/abs/2503.07199; for stopping, docs/explanation/errata.md.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isnan, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import log_mass

__all__ = [
    "GuessCounts",
    "adaptive_guesses",
    "one_run_guesses",
    "stopping_distribution",
    "stopping_probability",
    "surprising_counts",
]

_ROUNDING = 1e-12  # a tail equal to its level must not miss it by rounding


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessCounts:
    """Distributions of the numbers of guesses and correct guesses about one set.

    Attributes:
        guesses: The probabilities of 0, 1, 2, ... guesses.
        right: The probabilities of 0, 1, 2, ... correct guesses.
    """

    guesses: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def expected_guesses(self) -> float:
        """The expected number of guesses."""
        return float(self.guesses @ np.arange(len(self.guesses)))

    @property
    def expected_right(self) -> float:
        """The expected number of correct guesses."""
        return float(self.right @ np.arange(len(self.right)))


def one_run_guesses(size: int, threshold: float) -> GuessCounts:
    """Return the distribution of guesses about one count when no coin is revealed.

    Reference: Keinan, Shenfeld and Ligett, "subsec:aora-count-in-sets".

    Args:
        size: Number of counted elements.
        threshold: Smallest absolute loss at which an element is guessed; infinite for
            certain guesses only.

    Example:
        >>> one_run_guesses(10, inf).expected_guesses == 10 * 2**-9
        True
    """
    _check(size, threshold)
    ones = np.arange(size + 1)
    probability = np.exp(log_mass(ones, size, 0.0))
    made = np.array([_reaches(size, int(h), threshold) for h in ones])
    guesses, right = np.zeros(size + 1), np.zeros(size + 1)
    np.add.at(guesses, size * made, probability)
    np.add.at(right, np.maximum(ones, size - ones) * made, probability)
    return GuessCounts(guesses=guesses, right=right)


def adaptive_guesses(size: int, threshold: float) -> GuessCounts:
    """Return the distribution of guesses about a count when coins are revealed in turn.

    Reference: Keinan, Shenfeld and Ligett, "subsec:aora-count-in-sets".

    Args:
        size: Number of counted elements.
        threshold: Smallest absolute loss at which an element is guessed; infinite for
            certain guesses only.

    Example:
        >>> round(adaptive_guesses(10, inf).expected_guesses, 6)
        1.998047
    """
    _check(size, threshold)
    return GuessCounts(
        guesses=_forward(size, threshold, only_right=False),
        right=_forward(size, threshold, only_right=True),
    )


def _forward(size: int, threshold: float, *, only_right: bool) -> NDArray[np.float64]:
    """Return the distribution of the number of guesses, or of correct guesses only."""
    state = np.zeros((size + 1, size + 1))  # ones left, counted so far
    state[:, 0] = np.exp(log_mass(np.arange(size + 1), size, 0.0))
    for left in range(size, 0, -1):
        ones = np.arange(left + 1)
        made = np.array([_reaches(left, int(h), threshold) for h in ones])
        guesses_one = ones >= left - ones
        after = np.zeros_like(state)
        for bit in (0, 1):
            probability = np.where(bit, ones, left - ones) / left
            moved = state[: left + 1] * probability[:, np.newaxis]
            counted = made & (guesses_one == bool(bit)) if only_right else made
            moved[counted] = np.roll(moved[counted], 1, axis=1)
            after[: left + 1 - bit] += moved[bit:]
        state = after
    distribution: NDArray[np.float64] = state[0]
    return distribution


def _reaches(left: int, ones: int, threshold: float) -> bool:
    """Return whether the loss of each element left reaches the threshold."""
    more, fewer = max(ones, left - ones), min(ones, left - ones)
    return (log(more / fewer) if fewer else inf) >= threshold


def _check(size: int, threshold: float) -> None:
    _validate.whole_number("size", size, least=1)
    if isnan(threshold) or threshold < 0:
        raise InvalidInputError(
            "threshold must be 0 or more; inf guesses only what is certain, got "
            f"threshold={threshold!r}"
        )


def stopping_probability(canaries: int, alpha: float) -> float:
    """Return how often optional stopping "certifies" an uninformative mechanism.

    Args:
        canaries: Maximum number of guesses.
        alpha: The nominal significance level.

    Returns:
        The probability that after some guess ``P[Bin(R, 1/2) >= V] <= alpha``.

    Example:
        >>> round(stopping_probability(1000, 0.05), 3)
        0.339
    """
    _validate.error_level("alpha", alpha)
    stopped, _ = stopping_distribution(canaries, alpha)
    return float(stopped.sum())


def stopping_distribution(
    canaries: int, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distribution of correct guesses of a guesser that stops when ahead.

    Returns:
        For each number of correct guesses, the probability of stopping with it, and the
        probability of reaching the end with it without stopping.
    """
    enough = surprising_counts(canaries, 0.0, level)
    stopped, going = np.zeros(canaries + 2), np.zeros(canaries + 2)
    going[0] = 1.0
    for guesses, ahead in enumerate(enough, start=1):
        # The walk moves by at most one, so it cannot jump over the boundary.
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
    """Return for 1, 2, ... guesses the smallest count whose binomial tail is <= level.

    With each further guess it stays or increases by one. If even all correct guesses
    have a larger tail, it is the number of guesses plus one.
    """
    _validate.whole_number("canaries", canaries, least=1)
    made = np.arange(1, canaries + 1)
    probability = float(special.expit(log_odds))
    spread = np.sqrt(made * probability * (1 - probability))
    start = made * probability - special.ndtri(level) * spread
    counts: NDArray[np.int64] = np.clip(start.astype(np.int64), 1, made + 1)

    def surprises(right: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = np.clip(right, 1, made)
        tail = special.betainc(inside, made - inside + 1, probability)
        tail = np.where(right <= 0, 1.0, np.where(right > made, 0.0, tail))
        below: NDArray[np.bool_] = tail <= level * (1 + _ROUNDING)
        return below

    while np.any(too_small := ~surprises(counts)):
        counts = counts + too_small
    while np.any(too_large := surprises(counts - 1)):
        counts = counts - too_large
    counts.setflags(write=False)
    return counts
