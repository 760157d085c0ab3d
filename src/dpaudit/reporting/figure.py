"""What the report shows for each figure: the picture, its words, and its numbers.

A picture never stands alone. It has a title and a description for who cannot see it, a
legend and a caption in the page's own text, and its numbers in a table. A figure that a
result has nothing to show in is left out, and one sentence says why.
"""

from dataclasses import dataclass
from typing import TypeAlias, final

__all__ = ["Drawn", "Figure", "LeftOut", "Mark", "Table"]


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
        look: The class of the style sheet that the picture draws it by.
        solid: Whether it is an area rather than a line.
        words: What it stands for.
    """

    look: str
    solid: bool
    words: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A figure of the report.

    Attributes:
        name: Its address within the page.
        heading: What it is about.
        svg: The picture; every text in it is escaped.
        legend: What its marks stand for.
        caption: What to see in it, and what it does not say; one paragraph each.
        table: Its numbers.
    """

    name: str
    heading: str
    svg: str
    legend: tuple[Mark, ...]
    caption: tuple[str, ...]
    table: Table


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


Figure: TypeAlias = Drawn | LeftOut
