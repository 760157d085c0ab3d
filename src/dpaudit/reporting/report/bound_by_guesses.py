"""The figure of the bound against the number of guesses that are counted.

Guesses are submitted with the most confident first. Counting few of them leaves out the
doubtful ones, counting many reduces the role of luck; the best number depends on the
mechanism. It must be fixed beforehand, or paid for: the largest of many bounds, each of
which is wrong with probability alpha, is wrong more often than that.

With a ranking the price is paid: the bound holds at all looks simultaneously. With a
fixed number only the bound at that number counts, and the others show what other
numbers would have given.

Reference: docs/explanation/bounds.md#ranked-guesses.
"""

from math import isfinite

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts, Ranked
from dpaudit.game.rules import OneRun
from dpaudit.reporting.axes import Even, Factors, Plot
from dpaudit.reporting.figure import Figure, LeftOut, Mark, Table
from dpaudit.reporting.numbers import at_least, count, scientific
from dpaudit.reporting.report.subject import NO_ORDER, Subject, right_in_order
from dpaudit.reporting.svg import Picture

__all__ = [
    "by_k_figure",
]

_HEADING = "The bound against the number of guesses counted"
_MOST_POINTS = 48
_MOST_ROWS = 9
_RANKED = (
    Mark.line("found", "the bound: valid at all numbers of guesses together"),
    Mark.area("shown", "shown: epsilon is above this band"),
    Mark.line("aside", "valid alone, had k been fixed before"),
)
_FIXED = (
    Mark.dot("found-dot", "the bound, at the k fixed before"),
    Mark.line("aside", "other k: not valid to choose from"),
)


def by_k_figure(subject: Subject) -> Figure | LeftOut:
    """Return the figure of the bound at several numbers of guesses."""
    right = _in_order(subject)
    if isinstance(right, str):
        return LeftOut(heading=_HEADING, why=right)
    sizes = _sizes(len(right))
    bounds = [_bound(subject, right, k) for k in sizes]
    ranked = isinstance(subject.result.reading, Ranked)
    return Figure(
        name="by-k",
        heading=_HEADING,
        picture=_drawn(subject, sizes, bounds, ranked=ranked),
        legend=_legend(subject, ranked=ranked),
        caption=_caption(subject, ranked=ranked),
        table=_table(subject, right, sizes),
    )


def _in_order(subject: Subject) -> NDArray[np.bool_] | str:
    """Return which guesses were correct, most confident first, or why it is unknown."""
    reading, transcript = subject.result.reading, subject.transcript
    if isinstance(reading, Ranked):
        return reading.right
    if not isinstance(subject.result.design.rules, OneRun) or (
        subject.result.bound.method != ExactBound.method
    ):
        return (
            "It is drawn where guesses are made all at once and ranked or counted; the "
            f"rules of this audit are {type(subject.result.design.rules).__name__}, "
            f"judged by the method “{subject.result.bound.method}”."
        )
    if transcript is None:
        return NO_ORDER
    if len(transcript.index) > 1 and (np.diff(transcript.index) > 0).all():
        return (
            "The guesses were handed in by number of the canary, so that nothing shows "
            "which of them are surer, and counting fewer of them has no meaning."
        )
    return right_in_order(transcript)


def _sizes(most: int) -> list[int]:
    return sorted({round(k) for k in np.geomspace(1, most, _MOST_POINTS)} | {most})


def _bound(subject: Subject, right: NDArray[np.bool_], k: int) -> float:
    counts = Counts(
        canaries=subject.result.reading.canaries,
        guesses=k,
        correct=int(np.count_nonzero(right[:k])),
    )
    return (
        ExactBound()
        .epsilon_lower(counts, delta=subject.delta, alpha=subject.alpha)
        .epsilon_lower
    )


def _drawn(
    subject: Subject, sizes: list[int], bounds: list[float], *, ranked: bool
) -> Picture:
    plot = Plot(
        x=Factors(low=1.0, high=max(10.0, float(sizes[-1]))),
        y=Even(low=0.0, high=subject.reach(*bounds)),
        x_name="guesses counted, the most confident first",
        y_name="lower bound on epsilon",
    )
    marks = [plot.line(sizes, bounds, "aside")]
    if isfinite(subject.claimed):
        marks.append(plot.level(subject.claimed, "claim"))
    if ranked:
        low, high = plot.x.low, plot.x.high
        found = subject.found
        marks.insert(
            0, plot.area([low, high, high, low], [0, 0, found, found], "shown")
        )
        marks.append(plot.level(found, "found"))
    else:
        marks.append(plot.dot(sizes[-1], bounds[-1], "found-dot"))
    return plot.picture(
        "".join(marks),
        title="Lower bound on epsilon against the number of guesses counted",
        description="The bound that counts is "
        f"{at_least(subject.found)}; what each fixed number of guesses would have "
        "given is in the table that follows.",
    )


def _legend(subject: Subject, *, ranked: bool) -> tuple[Mark, ...]:
    claim = Mark.line("claim", "claimed")
    marks = _RANKED if ranked else _FIXED
    return (*marks, claim) if isfinite(subject.claimed) else marks


def _caption(subject: Subject, *, ranked: bool) -> tuple[str, ...]:
    if ranked:
        return (
            "Each point of the thin line would be valid alone, if its number of "
            "guesses had been fixed before the run. Their maximum is not: picking it "
            "afterwards is wrong more often than alpha = "
            f"{scientific(subject.alpha)}. The thick line pays for looking at many "
            "numbers of guesses, and is the bound of this audit.",
        )
    return (
        f"{count(subject.result.design.guesses)} guesses were fixed before the run, "
        "and only the bound there counts. The rest of the line shows what fewer "
        "guesses would have given, as a help for planning the next audit; its highest "
        "point is no valid bound.",
    )


def _table(subject: Subject, right: NDArray[np.bool_], sizes: list[int]) -> Table:
    which = sorted({round(i) for i in np.linspace(0, len(sizes) - 1, _MOST_ROWS)})
    rows = []
    for k in (sizes[i] for i in which):
        hits = int(np.count_nonzero(right[:k]))
        rows.append((count(k), count(hits), at_least(_bound(subject, right, k))))
    return Table(
        head=("guesses counted", "right", "bound on epsilon"), rows=tuple(rows)
    )
