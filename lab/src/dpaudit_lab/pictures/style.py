"""The look that all pictures share, and how a picture becomes a file.

A picture is made from values alone: no window, no global state, and the same file, byte
for byte, for the same values and the same release of matplotlib. Its title stands above
the axes, its legend and its caption below them; words get letters as in the report.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpaudit._files import whole_file
from dpaudit.errors import InvalidInputError
from dpaudit.reporting.numbers import scientific, typeset
from dpaudit_lab.pictures.chart import Limit

__all__ = [
    "FAINT",
    "GRID",
    "INK",
    "STYLE",
    "THIN",
    "check_suffix",
    "lay_out",
    "limit_line",
    "name_end",
    "plain_frame",
    "save",
    "tick_names",
]

INK, FAINT, GRID = "#1A1A1A", "#555555", "#DDDDDD"
THIN: dict[str, Any] = {"color": FAINT, "linewidth": 0.9}  # what limits bounds
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dpaudit",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "pdf.fonttype": 42,  # whole letters, so that the text can be found and copied
}
# No date and no version, for equal bytes.
_NAMELESS: dict[str, dict[str, str | None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

# Of the paper, in inches.
_EDGE, _HEAD = 0.15, 0.55
_UNDER = 0.62  # names of ticks and axis
_BETWEEN, _OVER = 0.6, 0.2  # rows of axes, which have titles of their own
_ROW, _LINE = 0.22, 0.165  # of the legend, of the caption
_SAMPLE, _LETTER = 0.55, 0.078  # of an entry of the legend


def check_suffix(path: str | Path) -> str:
    """Return the suffix of a picture's path, and refuse any but .svg, .png, .pdf.

    Example:
        >>> check_suffix("gaps.SVG")
        '.svg'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _NAMELESS:
        raise InvalidInputError(
            f"a picture is written as .svg, .png or .pdf, got path={str(path)!r}"
        )
    return suffix


def save(drawn: Callable[[], Figure], path: str | Path) -> None:
    """Draw in the house style, and write; the suffix says which format."""
    suffix = check_suffix(path)
    with mpl.rc_context(STYLE), whole_file(path) as draft:
        drawn().savefig(draft, format=suffix[1:], dpi=150, metadata=_NAMELESS[suffix])


def lay_out(
    figure: Figure, *, title: str, caption: str, frame: float, rows: int = 1
) -> None:
    """Put title, legend and caption around the axes; the paper is as high as it needs.

    Args:
        figure: Holds its axes, where they are to stand from left to right. The legend
            is that of the first.
        title: What is shown. If it is empty it takes no room, nor does a caption.
        caption: The parameters, in lines.
        frame: Height of the axes, in inches.
        rows: How many rows of axes there are, in the order of the axes.
    """
    wide, lines = figure.get_figwidth(), typeset(caption).split("\n")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = _columns(labels, wide - 2 * _EDGE)
    below = _EDGE + _LINE * len(lines) if caption else -_EDGE
    legend = below + _EDGE + _ROW * -(-len(labels) // columns)
    high = legend + _UNDER + frame + (_HEAD if title else _EDGE)
    if rows > 1:
        high += (rows - 1) * (frame + _BETWEEN) + _OVER
    figure.set_figheight(high)
    each = -(-len(figure.axes) // rows)
    for at, axes in enumerate(figure.axes):
        box = axes.get_position()
        above = (rows - 1 - at // each) * (frame + _BETWEEN)
        bottom = (legend + _UNDER + above) / high
        axes.set_position((box.x0, bottom, box.width, frame / high))
    left = _EDGE / wide
    heading = {"va": "top", "fontsize": 13, "weight": "bold", "color": INK}
    figure.text(left, 1 - _EDGE / high, typeset(title), heading)
    figure.text(left, below / high, "\n".join(lines), va="top", fontsize=8, color=FAINT)
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(left, legend / high),
        borderpad=0,
        borderaxespad=0,
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
    )


def _columns(labels: Sequence[str], wide: float) -> int:
    """Return in how many columns a legend fits, which fill one after the other."""
    for columns in range(len(labels), 1, -1):
        longest = [max(map(len, column)) for column in np.array_split(labels, columns)]
        if sum(_SAMPLE + _LETTER * letters for letters in longest) <= wide:
            return columns
    return 1


def limit_line(axes: Axes, limit: Limit) -> None:
    """Draw a limit from left to right, named at its right end."""
    axes.axhline(limit.level, **THIN)
    name_end(axes, limit.text, (1.0, limit.level), ("axes fraction", "data"))


def name_end(
    axes: Axes,
    words: str,
    end: tuple[float, float],
    coordinates: str | tuple[str, str] = "data",
    *,
    falls: bool = False,
) -> None:
    """Write what a line is at its right end: above it, or below it if it falls."""
    axes.annotate(
        typeset(words),
        xy=end,
        xycoords=coordinates,
        xytext=(-4, -3 if falls else 3),
        textcoords="offset points",
        ha="right",
        va="top" if falls else "bottom",
        fontsize=8,
        color=FAINT,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0},
    )


def tick_names(ticks: Iterable[float]) -> list[str]:
    """Return the names of values on a logarithmic axis.

    Example:
        >>> tick_names([1e-4, 0.1, 32_000, 1e6])
        ['10⁻⁴', '0.1', '32,000', '10⁶']
    """
    return [f"{t:,g}" if 1 <= t < 1e6 else scientific(t) for t in ticks]


def plain_frame(axes: Axes) -> None:
    """Leave of the frame what is needed: two spines, faint ticks, a grid behind."""
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
