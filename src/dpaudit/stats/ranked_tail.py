"""Crossing probability of a sequential test on a running binomial count.

Trials are independent with one success probability. At looks ``k_1 < k_2 < ...`` the
number of successes so far is compared with thresholds ``c_1, c_2, ...``; the event is
that it reaches its threshold at some look. The probability is computed backwards: after
the last look it is 0 or 1, before that the mean over the next shell of trials. All
rounding is upwards: a value outside a window counts as the nearest larger one, and each
mean is raised by more than its floating-point error. So the probability is never
understated.

The *price* is the increase of the probability per unit of slack in each trial's
distribution: the largest solution of the Stein equations of the shells. For a shell
``B`` and an increasing function ``g`` with values in [0, 1] the solution at ``k`` is
``Cov(g(B), 1[B >= k]) / (k P[B = k])``. It is computed for the first shell, where ``g``
is one function, and bounded for the others with the largest possible covariance,
``P[B >= k] P[B < k]``.

Reference: docs/explanation/bounds.md#ranked-guesses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.stats.binomial import log_tails, masses, window
from dpaudit.stats.binomial_tails import upper_tails

__all__ = [
    "Crossing",
    "cap_bound",
    "crossing",
    "least_log_tail",
    "shell_cap",
    "thresholds",
]

_SPREAD = 8.5  # standard deviations; the two tails beyond hold 2e-17
_ROUNDING = 1e-13  # more than the rounding error of a mean over a shell


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The probability that the count crosses some threshold, and the price of slack.

    Attributes:
        probability: Upper bound on the probability of a crossing, tight to about 1e-11.
        price: Upper bound on the Stein solutions of all shells.
    """

    probability: float
    price: float


def least_log_tail(
    looks: NDArray[np.int64],
    counts: NDArray[np.int64],
    log_odds: float,
    weights: NDArray[np.float64],
) -> float:
    """Return the log of the smallest P[B >= count] / weight over all looks.

    Only tails that may be the smallest are computed to full precision.

    Example:
        >>> looks, counts = np.array([2, 4]), np.array([2, 2])  # 1/4 and 11/16
        >>> found = least_log_tail(looks, counts, 0.0, np.array([1.0, 0.5]))
        >>> round(float(np.exp(found)), 9)
        0.25
    """
    rough = upper_tails(counts, looks, log_odds) / weights
    near = rough <= max(rough.min() * (1 + 1e-3), 1e-290)
    which = zip(counts[near].tolist(), looks[near].tolist(), strict=True)
    tails = np.array([log_tails(v, r, log_odds)[0] for v, r in which])
    return float((tails - np.log(weights[near])).min())


def thresholds(
    looks: Sequence[int], log_odds: float, levels: Iterable[float]
) -> list[int]:
    """Return for each look the smallest count whose tail is at most its level."""
    distributions = [masses(k, log_odds, spread=_SPREAD) for k in looks]
    return [
        _threshold(*distribution, level)
        for distribution, level in zip(distributions, levels, strict=True)
    ]


def crossing(looks: Sequence[int], counts: Sequence[int], log_odds: float) -> Crossing:
    """Return the probability of ``c_j`` or more successes at some look ``k_j``.

    Args:
        looks: Numbers of trials, increasing.
        counts: The threshold of each look; one above ``k_j`` is never reached.
        log_odds: Log-odds of a success.

    Example:
        >>> found = crossing([2, 4], [2, 4], 0.0)  # two heads at once, or four of four
        >>> round(found.probability, 9)
        0.25
    """
    shells = [later - look for look, later in pairwise([0, *looks])]
    distributions = [masses(n, log_odds, spread=_SPREAD) for n in shells]
    hit = _Rising(start=counts[-1] - 1, values=np.zeros(1))
    for j in range(len(looks) - 1, 0, -1):
        low, _ = window(looks[j - 1], log_odds, spread=_SPREAD)
        hit = hit.mean_after(distributions[j], start=low, stop=counts[j - 1])
    probability, price = _first_shell(hit, *distributions[0], trials=looks[0])
    most = cap_bound(np.array(shells[1:]), log_odds)
    for distribution, bound in zip(distributions[1:], most.tolist(), strict=True):
        if bound > price:
            price = max(price, _cap(*distribution))
    return Crossing(probability=min(1.0, probability), price=price)


def shell_cap(trials: int, log_odds: float) -> float:
    """Return the largest possible Stein solution of a shell with so many trials."""
    return _cap(*masses(trials, log_odds, spread=_SPREAD))


def cap_bound(trials: NDArray[np.int64], log_odds: ArrayLike) -> NDArray[np.float64]:
    """Return a closed-form upper bound on the Stein solutions of many shells.

    It is T4 of docs/explanation/bounds.md#ranked-guesses; in large shells it is about
    1.5 times ``shell_cap``.
    """
    least = np.exp(-np.asarray(log_odds)) / np.maximum(trials - 1, 1)
    return np.asarray(np.where(trials > 1, 0.938 * np.sqrt(least), np.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rising:
    """An increasing function of a count: constant below, then tabulated, then 1."""

    start: int
    values: NDArray[np.float64]

    def at(self, low: int, high: int) -> NDArray[np.float64]:
        """Return the values from ``low`` to ``high``, both included."""
        below = max(self.start - low, 0)
        table = self.values[max(low - self.start, 0) : max(high + 1 - self.start, 0)]
        values = np.ones(high + 1 - low)
        values[:below] = self.values[0]
        values[below : below + len(table)] = table
        return values

    def mean_after(
        self, distribution: tuple[int, NDArray[np.float64]], *, start: int, stop: int
    ) -> "_Rising":
        """Return the mean after a random count is added, rounded up; 1 from stop."""
        low, probabilities = distribution
        start = min(start, stop - 1)
        values = self.at(start + low, stop - 1 + low + len(probabilities) - 1)
        means = np.minimum(_correlate(values, probabilities) + _ROUNDING, 1.0)
        return _Rising(start=start, values=np.maximum.accumulate(means))


def _first_shell(
    g: _Rising, low: int, probabilities: NDArray[np.float64], *, trials: int
) -> tuple[float, float]:
    """Return the mean of g, rounded up, and the largest Stein solution."""
    k = np.arange(low, low + len(probabilities))
    values = g.at(low, low + len(probabilities) - 1)
    mean = min(1.0, float(probabilities @ values) + _ROUNDING)
    # The covariance is the sum of the excess over the mean, from above, or of the
    # shortfall, from below; each sum is used where its terms have one sign.
    top = low + len(probabilities) - 1
    beyond = (1 - mean) * _rest(probabilities[::-1]) if top < trials else 0.0
    before = mean * _rest(probabilities) if low > 0 else 0.0
    excess = probabilities * (values - mean)
    over = excess[::-1].cumsum()[::-1] + beyond
    under = np.concatenate([[before], before - excess[:-1].cumsum()])
    covariance = np.where(probabilities.cumsum() < 0.5, under, over)
    positive = slice(1 if low == 0 else 0, None)
    solution = covariance[positive] / (k * probabilities)[positive]
    if top < trials:  # a threshold above the window: a Mills ratio, falling from here
        above = (1 - mean) / (1 - probabilities[-1] / probabilities[-2]) / (top + 1)
        solution = np.append(solution, above)
    return mean, float(solution.max(initial=0.0)) * (1 + 1e-9) + _ROUNDING


def _rest(probabilities: NDArray[np.float64]) -> float:
    """Return an upper bound on the mass before the first (masses are log-concave)."""
    if len(probabilities) < 2 or probabilities[0] >= probabilities[1]:
        return 0.0
    ratio = probabilities[0] / probabilities[1]
    return float(probabilities[0] * ratio / (1 - ratio))


def _cap(low: int, probabilities: NDArray[np.float64]) -> float:
    """Return the largest P[B >= k] P[B < k] / (k P[B = k])."""
    k = np.arange(low + 1, low + len(probabilities))
    above, below = probabilities[::-1].cumsum()[::-1][1:], probabilities.cumsum()[:-1]
    ratios = above * below / (k * probabilities[1:])
    return float(ratios.max(initial=0.0)) * (1 + 1e-9)


def _threshold(low: int, probabilities: NDArray[np.float64], level: float) -> int:
    tails = probabilities[::-1].cumsum()
    return low + len(probabilities) - int(tails.searchsorted(level, "right"))


def _correlate(
    values: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sums of probabilities[b] values[i + b] for every i that fits."""
    results = len(values) - len(probabilities) + 1
    if len(probabilities) * results < 1 << 19:
        return np.correlate(values, probabilities, "valid")
    size = 1 << (len(values) - 1).bit_length()  # no valid result wraps around
    spectrum = np.fft.rfft(values, size) * np.fft.rfft(probabilities[::-1], size)
    return np.fft.irfft(spectrum, size)[len(probabilities) - 1 : len(values)]
