"""Estimates the noise of a step from its sums, whether or not they hold canaries.

A guesser that trusted the claimed noise would overlook noise that is too small, so it
measures: the distance between the quartiles of the sums over all coordinates. Sampled
canaries widen it, more so if more of them share a coordinate; by how much follows from
the sampling distribution, as every coin is fair. So the distance is computed for noise
of every size, and inverted. The centre of the sums does not matter, nor do a few
coordinates with other content.

A wrong estimate costs power, never validity, as it is a function of the output.
"""

from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.dpsgd.sampling import SumDistribution
from dpaudit.mechanisms.exchangeable import log_fair

__all__ = ["NoiseScale", "quartile_distance"]

_LEAST, _MOST, _SIZES = 1e-3, 1e3, 240  # of the clipping norm; sizes in the table
_ENOUGH = 1 << 12  # coordinates that are used: they measure to two percent
_HALVINGS = 60


@final
class NoiseScale:
    """Estimates the noise from the distance between quartiles.

    Args:
        values: The possible contributions of canaries to a sum.
        probabilities: The probability of each.

    Example:
        >>> from dpaudit.dpsgd.sampling import Poisson
        >>> scale = NoiseScale.of_distribution(Poisson(rate=0.5).distribution(2))
        >>> rng = np.random.default_rng(0)
        >>> sums = rng.binomial(2, 0.25, 10_000) + 0.8 * rng.normal(size=10_000)
        >>> round(scale.of(quartile_distance(sums)), 1)
        0.8
    """

    def __init__(
        self, values: NDArray[np.float64], probabilities: NDArray[np.float64]
    ) -> None:
        sizes = np.geomspace(_LEAST, _MOST, _SIZES)
        low, high = (_quantiles(p, sizes, values, probabilities) for p in (0.25, 0.75))
        # Sums of canaries are discrete, so small noise of different sizes may give the
        # same distance: the largest is taken, which makes a guesser less confident.
        widths = np.minimum.accumulate(np.maximum(high - low, 1e-12)[::-1])[::-1]
        last = np.append(np.diff(widths) > 0, True)
        self._log_sizes, self._log_widths = np.log(sizes[last]), np.log(widths[last])

    @classmethod
    def of_distribution(cls, distribution: SumDistribution) -> Self:
        """Return the estimator for canaries with fair coins, sampled in this way."""
        coins = np.exp(log_fair(len(distribution.log_probabilities) - 1))
        return cls(distribution.sums, coins @ np.exp(distribution.log_probabilities))

    def of(self, width: float) -> float:
        """Return the standard deviation of the noise for such a distance."""
        log_width = np.log(max(width, 1e-12))
        return float(np.exp(np.interp(log_width, self._log_widths, self._log_sizes)))


def quartile_distance(sums: NDArray[np.float64]) -> float:
    """Return the distance between the quartiles, of a subset if there are many sums.

    Example:
        >>> quartile_distance(np.arange(101.0))
        50.0
    """
    some = np.array(sums[:: max(1, len(sums) // _ENOUGH)])
    last = len(some) - 1
    below = [last // 4, (3 * last) // 4]
    some.partition([*below, *(min(i + 1, last) for i in below)])
    low, high = (
        some[i] + (last * p - i) * (some[min(i + 1, last)] - some[i])
        for i, p in zip(below, (0.25, 0.75), strict=True)
    )
    return float(high - low)


def _quantiles(
    level: float,
    sizes: NDArray[np.float64],
    values: NDArray[np.float64],
    probabilities: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a quantile of values plus normal noise, for each size of the noise."""
    low = values.min() - 10 * sizes
    high = values.max() + 10 * sizes
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = special.ndtr((middle[:, np.newaxis] - values) / sizes[:, np.newaxis])
        less = below @ probabilities < level
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(high)
