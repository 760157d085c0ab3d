"""Searches along a line for where a yes turns into a no, each with its own promise.

``largest_yes`` is for a yes that turns once, for good, into a no, and ``least_yes``, on
whole numbers, for a no that turns once into a yes. ``highest_yes`` is for a yes that is
welcome wherever it is found. ``last_yes_before_no`` is for tests of which the first
that fails ends the run: every point of its grid up to the answer was asked and said
yes. ``least_between`` looks for the bottom of a valley.
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
_POINTS_AT_ONCE = 256  # points of a grid that are asked about at once


def at_most(f: Callable[[float], float], level: float) -> Callable[[float], bool]:
    """Return whether ``f`` is at most a level, as a question to search with.

    Example:
        >>> round(largest_yes(at_most(lambda x: x * x, 2.0)), 4)
        1.4142
    """
    return lambda x: f(x) <= level


def largest_yes(holds: Callable[[float], bool], *, limit: float = 1e6) -> float:
    """Return the largest ``x >= 0`` at which ``holds`` is still true, or 0.0 if none.

    The answer errs low: ``holds`` was seen to be true at the value returned, and
    the true turning point is at most 1e-10 above it.

    Args:
        holds: True up to some point and false after it.
        limit: Where to give up looking for a false.

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

    The line is walked down from ``top`` in equal pieces until ``holds`` is true, then
    the turning point above is closed in on. Whatever is returned was seen to hold; a
    yes that is narrower than a piece may be missed.

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
    """Return the last point of ``start, start + step, ...`` before the first no.

    All points up to the answer said yes; 0.0 if the first says no.

    Args:
        holds: Asked of one point after another.
        start: The first point.
        step: From one point to the next.
        limit: Where to give up looking for a no.
        clearly: Asked of many points at once, before ``holds``, which it spares: it may
            say yes only where ``holds`` does.

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
        asked = zip(points.tolist(), clearly(points).tolist(), strict=True)
        for number, (point, clear) in enumerate(asked, first):
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
    """Return where ``f`` is least between two points, and how small it is there.

    By golden section: exact to 1/2000 of the distance if ``f`` has one valley, and a
    point that was asked in any case.

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
