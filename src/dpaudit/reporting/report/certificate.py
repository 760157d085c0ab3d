"""The figure of the whole curve: the certified and the claimed delta.

A privacy claim is a curve: for every epsilon the smallest delta. Counts of correct
guesses certify, at all epsilons at once, a lower bound on delta. If the claim's curve
is below it anywhere, the claim is refuted.

Reference: ``dpaudit.bounds.curve``; docs/explanation/bounds.md#variants.
"""

from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.curve import CurveCertificate
from dpaudit.bounds.exact import ExactBound
from dpaudit.reporting.axes import Even, Factors, Plot
from dpaudit.reporting.figure import Figure, LeftOut, Mark, Table
from dpaudit.reporting.numbers import plain, scientific
from dpaudit.reporting.report.subject import Subject
from dpaudit.reporting.svg import Picture

__all__ = ["certificate_figure"]

_HEADING = "The whole privacy curve"
_POINTS = 161
_ROWS = 9
_NO_DELTA = 1e-6  # low end of the axis for a claim without delta
_LEAST = 1e-16  # the least low end


def certificate_figure(subject: Subject) -> Figure | LeftOut:
    """Return the figure of the counts' certificate and the claim's curve."""
    counts = subject.result.reading.counted
    if counts is None or subject.result.bound.method != ExactBound.method:
        return LeftOut(
            heading=_HEADING,
            why="A certificate for every epsilon at once is read off guesses that were "
            "made all at once and counted, by the exact bound; this audit was judged "
            f"by the method “{subject.result.bound.method}”, at one delta.",
        )
    certificate = CurveCertificate(counts=counts, alpha=subject.alpha)
    claim = subject.result.claim_test.claim
    epsilons = np.linspace(0.0, subject.reach(), _POINTS)
    certified = certificate.delta_lower(epsilons)
    claimed = np.array([claim.delta_at(float(e)) for e in epsilons])
    enters = certificate.refutes(claim)
    description = _description(enters=enters)
    return Figure(
        name="curve",
        heading=_HEADING,
        picture=_drawn(subject, epsilons, certified, claimed, description),
        legend=_legend(subject),
        caption=_caption(subject, enters=enters),
        table=_table(certificate, subject),
    )


def _drawn(
    subject: Subject,
    epsilons: NDArray[np.float64],
    certified: NDArray[np.float64],
    claimed: NDArray[np.float64],
    description: str,
) -> Picture:
    low = subject.delta / 30 if subject.delta else _NO_DELTA
    low = 10.0 ** floor(log10(max(low, _LEAST)))
    plot = Plot(
        x=Even(low=0.0, high=float(epsilons[-1])),
        y=Factors(low=low, high=1.0),
        x_name="epsilon",
        y_name="delta at that epsilon",
    )
    under = np.maximum(certified, low / 1e3)
    marks = [
        plot.area(
            [*epsilons, epsilons[-1], 0.0], [*under, low / 1e3, low / 1e3], "ruled-out"
        ),
        plot.line(epsilons, under, "found"),
        plot.line(epsilons, np.maximum(claimed, low / 1e3), "claim"),
    ]
    if subject.delta > 0 and subject.found > 0:
        marks.append(plot.dot(subject.found, subject.delta, "found-dot"))
    return plot.picture(
        "".join(marks),
        title="Delta against epsilon: certified and claimed",
        description=description,
    )


def _description(*, enters: bool) -> str:
    where = "somewhere" if enters else "nowhere"
    return (
        "The certified line falls as epsilon grows and bounds delta from below; the "
        f"claim's line is {where} below the certified line. The numbers are in the "
        "table that follows."
    )


def _legend(subject: Subject) -> tuple[Mark, ...]:
    whose = (
        "the accountant's curve" if _accountant(subject) else "what the claim allows"
    )
    marks = (
        Mark.line("found", "certified: delta is at least this"),
        Mark.area("ruled-out", "ruled out for the true curve"),
        Mark.line("claim", whose),
    )
    dot = Mark.dot("found-dot", "the bound stated above")
    return (*marks, dot) if subject.delta > 0 and subject.found > 0 else marks


def _accountant(subject: Subject) -> bool:
    return subject.result.claim_test is not subject.result.design_test


def _caption(subject: Subject, *, enters: bool) -> tuple[str, ...]:
    if enters:
        reading = "Here the claim's line enters it: the claim is refuted."
    elif subject.result.claim_test.refuted:
        reading = (
            "The claim's line stays out of it: no point of the claim is refuted by "
            "itself, but several points of its curve are together."
        )
    else:
        reading = "The claim's line stays out: these guesses do not refute the claim."
    return (
        "A mechanism's privacy is a curve: for every epsilon the smallest delta. The "
        "true curve does not enter the shaded area, except with probability at most "
        f"alpha = {scientific(subject.alpha)} for all epsilon together. {reading}",
    )


def _table(certificate: CurveCertificate, subject: Subject) -> Table:
    epsilons = np.linspace(0.0, subject.reach(), _ROWS)
    claim = subject.result.claim_test.claim
    certified = certificate.delta_lower(epsilons)
    return Table(
        head=("epsilon", "delta certified, at least", "delta claimed, at most"),
        rows=tuple(
            (plain(e), scientific(float(c)), scientific(claim.delta_at(float(e))))
            for e, c in zip(epsilons.tolist(), certified, strict=True)
        ),
    )
