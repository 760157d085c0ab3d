"""Which batch did a step use? Its rows tell, if sizes that agree are no coincidence.

The size of a Poisson sample is known to nobody beforehand. It is a sum of independent
Bernoulli variables; if each has a probability of ``q`` at most, its variance is at
least ``(1 - q)`` times its mean, and no value is more likely than 0.4689 over its
standard deviation (Baillon, Cominetti and Vaisman, "A sharp uniform bound for the
distribution of sums of Bernoulli trials", 2016). So rows that have nothing to do with a
batch are as many as its records with that probability at most, and with those of ``d``
batches in a row with at most its ``d``-th power, whatever the rows are.

The mean is not known. It is taken to be smaller than that of the sizes that were seen:
their sum is larger than a mean of ``t - 6 sqrt(t)`` by chance once in 10 million cases.
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
_LUCK: Final = 6  # standard deviations
_LAGS: Final = 3  # ways that are tried


def log_likeliest_size(total: int, count: int, *, rate: float) -> float:
    """Return a bound on the log-probability of any one size of a Poisson sample.

    Args:
        total: Of the sizes that were seen.
        count: How many they were.
        rate: The largest at which a record is sampled.

    Example:
        >>> print(f"{np.exp(log_likeliest_size(10_000, 100, rate=0.1)):.3f}")
        0.051
    """
    variance = (total - _LUCK * sqrt(total)) * (1 - rate) / max(count, 1)
    return min(0.0, log(_ETA) - log(variance) / 2) if variance > 0 else 0.0


def reused_batches(
    at: Sequence[int], rows: Sequence[int], sizes: Sequence[int], *, rate: float
) -> tuple[int, float]:
    """Return how many steps without a batch used an earlier one, and the log p-value.

    It is asked whether each has as many rows as the batch of the step before, or as
    that of the first step so far back as there were steps with a batch at first: so
    batches come back at once, or in turns. And whether so many steps together have as
    many rows as the first batches, in any order. The p-value is that of so many batches
    that agree, if these steps have batches of their own, of which nothing is known.

    Args:
        at: Numbers of the steps without a batch, from 1; all others used one each.
        rows: How many rows each of them clipped.
        sizes: Of the batches, in the order in which they were handed over.
        rate: The largest at which a record is sampled.

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
            log_p = log_tails(len(right), len(tried), log_odds)[0] + log(_LAGS)
            best = min(best, (int(np.isin(used, right).sum()), log_p), key=_log_p)
    return min(best, _in_any_order(at, clipped, handed, likeliest), key=_log_p)


def _in_any_order(
    at: Sequence[int],
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    likeliest: float,
) -> tuple[int, float]:
    """Return how many steps used the first batches in another order, and log p."""
    count = at[0] - 1
    rounds = len(at) // count if 1 < count <= len(sizes) else 0
    together = np.asarray(at)[: rounds * count] == at[0] + np.arange(rounds * count)
    if not rounds or not together.all():
        return 0, 0.0
    every = np.sort(rows[: rounds * count].reshape(rounds, count))
    again = int((every == np.sort(sizes[:count])).all(1).sum())
    log_p = count * likeliest + lgamma(count + 1) + log(rounds * _LAGS)
    return (again * count, log_p) if again and log_p < 0 else (0, 0.0)


def _log_p(found: tuple[int, float]) -> float:
    return found[1]


def _batch_of(at: Sequence[int], lag: int) -> NDArray[np.int64]:
    """Return the number of the batch that each step without one used; 0 for none."""
    used: dict[int, int] = {}
    for step in at:
        before = step - lag
        # Steps with a batch are numbered as their batches, but for those without.
        fresh = before - bisect_right(at, before)
        used[step] = used.get(before, fresh) if before > 0 else 0
    return np.array([used[step] for step in at], np.int64)
