"""Pictures of plans and gaps, each an SVG file of its own.

They are drawn by the report's pencil and axes, so that they need nothing but the core,
and the same values give the same bytes. A file brings its own paper and style; its
text is text, its title and description are read out by screen readers. Colours are
those of Okabe and Ito, which people who are colour-blind can tell apart; nothing is
said by colour alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from textwrap import wrap
from typing import final

from dpaudit import _files
from dpaudit.bounds.bound import rounded_down
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.errors import InvalidInputError, printable
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.reporting import svg
from dpaudit.reporting.axes import Doublings, Even, Plot
from dpaudit.reporting.numbers import count, plain, typeset
from dpaudit.theory.rungs import Gaps, Measured, Rung, no_more_than

__all__ = ["plan_picture", "waterfall"]

_SUFFIX = ".svg"
_STYLE = """
text { font-family: sans-serif; font-size: 13.5px; fill: #555; }
.heading { font-size: 18px; font-weight: bold; fill: #1a1a1a; }
.name { font-weight: bold; fill: #1a1a1a; }
.number { font-weight: bold; fill: #0072b2; }
.ink { fill: #1a1a1a; }
.small { font-size: 11px; }
.caption { font-size: 12px; }
.paper { fill: #fff; }
.grid { stroke: #ddd; }
.axis, .step { stroke: #555; }
.line { fill: none; stroke-width: 2.25; stroke-linejoin: round; }
.rounds { stroke: #0072b2; }
.once { stroke: #e69f00; stroke-dasharray: 8 4; }
.ceiling, .true-epsilon { stroke: #555; stroke-width: 1.25; }
.limit { paint-order: stroke; stroke: #fff; stroke-width: 4; }
.whisker { stroke: #1a1a1a; stroke-width: 1.75; }
.rounds-mark, .left { fill: #0072b2; }
.once-mark, .taken { fill: #e69f00; }
.added { fill: #56b4e9; stroke: #1a1a1a; stroke-width: 1.5; stroke-dasharray: 4 3; }
.break { stroke: #fff; stroke-width: 3.5; }
.chosen { fill: none; stroke: #1a1a1a; stroke-width: 2; }
"""

_EDGE = 18.0  # of paper around everything
_LINE = 14.0  # from one line of small text to the next
_TITLE = 24.0  # from one line of a heading to the next


def _write(path: str | Path, drawn: Callable[[], str]) -> None:
    if Path(path).suffix.lower() != _SUFFIX:
        raise InvalidInputError(
            f"a picture is an SVG file, so path must end in .svg, got path="
            f"{str(path)!r}; for other formats convert the file, or print it from a "
            "browser"
        )
    _files.write(path, drawn())


def _lines(
    x: float, y: float, lines: Sequence[str], look: str, *, apart: float = _LINE
) -> str:
    return "".join(
        svg.text(x, y + i * apart, line, look=look) for i, line in enumerate(lines)
    )


# The waterfall.

_LOST = "Where the epsilon of a claim is lost"
_WIDE = 1000.0
_FROM, _TO = 355.0, 800.0  # of the bars
_TAKES, _LEAVES = 868.0, _WIDE - _EDGE  # where these columns end
_BAR = 26.0
_LETTERS = 49  # of a meaning, on one line
_HEADING = 74  # letters of a title, on one line
_CAPTION = 132


def waterfall(gaps: Gaps, path: str | Path, *, title: str | None = None) -> None:
    """Draw where the epsilon of a claim is lost on the way to a bound.

    One row per step: what is left after it, and what it takes or adds. Where a level is
    infinite its bar is broken and ends in an arrow.

    Args:
        gaps: What to draw.
        path: Where to; the suffix is .svg. An existing file is replaced, in one go.
        title: What was audited.

    Raises:
        InvalidInputError: The suffix is another one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.mechanisms.parity import Xor
        >>> from dpaudit.theory.gaps import gaps
        >>> with TemporaryDirectory() as folder:
        ...     waterfall(gaps(Xor(elements=9), elements=9), f"{folder}/xor.svg")
    """
    _write(path, lambda: _Ladder.of(gaps, title).drawn())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Ladder:
    """The rows of a waterfall, and where on the paper they stand.

    Attributes:
        gaps: What is drawn.
        title: What was audited, in lines.
        meanings: What each rung is, in lines.
        top: The largest finite level.
        end: Where infinity is drawn, or ``top``.
    """

    gaps: Gaps
    title: tuple[str, ...]
    meanings: tuple[tuple[str, ...], ...]
    top: float
    end: float

    @classmethod
    def of(cls, gaps: Gaps, title: str | None) -> "_Ladder":
        top = _largest_finite(gaps)
        unbounded = any(rung.high == inf for rung in gaps.rungs)
        heading = ": ".join(filter(None, [typeset(_LOST), title]))
        return cls(
            gaps=gaps,
            title=tuple(wrap(printable(heading), _HEADING)),
            meanings=tuple(
                tuple(wrap(printable(typeset(rung.meaning)), _LETTERS))
                for rung in gaps.rungs
            ),
            top=top,
            end=1.3 * top if unbounded else top,
        )

    def drawn(self) -> str:
        gaps, caption = self.gaps, wrap(typeset(_gaps_caption(self.gaps)), _CAPTION)
        pairs = list(pairwise((gaps.rungs[0], *gaps.rungs)))
        parts = [
            _lines(_EDGE, 34, self.title, "heading", apart=_TITLE),
            self._legend(),
            self._grid(),
            *(self._row(row, *pair) for row, pair in enumerate(pairs)),
        ]
        if gaps.remainder is not None:
            parts.append(self._observed(gaps.rungs[-1].epsilon + gaps.remainder))
        parts.append(_lines(_EDGE, self._base + 72, caption, "caption"))
        return svg.document(
            width=_WIDE,
            height=self._base + 72 + _LINE * (len(caption) - 1) + _EDGE,
            title=" ".join(self.title),
            description=f"{gaps} {_gaps_caption(gaps)}.",
            style=_STYLE,
            content="\n".join(filter(None, parts)),
        )

    @property
    def _above(self) -> float:
        return 44 + _TITLE * len(self.title)

    @property
    def _each(self) -> float:
        """The height of a row."""
        return max(56.0, 34 + _LINE * max(map(len, self.meanings)))

    @property
    def _base(self) -> float:
        rows = len(self.gaps.rungs) + (self.gaps.remainder is not None)
        return self._above + rows * self._each

    def _x(self, epsilon: float) -> float:
        axis = Even(low=0.0, high=1.06 * self.end)
        return _FROM + (_TO - _FROM) * axis.share(min(epsilon, self.end))

    def _y(self, row: int) -> float:
        return self._above + (row + 0.5) * self._each

    def _grid(self) -> str:
        ticks = list(Even(low=0.0, high=self.top).ticks())
        if self.end > self.top:
            ticks.append((inf, "\N{INFINITY}"))
        base, at = self._base, [(self._x(value), name) for value, name in ticks]
        middle = (_FROM + _TO) / 2
        return "".join(
            [
                *(svg.line(x, self._above, x, base, "grid") for x, _ in at),
                svg.line(_FROM, self._above, _FROM, base, "axis"),
                *(svg.text(x, base + 19, name, anchor="middle") for x, name in at),
                svg.text(middle, base + 42, typeset("epsilon"), anchor="middle"),
            ]
        )

    def _row(self, row: int, before: Rung, rung: Rung) -> str:
        parts = [self._bars(row, before.epsilon, rung.epsilon)]
        if inf in (before.epsilon, rung.epsilon):
            parts.append(self._broken(row))
        if row + 1 < len(self.gaps.rungs):
            x, y = self._x(rung.epsilon), self._y(row) + _BAR / 2
            parts.append(svg.line(x, y, x, y + self._each - _BAR, "step"))
        if rung.low < rung.high:
            parts.append(self._whisker(row, rung))
        return "".join([*parts, self._words(row, rung)])

    def _bars(self, row: int, before: float, after: float) -> str:
        low, high = sorted((self._x(before), self._x(after)))
        top, look = self._y(row) - _BAR / 2, "taken" if after < before else "added"
        return svg.rect(_FROM, top, low - _FROM, _BAR, "left") + svg.rect(
            low, top, high - low, _BAR, look
        )

    def _broken(self, row: int) -> str:
        """Break a bar that goes on to infinity, and point there."""
        at, y, half = self._x((self.top + self.end) / 2), self._y(row), _BAR / 2 + 4
        slashes = [
            svg.line(at + x - 4, y + half, at + x + 4, y - half, "break")
            for x in (-5, 5)
        ]
        return "".join([*slashes, self._arrow(row)])

    def _arrow(self, row: int) -> str:
        x, y = self._x(inf), self._y(row)
        tip = x + 22
        return svg.line(x, y, tip - 8, y, "whisker") + svg.area(
            [(tip - 9, y - 5), (tip, y), (tip - 9, y + 5)], "ink"
        )

    def _whisker(self, row: int, rung: Rung) -> str:
        """Return the interval of a level that is not exact."""
        y, low, high = self._y(row), self._x(rung.low), self._x(rung.high)
        if rung.high < inf:
            return svg.bracket(low, high, y, half=6)
        end = svg.line(low, y - 6, low, y + 6, "whisker")
        return svg.line(low, y, high, y, "whisker") + end + self._arrow(row)

    def _words(self, row: int, rung: Rung) -> str:
        y, lines = self._y(row), self.meanings[row]
        first = y + 5 - _LINE * len(lines) / 2
        interval = f"[{plain(rung.low)}, {plain(rung.high)}]" if _wide(rung) else ""
        return "".join(
            [
                svg.text(_FROM - 12, first, rung.name, anchor="end", look="name"),
                *(
                    svg.text(
                        _FROM - 12,
                        first + 2 + _LINE * (i + 1),
                        line,
                        anchor="end",
                        look="small",
                    )
                    for i, line in enumerate(lines)
                ),
                self._column(_TAKES, y, _taken(self.gaps, rung), "ink"),
                self._column(_LEAVES, y, plain(rung.epsilon), "number"),
                self._column(_LEAVES, y + 16, interval, "small"),
            ]
        )

    def _column(self, x: float, y: float, words: str, look: str) -> str:
        return svg.text(x, y + 5, words, anchor="end", look=look) if words else ""

    def _observed(self, bound: float) -> str:
        y = self._y(len(self.gaps.rungs))
        return (
            svg.diamond(self._x(bound), y, "ink")
            + svg.text(_FROM - 12, y + 5, "observed", anchor="end", look="name")
            + self._column(_LEAVES, y, plain(bound), "name")
        )

    def _legend(self) -> str:
        y = self._above - 12
        entries = [("left", 0.0), ("taken", 72.0)]
        if any(drop < 0 for drop in self.gaps.drops.values()):
            entries.append(("added", 156.0))
        marks = [
            svg.rect(_FROM + x, y - 10, 16, 11, name)
            + svg.text(_FROM + x + 23, y, name)
            for name, x in entries
        ]
        if any(rung.low < rung.high for rung in self.gaps.rungs):
            x = _FROM + 72 + 84 * (len(entries) - 1)
            marks.append(
                svg.bracket(x, x + 22, y - 4) + svg.text(x + 30, y, "known within")
            )
        marks += [
            svg.text(x, y, heading, anchor="end")
            for x, heading in ((_TAKES, "takes"), (_LEAVES, "leaves"))
        ]
        return "".join(marks)


def _largest_finite(gaps: Gaps) -> float:
    seen = [x for rung in gaps.rungs for x in (rung.epsilon, rung.high)]
    seen.append(gaps.rungs[-1].epsilon + (gaps.remainder or 0.0))
    # Beside infinity a hair's breadth should not look like much.
    least = 1.0 if inf in seen else 1e-3
    return max([least, *(x for x in seen if isfinite(x))])


def _wide(rung: Rung) -> bool:
    """Return whether the interval of a level can be told from the level."""
    return "[" in rung.shown


def _taken(gaps: Gaps, rung: Rung) -> str:
    said = gaps.taken_by(rung)
    if said[-1:].isdigit():
        return plain(gaps.drops[rung.name])
    return said.replace("-", "\N{MINUS SIGN}").replace("infinity", "\N{INFINITY}")


def _gaps_caption(gaps: Gaps) -> str:
    return (
        f"{count(gaps.elements)} canaries, {count(gaps.guesses)} guesses, "
        f"delta = {gaps.delta:g}, alpha = {gaps.alpha:g}; the bound varies by "
        f"{plain(gaps.spread)} from run to run (standard deviation)"
    )


# The picture of a plan.

_SAMPLE, _LETTER = 32.0, 8.2  # of an entry of the legend


def plan_picture(plan: Plan, path: str | Path, *, most: Measured | None = None) -> None:
    """Draw what was compared against the canaries per coordinate, and what is chosen.

    One line for guesses all at once and one for rounds. If the plan is for faults, the
    factor on the noise that is caught; if it is for the bound, its mean, the plan with
    its spread, a standard deviation up and down, and the ceiling, if it is known.

    Args:
        plan: What to draw.
        path: Where to; the suffix is .svg. An existing file is replaced, in one go.
        most: What no valid audit of the plan's canaries exceeds in half of its runs, if
            that is to be drawn too; in a plan for faults it is not.

    Raises:
        InvalidInputError: The suffix is another one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.dpsgd.planning.training import Training
        >>> from dpaudit.dpsgd.planning import plan_audit
        >>> from dpaudit.privacy.guarantees import ApproxDP
        >>> plan = plan_audit(
        ...     Training(steps=1, rate=1.0, noise=2.0),
        ...     claim=ApproxDP(epsilon=2.0, delta=1e-5),
        ...     coordinates=100,
        ...     per_coordinate=1,
        ... )
        >>> with TemporaryDirectory() as folder:
        ...     plan_picture(plan, f"{folder}/plan.svg")
    """
    _write(path, lambda: _plan_drawn(plan, most))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One line of the picture.

    Attributes:
        words: What it shows.
        look: The class of the style that it is drawn by.
        shape: What marks its points, if anything does.
        points: Pairs of values.
    """

    words: str
    look: str
    shape: Callable[[float, float, str], str] | None = None
    points: tuple[tuple[float, float], ...] = ()

    def marks(self, plot: Plot) -> str:
        xs, ys = zip(*self.points, strict=True)
        return plot.line(xs, ys, self.look) + self._shapes(
            [plot.at(*each) for each in self.points]
        )

    def sample(self, x: float, y: float) -> str:
        line = svg.path([(x, y), (x + _SAMPLE, y)], self.look)
        return line + self._shapes([(x + _SAMPLE / 2, y)])

    def _shapes(self, at: Sequence[tuple[float, float]]) -> str:
        if self.shape is None:
            return ""
        return "".join(self.shape(x, y, f"{self.look}-mark") for x, y in at)


def _plan_drawn(plan: Plan, most: Measured | None) -> str:
    most = None if _for_faults(plan) else most
    plot, kinds = _plan_plot(plan, most), _kinds(plan)
    caption = _plan_caption(plan)
    if most is not None:
        caption += (f"The bar above it: {no_more_than(most)}",)
    # What was tried is drawn over what limits it.
    marks = [_limits(plan, plot), *(k.marks(plot) for k in kinds)]
    marks += [_most(plan, plot, most), _chosen(plan, plot)]
    heading = f"What to expect of an audit of {count(plan.coordinates)} coordinates"
    small = [typeset(line) for line in caption]
    return svg.document(
        width=plot.width,
        height=plot.height,
        title=heading,
        description=" ".join([*_in_words(plan), *caption]),
        style=_STYLE,
        content="\n".join(
            [
                svg.text(_EDGE, 34, heading, look="heading"),
                plot.content("".join(marks)),
                _plan_legend(plan, plot.height - plot.below + 72, kinds),
                _lines(_EDGE, plot.height - plot.below + 106, small, "caption"),
            ]
        ),
    )


def _plan_plot(plan: Plan, most: Measured | None) -> Plot:
    sizes = sorted({plan.per_coordinate, *(p.per_coordinate for p in plan.candidates)})
    if len(sizes) == 1:
        sizes.append(2 * sizes[0])  # one name alone gives no scale
    levels = [_level(plan, each) or 0.0 for each in plan.candidates]
    if _for_faults(plan):
        y = Even(low=1.0, high=1.08 * max(2.0, *levels, plan.fault or 0.0))
    else:
        levels += [plan.expected.mean + plan.expected.spread]
        levels += [level for _, level, *_ in _known_limits(plan)]
        levels += [most.value] if most else []
        y = Even(low=0.0, high=1.08 * max(1e-3, *levels))
    return Plot(
        x=Doublings(low=0.8 * sizes[0], high=1.25 * sizes[-1], tried=tuple(sizes)),
        y=y,
        x_name="canaries per coordinate",
        y_name=_shown(plan),
        width=780.0,
        height=500.0 if most else 480.0,
        above=60.0,
        below=158.0 if most else 138.0,
    )


def _for_faults(plan: Plan) -> bool:
    return plan.purpose is Purpose.FAULTS


def _shown(plan: Plan) -> str:
    return (
        "noise caught if it is too small by"
        if _for_faults(plan)
        else "mean lower bound on epsilon"
    )


def _level(plan: Plan, candidate: Candidate) -> float | None:
    return candidate.fault if _for_faults(plan) else candidate.bound


def _known_limits(plan: Plan) -> list[tuple[str, float, str, str]]:
    """Return what no audit exceeds, where it is known and finite.

    Each with its look and the end of its line that is named: not the same, so that
    names stay apart where the levels are close.
    """
    limits = (
        ("no audit reliably shows more than", plan.ceiling, "ceiling", "start"),
        ("true epsilon", plan.true_epsilon, "true-epsilon", "end"),
    )
    return [
        (name, limit, look, end)
        for name, limit, look, end in limits
        if limit is not None and isfinite(limit) and not _for_faults(plan)
    ]


def _limits(plan: Plan, plot: Plot) -> str:
    parts = []
    for name, limit, look, end in _known_limits(plan):
        x, y = plot.at(plot.x.low if end == "start" else plot.x.high, limit)
        words = typeset(f"{name} {plain(limit)}")
        parts.append(plot.level(limit, look))
        parts.append(svg.text(x, y - 6, words, anchor=end, look="limit"))
    return "".join(parts)


def _most(plan: Plan, plot: Plot, most: Measured | None) -> str:
    """Return a bar over the plan: what no audit of its canaries exceeds."""
    if most is None:
        return ""
    x, y = plot.at(plan.per_coordinate, most.value)
    return svg.line(x - 20, y, x + 20, y, "ceiling")


def _kinds(plan: Plan) -> list[_Line]:
    """Return a line for each kind of rules of which something is known."""
    kinds = (
        (AdaptiveRounds, _Line(words="in rounds", look="rounds", shape=svg.dot)),
        (OneRun, _Line(words="at once (exact)", look="once", shape=svg.square)),
    )
    found = []
    for kind, line in kinds:
        points = {
            float(each.per_coordinate): level
            for each in plan.candidates
            if isinstance(each.rules, kind)
            and (level := _level(plan, each)) is not None
        }
        if points:
            found.append(replace(line, points=tuple(points.items())))
    return found


def _chosen(plan: Plan, plot: Plot) -> str:
    """Return the mark of the plan, with its spread if it is one of bounds."""
    level = _chosen_level(plan)
    if level is None:
        return ""
    x, y = plot.at(plan.per_coordinate, level)
    if _for_faults(plan):
        return svg.diamond(x, y, "chosen")
    spread = plan.expected.spread
    ends = [plot.at(plan.per_coordinate, level + each)[1] for each in (-spread, spread)]
    return _upright(x, *ends) + svg.diamond(x, y, "chosen")


def _chosen_level(plan: Plan) -> float | None:
    return plan.fault if _for_faults(plan) else plan.expected.mean


def _upright(x: float, low: float, high: float) -> str:
    return svg.line(x, low, x, high, "whisker") + "".join(
        svg.line(x - 6, y, x + 6, y, "whisker") for y in (low, high)
    )


def _plan_legend(plan: Plan, y: float, lines: Sequence[_Line]) -> str:
    entries = [
        *((line.sample, line.words) for line in lines),
        (_chosen_sample(plan), _chosen_words(plan)),
    ]
    x, parts = _EDGE, []
    for sample, name in entries:
        words = x + _SAMPLE + 10
        parts += [sample(x, y), svg.text(words, y + 5, name, look="ink")]
        x = words + _LETTER * len(name) + 24
    return "".join(parts)


def _chosen_words(plan: Plan) -> str:
    if _chosen_level(plan) is None:
        return "this plan catches nothing"
    return "this plan" if _for_faults(plan) else "this plan, give or take its spread"


def _chosen_sample(plan: Plan) -> Callable[[float, float], str]:
    def drawn(x: float, y: float) -> str:
        if _chosen_level(plan) is None:
            return ""
        middle = x + _SAMPLE / 2
        whisker = "" if _for_faults(plan) else _upright(middle, y + 13, y - 13)
        return whisker + svg.diamond(middle, y, "chosen")

    return drawn


def _in_words(plan: Plan) -> list[str]:
    """Return the lines of the picture as sentences, for who cannot see it."""
    said = [f"Against the canaries per coordinate: {_shown(plan)}."]
    for line in _kinds(plan):
        levels = ", ".join(f"{size:g}: {plain(level)}" for size, level in line.points)
        said.append(f"Guessing {line.words}, {levels}.")
    return said + [
        f"Limit: {name} {plain(level)}." for name, level, *_ in _known_limits(plan)
    ]


def _plan_caption(plan: Plan) -> tuple[str, ...]:
    training = plan.training
    return (
        f"{count(training.steps)} steps, sampling rate {training.rate:g}, noise "
        f"{training.noise:.4g}; delta = {plan.claim.delta:g}, alpha = {plan.alpha:g}, "
        "tier A.",
        f"The plan: {plan.per_coordinate} per coordinate, method {plan.method}, mean "
        f"bound {rounded_down(plan.expected.mean)}, spread {plan.expected.spread:.3f}"
        + ("." if plan.fault is None else f"; catches noise / {plan.fault:.2f}."),
    )
