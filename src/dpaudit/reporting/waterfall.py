"""The waterfall: from the claimed epsilon down to the lower bound.

Each level is a row of text with a bar beside it: the epsilon that is left, the part
that the step took or, rarely, added, and its uncertainty. The bars share one scale from
0; the text contains all their numbers, so nothing is lost without them. A report lays
out the text itself, beside ``Row.bar``. A picture contains both; if a level is
infinite, its bar is broken and ends in an arrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from textwrap import wrap
from typing import Final, final

from dpaudit.errors import printable
from dpaudit.explanation import Explanation, Step
from dpaudit.reporting import svg
from dpaudit.reporting.axes import Even
from dpaudit.reporting.figure import Figure, Mark
from dpaudit.reporting.numbers import at_least, count, plain, signed, typeset
from dpaudit.reporting.svg import SAMPLE, Picture
from dpaudit.theory.gap_levels import GapLevel, Gaps

__all__ = ["Row", "explanation_rows", "gaps_figure", "scale_of"]

_LOST: Final = "Where the epsilon of a claim is lost"
_NEGLIGIBLE: Final = 5e-4  # a smaller remainder is printed as 0.000
_BAR_WIDTH, _BAR_HEIGHT = 1000.0, 20.0  # of a bar by itself


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A level, and the step that leads to it.

    Attributes:
        name: The name of the level.
        before: The level above; its own for the first.
        level: The epsilon that is left.
        known: An interval that holds it; None if it is exact.
        takes: The change of the step, as text; "" for the claim and the bound.
        leaves: The level, as text.
        within: The interval of the level, as text; "" if it is exact.
        title: The row in a few words, for screen readers.
        meaning: The explanation of the level.
        plain: The name in plain words; "" if it is plain.
        advice: What could be done about it; "" if nothing.
        end: The style class of the bar of the claim or the bound; "" for a step.
    """

    name: str
    before: float
    level: float
    known: tuple[float, float] | None = None
    takes: str = ""
    leaves: str
    within: str = ""
    title: str = ""
    meaning: str
    plain: str = ""
    advice: str = ""
    end: str = ""

    def bar(self, scale: float) -> str:
        """Return the bar by itself, with the epsilon at its right end."""
        axis = Even(low=0.0, high=scale)

        def at(value: float) -> float:
            return _BAR_WIDTH * min(1.0, max(0.0, axis.share(value)))

        marks = [
            svg.rect(at(low), 0, at(high) - at(low), _BAR_HEIGHT, style)
            for low, high, style in self.parts()
        ]
        if self.known is not None:
            low, high = map(at, self.known)
            marks.append(svg.bracket(low, high, _BAR_HEIGHT / 2))
        return svg.stretched(
            width=_BAR_WIDTH,
            height=_BAR_HEIGHT,
            title=self.title,
            content="".join(marks),
        )

    def parts(self) -> list[tuple[float, float, str]]:
        """Return the parts of the bar: what is left, and what was taken or added."""
        if self.end:
            return [(0.0, self.level, self.end)]
        low, high = sorted((self.before, self.level))
        change = "taken" if self.level <= self.before else "added"
        return [(0.0, low, "left"), (low, high, change)]


def explanation_rows(explanation: Explanation) -> tuple[Row, ...]:
    """Return the rows from the claim down to the lower bound."""
    claimed, found = explanation.claimed, explanation.found
    levels = [claimed, *(step.leaves for step in explanation.steps)]
    kept = "The epsilon that is claimed, at the delta of this audit."
    rows = [_end("claimed", claimed, plain(claimed), kept, "left")]
    rows += [
        _step_row(step, before)
        for step, before in zip(explanation.steps, levels, strict=False)
    ]
    if abs(explanation.remainder) >= _NEGLIGIBLE and isfinite(explanation.remainder):
        change = signed(explanation.remainder)
        rows.append(
            Row(
                name="not explained",
                before=levels[-1],
                level=found,
                takes=change,
                leaves=at_least(found),
                title=f"not explained: {change}",
                meaning="What no step accounts for: the luck of this run, and what the "
                "levels above are uncertain by.",
            )
        )
    stated = "The lower bound on epsilon that this audit states."
    return (*rows, _end("found", found, at_least(found), stated, "bound"))


def explanation_figure(explanation: Explanation) -> Figure:
    """Return the figure of why the bound is below the claim."""
    return _waterfall(
        explanation_rows(explanation),
        heading="Why the bound is below the claim",
        description=f"From the claim, epsilon = {explanation.claimed:.4g}, to the "
        f"lower bound, {at_least(explanation.found)}.",
        caption="Each step lowers the claimed epsilon or, through luck or a fault, "
        f"raises it. Basis: {explanation.model}.",
    )


def _end(name: str, level: float, leaves: str, meaning: str, style: str) -> Row:
    """Return the row of the claim, or of the lower bound."""
    return Row(
        name=name,
        before=level,
        level=level,
        leaves=leaves,
        title=f"{name}: {leaves}",
        meaning=meaning,
        end=style,
    )


def _step_row(step: Step, before: float) -> Row:
    takes, leaves = signed(-step.takes), plain(step.leaves)
    known = isfinite(step.low) and isfinite(step.high) and step.high > step.low
    return Row(
        name=step.name,
        before=before,
        level=step.leaves,
        known=(step.low, step.high) if known else None,
        takes=takes,
        leaves=leaves,
        within=f"{plain(step.low)} to {plain(step.high)}" if known else "",
        title=f"{step.name} changes it by {takes} and leaves {leaves}",
        meaning=step.sentence,
        plain=step.plain,
        advice="" if step.advice is None else str(step.advice),
    )


def scale_of(rows: Sequence[Row]) -> float:
    """Return the epsilon at the right end of every bar."""
    levels = _levels(rows)
    finite = max((each for each in levels if isfinite(each)), default=1.0) or 1.0
    # Infinite levels extend beyond the finite ones.
    return finite if all(map(isfinite, levels)) else 1.2 * finite


def _levels(rows: Sequence[Row]) -> list[float]:
    """Return all values that the scale must contain."""
    return [value for row in rows for value in (row.level, *(row.known or ()))]


def gaps_figure(gaps: Gaps, *, title: str | None = None) -> Figure:
    """Return the waterfall of what an audit of a mechanism loses at each level.

    Args:
        gaps: The gaps to draw.
        title: The name of the mechanism.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.mechanisms.parity import Xor
        >>> from dpaudit.theory.gaps import gaps
        >>> with TemporaryDirectory() as folder:
        ...     gaps_figure(gaps(Xor(elements=9), elements=9)).write(f"{folder}/x.svg")
    """
    before = [gaps.levels[0], *gaps.levels]
    rows = [
        _level_row(gaps, level, above.epsilon)
        for level, above in zip(gaps.levels, before, strict=False)
    ]
    if gaps.remainder is not None:
        bound = gaps.levels[-1].epsilon + gaps.remainder
        rows.append(_end("observed", bound, plain(bound), "", "bound"))
    caption = (
        f"{count(gaps.elements)} canaries, {count(gaps.guesses)} guesses, "
        f"delta = {gaps.delta:g}, alpha = {gaps.alpha:g}; the bound varies by "
        f"{plain(gaps.spread)} from run to run (standard deviation)"
    )
    return _waterfall(
        rows,
        heading=": ".join(filter(None, [typeset(_LOST), title])),
        description=f"{gaps} {caption}.",
        caption=caption,
    )


def _level_row(gaps: Gaps, level: GapLevel, before: float) -> Row:
    takes = gaps.taken_by(level)
    if takes[-1:].isdigit():
        takes = plain(gaps.drops[level.name])
    # An interval is shown if it differs visibly from the level.
    interval = (
        f"[{plain(level.low)}, {plain(level.high)}]" if "[" in level.shown else ""
    )
    return Row(
        name=level.name,
        before=before,
        level=level.epsilon,
        known=(level.low, level.high) if level.low < level.high else None,
        takes=takes.replace("-", "\N{MINUS SIGN}").replace("infinity", "\N{INFINITY}"),
        leaves=plain(level.epsilon),
        within=interval,
        meaning=level.meaning,
    )


# The picture.

_WIDE: Final = 1000.0
_FROM, _TO = 355.0, 800.0  # of the bars
_TAKES, _LEAVES = 868.0, _WIDE - 18.0  # right ends of these columns
_BAR: Final = 26.0
_LINE: Final = 14.0  # line height of a meaning
_LETTERS: Final = 49  # of a meaning, on one line
_TOP: Final = 28.0  # of the rows
_MIDDLE: Final = SAMPLE[1] / 2
_LEGEND: Final = {
    "left": Mark.area("left", "left"),
    "taken": Mark.area("taken", "taken"),
    "added": Mark.area("added", "added"),
    "within": Mark(sample=svg.bracket(3, SAMPLE[0] - 3, _MIDDLE), words="known within"),
}


def _waterfall(
    rows: Sequence[Row], *, heading: str, description: str, caption: str
) -> Figure:
    drawn = _Drawn.of(rows)
    shown = {
        "left": True,
        "taken": True,
        "added": any(row.level > row.before for row in rows),
        "within": any(row.known for row in rows),
    }
    return Figure(
        name="waterfall",
        heading=heading,
        picture=Picture(
            width=_WIDE,
            height=drawn.base + 52,
            title=heading,
            description=description,
            content="\n".join(drawn.content()),
        ),
        legend=tuple(mark for name, mark in _LEGEND.items() if shown[name]),
        caption=(caption,),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """The rows of a picture, and their places.

    Attributes:
        rows: The rows to draw.
        meanings: The explanation of each row, in lines.
        top: The largest finite level.
        end: Where infinity is drawn, or ``top``.
    """

    rows: Sequence[Row]
    meanings: tuple[list[str], ...]
    top: float
    end: float

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "_Drawn":
        levels = _levels(rows)
        # Beside infinity a tiny level should not appear large.
        least = 1.0 if inf in levels else 1e-3
        top = max([least, *(value for value in levels if isfinite(value))])
        return cls(
            rows=rows,
            meanings=tuple(
                wrap(printable(typeset(row.meaning)), _LETTERS) for row in rows
            ),
            top=top,
            end=1.3 * top if inf in levels else top,
        )

    @property
    def base(self) -> float:
        """The y coordinate below the last row."""
        return _TOP + len(self.rows) * self._each

    def content(self) -> list[str]:
        """Return all marks and text."""
        heads = ((_TAKES, "takes"), (_LEAVES, "leaves"))
        return [
            *(svg.text(x, _TOP - 12, words, anchor="end") for x, words in heads),
            self._grid(),
            *(self._row(number, row) for number, row in enumerate(self.rows)),
        ]

    @property
    def _each(self) -> float:
        """The height of a row."""
        return max(56.0, 34 + _LINE * max(map(len, self.meanings)))

    def _x(self, epsilon: float) -> float:
        axis = Even(low=0.0, high=1.06 * self.end)
        return _FROM + (_TO - _FROM) * axis.share(min(epsilon, self.end))

    def _y(self, number: int) -> float:
        return _TOP + (number + 0.5) * self._each

    def _grid(self) -> str:
        ticks = list(Even(low=0.0, high=self.top).ticks())
        if self.end > self.top:
            ticks.append((inf, "\N{INFINITY}"))
        base, at = self.base, [(self._x(value), name) for value, name in ticks]
        middle = (_FROM + _TO) / 2
        return "".join(
            [
                *(svg.line(x, _TOP, x, base, "grid") for x, _ in at),
                svg.line(_FROM, _TOP, _FROM, base, "axis"),
                *(svg.text(x, base + 19, name, anchor="middle") for x, name in at),
                svg.text(middle, base + 42, typeset("epsilon"), anchor="middle"),
            ]
        )

    def _row(self, number: int, row: Row) -> str:
        y, words = self._y(number), self._words(number, row)
        if row.end == "bound":
            return svg.diamond(self._x(row.level), y, "ink") + words
        marks = [
            svg.rect(self._x(a), y - _BAR / 2, self._x(b) - self._x(a), _BAR, style)
            for a, b, style in row.parts()
        ]
        if inf in (row.before, row.level):
            marks.append(self._broken(y))
        if number + 1 < len(self.rows) and self.rows[number + 1].end != "bound":
            x, end = self._x(row.level), y + self._each - _BAR / 2
            marks.append(svg.line(x, y + _BAR / 2, x, end, "step"))
        if row.known is not None:
            marks.append(self._interval(y, *row.known))
        return "".join([*marks, words])

    def _broken(self, y: float) -> str:
        """Return the break and the arrow of a bar that extends to infinity."""
        at, half = self._x((self.top + self.end) / 2), _BAR / 2 + 4
        slashes = [
            svg.line(at + x - 4, y + half, at + x + 4, y - half, "break")
            for x in (-5, 5)
        ]
        return "".join([*slashes, self._arrow(y)])

    def _arrow(self, y: float) -> str:
        x = self._x(inf)
        tip = x + 22
        return svg.line(x, y, tip - 8, y, "whisker") + svg.area(
            [(tip - 9, y - 5), (tip, y), (tip - 9, y + 5)], "ink"
        )

    def _interval(self, y: float, low: float, high: float) -> str:
        """Return the interval of a level that is not exact."""
        if high < inf:
            return svg.bracket(self._x(low), self._x(high), y, half=6)
        x = self._x(low)
        marks = svg.line(x, y, self._x(inf), y, "whisker")
        return marks + svg.line(x, y - 6, x, y + 6, "whisker") + self._arrow(y)

    def _words(self, number: int, row: Row) -> str:
        y, meaning, x = self._y(number), self.meanings[number], _FROM - 12
        first = y + 5 - _LINE * len(meaning) / 2
        columns = (
            (_TAKES, y + 5, row.takes, "ink"),
            (_LEAVES, y + 5, row.leaves, "name" if row.end == "bound" else "number"),
            (_LEAVES, y + 21, row.within, "small"),
        )
        return "".join(
            [
                svg.text(x, first, row.name, anchor="end", style="name"),
                svg.lines(x, first + 16, meaning, "small", apart=_LINE, anchor="end"),
                *(
                    svg.text(right, at, words, anchor="end", style=style)
                    for right, at, words, style in columns
                    if words
                ),
            ]
        )
