"""A few SVG elements as text: the report's own pencil.

Marks name a class of the page's style sheet instead of a colour, so that one picture
serves light, dark and paper; text stays text. Whatever comes from outside is escaped,
and coordinates are kept within what renderers can hold.
"""

from collections.abc import Iterable
from html import escape
from math import isnan

__all__ = [
    "area",
    "dot",
    "group",
    "line",
    "path",
    "picture",
    "rect",
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
        f'aria-label="{escape(title)}. {escape(description)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        f"{content}</svg>"
    )


def stretched(*, width: float, height: float, title: str, content: str) -> str:
    """Return a picture without text that fills whatever room it is given."""
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" class="bar" '
        f'preserveAspectRatio="none" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{content}</svg>"
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


def text(
    x: float, y: float, words: str, *, anchor: str = "start", turn: int = 0
) -> str:
    """Return a text that starts, ends or has its middle at a point."""
    turned = f' transform="rotate({turn} {_at(x)} {_at(y)})"' if turn else ""
    return (
        f'<text x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}"{turned}>'
        f"{escape(words)}</text>"
    )


def _at(value: float) -> str:
    return f"{0.0 if isnan(value) else round(min(_FAR, max(-_FAR, value)), 2):g}"


def _list(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_at(x)},{_at(y)}" for x, y in points)
