"""Tails of many binomials at once.

``at_least`` and ``fewer`` are for one number of trials and many success probabilities,
with the accuracy given below. ``upper_tails`` and ``attained_tails``, for many numbers
of trials, are rounded up instead, so that they are valid upper bounds.

scipy's incomplete beta function is least accurate for few successes among very many
trials: at 1e8 trials and fewer than about 50 successes its error is up to 2e-9. Up to
128 successes the masses are therefore summed, away from the bulk, each from the
logarithm of its binomial coefficient, itself a sum of logarithms of ratios. That is
accurate to 1e-12. Above, the incomplete beta function is accurate to 1e-13.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["at_least", "attained_tails", "fewer", "upper_tails"]

_MOST_SUMMED = 128
_ROUNDING_UP = 1e-6  # far more than the error of the incomplete beta function


def at_least(
    count: int, trials: int, probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[B >= count] for B ~ Bin(trials, probability), for each probability.

    Example:
        >>> at_least(2, 3, np.array([0.0, 0.5, 1.0])).round(12)
        array([0. , 0.5, 1. ])
    """
    if count <= 0 or count > trials:
        return np.full_like(probabilities, float(count <= 0))
    if count > _MOST_SUMMED:
        return np.asarray(special.betainc(count, trials - count + 1, probabilities))
    tails = 1 - _sum(0, count, trials, probabilities)
    thin = (
        trials * probabilities < count
    )  # the mean is below count: sum from count outwards
    # beyond stop, less than 1e-17 of the first mass is left: the ratios are below one
    stop = min(trials + 1, 2 * count + 200)
    tails[thin] = _sum(count, stop, trials, probabilities[thin])
    return np.asarray(np.clip(tails, 0.0, 1.0))


def fewer(
    count: int, trials: int, probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[B < count] for B ~ Bin(trials, probability), for each probability.

    Example:
        >>> fewer(2, 3, np.array([0.0, 0.5, 1.0])).round(12)
        array([1. , 0.5, 0. ])
    """
    if count <= 0 or count > trials:
        return np.full_like(probabilities, float(count > trials))
    if count > _MOST_SUMMED:
        return np.asarray(special.betaincc(count, trials - count + 1, probabilities))
    return np.minimum(1.0, _sum(0, count, trials, probabilities))


def upper_tails(
    counts: NDArray[np.int64], trials: NDArray[np.int64], log_odds: ArrayLike
) -> NDArray[np.float64]:
    """Return P[B >= count] of many binomials, rounded up by a relative 1e-6.

    Results below 1e-300 may be 0.

    Example:
        >>> upper_tails(np.array([0, 1, 2]), np.array([2, 2, 2]), 0.0).round(5)
        array([1.  , 0.75, 0.25])
    """
    probabilities = special.expit(log_odds)
    within = np.clip(counts, 1, trials)  # scipy before 1.15 fails at the ends
    inner = special.betainc(within, trials - within + 1, probabilities)
    tails = np.where(counts > trials, 0.0, inner * (1 + _ROUNDING_UP))
    return np.asarray(np.where(counts > 0, tails, 1.0))


def attained_tails(
    levels: NDArray[np.float64], trials: NDArray[np.int64], log_odds: ArrayLike
) -> NDArray[np.float64]:
    """Return upper bounds on the largest P[B >= c] at most a level, for many levels.

    A normal approximation with skewness gives two candidates for ``c``. If neither is
    the right one, the level is returned.

    Args:
        levels: Below one half.
        trials: Of the binomials.
        log_odds: Log-odds of a success.

    Example:
        >>> attained_tails(np.array([0.3, 0.4]), np.array([2, 4]), 0.0).round(5)
        array([0.25  , 0.3125])
    """
    p, q = special.expit(log_odds), special.expit(-np.asarray(log_odds))
    z = -special.ndtri(levels)
    c = np.floor(trials * p + z * np.sqrt(trials * p * q) + (q - p) * (z * z - 1) / 6)
    none, one, two = (
        upper_tails(np.clip(c + more, 0, trials + 1), trials, log_odds)
        for more in (0, 1, 2)
    )
    surely = levels * (1 + 3 * _ROUNDING_UP)  # a tail above this is above the level
    tails = np.where((one > surely) & (two <= surely), two, levels)
    return np.asarray(np.where((none > surely) & (one <= surely), one, tails))


def _sum(
    start: int, stop: int, trials: int, probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[start <= B < stop]."""
    counts = np.arange(stop, dtype=np.float64)
    ratios = np.log((trials - counts[:-1]) / counts[1:])
    coefficients = np.concatenate([[0.0], np.cumsum(ratios)])[start:]
    b, q = counts[start:], probabilities[:, np.newaxis]
    logs = coefficients + special.xlogy(b, q) + special.xlog1py(trials - b, -q)
    return np.asarray(np.exp(logs).sum(axis=1))
