"""What a bound on Renyi divergences implies for deltas and for single events.

A claim limits the divergence of order ``a`` between outputs on neighbours, in both
directions, by ``t_a``; rho-zCDP is ``t_a = rho a`` for all a > 1.

*Deltas.* Each order gives ``delta = exp((a - 1)(t_a - epsilon)) (1 - 1/a)^(a - 1) / a``
at every epsilon; the smallest counts.

*Events.* Let an event have probabilities q and p on two neighbours. The divergence of
the two coins is at most that of the outputs (data processing), so

    F(q, p) = q^a p^(1-a) + (1 - q)^a (1 - p)^(1-a) <= exp((a - 1) t_a),

and likewise with q and p exchanged. F is jointly convex, as the perspective of the
convex function ``x^a`` is, so the pairs (p, q) that satisfy all these conditions form a
convex set, whose upper limit ``q = g(p)`` is concave. At a point where F is at least
the right side, the half-plane below the tangent of F's level set contains that set: it
is a line above g. Lines at many p approximate g from above, closer than the deltas do:
at rho = 1/2 and p = 0.2 they give 0.662, the deltas 0.730.

Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential
privacy", Proposition 12, https://arxiv.org/abs/2004.00010; van Erven and Harremoes,
"Renyi divergence and Kullback-Leibler divergence", Theorem 9,
https://arxiv.org/abs/1206.2459.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["ORDERS", "deltas", "event_lines"]

# Orders at which rho-zCDP is tested; any selection is a weaker claim.
ORDERS = 1 + np.geomspace(1e-2, 1e3, 200)
_PROBABILITIES = np.concatenate(
    [np.geomspace(1e-9, 0.5, 150), 1 - np.geomspace(0.5, 1e-6, 60)[1:]]
)
_OUTSIDE = 1e-10  # by how much points lie beyond the limit, for rounding


def deltas(
    orders: NDArray[np.float64],
    divergences: NDArray[np.float64],
    epsilons: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a delta for each epsilon, rounded up."""
    a = orders[:, np.newaxis]
    logs = (
        (a - 1) * (divergences[:, np.newaxis] - epsilons)
        + (a - 1) * np.log1p(-1 / a)
        - np.log(a)
    )
    return np.asarray(np.minimum(np.exp(logs.min(axis=0)) * (1 + 1e-11), 1.0))


def event_lines(
    orders: NDArray[np.float64], divergences: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slopes and intercepts of lines above g.

    Example:
        >>> slopes, intercepts = event_lines(ORDERS, 0.5 * ORDERS)
        >>> print(round(float((intercepts + slopes * 0.2).min()), 3))
        0.662
    """
    pairs = [_tangents(orders, divergences, swapped=swapped) for swapped in (0, 1)]
    slopes, intercepts = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return np.append(slopes, 0.0), np.append(intercepts, 1.0)


def _tangents(
    orders: NDArray[np.float64], divergences: NDArray[np.float64], *, swapped: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return tangents at many p, each of the order that limits q the most."""
    a, t = orders[:, np.newaxis], divergences[:, np.newaxis]
    p = _PROBABILITIES[np.newaxis, :]
    low, high = np.broadcast_arrays(p, a)[0].copy(), np.ones((len(a), p.shape[1]))
    for _ in range(60):  # F rises in q from q = p on
        middle = (low + high) / 2
        inside = _log_sum(a, middle, p, swapped=swapped) <= (a - 1) * t
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    best = high.argmin(axis=0)
    q = high[best, np.arange(len(best))] * (1 + _OUTSIDE)
    kept = q < 1 - 1e-9
    q, p, a, t = q[kept], _PROBABILITIES[kept], orders[best][kept], t[best, 0][kept]
    beyond = _log_sum(a, q, p, swapped=swapped) >= (a - 1) * t
    slope = _slope(a, q, p, swapped=swapped)
    intercept = (q - slope * p) * (1 + np.sign(q - slope * p) * _OUTSIDE)
    intercept += 1e-15
    # No event is limited below its own probability: lines that are, by rounding, go.
    above = (intercept >= 0) & (slope + intercept >= 1)
    kept = beyond & above & np.isfinite(slope) & (slope >= 0)
    return slope[kept], intercept[kept]


def _log_sum(
    a: NDArray[np.float64],
    q: NDArray[np.float64],
    p: NDArray[np.float64],
    *,
    swapped: int,
) -> NDArray[np.float64]:
    """Return log F."""
    q, p = (p, q) if swapped else (q, p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.logaddexp(
                a * np.log(q) + (1 - a) * np.log(p),
                a * np.log1p(-q) + (1 - a) * np.log1p(-p),
            )
        )


def _slope(
    a: NDArray[np.float64],
    q: NDArray[np.float64],
    p: NDArray[np.float64],
    *,
    swapped: int,
) -> NDArray[np.float64]:
    """Return dq / dp along the level set of F."""
    first, second = (p, q) if swapped else (q, p)
    one = a * np.log(first) + (1 - a) * np.log(second)
    other = a * np.log1p(-first) + (1 - a) * np.log1p(-second)
    share = np.exp(one - np.logaddexp(one, other))
    by_first = a * (share / first - (1 - share) / (1 - first))
    by_second = (1 - a) * (share / second - (1 - share) / (1 - second))
    if swapped:
        return np.asarray(-by_first / by_second)
    return np.asarray(-by_second / by_first)
