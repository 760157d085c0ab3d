"""CPU time, and the ratio of two of them with its interval: for the other scripts."""

import time
from collections.abc import Callable, Sequence

import numpy as np


def cpu(function: Callable[..., object], *args: object) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def median_ratio(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of interleaved pairs' ratios and its 95 % bootstrap limits."""
    found = np.asarray(ratios)
    again = np.random.default_rng(0).choice(found, (10_000, len(found)))
    low, high = np.quantile(np.median(again, axis=1), [0.025, 0.975])
    return float(np.median(found)), float(low), float(high)
