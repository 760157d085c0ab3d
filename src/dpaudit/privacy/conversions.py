"""Privacy curves from zero-concentrated, Renyi and f-differential privacy.

Every point of a curve made here holds; a coarse choice only makes the curve weaker. A
bound ``D`` on the Renyi divergence of order ``a`` gives, at every epsilon, the delta
``e^((a - 1)(D - epsilon)) (1 - 1/a)^a / (a - 1)``. Each order gives a delta that holds,
so the smallest over any orders, however searched, holds too. Under rho-zCDP every order
has ``D = rho a``; in ``t = a - 1`` the logarithm is then strictly convex, and the order
is found by halving on its slope.

A trade-off function ``f`` gives ``delta = sup_x 1 - f(x) - e^epsilon x``, and here a
sample of ``f`` is on the wrong side: the largest value among sampled ``x`` may be too
small. But ``f`` is convex, so in each gap it lies above the chords of the two gaps
beside it, prolonged; the sampled points and the corners where those prolonged chords
meet therefore span a polygon below ``f``, and the supremum over its corners is safe.

Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential
privacy", Proposition 12, https://arxiv.org/abs/2004.00010; Dong, Roth and Su,
"Gaussian differential privacy", Proposition 2.12, https://arxiv.org/abs/1905.02383.
"""

from collections.abc import Callable
from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency, PrivacyCurve, rounded_up

__all__ = ["curve_of_rdp", "curve_of_trade_off", "curve_of_zcdp"]

_CURVE_POINTS = 400
_LOG_LEAST_DELTA = log(1e-100)  # where a curve ends unless the caller says otherwise

# What rounding may do to ``1 - f``, if ``f`` itself is good to about 1e-14.
_ROUNDING = 1e-12


def curve_of_zcdp(
    rho: float,
    *,
    epsilons: ArrayLike | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> PrivacyCurve:
    """Return the curve that rho-zCDP implies.

    Args:
        rho: Every Renyi divergence of order ``a`` is at most ``rho a``.
        epsilons: Where to evaluate; 400 from 0 to a delta of 1e-100 if not given.
        adjacency: Which data sets are neighbours.

    Example:
        >>> round(curve_of_zcdp(0.5).epsilon_at(1e-5), 3)
        4.729
    """
    _validate.nonnegative("rho", rho)
    top = rho + 2 * sqrt(-rho * _LOG_LEAST_DELTA)
    grid = _grid(epsilons, top)
    t = _best_order(rho, grid) - 1
    log_deltas = t * (rho * (1 + t) - grid) + _log_factor(t)
    return _curve(grid, np.exp(log_deltas), adjacency)


def curve_of_rdp(
    orders: ArrayLike,
    divergences: ArrayLike,
    *,
    epsilons: ArrayLike | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> PrivacyCurve:
    """Return the curve that bounds on Renyi divergences imply.

    Args:
        orders: Orders above one.
        divergences: A bound for each order; infinity says nothing.
        epsilons: Where to evaluate; 400 from 0 to a delta of 1e-100 if not given.
        adjacency: Which data sets are neighbours.

    Example:
        >>> orders = [2.0, 4.0, 8.0, 16.0]
        >>> curve = curve_of_rdp(orders, [a / 2 for a in orders])  # N(0,1), N(1,1)
        >>> round(curve.epsilon_at(1e-5), 3)
        5.088
    """
    a, divergence = np.asarray(orders, np.float64), np.asarray(divergences, np.float64)
    if a.ndim != 1 or len(a) == 0 or a.shape != divergence.shape:
        raise InvalidInputError(
            "divergences must be as many as orders and at least one, got "
            f"shapes {divergence.shape} and {a.shape}"
        )
    if not (np.isfinite(a).all() and (a > 1).all()):
        raise InvalidInputError(f"orders must be finite and > 1, got orders={orders!r}")
    if not (divergence >= 0).all() or np.isinf(divergence).all():
        raise InvalidInputError(
            "divergences must be >= 0 and one of them finite, "
            f"got divergences={divergences!r}"
        )
    a, divergence = (v[np.isfinite(divergence)] for v in (a, divergence))
    top = float(np.min(divergence - _LOG_LEAST_DELTA / (a - 1)))
    grid = _grid(epsilons, top)
    gap = divergence - grid[:, np.newaxis]
    log_deltas = np.min((a - 1) * gap + _log_factor(a - 1), axis=1)
    return _curve(grid, np.exp(np.minimum(log_deltas, 0.0)), adjacency)


def curve_of_trade_off(
    trade_off: Callable[[float], float],
    *,
    epsilons: ArrayLike | None = None,
    samples: int = 2000,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> PrivacyCurve:
    """Return the curve that a trade-off function implies.

    Deltas err high, by more where samples are few; they do not fall below what the
    first sample, at a false alarm rate of 1e-12, can show.

    Args:
        trade_off: Smallest rate of misses at each rate of false alarms, both in
            [0, 1]: convex, decreasing, at most ``1 - x``, and good to about 1e-14.
        epsilons: Where to evaluate; 400 up to the steepest sampled slope if not given.
        samples: How often to call ``trade_off``.
        adjacency: Which data sets are neighbours.

    Raises:
        InvalidInputError: The function is not a trade-off function.

    Example:
        >>> curve = curve_of_trade_off(lambda x: (1 - x) ** 3)
        >>> round(curve.delta_at(0.0), 4)  # largest gap of 1 - x and (1 - x)^3
        0.3849
    """
    _validate.whole_number("samples", samples, least=10)
    right = np.linspace(0.1, 1.0, samples // 4)
    left = np.geomspace(1e-12, 0.1, samples - len(right))
    x = np.concatenate([np.zeros(1), left, right[1:]])
    y = np.array([trade_off(float(v)) for v in x])
    slopes = _slopes(x, y)
    # A little beyond, so that a kink at the steepest slope lies inside.
    top = log(max(1.0, -slopes[0])) + 1e-3
    grid = _grid(epsilons, top)
    corners_x, corners_y = _corners_below(x, y, slopes)
    heights = 1 - corners_y - np.exp(grid)[:, np.newaxis] * corners_x
    return _curve(grid, heights.max(axis=1) + _ROUNDING, adjacency)


def _grid(epsilons: ArrayLike | None, top: float) -> NDArray[np.float64]:
    if epsilons is None:
        return np.linspace(0.0, top, _CURVE_POINTS) if top > 0 else np.zeros(1)
    return np.asarray(epsilons, dtype=np.float64)


def _curve(
    epsilons: NDArray[np.float64], deltas: NDArray[np.float64], adjacency: Adjacency
) -> PrivacyCurve:
    # One part in 10^12 for the rounding of the exponents.
    lifted = rounded_up(deltas * (1 + 1e-12))
    return PrivacyCurve(epsilons=epsilons, deltas=lifted, adjacency=adjacency)


def _log_factor(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``log((1 - 1/a)^a / (a - 1))`` at ``a = 1 + t``."""
    return -t * np.log1p(1 / t) - np.log1p(t)


def _best_order(rho: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where the slope ``rho (1 + 2t) - epsilon - log(1 + 1/t)`` is zero."""
    low, high = np.full_like(epsilons, -50.0), np.full_like(epsilons, 50.0)
    for _ in range(60):
        middle = (low + high) / 2
        t = np.exp(middle)
        falling = rho * (1 + 2 * t) - epsilons < np.log1p(1 / t)
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    return 1 + np.exp(low)


def _slopes(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    if not ((y >= 0).all() and (y <= 1 - x + _ROUNDING).all()):
        raise InvalidInputError(
            "trade_off must lie between 0 and 1 - x for every x in [0, 1]"
        )
    slopes = np.diff(y) / np.diff(x)
    # A chord may rise above a later one by the rounding of the values it joins.
    bend = np.diff(slopes) * np.minimum(np.diff(x)[1:], np.diff(x)[:-1])
    if (bend < -_ROUNDING).any() or (np.diff(y) > _ROUNDING).any():
        raise InvalidInputError("trade_off must be convex and decreasing on [0, 1]")
    return slopes


def _corners_below(
    x: NDArray[np.float64], y: NDArray[np.float64], slopes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of a polygon that lies below every convex ``f`` so sampled."""
    gaps = np.diff(x)
    before, here, after = slopes[:-2], slopes[1:-1], slopes[2:]
    bend = after - before
    share = np.divide(after - here, bend, out=np.zeros_like(bend), where=bend > 0)
    run = gaps[1:-1] * np.clip(share, 0.0, 1.0)
    # The first gap has no chord before it and the last none after it: there the
    # polygon follows the one it has, to x = 0 or as far as it stays above 0.
    first = y[1] - slopes[1] * gaps[0]
    down = slopes[-2]
    last = min(gaps[-1], y[-2] / -down) if down < 0 else gaps[-1]
    corners_x = np.concatenate([x[1:], x[1:-2] + run, [0.0, x[-2] + last]])
    heights = [first, y[-2] + down * last]
    corners_y = np.concatenate([y[1:], y[1:-2] + before * run, heights])
    return corners_x, corners_y
