"""CPU time, and the ratio of two of them with its interval.

Two programs are timed in turn on the same input, pair after pair, so that whatever else
a machine does falls on both. What is reported is the median of the pairs' ratios, with
the limits that resampling the pairs gives it (the percentile bootstrap).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.errors import InvalidInputError

__all__ = ["Ratio", "cpu", "median_ratio", "ratio_of"]

_RESAMPLES = 10_000
_BETWEEN = (0.025, 0.975)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The median ratio of two CPU times, pair by pair.

    Attributes:
        middle: The median.
        low: Its lower 95 % limit.
        high: Its upper 95 % limit.
        pairs: How many pairs were timed.
    """

    middle: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.middle:.3g} [{self.low:.3g}, {self.high:.3g}]"


def cpu(function: Callable[..., object], *args: object) -> float:
    """Return the CPU time of one call, in seconds, of this process alone.

    Example:
        >>> 0 < cpu(sum, range(100_000)) < 10
        True
    """
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def median_ratio(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of interleaved pairs' ratios and its 95 % bootstrap limits.

    Example:
        >>> median_ratio([2.0] * 20)
        (2.0, 2.0, 2.0)
    """
    if not len(ratios):
        raise InvalidInputError("a median needs at least one ratio, got none")
    found = np.asarray(ratios)
    again = np.random.default_rng(0).choice(found, (_RESAMPLES, len(found)))
    low, high = np.quantile(np.median(again, axis=1), _BETWEEN)
    return float(np.median(found)), float(low), float(high)


def ratio_of(times: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return how many times the others' CPU time the first took, pair by pair.

    Example:
        >>> print(ratio_of([0.4, 0.6, 0.8], [0.2, 0.3, 0.4]))
        2 [2, 2]
    """
    pairs = [a / b for a, b in zip(times, others, strict=True)]
    middle, low, high = median_ratio(pairs)
    return Ratio(middle=middle, low=low, high=high, pairs=len(pairs))
