"""P-values and bets that are valid given the past, put together.

A p-value is valid given the past if, whatever happened before, it is at most ``u`` with
probability at most ``u``. A sequence of such p-values may be combined as if they were
independent and uniform (each is stochastically larger, whatever the others were). Two
ways: Stouffer's, a weighted sum of normal quantiles, with weights fixed beforehand; and
Fisher's, the product, in which a p-value of one adds nothing.

Stouffer's sum falls to minus infinity when one p-value is one, as where a count is
discrete and nothing was right. Randomised p-values cure that: the probability of more,
plus a uniform share of the probability of exactly as much. The uniforms must be
independent of all else and unknown to the guesser until the guesses are in.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy import special

__all__ = ["fisher", "randomised", "stouffer"]


def stouffer(p_values: Sequence[float], weights: Sequence[float]) -> float:
    """Combine p-values, each valid given those before, with weights fixed beforehand.

    Example:
        >>> round(stouffer([0.05, 0.05], [1.0, 1.0]), 4)
        0.01
    """
    z = -special.ndtri(np.asarray(p_values, np.float64))
    w = np.asarray(weights, np.float64)
    w = w / w.max()  # their ratios count; squares of tiny ones would vanish
    if not np.all(w[~np.isfinite(z)] == 0) and np.any(z == -np.inf):
        return 1.0
    return float(special.ndtr(-(w @ np.where(w > 0, z, 0.0)) / sqrt(float(w @ w))))


def fisher(log_p_values: Sequence[float]) -> float:
    """Return the log of the combined p-value of independent log p-values.

    Example:
        >>> round(float(np.exp(fisher([np.log(0.05)] * 2))), 4)
        0.0175
    """
    x, k = -float(np.sum(log_p_values)), len(log_p_values)
    if x == np.inf:
        return -np.inf
    # The product of k uniforms is below e^-x with probability e^-x sum of x^i / i!.
    i = np.arange(k)
    terms = special.xlogy(i, x) - special.gammaln(i + 1)
    return min(0.0, float(special.logsumexp(terms)) - x)


def randomised(at_least: float, more: float, uniform: float) -> float:
    """Return a p-value that spreads the probability of a tie.

    Args:
        at_least: Probability of a statistic as large or larger.
        more: Probability of a larger one.
        uniform: From committed randomness, independent of everything.
    """
    return more + uniform * (at_least - more)
