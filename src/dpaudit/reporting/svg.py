"""A few SVG elements as text: the report's own pencil.

Marks name a class of the page's style sheet instead of a colour, so that one picture
serves light, dark and paper; text stays text. Whatever comes from outside is escaped,
and coordinates are kept within what renderers can hold.
"""

from collections.abc import Iterable
from html import escape
from math import isnan

from dpaudit.errors import printable

__all__ = [
    "area",
    "bracket",
    "diamond",
    "document",
    "dot",
    "group",
    "line",
    "path",
    "picture",
    "rect",
    "square",
    "stretched",
    "text",
]

_FAR = 1e5  # further out nothing is seen


def picture(
    *, width: float, height: float, title: str, description: str, content: str
) -> str:
    """Return a picture that a screen reader announces by title and description."""
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" '
        f'aria-label="{_said(title)}. {_said(description)}">'
        f"<title>{_said(title)}</title><desc>{_said(description)}</desc>"
        f"{content}</svg>"
    )


def document(
    *,
    width: float,
    height: float,
    title: str,
    description: str,
    style: str,
    content: str,
) -> str:
    """Return a picture that is a file of its own: it brings paper and style along.

    A screen reader announces it by title and description, as it does the others.
    """
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        'aria-labelledby="title description">\n'
        f'<title id="title">{_said(title)}</title>\n'
        f'<desc id="description">{_said(description)}</desc>\n'
        f"<style>{style}</style>\n"
        f"{rect(0, 0, width, height, 'paper')}\n{content}\n</svg>\n"
    )


def stretched(*, width: float, height: float, title: str, content: str) -> str:
    """Return a picture without text that fills whatever room it is given."""
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" class="bar" '
        f'preserveAspectRatio="none" aria-label="{_said(title)}">'
        f"<title>{_said(title)}</title>{content}</svg>"
    )


def group(content: str, *, left: float, top: float, width: float, height: float) -> str:
    """Return marks cut off at the edges of a frame, in coordinates of the whole."""
    return (
        f'<svg class="cut" x="{left:g}" y="{top:g}" width="{width:g}" '
        f'height="{height:g}" viewBox="{left:g} {top:g} {width:g} {height:g}">'
        f"{content}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    """Return a straight line."""
    return (
        f'<line x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}" '
        f'class="{look}"/>'
    )


def path(points: Iterable[tuple[float, float]], look: str) -> str:
    """Return a line through points."""
    return f'<polyline points="{_list(points)}" class="line {look}"/>'


def area(points: Iterable[tuple[float, float]], look: str) -> str:
    """Return the area that a closed line goes round."""
    return f'<polygon points="{_list(points)}" class="{look}"/>'


def rect(x: float, y: float, width: float, height: float, look: str) -> str:
    """Return a rectangle; one of no width or less is not drawn."""
    if not (width > 0 and height > 0):
        return ""
    return (
        f'<rect x="{_at(x)}" y="{_at(y)}" width="{_at(width)}" height="{_at(height)}" '
        f'class="{look}"/>'
    )


def dot(x: float, y: float, look: str) -> str:
    """Return a mark at one point."""
    return f'<circle cx="{_at(x)}" cy="{_at(y)}" r="5" class="{look}"/>'


def bracket(low: float, high: float, y: float, *, half: float = 5.0) -> str:
    """Return an interval from left to right, with its ends marked."""
    return line(low, y, high, y, "whisker") + "".join(
        line(x, y - half, x, y + half, "whisker") for x in (low, high)
    )


def square(x: float, y: float, look: str) -> str:
    """Return a square mark at one point."""
    return rect(x - 4.5, y - 4.5, 9, 9, look)


def diamond(x: float, y: float, look: str) -> str:
    """Return a square mark that stands on a corner, at one point."""
    return area([(x - 8, y), (x, y - 8), (x + 8, y), (x, y + 8)], look)


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    turn: int = 0,
    look: str = "",
) -> str:
    """Return a text that starts, ends or has its middle at a point."""
    turned = f' transform="rotate({turn} {_at(x)} {_at(y)})"' if turn else ""
    looking = f' class="{look}"' if look else ""
    return (
        f'<text x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}"{turned}{looking}>'
        f"{_said(words)}</text>"
    )


def _said(words: str) -> str:
    """Return a text as markup can hold it, which no control character may enter."""
    return escape(printable(words))


def _at(value: float) -> str:
    return f"{0.0 if isnan(value) else round(min(_FAR, max(-_FAR, value)), 2):g}"


def _list(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_at(x)},{_at(y)}" for x, y in points)
