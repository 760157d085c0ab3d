"""Whether a curve takes the course that the paper says: rises, falls, has a maximum.

A difference is counted in its standard errors. Points of a curve are judged as if they
were independent; where they come from the same runs that overstates the error of their
difference, so nothing is called clear that is not. A curve that rises in all, but goes
down somewhere by no more than chance would have it, is said to rise within error, and
where it goes down is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import hypot
from typing import Any

from dpaudit_lab.paper.findings import Observation, Verdict, shown, verdict
from dpaudit_lab.pictures.chart import Point, mean_point

__all__ = [
    "CLEAR",
    "DOUBTLESS",
    "climbs",
    "excess",
    "falls",
    "higher",
    "highest",
    "inner_maximum",
    "rises",
]

# Errors of a difference: from the first on it is called one; from the second on a
# curve is said to turn, as among its many pairs some exceed the first by chance.
CLEAR, DOUBTLESS = 2.0, 3.0

_NO_GAIN = Point(curve="gain", x=0, mean=0.0)


def excess(one: Point, other: Point) -> float:
    """Return by how many errors of the difference one mean exceeds another.

    Example:
        >>> one = Point(curve="a", x=1, mean=1.0, error=0.3, repeats=9)
        >>> round(excess(one, Point(curve="a", x=2, mean=0.0, error=0.4, repeats=9)), 6)
        2.0
    """
    # Means that never vary, such as 0, are told apart by rounding alone.
    error = max(hypot(one.error, other.error), 1e-9)
    return (one.mean - other.mean) / error


def highest(points: Iterable[Point]) -> Point:
    """Return the point with the largest mean, the first if there are several."""
    return max(points, key=lambda point: point.mean)


def inner_maximum(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve rises to a maximum and falls again.

    Args:
        claim: What the paper states.
        points: Of a curve, in order.
        at: What x is, in words.
    """
    if len(points) < 3:
        return _too_few(claim, points)
    first, last, inner = points[0], points[-1], highest(points[1:-1])
    above = min(excess(inner, first), excess(inner, last))
    return Observation(
        claim=claim,
        measured=f"{shown(first)} at {first.x:g}, {shown(inner)} at {inner.x:g} "
        f"{at}, {shown(last)} at {last.x:g}",
        verdict=verdict(holds=above > CLEAR, fails=above < -CLEAR),
    )


def rises(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve rises.

    Args:
        claim: What the paper states.
        points: Of a curve, in order.
        at: What x is, in words.
    """
    if len(points) < 2:
        return _too_few(claim, points)
    high, low = _largest_drop(points)
    return Observation(
        claim=claim,
        measured=_from_to(points, at) + _other_way(high, low, excess(high, low)),
        verdict=climbs(points),
    )


def falls(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve falls; arguments as for ``rises``."""
    if len(points) < 2:
        return _too_few(claim, points)
    high, low = _largest_drop(points[::-1])
    return Observation(
        claim=claim,
        measured=_from_to(points, at) + _other_way(low, high, excess(high, low)),
        verdict=climbs(points[::-1]),
    )


def climbs(points: Sequence[Point]) -> Verdict:
    """Return whether means climb along the points; unclear of fewer than two.

    Example:
        >>> low = Point(curve="a", x=1, mean=0.0, error=0.1, repeats=9)
        >>> high = Point(curve="a", x=2, mean=1.0, error=0.1, repeats=9)
        >>> climbs([low, high]).value, climbs([high, low]).value
        ('so it is here', 'not so here')
        >>> climbs([low]).value
        'not clear here'
    """
    if len(points) < 2:
        return Verdict.UNCLEAR
    in_all = excess(points[-1], points[0])
    drop = excess(*_largest_drop(points))
    if in_all < -CLEAR or drop > DOUBTLESS:
        return Verdict.FAILS
    if in_all <= CLEAR or drop > CLEAR:
        return Verdict.UNCLEAR
    return Verdict.WITHIN_ERROR if drop > 0 else Verdict.HOLDS


def higher(
    claim: str,
    runs: Mapping[int, Sequence[Mapping[str, Any]]],
    *,
    one: str,
    other: str,
    at: str,
) -> Observation:
    """Return whether one bound is higher than another, run by run, at every x.

    Args:
        claim: What the paper states.
        runs: By x, what came of each run, by name.
        one: Name of the bound that is said to be higher.
        other: Name of the other.
        at: What x is, in words.
    """
    gains = [
        mean_point("gain", x, [row[one] - row[other] for row in found])
        for x, found in runs.items()
    ]
    least, most = min(gains, key=lambda gain: gain.mean), highest(gains)
    clear = [excess(gain, _NO_GAIN) for gain in gains]
    return Observation(
        claim=claim,
        measured=f"on the same runs, by {shown(least)} at {least.x:g} {at} up to "
        f"{shown(most)} at {most.x:g}; by more than {CLEAR:g} errors at "
        f"{sum(z > CLEAR for z in clear)} of {len(clear)} sizes from "
        f"{min(runs):g} on",
        verdict=verdict(holds=min(clear) > CLEAR, fails=min(clear) < -DOUBTLESS),
    )


def _largest_drop(points: Sequence[Point]) -> tuple[Point, Point]:
    """Return the two points, in order, whose means fall by the most errors."""
    return max(combinations(points, 2), key=lambda pair: excess(*pair))


def _from_to(points: Sequence[Point], at: str) -> str:
    first, last = points[0], points[-1]
    return f"from {shown(first)} at {first.x:g} {at} to {shown(last)} at {last.x:g}"


def _other_way(start: Point, end: Point, errors: float) -> str:
    """Tell where a curve goes against its course most, if it does."""
    if errors <= 0:
        return ""
    return (
        f"; the other way from {shown(start)} at {start.x:g} to {shown(end)} at "
        f"{end.x:g}, by {errors:.1f} errors of the difference"
    )


def _too_few(claim: str, points: Sequence[Point]) -> Observation:
    return Observation(
        claim=claim,
        measured=f"{len(points)} points are too few to tell",
        verdict=Verdict.UNCLEAR,
    )
