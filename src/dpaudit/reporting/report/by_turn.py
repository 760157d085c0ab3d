"""The figure of an adaptive audit: how its evidence grew turn by turn.

Bets: the wealth of a gambler who bets against the claim at fair odds. If the claim is
true, the wealth ever reaches ``1 / alpha`` with probability at most alpha, so the claim
is refuted once the line reaches the threshold. The price of delta is subtracted from
alpha first.

Rounds: the sum of the rounds' normal scores, each weighted by its share. The part of a
share that no round used goes to committed random numbers: the last step. The claim is
refuted if the sum ends at or above the normal quantile of alpha less the price of
delta.

Counts: correct guesses beyond the number expected under the claim's epsilon. The number
of guesses is fixed, and the claim is refuted if the line ends at or above the
threshold.

Each course is against one epsilon: that of the claim, or the lower bound, the largest
that the game rejects.

Reference: docs/explanation/bounds.md#adaptive-rules.
"""

from dataclasses import dataclass
from math import inf, isfinite, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import AdaptiveBound, coupling_failure_probability
from dpaudit.bounds.bets import log_wealth
from dpaudit.bounds.power import least_refuting
from dpaudit.bounds.readings import Bets, Counts, Rounds
from dpaudit.bounds.rounds import MAX_RANDOMNESS_SHARE, evidence_by_round, rounds_price
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP, PureDP
from dpaudit.reporting.axes import Even, Plot, thinned
from dpaudit.reporting.figure import Figure, LeftOut, Mark, Table
from dpaudit.reporting.numbers import at_least, count, plain, scientific
from dpaudit.reporting.report.subject import NO_ORDER, Subject, right_in_order
from dpaudit.reporting.svg import Picture
from dpaudit.stats.limited_score import UNRESOLVED

__all__ = [
    "Course",
    "course_figure",
    "of_bets",
    "of_counts",
    "of_rounds",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """Evidence against a claim as a game went on.

    Attributes:
        evidence: At the start, after the first guess or round, and so on.
        threshold: Where the claim is refuted; infinity if nothing could refute it.
        price: The part of alpha spent on delta.
    """

    evidence: NDArray[np.float64]
    threshold: float
    price: float


def of_bets(bets: Bets, *, epsilon: float, delta: float, alpha: float) -> Course:
    """Return the log of the wealth after each guess.

    Example:
        >>> bets = Bets(
        ...     canaries=2,
        ...     right=np.array([True, False]),
        ...     stated_probabilities=np.array([0.75, 0.75]),
        ... )
        >>> course = of_bets(bets, epsilon=0.0, delta=0.0, alpha=0.05)
        >>> np.exp(course.evidence)
        array([1.  , 1.5 , 0.75])
        >>> round(float(np.exp(course.threshold)), 6)
        20.0
    """
    price = coupling_failure_probability(bets.canaries, epsilon, delta)
    return Course(
        evidence=np.append(0.0, log_wealth(bets, epsilon)),
        threshold=-log(alpha - price) if price < alpha else inf,
        price=price,
    )


def of_rounds(rounds: Rounds, *, epsilon: float, delta: float, alpha: float) -> Course:
    """Return the sum of scores after each round, and last with committed uniforms.

    If more than half of the variance would be theirs, no game refutes the claim.
    """
    evidence, left = evidence_by_round(rounds, epsilon)
    price = rounds_price(
        canaries=rounds.canaries,
        round_weights=rounds.round_weights,
        max_jump=rounds.max_jump,
        randomness_share=rounds.randomness_share,
        epsilon=epsilon,
        delta=delta,
    )
    rest = alpha - price - (len(rounds.rounds) + 1) * UNRESOLVED
    possible = rest > 0 and left <= MAX_RANDOMNESS_SHARE + 1e-9
    return Course(
        evidence=np.array(evidence),
        threshold=float(-special.ndtri(rest)) if possible else inf,
        price=price,
    )


def of_counts(
    transcript: Transcript, *, epsilon: float, delta: float, alpha: float
) -> Course:
    """Return correct guesses beyond those expected under epsilon, after each guess.

    The price of delta is part of the threshold. A guess not made counts as wrong.
    """
    design = transcript.design
    correct = right_in_order(transcript)
    expected = float(special.expit(epsilon))
    needed = least_refuting(
        ApproxDP(epsilon=epsilon, delta=delta),
        canaries=design.canaries,
        guesses=design.guesses,
        alpha=alpha,
        bound=AdaptiveBound(),
    )
    return Course(
        evidence=np.append(0.0, np.cumsum(correct - expected)),
        threshold=inf if needed is None else needed - expected * design.guesses,
        price=0.0,
    )


_HEADING = "How the evidence grew"
_MOST_POINTS = 400
_MOST_ROWS = 9


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The texts of one kind of course.

    Attributes:
        unit: The name of a step.
        evidence: The name of the sum.
        caption: How to read the figure.
        last: The name of the last step, if it is no step of the game.
    """

    unit: str
    evidence: str
    caption: str
    last: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One course, and how it is drawn.

    Attributes:
        course: The numbers.
        style: Prefix of the style classes of the line and its threshold.
        against: The epsilon that it is against, in words.
    """

    course: Course
    style: str
    against: str


_BETS = _Words(
    unit="guesses made",
    evidence="log of the wealth",
    caption="Each guess is a bet against a claim of epsilon, at odds that are fair if "
    "the claim just holds. If it does, the wealth ever reaches the threshold with "
    "probability at most alpha. So epsilon falls wherever its line touches its "
    "threshold, whenever that is.",
)
_ROUNDS = _Words(
    unit="rounds played",
    evidence="evidence, in standard deviations",
    caption="Each round adds a normal score, counted by the share that was fixed for "
    "it; the last step is what was left to committed randomness. An epsilon falls if "
    "its line ends at or above its threshold; crossing it on the way decides nothing.",
    last="committed randomness",
)
_COUNTS = _Words(
    unit="guesses made",
    evidence="correct guesses beyond what epsilon expects",
    caption="A claim of epsilon expects a share e^epsilon / (1 + e^epsilon) of the "
    "guesses to be right; a line shows how many more were. The number of guesses was "
    "fixed before the run, and epsilon falls if its line ends at or above its "
    "threshold, which allows for luck and delta; crossing it on the way decides "
    "nothing.",
)


def course_figure(subject: Subject) -> Figure | LeftOut:
    """Return the figure of how the evidence of an adaptive audit grew."""
    words = _words(subject)
    if isinstance(words, str):
        return LeftOut(heading=_HEADING, why=words)
    lines = _lines(subject)
    if not lines:
        why = (
            "Hardly any guess was confident enough to count against any epsilon tested."
        )
        return LeftOut(heading=_HEADING, why=why)
    return Figure(
        name="course",
        heading=_HEADING,
        picture=_drawn(lines, words),
        legend=_legend(lines),
        caption=(words.caption, *_asides(lines, subject)),
        table=_table(lines, words),
    )


def _words(subject: Subject) -> _Words | str:
    """Return the texts of the course, or why there is none to show."""
    if not subject.result.design.rules.adaptive:
        return "All guesses were made at once, so there is no course to show."
    match subject.result.reading:
        case Bets():
            return _BETS
        case Rounds():
            return _ROUNDS
        case Counts():
            return _COUNTS if subject.transcript else NO_ORDER
        case _:
            return (
                "Guesses of different weight take slots in an order of their own; only "
                "their final count is evidence."
            )


def _lines(subject: Subject) -> list[_Line]:
    """Return the courses whose thresholds are finite."""
    claim = subject.result.claim_test.claim
    # The claim's own number where there is one, free of rounding.
    claimed = claim.epsilon if isinstance(claim, PureDP | ApproxDP) else subject.claimed
    asked = [(claimed, "claim", f"the claim, epsilon = {plain(claimed)}")]
    if subject.found > 0:
        shown = f"the bound found, epsilon = {at_least(subject.found)}"
        asked.append((subject.found, "found", shown))
    lines = [
        _Line(course=_course(subject, epsilon), style=style, against=against)
        for epsilon, style, against in asked
        if isfinite(epsilon)
    ]
    return [line for line in lines if isfinite(line.course.threshold)]


def _course(subject: Subject, epsilon: float) -> Course:
    reading, delta, alpha = subject.result.reading, subject.delta, subject.alpha
    if isinstance(reading, Bets):
        return of_bets(reading, epsilon=epsilon, delta=delta, alpha=alpha)
    if isinstance(reading, Rounds):
        return of_rounds(reading, epsilon=epsilon, delta=delta, alpha=alpha)
    assert subject.transcript is not None  # checked by _words
    return of_counts(subject.transcript, epsilon=epsilon, delta=delta, alpha=alpha)


def _legend(lines: list[_Line]) -> tuple[Mark, ...]:
    marks = []
    for line in lines:
        against = f"against {line.against}"
        marks.append(Mark.line(f"{line.style}-course", against))
        words = "its threshold"
        marks.append(Mark.line(f"{line.style}-threshold", words))
    return tuple(marks)


def _asides(lines: list[_Line], subject: Subject) -> tuple[str, ...]:
    notes = []
    if all(line.style != "claim" for line in lines):
        notes.append(
            "Hardly any guess was confident enough to count against the claim itself, "
            "so that nothing adds up against it."
        )
    if any(line.course.price > 0 for line in lines):
        paid = ", ".join(
            f"{scientific(line.course.price, 2)} at {line.against}" for line in lines
        )
        notes.append(
            f"The thresholds are for alpha = {scientific(subject.alpha)}, less what "
            f"delta costs: {paid}."
        )
    return tuple(notes)


def _drawn(lines: list[_Line], words: _Words) -> Picture:
    ends = [0.0]
    for line in lines:
        evidence = line.course.evidence
        ends += [float(evidence.min()), float(evidence.max()), line.course.threshold]
    room = 0.06 * max(max(ends) - min(ends), 0.1)
    last = len(lines[0].course.evidence) - 1
    plot = Plot(
        x=Even(low=0.0, high=float(max(1, last))),
        y=Even(low=min(ends) - room, high=max(ends) + room),
        x_name=words.unit,
        y_name=words.evidence,
    )
    marks = [plot.level(0.0, "zero")]
    for line in lines:
        evidence = line.course.evidence
        which = _shown(line.course)
        values = [float(evidence[i]) for i in which]
        marks.append(plot.level(line.course.threshold, f"{line.style}-threshold"))
        marks.append(plot.line(which, values, f"{line.style}-course"))
        marks.append(plot.dot(last, float(evidence[-1]), f"{line.style}-dot"))
    return plot.picture(
        "".join(marks),
        title="Evidence as the game went on",
        description=" ".join(_described(line) for line in lines)
        + " The numbers are in the table that follows.",
    )


def _described(line: _Line) -> str:
    evidence = line.course.evidence
    return (
        f"Against {line.against} it ends at {plain(float(evidence[-1]), 2)}, is "
        f"{plain(float(evidence.max()), 2)} at its highest, and has the threshold "
        f"{plain(line.course.threshold, 2)}."
    )


def _shown(course: Course) -> list[int]:
    """Return the points to draw: evenly spaced, and the highest and the lowest."""
    evidence = course.evidence
    extremes = {int(np.argmax(evidence)), int(np.argmin(evidence))}
    return sorted({*thinned(len(evidence), _MOST_POINTS), *extremes})


def _table(lines: list[_Line], words: _Words) -> Table:
    total = len(lines[0].course.evidence)
    which = set(thinned(total, _MOST_ROWS))
    # The highest point decides if the game may stop at any time.
    which |= {int(np.argmax(line.course.evidence)) for line in lines}
    rows = []
    for i in sorted(which):
        name = words.last if words.last and i == total - 1 else count(i)
        rows.append(
            (name, *(plain(float(line.course.evidence[i]), 2) for line in lines))
        )
    rows.append(("threshold", *(plain(line.course.threshold, 2) for line in lines)))
    return Table(
        head=(words.unit, *(f"against {line.against}" for line in lines)),
        rows=tuple(rows),
    )
