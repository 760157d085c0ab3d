"""Charts of curves with error bands, as SVG, PNG or PDF files.

Each curve has a colour and a marker of its own (Okabe and Ito's colours, which people
who are colour-blind can tell apart). Bands are one standard error up and down. Curves
of rules without a general guarantee are dashed with hollow markers, and the legend says
so. What bounds are held against is a thin line, named where it ends. Where that is a
limit on medians, bars of the curves' colours are the medians of the same repeats.
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, assert_never

from matplotlib import figure as mpl_figure
from matplotlib.axes import Axes

from dpaudit.errors import InvalidInputError
from dpaudit.reporting.numbers import typeset
from dpaudit_lab.pictures.chart import Chart, Curve, Look, Mark
from dpaudit_lab.pictures.style import (
    FAINT,
    INK,
    THIN,
    lay_out,
    limit_line,
    name_end,
    plain_frame,
    save,
    tick_names,
)

__all__ = ["chart_figure", "draw_chart", "draw_panels", "panels_figure"]

# Blue, vermilion, green, orange, purple, sky blue, ink.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MEDIAN: dict[str, Any] = {
    "linestyle": "none",
    "marker": "_",
    "markersize": 11,
    "markeredgewidth": 1.8,  # thinner beside dotted curves
}
_WIDE, _HIGH = 9.0, 3.3  # inches, of the paper and of the axes
_COLUMNS, _PANEL, _APART = 3, 1.9, 0.4  # panels in a row, their height and gap
_NARROW = 3.0  # as letters keep their size
_LEFT, _RIGHT = 0.765, 0.18  # of the axes, to the edges


def draw_chart(chart: Chart, path: str | Path, *, width: float = _WIDE) -> None:
    """Draw a chart into a file; the suffix, .svg, .png or .pdf, says the format.

    Args:
        chart: What to draw. A title or caption that is empty takes no room: in a paper
            the text has them.
        path: Where to.
        width: Of the paper, in inches. Letters keep their size, 8 to 10 points, so that
            a picture is best drawn as wide as it is printed; below 5.5 what is written
            at marks, limits and curves may not find room.

    Raises:
        InvalidInputError: The suffix is another one, or the paper is too narrow.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit_lab.pictures.chart import Point
        >>> chart = Chart(
        ...     title="A chart",
        ...     caption="of one point",
        ...     x_label="n",
        ...     y_label="bound",
        ...     curves=(Curve(name="a", colour=0),),
        ...     points=(Point(curve="a", x=3, mean=0.5, error=0.1, repeats=9),),
        ... )
        >>> with TemporaryDirectory() as folder:
        ...     draw_chart(chart, f"{folder}/chart.svg")
    """
    save(lambda: chart_figure(chart, width=width), path)


def chart_figure(chart: Chart, *, width: float = _WIDE) -> mpl_figure.Figure:
    """Return the picture, not yet in a file."""
    if not _NARROW <= width < inf:
        raise InvalidInputError(
            f"width is in inches and must be at least {_NARROW:g}, got {width=!r}"
        )
    figure = mpl_figure.Figure(figsize=(width, _HIGH), facecolor="white")
    axes = figure.add_axes((_LEFT / width, 0.0, 1 - (_LEFT + _RIGHT) / width, 1.0))
    for curve in chart.curves:
        _draw(axes, chart, curve)
    if chart.has_medians:
        axes.plot([], [], **_MEDIAN, color=INK, label="medians of the same runs")
    for number, mark in enumerate(chart.marks):
        _print(axes, mark, first=number == 0)
    for limit in chart.limits:
        limit_line(axes, limit)
    _frame(axes, chart)
    lay_out(figure, title=chart.title, caption=chart.caption, frame=_HIGH)
    return figure


def draw_panels(
    charts: Sequence[Chart],
    path: str | Path,
    *,
    width: float = _WIDE,
    title: str = "",
    caption: str = "",
) -> None:
    """Draw charts that share their curves as panels of one picture, three in a row.

    The legend is that of the first; what each chart has as its title stands over its
    panel. Title and caption of the whole take no room if they are empty. Panels of
    several quantities are two in a row, and each names its axis.
    """
    save(lambda: panels_figure(charts, width, title, caption), path)


def panels_figure(
    charts: Sequence[Chart], width: float = _WIDE, title: str = "", caption: str = ""
) -> mpl_figure.Figure:
    """Return the picture, not yet in a file."""
    alike = len({chart.y_label for chart in charts}) == 1
    columns = _COLUMNS if alike else len(charts)
    rows = -(-len(charts) // columns)
    figure = mpl_figure.Figure(figsize=(width, _HIGH), facecolor="white")
    apart = _APART if alike else _LEFT
    each = (width - _RIGHT - _LEFT + (0.0 if alike else apart)) / columns
    for at, chart in enumerate(charts):
        row, column = divmod(at, columns)
        left = _LEFT + column * each
        axes = figure.add_axes((left / width, 0.0, (each - apart) / width, 1.0))
        for curve in chart.curves:
            _draw(axes, chart, curve)
        for limit in chart.limits:
            limit_line(axes, limit)
        _frame(axes, chart)
        if chart.y_ticks is None:
            axes.set_ylim(0.0, 1.08 * max(axes.get_ylim()[1], 0.1))
        axes.set_title(typeset(chart.title), fontsize=9, color=INK, loc="left", pad=8)
        if column and alike:
            axes.set_ylabel("")
        if row < rows - 1:
            axes.set_xlabel("")
    frame = _PANEL if alike else _HIGH
    lay_out(figure, title=title, caption=caption, frame=frame, rows=rows)
    return figure


def _draw(axes: Axes, chart: Chart, curve: Curve) -> None:
    points = chart.of(curve.name)
    x, mean = [p.x for p in points], [p.mean for p in points]
    colour = _COLOURS[curve.colour % len(_COLOURS)]
    marker = _MARKERS[curve.colour % len(_MARKERS)]
    (line,) = axes.plot(
        x, mean, color=colour, label=typeset(curve.legend), zorder=3, lw=1.6
    )
    medians = {p.x: p.median for p in points if p.median is not None}
    if chart.has_medians and medians:
        (bars,) = axes.plot([*medians], [*medians.values()], **_MEDIAN, color=colour)
        bars.set(zorder=5, markeredgewidth=0.9 if curve.look is Look.BESIDE else 1.8)
    match curve.look:
        case Look.MEASURED:
            line.set(marker=marker, markersize=5)
        case Look.UNGUARANTEED:
            line.set(marker=marker, markersize=5, linestyle="--", zorder=4)
            line.set_markerfacecolor("none")
        case Look.OTHERS:
            line.set(marker=marker, markersize=5, linestyle="--")
        case Look.BESIDE:
            # No band: it would hide that of the curve beside it, and is alike.
            line.set(linestyle=":", linewidth=1.3)
            return
        case Look.COMPUTED | Look.MEDIAN_LIMIT:
            line.set(linewidth=1.3, marker=marker, markersize=5, markevery=0.1)
            return
        case Look.LIMIT:
            line.set(**THIN, label="_")  # which keeps it out of the legend
            end = x[-1], mean[-1]
            name_end(axes, curve.name, end, falls=mean[-1] < mean[0])
            return
        case _:
            assert_never(curve.look)
    low = [p.mean - p.error for p in points]
    high = [p.mean + p.error for p in points]
    axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0, zorder=2)


def _print(axes: Axes, mark: Mark, *, first: bool) -> None:
    """Show a printed number: a bar of its error, and the number in words."""
    axes.errorbar(
        [mark.x],
        [mark.value],
        yerr=[mark.error],
        color=INK,
        marker="_",
        markersize=16,
        capsize=4,
        lw=1.2,
        zorder=5,
        label="printed in the paper" if first else None,
    )
    axes.annotate(
        mark.text,
        xy=(mark.x, mark.value),
        xytext=(mark.x, 0.03),
        textcoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=8,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        arrowprops={"arrowstyle": "-", "color": FAINT, "lw": 0.6, "shrinkB": 6},
    )


def _frame(axes: Axes, chart: Chart) -> None:
    if chart.ticks is not None:
        axes.set_xscale("log")
        axes.set_xticks(chart.ticks, tick_names(chart.ticks))
    if chart.y_ticks is not None:
        axes.set_yscale("log")
        axes.set_yticks(chart.y_ticks, tick_names(chart.y_ticks))
    axes.minorticks_off()
    axes.set_xlabel(typeset(chart.x_label), color=INK)
    axes.set_ylabel(typeset(chart.y_label), color=INK)
    plain_frame(axes)
