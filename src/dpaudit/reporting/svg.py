"""SVG elements as text, for the pictures of reports, plans and gaps.

Marks name a class of a style sheet instead of a colour, so that one picture works in
light and dark mode and on paper; text stays text. Text from outside is escaped, and
coordinates are limited to a range that renderers can handle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan
from typing import Final, final

from dpaudit.errors import printable

__all__ = [
    "SAMPLE",
    "Picture",
    "area",
    "bracket",
    "diamond",
    "document",
    "dot",
    "group",
    "line",
    "lines",
    "path",
    "placed",
    "rect",
    "square",
    "stretched",
    "text",
]

SAMPLE: Final = (28.0, 14.0)  # width and height of a sample in a legend
_FAR: Final = 1e5  # the largest coordinate that is written


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Marks and text, with a title and a description for screen readers.

    Attributes:
        width: The width; coordinates start at 0, on the left.
        height: The height; coordinates start at 0, at the top.
        title: The subject of the picture.
        description: The content of the picture in words.
        content: The marks; every text in them is escaped.
    """

    width: float
    height: float
    title: str
    description: str
    content: str

    def inline(self) -> str:
        """Return the picture as a part of a page."""
        return (
            f'<svg role="img" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'aria-label="{_safe(self.title)}. {_safe(self.description)}">'
            f"<title>{_safe(self.title)}</title><desc>{_safe(self.description)}</desc>"
            f"{self.content}</svg>"
        )


def document(
    picture: Picture, *, above: float, height: float, style: str, content: str
) -> str:
    """Return a picture as an SVG file of its own, with background and style.

    Args:
        picture: The picture.
        above: Extra room above the picture.
        height: Height of the file.
        style: The rules for its classes.
        content: The picture's marks, and the text around them.
    """
    wide = picture.width
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{wide:g}" height="{height:g}" '
        f'viewBox="0 {_at(-above)} {wide:g} {height:g}" '
        'font-family="sans-serif" aria-labelledby="title description">\n'
        f'<title id="title">{_safe(picture.title)}</title>\n'
        f'<desc id="description">{_safe(picture.description)}</desc>\n'
        f"<style>{style}</style>\n"
        f"{rect(0, -above, wide, height, 'paper')}\n{content}\n</svg>\n"
    )


def stretched(*, width: float, height: float, title: str, content: str) -> str:
    """Return a picture without text that stretches to the available room."""
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" class="bar" '
        f'preserveAspectRatio="none" aria-label="{_safe(title)}">'
        f"<title>{_safe(title)}</title>{content}</svg>"
    )


def placed(content: str, x: float, y: float) -> str:
    """Return the sample of a legend at a place; it may overflow its box."""
    return (
        f'<svg x="{_at(x)}" y="{_at(y)}" width="{SAMPLE[0]:g}" '
        f'height="{SAMPLE[1]:g}" overflow="visible">{content}</svg>'
    )


def group(content: str, *, left: float, top: float, width: float, height: float) -> str:
    """Return marks clipped to a frame, in coordinates of the whole picture."""
    return (
        f'<svg class="cut" x="{left:g}" y="{top:g}" width="{width:g}" '
        f'height="{height:g}" viewBox="{left:g} {top:g} {width:g} {height:g}">'
        f"{content}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return a straight line."""
    return (
        f'<line x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}" '
        f'class="{style}"/>'
    )


def path(points: Iterable[tuple[float, float]], style: str) -> str:
    """Return a line through points."""
    return f'<polyline points="{_list(points)}" class="line {style}"/>'


def area(points: Iterable[tuple[float, float]], style: str) -> str:
    """Return the area within a closed line."""
    return f'<polygon points="{_list(points)}" class="{style}"/>'


def rect(x: float, y: float, width: float, height: float, style: str) -> str:
    """Return a rectangle; one of no width or less is not drawn."""
    if not (width > 0 and height > 0):
        return ""
    return (
        f'<rect x="{_at(x)}" y="{_at(y)}" width="{_at(width)}" height="{_at(height)}" '
        f'class="{style}"/>'
    )


def dot(x: float, y: float, style: str) -> str:
    """Return a mark at one point."""
    return f'<circle cx="{_at(x)}" cy="{_at(y)}" r="5" class="{style}"/>'


def bracket(low: float, high: float, y: float, *, half: float = 5.0) -> str:
    """Return an interval from left to right, with its ends marked."""
    return line(low, y, high, y, "whisker") + "".join(
        line(x, y - half, x, y + half, "whisker") for x in (low, high)
    )


def square(x: float, y: float, style: str) -> str:
    """Return a square mark at one point."""
    return rect(x - 4.5, y - 4.5, 9, 9, style)


def diamond(x: float, y: float, style: str) -> str:
    """Return a square mark on its corner, at one point."""
    return area([(x - 8, y), (x, y - 8), (x + 8, y), (x, y + 8)], style)


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    turn: int = 0,
    style: str = "",
) -> str:
    """Return a text that starts, ends or is centred at a point."""
    turned = f' transform="rotate({turn} {_at(x)} {_at(y)})"' if turn else ""
    styled = f' class="{style}"' if style else ""
    return (
        f'<text x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}"{turned}{styled}>'
        f"{_safe(words)}</text>"
    )


def lines(
    x: float,
    y: float,
    words: Sequence[str],
    style: str,
    *,
    apart: float,
    anchor: str = "start",
) -> str:
    """Return lines of text, the first at a point and the others below it."""
    return "".join(
        text(x, y + i * apart, line, anchor=anchor, style=style)
        for i, line in enumerate(words)
    )


def _safe(words: str) -> str:
    """Return a text escaped for markup, without control characters."""
    return escape(printable(words))


def _at(value: float) -> str:
    return f"{0.0 if isnan(value) else round(min(_FAR, max(-_FAR, value)), 2):g}"


def _list(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_at(x)},{_at(y)}" for x, y in points)
