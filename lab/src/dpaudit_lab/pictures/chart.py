"""What a chart of curves shows, as plain values: the picture and the CSV share them.

A point is the mean of so many repeats, with its standard error; a curve has a name and
a look. Looks carry meaning: what has no general guarantee is dashed and says so in the
legend, and where there is a limit on medians, medians are drawn beside the means.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
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

_HEADINGS = ("curve", "general guarantee", "x", "mean", "standard error", "repeats")


@final
class Look(Enum):
    """How a curve is drawn, and what that says."""

    MEASURED = "means of repeats"
    UNGUARANTEED = "means of repeats, by a rule without a general guarantee"
    OTHERS = "means of repeats, by somebody else's method"
    BESIDE = "without a band, to compare with the curve of the same colour"
    COMPUTED = "computed, without chance"
    MEDIAN_LIMIT = "computed: what no median exceeds"
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
        median: Median of the repeats; None if it is not known, or was computed.
    """

    curve: str
    x: float
    mean: float
    error: float = 0.0
    repeats: int = 0
    median: float | None = None

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
        published: Whether the figure that is reproduced has it.
    """

    name: str
    colour: int
    look: Look = Look.MEASURED
    published: bool = False

    @property
    def guaranteed(self) -> bool:
        """Whether its rule has a general guarantee."""
        return self.look is not Look.UNGUARANTEED

    @property
    def legend(self) -> str:
        """What the legend says: the name, and whether there is no guarantee."""
        return self.name if self.guaranteed else f"{self.name} (no general guarantee)"


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
            if self.has_medians and point.repeats and point.median is None:
                raise InvalidInputError(
                    "a chart with a limit on medians must have those of all points, "
                    f"got median=None at x={point.x!r} of {point.curve!r}"
                )

    @property
    def has_medians(self) -> bool:
        """Whether medians are drawn beside means: where there is a limit on them."""
        return any(curve.look is Look.MEDIAN_LIMIT for curve in self.curves)

    @property
    def plain(self) -> "Chart":
        """The curves of the figure that is reproduced, without words or limits."""
        curves = tuple(curve for curve in self.curves if curve.published)
        named = {curve.name for curve in curves}
        return replace(
            self,
            title="",
            caption="",
            curves=curves,
            points=tuple(point for point in self.points if point.curve in named),
            marks=(),
            limits=(),
        )

    def of(self, curve: str) -> tuple[Point, ...]:
        """Return the points of a curve."""
        return tuple(point for point in self.points if point.curve == curve)


def mean_point(curve: str, x: float, values: Iterable[float]) -> Point:
    """Return mean and median of repeats, and the mean's standard error; two or more.

    Example:
        >>> mean_point("bound", 1, [0.0, 1.0])
        Point(curve='bound', x=1, mean=0.5, error=0.5, repeats=2, median=0.5)
    """
    seen = np.array(list(values), np.float64)
    if len(seen) < 2:
        raise InvalidInputError(_too_few(len(seen), curve, x))
    error = float(seen.std(ddof=1)) / len(seen) ** 0.5
    return Point(
        curve=curve,
        x=x,
        mean=float(seen.mean()),
        error=error,
        repeats=len(seen),
        median=float(np.median(seen)),
    )


def median_point(curve: str, x: float, values: Iterable[float]) -> Point:
    """Return the median of repeats, with half the width of its 68 % limits as error.

    The limits are two of the values in their order, whatever the law (David and
    Nagaraja, Order Statistics, 7.1).

    Example:
        >>> median_point("bound", 1, range(101))
        Point(curve='bound', x=1, mean=50.0, error=5.0, repeats=101, median=50.0)
    """
    seen = np.sort(np.array(list(values), np.float64))
    if len(seen) < 2:
        raise InvalidInputError(_too_few(len(seen), curve, x))
    reach = len(seen) ** 0.5 / 2  # a standard deviation of a binomial of one half
    middle = (len(seen) - 1) / 2
    low, high = (
        seen[round(np.clip(middle + k * reach, 0, 2 * middle))] for k in (-1, 1)
    )
    median = float(np.median(seen))
    return Point(
        curve=curve,
        x=x,
        mean=median,
        error=float(high - low) / 2,
        repeats=len(seen),
        median=median,
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
        ...     curves=(Curve(name="a", colour=0, look=Look.UNGUARANTEED),),
        ...     points=(mean_point("a", 3, [0.0, 1.0]),),
        ... )
        >>> print(csv_text(chart), end="")
        curve,general guarantee,x,mean,standard error,repeats
        a,no,3,0.5,0.5,2
    """
    sure = {curve.name: "yes" if curve.guaranteed else "no" for curve in chart.curves}
    medians = chart.has_medians
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_HEADINGS, "median") if medians else _HEADINGS)
    for p in chart.points:
        numbers = map(repr, (p.x, p.mean, p.error))
        row = (p.curve, sure[p.curve], *numbers, p.repeats)
        writer.writerow((*row, p.median) if medians else row)
    return text.getvalue()
