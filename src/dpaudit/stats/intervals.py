"""The error of a mean, and limits of it that hold for any number of draws.

Independent draws from an interval have a mean whose error is bounded by their own
variance and a term that vanishes faster (empirical Bernstein); no normal distribution
is needed.

Reference: Maurer and Pontil, "Empirical Bernstein bounds and sample variance
penalization", Theorem 4, https://arxiv.org/abs/0907.3740.
"""

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

__all__ = ["mean_limits", "standard_error"]


def standard_error(draws: Sequence[float]) -> float | None:
    """Return the standard error of the mean of some draws; None of a single one.

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
    """Return limits of an expectation; each is wrong at most ``alpha / 2``.

    Args:
        mean: Of the draws.
        variance: Of the draws themselves, the mean square distance from their mean.
        draws: How many, two or more.
        span: The interval that draws come from.
        alpha: Probability that the limits miss the expectation.

    Example:
        >>> low, high = mean_limits(0.5, 0.25, 1000, span=(0.0, 1.0), alpha=0.05)
        >>> round(low, 3), round(high, 3)
        (0.443, 0.557)
    """
    least, most = span
    cost = log(4 / alpha)
    # The unbiased variance over the draws is this one over the draws but one.
    reach = (2 * variance * cost / (draws - 1)) ** 0.5
    reach += (most - least) * 7 * cost / (3 * (draws - 1))
    low, high = max(least, mean - reach), min(most, mean + reach)
    return min(mean, low), max(mean, high)
