"""A figure: a picture with its legend, its caption and its numbers.

A picture always has a title and a description for screen readers, a legend and a
caption, and on a page its numbers in a table. On a page these are the page's own text;
``Figure.write`` puts them into an SVG file of their own, with background and style.
Both take colours from ``style.css``, for light and dark mode. The same values give the
same bytes. A figure for which a result has no data is left out, and one sentence gives
the reason.
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
from dpaudit.reporting.pdf import pdf
from dpaudit.reporting.svg import Picture

__all__ = ["Figure", "LeftOut", "Mark", "Table", "style_sheet"]

_SUFFIXES: Final = (".svg", ".pdf")
_EDGE: Final = 18.0  # margin around everything
_LINE: Final = 14.0  # line height of a caption
_ROW: Final = 22.0  # row height of the legend
_TITLE: Final = 24.0  # line height of a heading
_HEADING_LETTER, _LETTER, _SMALL_LETTER = 12.6, 8.2, 7.25  # largest widths


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers of a figure, as text.

    Attributes:
        head: The heading of each column.
        rows: The rows, with one text for each column.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of a legend.

    Attributes:
        sample: The drawn sample, in a box of ``svg.SAMPLE``.
        words: Its meaning.
    """

    sample: str
    words: str

    @classmethod
    def line(cls, style: str, words: str) -> Self:
        """Return the legend entry of a line."""
        middle = svg.SAMPLE[1] / 2
        sample = svg.path([(1, middle), (svg.SAMPLE[0] - 1, middle)], style)
        return cls(sample=sample, words=words)

    @classmethod
    def area(cls, style: str, words: str) -> Self:
        """Return the legend entry of an area."""
        sample = svg.rect(2, 1, svg.SAMPLE[0] - 4, svg.SAMPLE[1] - 2, style)
        return cls(sample=sample, words=words)

    @classmethod
    def dot(cls, style: str, words: str) -> Self:
        """Return the legend entry of a mark at one point."""
        sample = svg.dot(svg.SAMPLE[0] / 2, svg.SAMPLE[1] / 2, style)
        return cls(sample=sample, words=words)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture, its text and its numbers.

    Attributes:
        name: Its anchor within a page.
        heading: Its subject.
        picture: The picture.
        legend: The meanings of its marks.
        caption: How to read it, and what it does not show, in paragraphs.
        table: Its numbers; None if the picture itself shows them.
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
        """Write the figure as SVG or PDF, atomically replacing an existing file.

        Raises:
            InvalidInputError: The suffix is another one.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in _SUFFIXES:
            raise InvalidInputError(
                f"a picture is an SVG or PDF file, so path must end in .svg or .pdf, "
                f"got path={str(path)!r}; for other formats convert the file, or print "
                "it from a browser"
            )
        document = self.document()
        content = document.encode() if suffix == ".svg" else pdf(document)
        with _files.whole_file(path) as draft:
            draft.write_bytes(content)

    def _legend(self, y: float) -> tuple[str, float]:
        """Return the legend, which starts at ``y``, and the y of the text below it."""
        x, parts = _EDGE, []
        for mark in self.legend:
            words = typeset(mark.words)
            room = svg.SAMPLE[0] + 10 + _LETTER * len(words)
            if x > _EDGE and x + room > self.picture.width - _EDGE:
                x, y = _EDGE, y + _ROW
            parts.append(svg.placed(mark.sample, x, y - 12))
            parts.append(svg.text(x + svg.SAMPLE[0] + 10, y, words, style="ink"))
            x += room + 24
        return "".join(parts), y + 30


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A figure for which the result has no data.

    Attributes:
        heading: Its subject.
        why: The reason, in one sentence.
    """

    heading: str
    why: str


def style_sheet() -> str:
    """Return the style sheet: colours, light and dark, and rules for marks."""
    folder = resources.files("dpaudit.reporting")
    return (folder / "style.css").read_text(encoding="utf-8")


def _standing_alone() -> str:
    """Return the style of marks with colours put in: some renderers lack variables.

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
