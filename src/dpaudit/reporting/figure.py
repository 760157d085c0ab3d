"""A figure: a picture with its legend, its caption and its numbers.

A picture never stands alone. It has a title and a description for who cannot see it, a
legend and a caption, and on a page its numbers in a table. On a page these are the
page's own text; ``Figure.write`` makes an SVG file of its own of them, which brings
paper and style along. Both take colours from ``style.css``, for light and for dark. The
same values give the same bytes. A figure that a result has nothing to show in is left
out, and one sentence says why.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from textwrap import wrap
from typing import Final, Self, final

from dpaudit import _files
from dpaudit.errors import InvalidInputError, printable
from dpaudit.reporting import svg
from dpaudit.reporting.numbers import typeset
from dpaudit.reporting.svg import Picture

__all__ = ["Figure", "LeftOut", "Mark", "Table", "style_sheet"]

_SUFFIX: Final = ".svg"
_EDGE: Final = 18.0  # of paper around everything
_LINE: Final = 14.0  # from one line of a caption to the next
_ROW: Final = 22.0  # from one row of the legend to the next
_TITLE: Final = 24.0  # from one line of a heading to the next
_HEADING_LETTER, _LETTER, _SMALL_LETTER = 12.6, 8.2, 7.25  # wide, at most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers of a figure, as text.

    Attributes:
        head: What each column holds.
        rows: One text for each column.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of a legend.

    Attributes:
        sample: How it is drawn, in a box of ``svg.SAMPLE``.
        words: What it stands for.
    """

    sample: str
    words: str

    @classmethod
    def line(cls, look: str, words: str) -> Self:
        """Return the entry of a line."""
        middle = svg.SAMPLE[1] / 2
        sample = svg.path([(1, middle), (svg.SAMPLE[0] - 1, middle)], look)
        return cls(sample=sample, words=words)

    @classmethod
    def area(cls, look: str, words: str) -> Self:
        """Return the entry of an area."""
        sample = svg.rect(2, 1, svg.SAMPLE[0] - 4, svg.SAMPLE[1] - 2, look)
        return cls(sample=sample, words=words)

    @classmethod
    def dot(cls, look: str, words: str) -> Self:
        """Return the entry of a mark at one point."""
        sample = svg.dot(svg.SAMPLE[0] / 2, svg.SAMPLE[1] / 2, look)
        return cls(sample=sample, words=words)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture, its words and its numbers.

    Attributes:
        name: Its address within a page.
        heading: What it is about.
        picture: The picture.
        legend: What its marks stand for.
        caption: What to see in it, and what it does not say; one paragraph each.
        table: Its numbers; None where the picture shows them itself.
    """

    name: str
    heading: str
    picture: Picture
    legend: tuple[Mark, ...]
    caption: tuple[str, ...]
    table: Table | None = None

    def document(self) -> str:
        """Return the figure as an SVG file of its own: heading, legend and caption."""
        picture, wide = self.picture, self.picture.width
        heading = _wrapped(self.heading, wide, _HEADING_LETTER)
        above = 20 + _TITLE * len(heading)
        legend, below = self._legend(picture.height + 16)
        small = [
            line
            for words in self.caption
            for line in _wrapped(typeset(words), wide, _SMALL_LETTER)
        ]
        content = [
            svg.lines(_EDGE, 34 - above, heading, "heading", apart=_TITLE),
            picture.content,
            legend,
            svg.lines(_EDGE, below, small, "caption", apart=_LINE),
        ]
        return svg.document(
            picture,
            above=above,
            height=above + below + _LINE * (len(small) - 1) + _EDGE,
            style=_standing_alone(),
            content="\n".join(content),
        )

    def write(self, path: str | Path) -> None:
        """Write the figure as an SVG file; one that is there is replaced, in one go.

        Raises:
            InvalidInputError: The suffix is another one.
        """
        if Path(path).suffix.lower() != _SUFFIX:
            raise InvalidInputError(
                f"a picture is an SVG file, so path must end in .svg, got path="
                f"{str(path)!r}; for other formats convert the file, or print it from "
                "a browser"
            )
        _files.write(path, self.document())

    def _legend(self, y: float) -> tuple[str, float]:
        """Return the legend from a height on, and where what follows begins."""
        x, parts = _EDGE, []
        for mark in self.legend:
            words = typeset(mark.words)
            room = svg.SAMPLE[0] + 10 + _LETTER * len(words)
            if x > _EDGE and x + room > self.picture.width - _EDGE:
                x, y = _EDGE, y + _ROW
            parts.append(svg.placed(mark.sample, x, y - 12))
            parts.append(svg.text(x + svg.SAMPLE[0] + 10, y, words, look="ink"))
            x += room + 24
        return "".join(parts), y + 30


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A figure that the result has nothing to show in.

    Attributes:
        heading: What it would have been about.
        why: One sentence.
    """

    heading: str
    why: str


def style_sheet() -> str:
    """Return the colours, light and dark, and how marks are drawn with them."""
    folder = resources.files("dpaudit.reporting")
    return (folder / "style.css").read_text(encoding="utf-8")


def _standing_alone() -> str:
    """Return the style of marks with colours put in: not all that draw know variables.

    Without variables the dark colours need rules of their own.
    """
    sheet = style_sheet()
    rules = sheet.partition("/* Marks */")[2]
    coloured = "".join(re.findall(r".*var\(.*\n", rules))
    light, dark = (
        dict(re.findall(r"--([\w-]+): ([^;]+);", block))
        for block in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    )

    def put_in(colours: dict[str, str], rules: str) -> str:
        return re.sub(r"var\(--([\w-]+)\)", lambda name: colours[name[1]], rules)

    return (
        f"{put_in(light, rules)}@media (prefers-color-scheme: dark) {{\n"
        f"{put_in(dark, coloured)}}}\n"
    )


def _wrapped(words: str, wide: float, letter: float) -> list[str]:
    return wrap(printable(words), int((wide - 2 * _EDGE) / letter))
