"""What a chart of curves shows, as plain values: the picture and the CSV share them.

A point is the mean of so many repeats, with its standard error; a curve has a name and
a look. Looks carry meaning: what is not valid is dashed and says so in the legend.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from io import StringIO
from math import isfinite
from typing import final

import numpy as np

from dpaudit.errors import InvalidInputError

__all__ = [
    "Chart",
    "Curve",
    "Limit",
    "Look",
    "Mark",
    "Point",
    "csv_text",
    "mean_point",
    "median_point",
    "true_and_shown",
]

_HEADINGS = ("curve", "valid", "x", "mean", "standard error", "repeats")


@final
class Look(Enum):
    """How a curve is drawn, and what that says."""

    MEASURED = "means of repeats"
    INVALID = "means of repeats, by a rule that is not valid"
    OTHERS = "means of repeats, by somebody else's method"
    BESIDE = "without a band, to compare with the curve of the same colour"
    COMPUTED = "computed, without chance"
    LIMIT = "computed, to hold bounds against; named where it ends"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve.

    Attributes:
        curve: Name of the curve.
        x: Where.
        mean: Mean of the repeats, or what was computed.
        error: Standard error of the mean; 0 for what was computed.
        repeats: How many; 0 for what was computed.
    """

    curve: str
    x: float
    mean: float
    error: float = 0.0
    repeats: int = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.mean) and isfinite(self.error) and self.error >= 0):
            raise InvalidInputError(
                f"a point must be finite, got mean={self.mean!r}, error={self.error!r} "
                f"at x={self.x!r} of {self.curve!r}; leave it out"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve's name and look.

    Attributes:
        name: As the points have it.
        colour: Number of its colour in the palette; curves that belong together share.
        look: How it is drawn.
    """

    name: str
    colour: int
    look: Look = Look.MEASURED

    @property
    def legend(self) -> str:
        """What the legend says: the name, and whether it is not valid."""
        return f"{self.name} (not valid)" if self.look is Look.INVALID else self.name


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A number that someone else printed, to be compared with a curve.

    Attributes:
        x: Where.
        value: What was printed.
        error: With which error.
    """

    x: float
    value: float
    error: float

    @property
    def text(self) -> str:
        """What is written beside it.

        Example:
            >>> Mark(x=1, value=0.49, error=0.01).text
            'printed 0.49 ± 0.01'
        """
        return f"printed {self.value:g} ± {self.error:g}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A level to hold bounds against: a thin line, named where it ends.

    Attributes:
        name: What it is.
        level: How high it is.
    """

    name: str
    level: float

    @property
    def text(self) -> str:
        """What is written at its end.

        Example:
            >>> Limit(name="true epsilon", level=1.81482).text
            'true epsilon 1.815'
        """
        return f"{self.name} {self.level:.3f}"


def true_and_shown(*, truth: float, ceiling: float) -> tuple[Limit, Limit]:
    """Return the limits of what is audited: its epsilon, and what audits show of it."""
    return (
        Limit(name="true epsilon", level=truth),
        Limit(name="no audit reliably shows more than", level=ceiling),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over one axis.

    Attributes:
        title: What is shown.
        caption: The parameters, in a line or two.
        x_label: What x is.
        y_label: What the means are of.
        curves: In the order of the legend.
        points: Of all curves; each curve's in the order of x.
        marks: Printed numbers.
        limits: What bounds are held against.
        ticks: Where the x axis is labelled; its scale is logarithmic. None for a
            linear scale that labels itself.
        y_ticks: The same of the y axis.
    """

    title: str
    caption: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    points: tuple[Point, ...]
    marks: tuple[Mark, ...] = ()
    limits: tuple[Limit, ...] = ()
    ticks: tuple[float, ...] | None = None
    y_ticks: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        named = {curve.name for curve in self.curves}
        for point in self.points:
            if point.curve not in named:
                raise InvalidInputError(
                    f"a point's curve must be one of {sorted(named)}, got "
                    f"curve={point.curve!r}"
                )

    def of(self, curve: str) -> tuple[Point, ...]:
        """Return the points of a curve."""
        return tuple(point for point in self.points if point.curve == curve)


def mean_point(curve: str, x: float, values: Iterable[float]) -> Point:
    """Return the mean of repeats with its standard error; two repeats or more.

    Example:
        >>> mean_point("bound", 1, [0.0, 1.0])
        Point(curve='bound', x=1, mean=0.5, error=0.5, repeats=2)
    """
    seen = np.array(list(values), np.float64)
    if len(seen) < 2:
        raise InvalidInputError(_too_few(len(seen), curve, x))
    error = float(seen.std(ddof=1)) / len(seen) ** 0.5
    return Point(
        curve=curve, x=x, mean=float(seen.mean()), error=error, repeats=len(seen)
    )


def median_point(curve: str, x: float, values: Iterable[float]) -> Point:
    """Return the median of repeats, with half the width of its 68 % limits as error.

    The limits are two of the values in their order, whatever the law (David and
    Nagaraja, Order Statistics, 7.1).

    Example:
        >>> median_point("bound", 1, range(101))
        Point(curve='bound', x=1, mean=50.0, error=5.0, repeats=101)
    """
    seen = np.sort(np.array(list(values), np.float64))
    if len(seen) < 2:
        raise InvalidInputError(_too_few(len(seen), curve, x))
    reach = len(seen) ** 0.5 / 2  # a standard deviation of a binomial of one half
    middle = (len(seen) - 1) / 2
    low, high = (
        seen[round(np.clip(middle + k * reach, 0, 2 * middle))] for k in (-1, 1)
    )
    return Point(
        curve=curve,
        x=x,
        mean=float(np.median(seen)),
        error=float(high - low) / 2,
        repeats=len(seen),
    )


def _too_few(repeats: int, curve: str, x: float) -> str:
    return (
        f"a standard error needs two repeats or more, got {repeats} at x={x!r} of "
        f"{curve!r}; raise --trials"
    )


def csv_text(chart: Chart) -> str:
    """Return the points as CSV, with all digits; a row for each.

    Example:
        >>> chart = Chart(
        ...     title="",
        ...     caption="",
        ...     x_label="n",
        ...     y_label="bound",
        ...     curves=(Curve(name="a", colour=0, look=Look.INVALID),),
        ...     points=(mean_point("a", 3, [0.0, 1.0]),),
        ... )
        >>> print(csv_text(chart), end="")
        curve,valid,x,mean,standard error,repeats
        a,no,3,0.5,0.5,2
    """
    valid = {c.name: "no" if c.look is Look.INVALID else "yes" for c in chart.curves}
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADINGS)
    writer.writerows(
        (p.curve, valid[p.curve], repr(p.x), repr(p.mean), repr(p.error), p.repeats)
        for p in chart.points
    )
    return text.getvalue()
