"""The look that all pictures share, and how a picture becomes a file.

A picture is made from values alone: no window, no global state, and the same SVG, byte
for byte, for the same values and the same release of matplotlib.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpaudit._files import whole_file
from dpaudit.errors import InvalidInputError

__all__ = [
    "FAINT",
    "GRID",
    "INK",
    "STYLE",
    "check_suffix",
    "plain_frame",
    "save",
]

INK, FAINT, GRID = "#1A1A1A", "#555555", "#DDDDDD"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dpaudit",
    "font.family": "DejaVu Sans",
    "font.size": 10,
}
# No date and no version, for equal bytes.
_NAMELESS: dict[str, dict[str, str | None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
}


def check_suffix(path: str | Path) -> str:
    """Return the suffix of a picture's path, and refuse any but .svg and .png.

    Example:
        >>> check_suffix("gaps.SVG")
        '.svg'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _NAMELESS:
        raise InvalidInputError(
            f"a picture is written as .svg or .png, got path={str(path)!r}"
        )
    return suffix


def save(drawn: Callable[[], Figure], path: str | Path) -> None:
    """Draw in the house style, and write; the suffix says which format."""
    suffix = check_suffix(path)
    with mpl.rc_context(STYLE), whole_file(path) as draft:
        drawn().savefig(draft, format=suffix[1:], dpi=150, metadata=_NAMELESS[suffix])


def plain_frame(axes: Axes) -> None:
    """Leave of the frame what is needed: two spines, faint ticks, a grid behind."""
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
