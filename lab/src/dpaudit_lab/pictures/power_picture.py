"""The picture of a comparison: bounds against canaries, and the time beside them.

One curve per method, the standard errors drawn in, under the true epsilon and what no
valid audit of one run reliably exceeds. Methods differ in colour (of Okabe and Ito),
marker and dash, so nothing is said by colour alone; others' curves are dashed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpaudit.errors import InvalidInputError
from dpaudit.reporting.numbers import superscript, typeset
from dpaudit_lab.pictures.chart import Limit
from dpaudit_lab.pictures.style import INK, lay_out, limit_line, plain_frame, save

__all__ = ["Curve", "Point", "power_picture"]

_COLOURS = ("#0072B2", "#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#1A1A1A")
_MARKERS = ("o", "D", "^", "s", "v", "P", "X")
_MOST_TICKS = 4
_HIGH = 3.5  # inches, of the axes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a method shows of so many canaries.

    Attributes:
        canaries: How many.
        mean: Its mean bound.
        error: The standard error of that; None if unknown.
        seconds: CPU time from scores to bound; None if it was not taken.
    """

    canaries: int
    mean: float
    error: float | None = None
    seconds: float | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A method's points.

    Attributes:
        name: What the method is called.
        ours: Whether it is one of dpaudit's own.
        points: By rising number of canaries.
    """

    name: str
    ours: bool
    points: tuple[Point, ...]


def power_picture(
    curves: Sequence[Curve], path: str | Path, *, limits: Sequence[Limit], caption: str
) -> None:
    """Draw what each method shows against the number of canaries, and its time.

    Args:
        curves: One per method, at most seven.
        path: Where to; the suffix, .svg, .png or .pdf, says which format.
        limits: What bounds are held against.
        caption: What was measured.

    Raises:
        InvalidInputError: The suffix is another one, or there are too many curves.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> points = (Point(canaries=1000, mean=1.7, error=0.02, seconds=0.01),)
        >>> curve = Curve(name="exact", ours=True, points=points)
        >>> with TemporaryDirectory() as folder:
        ...     power_picture([curve], f"{folder}/a.svg", limits=(), caption="")
    """
    if not 1 <= len(curves) <= len(_COLOURS):
        raise InvalidInputError(
            f"a picture shows from 1 to {len(_COLOURS)} curves, got {len(curves)}"
        )
    save(lambda: _figure(curves, limits, caption), path)


def _figure(curves: Sequence[Curve], limits: Sequence[Limit], caption: str) -> Figure:
    figure = Figure(figsize=(10, _HIGH), facecolor="white")
    timed = any(p.seconds is not None for curve in curves for p in curve.points)
    _bounds(figure.add_axes((0.07, 0, 0.53 if timed else 0.91, 1)), curves, limits)
    if timed:
        _times(figure.add_axes((0.69, 0, 0.29, 1)), curves)
    title = "What each method shows of the same scores"
    lay_out(figure, title=title, caption=caption, frame=_HIGH)
    return figure


def _bounds(axes: Axes, curves: Sequence[Curve], limits: Sequence[Limit]) -> None:
    for at, curve in enumerate(curves):
        axes.errorbar(
            [p.canaries for p in curve.points],
            [p.mean for p in curve.points],
            yerr=[p.error or 0.0 for p in curve.points],
            color=_COLOURS[at],
            marker=_MARKERS[at],
            linestyle="-" if curve.ours else "--",
            ms=5,
            capsize=3,
            label=curve.name,
        )
    for limit in limits:
        limit_line(axes, limit)
    means = [p.mean for curve in curves for p in curve.points]
    top = 1.06 * max([*means, *(limit.level for limit in limits)])
    axes.set_ylim(0, top)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])
    axes.set_ylabel(typeset("mean lower bound on epsilon"), color=INK)
    _canaries_below(axes, curves)


def _times(axes: Axes, curves: Sequence[Curve]) -> None:
    for at, curve in enumerate(curves):
        taken = [(p.canaries, p.seconds) for p in curve.points if p.seconds]
        axes.plot(
            [n for n, _ in taken],
            [seconds for _, seconds in taken],
            color=_COLOURS[at],
            marker=_MARKERS[at],
            linestyle="-" if curve.ours else "--",
            ms=4,
            lw=1,
        )
    axes.set_yscale("log")
    times = [p.seconds for curve in curves for p in curve.points if p.seconds]
    low = floor(log10(min(times)))
    high = max(low + 1, ceil(log10(max(times))))
    decades = range(low, high + 1, 1 if high - low < 6 else 2)
    axes.set_yticks([10.0**d for d in decades], [_power_of_ten(d) for d in decades])
    axes.set_ylim(10.0**low, 10.0**high)
    axes.set_ylabel("CPU seconds", color=INK)
    _canaries_below(axes, curves)


def _canaries_below(axes: Axes, curves: Sequence[Curve]) -> None:
    axes.set_xscale("log")
    sizes = sorted({p.canaries for curve in curves for p in curve.points})
    if len(sizes) == 1:  # a lone tick gives no scale
        sizes = [sizes[0] // 2, sizes[0], 2 * sizes[0]]
    # As many as there is room for.
    ticks = {n: _size(n) for n in sizes[:: ceil(len(sizes) / _MOST_TICKS)]}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(0.7 * sizes[0], sizes[-1] / 0.7)
    axes.minorticks_off()
    axes.set_xlabel("canaries", color=INK)
    plain_frame(axes)


def _size(canaries: int) -> str:
    power = round(log10(canaries))
    return _power_of_ten(power) if canaries == 10**power else f"{canaries:,}"


def _power_of_ten(power: int) -> str:
    return f"10{superscript(power)}"
