"""One-dimensional searches for where a predicate changes, each with its guarantee.

``largest_yes`` is for a predicate that is true up to one point and false after it;
``least_yes``, on whole numbers, for one that is false and then true. ``highest_yes`` is
for predicates where any true point will do. ``last_yes_before_no`` is for tests where
the first failure ends the search: the predicate was evaluated, and true, at every grid
point up to the result. ``least_between`` minimises a function with one minimum.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import UncertifiedError

__all__ = [
    "at_most",
    "highest_yes",
    "largest_yes",
    "last_yes_before_no",
    "least_between",
    "least_yes",
]

_TOLERANCE = 1e-10
_POINTS_AT_ONCE = 256  # grid points evaluated together


def at_most(f: Callable[[float], float], level: float) -> Callable[[float], bool]:
    """Return the predicate that ``f`` is at most a level, for use in a search.

    Example:
        >>> round(largest_yes(at_most(lambda x: x * x, 2.0)), 4)
        1.4142
    """
    return lambda x: f(x) <= level


def largest_yes(holds: Callable[[float], bool], *, limit: float = 1e6) -> float:
    """Return the largest ``x >= 0`` at which ``holds`` is still true, or 0.0 if none.

    The result errs low: ``holds`` was evaluated, and true, at the returned value, and
    the true turning point is at most 1e-10 above it.

    Args:
        holds: True up to some point and false after it.
        limit: Where to give up the search for a false value.

    Raises:
        UncertifiedError: ``holds`` is still true at ``limit``.

    Example:
        >>> round(largest_yes(lambda x: x * x <= 2), 4)
        1.4142
    """
    if not holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > limit:
            raise UncertifiedError(f"no turning point below limit={limit:g}")
    return _bisect(holds, low, high)


def highest_yes(
    holds: Callable[[float], bool], *, top: float, pieces: int = 200
) -> float:
    """Return a high ``x`` in [0, top] at which ``holds`` is true, or 0.0 if none.

    The interval is scanned down from ``top`` in equal pieces until ``holds`` is true,
    then the turning point above is found by bisection. ``holds`` was evaluated, and
    true, at the returned value; a true interval narrower than a piece may be missed.

    Example:
        >>> round(highest_yes(lambda x: 1 <= x <= 2, top=5.0), 4)
        2.0
    """
    step = top / pieces
    for piece in range(pieces, -1, -1):
        if holds(piece * step):
            if piece == pieces:
                return top
            return _bisect(holds, piece * step, (piece + 1) * step)
    return 0.0


def _never(points: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.zeros(len(points), np.bool_)


def last_yes_before_no(
    holds: Callable[[float], bool],
    *,
    start: float,
    step: float,
    limit: float = 1e4,
    clearly: Callable[[NDArray[np.float64]], NDArray[np.bool_]] = _never,
) -> float:
    """Return the last point of ``start, start + step, ...`` before the first false one.

    ``holds`` is true at all points up to the result; 0.0 if false at the first.

    Args:
        holds: Evaluated at one point after another.
        start: The first point.
        step: The distance between neighbours.
        limit: Where to give up the search for a false value.
        clearly: A cheap version of ``holds``, evaluated first, at many points at once;
            it may be true only where ``holds`` is.

    Raises:
        UncertifiedError: ``holds`` is still true at ``limit``.

    Example:
        >>> round(last_yes_before_no(lambda x: x < 1 or x > 2, start=0.0, step=0.3), 9)
        0.9
    """
    first = 0
    while start + first * step <= limit:
        numbers = np.arange(first, first + _POINTS_AT_ONCE, dtype=np.float64)
        points = start + step * numbers
        points = points[points <= limit]
        pairs = zip(points.tolist(), clearly(points).tolist(), strict=True)
        for number, (point, clear) in enumerate(pairs, first):
            if not (clear or holds(point)):
                return start + (number - 1) * step if number else 0.0
        first += _POINTS_AT_ONCE
    raise UncertifiedError(f"no turning point below limit={limit:g}")


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if middle in (low, high):  # adjacent floats: as close as floats go
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def least_between(
    f: Callable[[float], float], low: float, high: float, *, steps: int = 16
) -> tuple[float, float]:
    """Return the minimiser of ``f`` between two points, and the minimum.

    By golden section: exact to 1/2000 of the distance if ``f`` has one minimum, and in
    any case a point at which ``f`` was evaluated.

    Example:
        >>> where, least = least_between(lambda x: (x - 1) ** 2, 0.0, 3.0)
        >>> round(where, 2), round(least, 5)
        (1.0, 0.0)
    """
    share = (5**0.5 - 1) / 2
    a, b = high - share * (high - low), low + share * (high - low)
    at_a, at_b = f(a), f(b)
    for _ in range(steps):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - share * (high - low)
            at_a = f(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + share * (high - low)
            at_b = f(b)
    return (a, at_a) if at_a <= at_b else (b, at_b)


def least_yes(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the least whole number in [low, high] from which on it holds, if any.

    Example:
        >>> least_yes(lambda x: x * x >= 50, 0, 100)
        8
    """
    if not holds(high):
        return None
    low -= 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
