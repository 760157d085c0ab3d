"""Tails of binomials with one number of trials and many success probabilities.

A binomial with few successes among very many trials is where the incomplete beta
function of scipy is weakest: at 1e8 trials and fewer than about 50 successes it errs by
up to 2e-9. Up to 128 successes the masses are therefore added up, away from the bulk,
each from the logarithm of its binomial coefficient, itself a sum of logarithms of
ratios. That is right to 1e-12. Above, the incomplete beta function is right to 1e-13.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["at_least", "fewer"]

_FEW = 128


def at_least(
    count: int, trials: int, chances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[B >= count] for B ~ Bin(trials, chance), for each chance.

    Example:
        >>> at_least(2, 3, np.array([0.0, 0.5, 1.0])).round(12)
        array([0. , 0.5, 1. ])
    """
    if count <= 0 or count > trials:
        return np.full_like(chances, float(count <= 0))
    if count > _FEW:
        return np.asarray(special.betainc(count, trials - count + 1, chances))
    found = 1 - _sum(0, count, trials, chances)
    thin = trials * chances < count  # the mean is below: add up from count outwards
    # beyond, less than 1e-17 of the first mass is left: the ratios fall below one
    stop = min(trials + 1, 2 * count + 200)
    found[thin] = _sum(count, stop, trials, chances[thin])
    return np.asarray(np.clip(found, 0.0, 1.0))


def fewer(count: int, trials: int, chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P[B < count] for B ~ Bin(trials, chance), for each chance.

    Example:
        >>> fewer(2, 3, np.array([0.0, 0.5, 1.0])).round(12)
        array([1. , 0.5, 0. ])
    """
    if count <= 0 or count > trials:
        return np.full_like(chances, float(count > trials))
    if count > _FEW:
        return np.asarray(special.betaincc(count, trials - count + 1, chances))
    return np.minimum(1.0, _sum(0, count, trials, chances))


def _sum(
    start: int, stop: int, trials: int, chances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[start <= B < stop]."""
    counts = np.arange(stop, dtype=np.float64)
    ratios = np.log((trials - counts[:-1]) / counts[1:])
    coefficients = np.concatenate([[0.0], np.cumsum(ratios)])[start:]
    b, q = counts[start:], chances[:, np.newaxis]
    logs = coefficients + special.xlogy(b, q) + special.xlog1py(trials - b, -q)
    return np.asarray(np.exp(logs).sum(axis=1))
