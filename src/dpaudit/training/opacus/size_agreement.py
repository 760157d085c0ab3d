"""Identifies the batch that a step used, from the number of rows that it clipped.

The size of a Poisson sample is unpredictable. It is a sum of independent Bernoulli
variables; if each has probability ``q`` at most, its variance is at least ``(1 - q)``
times its mean, and no value is more likely than 0.4689 over its standard deviation
(Baillon, Cominetti and Vaisman, "A sharp uniform bound for the distribution of sums of
Bernoulli trials", 2016). So a number of rows that is independent of a batch equals its
number of records with at most that probability, and those of ``d`` consecutive batches
all agree with at most its ``d``-th power, whatever the numbers of rows are.

The mean is unknown. It is assumed to be smaller than that of the observed sizes: by
chance, their sum ``t`` has a mean below ``t - 6 sqrt(t)`` once in 10 million cases.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import lgamma, log, log1p, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpaudit.stats.binomial import log_tails

__all__ = ["log_likeliest_size", "reused_batches"]

_ETA: Final = 0.46883  # the constant of the bound, rounded up
_STANDARD_DEVIATIONS: Final = 6  # by which the mean is assumed to be smaller
_TRIED_WAYS: Final = 3  # in which batches may be reused


def log_likeliest_size(total: int, count: int, *, rate: float) -> float:
    """Return a bound on the log-probability of any one size of a Poisson sample.

    Args:
        total: The sum of the observed sizes.
        count: The number of observed sizes.
        rate: The largest sampling probability of a record.

    Example:
        >>> print(f"{np.exp(log_likeliest_size(10_000, 100, rate=0.1)):.3f}")
        0.051
    """
    variance = (total - _STANDARD_DEVIATIONS * sqrt(total)) * (1 - rate) / max(count, 1)
    return min(0.0, log(_ETA) - log(variance) / 2) if variance > 0 else 0.0


def reused_batches(
    at: Sequence[int], rows: Sequence[int], sizes: Sequence[int], *, rate: float
) -> tuple[int, float]:
    """Return how many steps without a batch used an earlier one, and the log p-value.

    Three ways of reuse are tested: each step has as many rows as the batch of the step
    before (immediate reuse); or of the step ``k`` back, with ``k`` the number of steps
    before the first one without a batch (reuse in turns); or ``k`` steps together have
    as many rows as the first ``k`` batches, in any order. The p-value is the
    probability of so many agreements if these steps have batches of their own.

    Args:
        at: Numbers of the steps without a batch, from 1; all others used one each.
        rows: How many rows each of them clipped.
        sizes: Sizes of the batches, in the order in which they were handed over.
        rate: The largest sampling probability of a record.

    Example:
        >>> sizes = [97, 104, 88, 110, 101, 93]
        >>> reused_batches(range(7, 13), sizes, sizes, rate=0.1)[0]
        6
        >>> reused_batches(range(7, 13), [100] * 6, sizes, rate=0.1)
        (0, 0.0)
    """
    best = 0, 0.0
    if not (len(at) and len(sizes)):
        return best
    likeliest = log_likeliest_size(sum(sizes), len(sizes), rate=rate)
    if likeliest == 0:
        return best
    log_odds = likeliest - log1p(-np.exp(likeliest))
    handed, clipped = np.asarray(sizes), np.asarray(rows)
    for lag in {1, at[0] - 1} - {0}:
        used = _batch_of(at, lag)
        known = (used > 0) & (used <= len(handed))
        agree = known & (handed[np.where(known, used, 1) - 1] == clipped)
        tried, wrong = np.unique(used[known]), np.unique(used[known & ~agree])
        right = np.setdiff1d(tried, wrong)
        if len(right):
            log_p = log_tails(len(right), len(tried), log_odds)[0] + log(_TRIED_WAYS)
            best = min(best, (int(np.isin(used, right).sum()), log_p), key=_log_p)
    return min(best, _in_any_order(at, clipped, handed, likeliest), key=_log_p)


def _in_any_order(
    at: Sequence[int],
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    likeliest: float,
) -> tuple[int, float]:
    """Return how many steps reused the first batches in any order, and log p."""
    count = at[0] - 1
    rounds = len(at) // count if 1 < count <= len(sizes) else 0
    together = np.asarray(at)[: rounds * count] == at[0] + np.arange(rounds * count)
    if not rounds or not together.all():
        return 0, 0.0
    every = np.sort(rows[: rounds * count].reshape(rounds, count))
    again = int((every == np.sort(sizes[:count])).all(1).sum())
    log_p = count * likeliest + lgamma(count + 1) + log(rounds * _TRIED_WAYS)
    return (again * count, log_p) if again and log_p < 0 else (0, 0.0)


def _log_p(found: tuple[int, float]) -> float:
    return found[1]


def _batch_of(at: Sequence[int], lag: int) -> NDArray[np.int64]:
    """Return the batch that each step without one used, by number; 0 for none."""
    used: dict[int, int] = {}
    for step in at:
        before = step - lag
        # A step's batch number is its own minus the number of steps without a batch.
        fresh = before - bisect_right(at, before)
        used[step] = used.get(before, fresh) if before > 0 else 0
    return np.array([used[step] for step in at], np.int64)
