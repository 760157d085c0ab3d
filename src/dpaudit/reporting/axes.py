"""Axes of pictures: the positions of values, and the ticks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log10
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.reporting import svg
from dpaudit.reporting.numbers import scientific, superscript, typeset
from dpaudit.reporting.svg import Picture

__all__ = ["Even", "Factors", "Plot", "thinned"]

_WIDTH, _HEIGHT = 480.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 14.0, 12.0, 52.0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_WIDE = 1e4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Even:
    """A linear axis.

    Example:
        >>> Even(low=0.0, high=2.3).ticks()
        ((0.0, '0'), (0.5, '0.5'), (1.0, '1'), (1.5, '1.5'), (2.0, '2'))
    """

    low: float
    high: float

    def share(self, value: float) -> float:
        """Return the position of a value on the axis: 0 is the low end, 1 the high."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> tuple[tuple[float, str], ...]:
        """Return a few round values on the axis, with their labels."""
        rough = (self.high - self.low) / most
        unit = 10.0 ** floor(log10(rough))
        step = next(s * unit for s in _STEPS if s * unit >= rough * (1 - 1e-9))
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return tuple((i * step, _name(i * step, step)) for i in range(first, last + 1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """A logarithmic axis; values of zero or less are below it.

    Its ticks are powers of ten, or the numbers that were tried, if any are given.

    Example:
        >>> Factors(low=1e-4, high=1.0).ticks()
        ((0.0001, '10⁻⁴'), (0.001, '10⁻³'), (0.01, '10⁻²'), (0.1, '10⁻¹'), (1.0, '1'))
        >>> axis = Factors(low=1.0, high=8.0, tried=(1, 2, 8))
        >>> axis.ticks(), [round(axis.share(each), 3) for each in (1, 2, 4, 8)]
        (((1.0, '1'), (2.0, '2'), (8.0, '8')), [0.0, 0.333, 0.667, 1.0])
    """

    low: float
    high: float
    tried: tuple[int, ...] = ()

    def share(self, value: float) -> float:
        """Return the position of a value on the axis: 0 is the low end, 1 the high."""
        if value <= 0:
            return -inf
        return log10(value / self.low) / log10(self.high / self.low)

    def ticks(self, most: int = 7) -> tuple[tuple[float, str], ...]:
        """Return the values of the ticks, with their labels."""
        if self.tried:
            return tuple((float(each), f"{each}") for each in self.tried)
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        every = max(1, ceil((last - first) / most))
        powers = range(last, first - 1, -every)
        return tuple((10.0**p, _power(p)) for p in reversed(powers))


Axis: TypeAlias = Even | Factors
Values: TypeAlias = Sequence[float] | NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A frame with two axes; its methods turn values into marks.

    Attributes:
        x: The axis from left to right.
        y: The axis from bottom to top.
        x_name: The label of the x axis.
        y_name: The label of the y axis.
        width: Width of the whole picture.
        height: Height of the whole picture.
    """

    x: Axis
    y: Axis
    x_name: str
    y_name: str
    width: float = _WIDTH
    height: float = _HEIGHT

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the coordinates of a pair of values in the picture."""
        across, up = self.x.share(x), self.y.share(y)
        return _LEFT + across * self._wide, self._base - up * self._high

    def line(self, xs: Values, ys: Values, style: str) -> str:
        """Return a line through pairs of values."""
        return svg.path(self._points(xs, ys), style)

    def area(self, xs: Values, ys: Values, style: str) -> str:
        """Return the area within pairs of values."""
        return svg.area(self._points(xs, ys), style)

    def bar(self, low: float, high: float, value: float, style: str) -> str:
        """Return a bar over an interval, from the bottom of the frame."""
        (left, top), (right, floor_) = self.at(low, value), self.at(high, self.y.low)
        return svg.rect(left, top, right - left, floor_ - top, style)

    def dot(self, x: float, y: float, style: str) -> str:
        """Return a mark at a pair of values."""
        return svg.dot(*self.at(x, y), style)

    def level(self, y: float, style: str) -> str:
        """Return a line from left to right at one value."""
        return self.line([self.x.low, self.x.high], [y, y], style)

    def picture(self, marks: str, *, title: str, description: str) -> Picture:
        """Return a picture of grid, axis labels, and the marks within the frame."""
        frame = svg.group(
            marks,
            left=_LEFT,
            top=_TOP - 6,
            width=self._wide + 6,
            height=self._high + 7,
        )
        return Picture(
            width=self.width,
            height=self.height,
            title=title,
            description=description,
            content=self._grid() + frame + self._names(),
        )

    @property
    def _wide(self) -> float:
        return self.width - _LEFT - _RIGHT

    @property
    def _high(self) -> float:
        return self.height - _TOP - _BOTTOM

    @property
    def _base(self) -> float:
        return self.height - _BOTTOM

    def _points(self, xs: Values, ys: Values) -> list[tuple[float, float]]:
        return [self.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]

    def _grid(self) -> str:
        base, right = self._base, self.width - _RIGHT
        rows = [(self.at(self.x.low, v)[1], words) for v, words in self.y.ticks()]
        columns = [(self.at(v, self.y.low)[0], words) for v, words in self.x.ticks()]
        return "".join(
            [
                *(svg.line(_LEFT, y, right, y, "grid") for y, _ in rows),
                svg.line(_LEFT, base, right, base, "axis"),
                *(svg.line(x, base, x, base + 5, "axis") for x, _ in columns),
                *(svg.text(_LEFT - 8, y + 4, w, anchor="end") for y, w in rows),
                *(svg.text(x, base + 19, w, anchor="middle") for x, w in columns),
            ]
        )

    def _names(self) -> str:
        middle = _LEFT + self._wide / 2
        upright = _TOP + self._high / 2
        return svg.text(
            middle, self._base + 42, typeset(self.x_name), anchor="middle"
        ) + svg.text(15, upright, typeset(self.y_name), anchor="middle", turn=-90)


def thinned(total: int, most: int) -> list[int]:
    """Return at most ``most`` numbers below a total, evenly spaced, with the last.

    Example:
        >>> thinned(5, 10), thinned(101, 3)
        ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if total <= most:
        return list(range(total))
    return sorted({round(i * (total - 1) / (most - 1)) for i in range(most)})


def _name(value: float, step: float) -> str:
    if not isfinite(value) or abs(value) >= _WIDE * 10 or step < 1e-4:
        return scientific(value)
    digits = max(0, -floor(log10(step) + 1e-9))
    shown = f"{value:,.{digits + 1}f}"
    shown = shown.rstrip("0").rstrip(".") if "." in shown else shown
    return "0" if shown in ("-0", "") else shown.replace("-", "\N{MINUS SIGN}")


def _power(power: int) -> str:
    named = {0: "1", 1: "10"}
    return named.get(power, "10" + superscript(power))
