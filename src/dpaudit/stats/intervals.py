"""The standard error of a mean, and confidence limits valid for any number of draws.

For independent draws from an interval, the error of the mean is bounded by a term in
the sample variance and one that vanishes faster (empirical Bernstein), without a normal
approximation.

Reference: Maurer and Pontil, "Empirical Bernstein bounds and sample variance
penalization", Theorem 4, https://arxiv.org/abs/0907.3740.
"""

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

__all__ = ["mean_limits", "standard_error"]


def standard_error(draws: Sequence[float]) -> float | None:
    """Return the standard error of the mean of draws; None for a single one.

    Example:
        >>> standard_error([0.0, 2.0]), standard_error([1.0])
        (1.0, None)
    """
    n = len(draws)
    return float(np.std(draws, ddof=1)) / sqrt(n) if n > 1 else None


def mean_limits(
    mean: float,
    variance: float,
    draws: int,
    *,
    span: tuple[float, float],
    alpha: float,
) -> tuple[float, float]:
    """Return confidence limits of an expectation, each wrong with prob. alpha / 2.

    Args:
        mean: Of the draws.
        variance: Mean square distance of the draws from their mean.
        draws: Number of draws, two or more.
        span: The interval that contains the draws.
        alpha: Probability that the limits miss the expectation.

    Example:
        >>> low, high = mean_limits(0.5, 0.25, 1000, span=(0.0, 1.0), alpha=0.05)
        >>> round(low, 3), round(high, 3)
        (0.443, 0.557)
    """
    least, most = span
    cost = log(4 / alpha)
    # The unbiased variance over n is this one over n - 1.
    reach = (2 * variance * cost / (draws - 1)) ** 0.5
    reach += (most - least) * 7 * cost / (3 * (draws - 1))
    low, high = max(least, mean - reach), min(most, mean + reach)
    return min(mean, low), max(mean, high)
