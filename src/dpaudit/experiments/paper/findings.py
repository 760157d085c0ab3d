"""What the paper states about a figure, beside what was measured.

A *comparison* is a printed number and our mean; how far they are apart is counted in
standard errors of the difference, with the printed error counted in. An *observation*
is a statement about a curve's course. A *note* is something that the paper does not
state. Differences along a curve are judged as if its points were independent; where
they come from the same runs that overstates their error, so nothing is called clear
that is not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import hypot
from typing import TypeAlias, final

from dpaudit.reporting.chart import Mark, Point

__all__ = [
    "CLEAR",
    "DOUBTLESS",
    "Comparison",
    "Finding",
    "Note",
    "Observation",
    "Verdict",
    "climbs",
    "compared",
    "excess",
    "falls",
    "highest",
    "inner_maximum",
    "rises",
    "shown",
    "verdict",
]

# Errors of a difference: from the first on it is called one; from the second on a
# curve's step is, as among a dozen of them some exceed the first by chance.
CLEAR, DOUBTLESS = 2.0, 3.0


@final
class Verdict(Enum):
    """Whether a statement is borne out."""

    HOLDS = "so it is here"
    UNCLEAR = "not clear here"
    FAILS = "not so here"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A printed number, and what was measured.

    Attributes:
        what: Of what.
        printed: The number.
        printed_error: Its error; half a unit of the last digit if none is printed.
        mean: Ours.
        error: The standard error of ours.
    """

    what: str
    printed: float
    printed_error: float
    mean: float
    error: float

    @property
    def apart(self) -> float:
        """How far ours is above, in standard errors of the difference.

        Example:
            >>> found = Comparison(
            ...     what="x", printed=0.5, printed_error=0.03, mean=0.6, error=0.04
            ... )
            >>> round(found.apart, 6)
            2.0
        """
        return (self.mean - self.printed) / hypot(self.error, self.printed_error)

    def __str__(self) -> str:
        return (
            f"{self.what}: printed {self.printed:g} ± {self.printed_error:g}, "
            f"measured {self.mean:.4g} ± {self.error:.2g}, "
            f"{abs(self.apart):.1f} errors of the difference apart"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A statement about the course of a curve, and what was measured.

    Attributes:
        claim: What the paper states.
        measured: What came out, in numbers.
        verdict: Whether it is so here.
    """

    claim: str
    measured: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.claim}: {self.verdict.value}; {self.measured}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something measured that the paper makes no statement about.

    Attributes:
        text: What came out.
    """

    text: str

    def __str__(self) -> str:
        return self.text


Finding: TypeAlias = Comparison | Observation | Note


def shown(point: Point) -> str:
    """Return a mean with its error.

    Example:
        >>> shown(Point(curve="a", x=1, mean=0.5, error=0.01, repeats=9))
        '0.500 ± 0.010'
        >>> shown(Point(curve="a", x=1, mean=0.5))
        '0.500'
    """
    error = f" ± {point.error:.3f}" if point.repeats else ""
    return f"{point.mean:.3f}{error}"


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


def compared(what: str, mark: Mark, points: Iterable[Point]) -> Comparison:
    """Return a printed number beside the point at the same place."""
    (at,) = (point for point in points if point.x == mark.x)
    return Comparison(
        what=what,
        printed=mark.value,
        printed_error=mark.error,
        mean=at.mean,
        error=at.error,
    )


def verdict(*, holds: bool, fails: bool) -> Verdict:
    """Return what two tests say; neither may pass.

    Example:
        >>> verdict(holds=False, fails=False).value
        'not clear here'
    """
    if holds:
        return Verdict.HOLDS
    return Verdict.FAILS if fails else Verdict.UNCLEAR


def inner_maximum(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve rises to a maximum and falls again.

    Args:
        claim: What the paper states.
        points: Of a curve, in order.
        at: What x is, in words.
    """
    first, last, inner = points[0], points[-1], highest(points[1:-1])
    above = min(excess(inner, first), excess(inner, last))
    return Observation(
        claim=claim,
        measured=f"{shown(first)} at {first.x:g}, {shown(inner)} at {inner.x:g} "
        f"{at}, {shown(last)} at {last.x:g}",
        verdict=verdict(holds=above > CLEAR, fails=above < -CLEAR),
    )


def rises(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve rises: clearly in all, and nowhere doubtless falls."""
    return Observation(
        claim=claim, measured=_from_to(points, at), verdict=climbs(points)
    )


def falls(claim: str, points: Sequence[Point], at: str) -> Observation:
    """Return whether a curve falls: clearly in all, and nowhere doubtless rises."""
    return Observation(
        claim=claim, measured=_from_to(points, at), verdict=climbs(points[::-1])
    )


def climbs(points: Sequence[Point]) -> Verdict:
    """Return whether means climb along the points.

    Example:
        >>> low = Point(curve="a", x=1, mean=0.0, error=0.1, repeats=9)
        >>> high = Point(curve="a", x=2, mean=1.0, error=0.1, repeats=9)
        >>> climbs([low, high]).value, climbs([high, low]).value
        ('so it is here', 'not so here')
    """
    steepest_fall = max(excess(a, b) for a, b in pairwise(points))
    in_all = excess(points[-1], points[0])
    return verdict(
        holds=in_all > CLEAR and steepest_fall <= DOUBTLESS,
        fails=in_all < -CLEAR or steepest_fall > DOUBTLESS,
    )


def _from_to(points: Sequence[Point], at: str) -> str:
    first, last = points[0], points[-1]
    return f"{shown(first)} at {first.x:g} {at}, {shown(last)} at {last.x:g}"
