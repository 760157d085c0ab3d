"""The tail of a weighted sum of Bernoulli variables, never understated.

The variables come in classes: within a class they share weight and success
probability, so a class adds its weight times a binomial count. Each class's
contribution is rounded *up* to a grid, at most one step per class whatever its size,
and the classes are convolved by Fourier transform. With whole-number weights the grid
is the whole numbers and nothing is rounded.

A far tail would be lost in the transform's rounding. So the distributions are first
tilted by ``e^(theta x)``, with theta such that the tilted mean is the threshold, where
masses are large; undoing the tilt is a factor kept in log space. The mass cut off by
windows and the transform's error are added to the tail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.stats.binomial import masses

__all__ = ["TailBound", "weighted_tail"]

_SPREAD = 9.5  # standard deviations; the two tails beyond hold 2e-21
_ROUNDING = 1e-12  # more than the error of windows and transform
_TAIL_ROUNDING = 1e-9  # more than the relative error of a tail from sums and tilts
_TAIL_ROUNDING_UNGRIDDED = 1e-12  # the same if nothing is rounded to a grid
_GRID_STEPS = 1 << 16  # across the tilted sum, if weights are not whole numbers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TailBound:
    """An upper bound on the log of a tail, and how far above the truth it can be.

    Attributes:
        log_upper: Upper bound on the log of the tail.
        slack: The log of the tail is at least ``log_upper - slack``.
    """

    log_upper: float
    slack: float


_UNKNOWN = TailBound(log_upper=0.0, slack=inf)  # the trivial bound


def weighted_tail(
    weights: Sequence[float],
    trials: Sequence[int],
    log_odds: Sequence[float],
    threshold: float,
) -> TailBound:
    """Bound P[sum of weights[c] Bin(trials[c], expit(log_odds[c])) >= threshold].

    Args:
        weights: The weight of each class, positive.
        trials: Number of variables in each class.
        log_odds: The log-odds of a success in each class.
        threshold: Where the tail begins.

    Example:
        >>> tail = weighted_tail([1, 2], [1, 1], [0.0, 0.0], 2)  # 2 or 3, of 0, 1, 2, 3
        >>> round(float(np.exp(tail.log_upper)), 9), round(tail.slack, 9)
        (0.5, 0.0)
    """
    w, n = np.asarray(weights, np.float64), np.asarray(trials, np.int64)
    odds = np.asarray(log_odds, np.float64)
    w, odds, n = w[n > 0], odds[n > 0], n[n > 0]
    if threshold <= 0:
        return TailBound(log_upper=0.0, slack=0.0)
    if not (np.all(np.isfinite(w)) and np.isfinite(threshold)):
        return _UNKNOWN
    as_given = _small_whole(w, n)
    if not as_given:
        # In units of the largest weight nothing overflows, and underflow is harmless.
        unit = float(w.max(initial=0.0))
        w, threshold = (w / unit, threshold / unit) if unit else (w, threshold)
    if not len(n) or threshold > float(w @ n) * (1 + 1e-12):
        return TailBound(log_upper=-inf, slack=0.0)
    theta = _tilt(w, n, odds, threshold)
    step = _grid_step(w, n, odds + theta * w)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is refused below
        start, distribution = _tilted_distribution(w, n, odds, theta=theta, step=step)
    # log of the product of the tilts' normalising constants
    scale = float(n @ (np.logaddexp(0, odds + theta * w) - np.logaddexp(0, odds)))
    log_scale = scale - theta * threshold
    x = (start + np.arange(len(distribution))) * step - threshold
    # Rounding up only adds mass; if some is missing, the distribution is invalid.
    if not (np.isfinite(x).all() and float(distribution.sum()) > 1 - 1e-6):
        return _UNKNOWN

    # More than the rounding of cells and sums; whole numbers are exact.
    tolerance = 1e-9 if step == 1.0 else 1e-3 * step

    def log_sum_from(shift: float) -> float:
        kept = x >= shift - tolerance
        return log(float(distribution[kept] @ np.exp(-theta * x[kept])) + _ROUNDING)

    upper = log_sum_from(0.0)
    lost = len(n) * step
    if step == 1.0:  # nothing was rounded, unless the weights were rescaled
        lost = 0.0 if as_given else 2 * tolerance
    loss = _TAIL_ROUNDING_UNGRIDDED if step == 1.0 else _TAIL_ROUNDING
    log_upper = min(0.0, log_scale + upper + loss)
    return TailBound(log_upper=log_upper, slack=upper - log_sum_from(lost) + loss)


def _small_whole(w: NDArray[np.float64], n: NDArray[np.int64]) -> bool:
    """Return whether all sums are whole numbers that floats represent exactly."""
    whole = bool(np.all(w == np.round(w)))
    return whole and float(w.max(initial=0.0)) * int(n.sum()) < 2**53


def _tilt(
    w: NDArray[np.float64],
    n: NDArray[np.int64],
    odds: NDArray[np.float64],
    threshold: float,
) -> float:
    """Return the tilt, 0 or more, whose mean is the threshold."""
    most = w * n

    def mean(theta: float) -> float:
        return float(most @ special.expit(odds + theta * w))

    if mean(0.0) >= threshold:
        return 0.0
    low, high = 0.0, 1.0 / float(w.max())
    while mean(high) < threshold and high * float(w.min()) < 40:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < threshold else (low, middle)
    return low


def _grid_step(
    w: NDArray[np.float64], n: NDArray[np.int64], odds: NDArray[np.float64]
) -> float:
    variance = special.expit(odds) * special.expit(-odds)
    spread = 2 * _SPREAD * (float((w**2 * n) @ variance) ** 0.5 + float(w.max()))
    whole = bool(np.all(w == np.round(w)))
    return 1.0 if whole and spread < 16 * _GRID_STEPS else spread / _GRID_STEPS


def _tilted_distribution(
    w: NDArray[np.float64],
    n: NDArray[np.int64],
    odds: NDArray[np.float64],
    *,
    theta: float,
    step: float,
) -> tuple[int, NDArray[np.float64]]:
    """Return the sum's tilted distribution on the grid, from a first step upwards."""
    starts, distributions = [], []
    for weight, count, odd in zip(w, n, odds, strict=True):
        low, probabilities = masses(int(count), odd + theta * weight, spread=_SPREAD)
        exact = (low + np.arange(len(probabilities))) * (weight / step)
        cells = np.ceil(exact - 1e-9).astype(np.int64)
        raised = probabilities * np.exp(theta * step * np.maximum(cells - exact, 0.0))
        starts.append(int(cells[0]))
        distributions.append(np.bincount(cells - cells[0], weights=raised))
    size = 1 << (sum(len(distribution) for distribution in distributions)).bit_length()
    spectrum = np.ones(size // 2 + 1, np.complex128)
    for distribution in distributions:
        spectrum *= np.fft.rfft(distribution, size)
    length = sum(len(distribution) - 1 for distribution in distributions) + 1
    return sum(starts), np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
