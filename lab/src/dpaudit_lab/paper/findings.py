"""What the paper states about a figure, beside what was measured.

A *comparison* is a printed number and our mean; how far they are apart is counted in
standard errors of the difference, with the printed error counted in. An *observation*
is a statement about a curve, judged in ``courses.py``. A *note* is something that the
paper does not state.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import hypot
from typing import TypeAlias, final

from dpaudit_lab.pictures.chart import Mark, Point

__all__ = [
    "Comparison",
    "Finding",
    "Note",
    "Observation",
    "Verdict",
    "compared",
    "shown",
    "shown_both",
    "verdict",
]


@final
class Verdict(Enum):
    """Whether a statement is borne out."""

    HOLDS = "so it is here"
    WITHIN_ERROR = "so within error here"
    UNCLEAR = "not clear here"
    FAILS = "not so here"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A printed number, and what was measured.

    Attributes:
        what: Of what.
        printed: The number.
        printed_error: Its error; half a unit of the last digit if none is printed.
        mean: Ours.
        error: The standard error of ours.
        remark: What must be known to read it; empty if nothing.
    """

    what: str
    printed: float
    printed_error: float
    mean: float
    error: float
    remark: str = ""

    @property
    def apart(self) -> float:
        """How far ours is above, in standard errors of the difference.

        Example:
            >>> found = Comparison(
            ...     what="x", printed=0.5, printed_error=0.03, mean=0.6, error=0.04
            ... )
            >>> round(found.apart, 6)
            2.0
        """
        return (self.mean - self.printed) / hypot(self.error, self.printed_error)

    def __str__(self) -> str:
        return (
            f"{self.what}: printed {self.printed:g} ± {self.printed_error:g}, "
            f"measured {self.mean:.4g} ± {self.error:.2g}, "
            f"{abs(self.apart):.1f} errors of the difference apart"
            f"{self.remark and f'; {self.remark}'}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A statement about the course of a curve, and what was measured.

    Attributes:
        claim: What the paper states.
        measured: What came out, in numbers.
        verdict: Whether it is so here.
    """

    claim: str
    measured: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.claim}: {self.verdict.value}; {self.measured}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something measured that the paper makes no statement about.

    Attributes:
        text: What came out.
    """

    text: str

    def __str__(self) -> str:
        return self.text


Finding: TypeAlias = Comparison | Observation | Note


def shown(point: Point) -> str:
    """Return a mean with its error.

    Example:
        >>> shown(Point(curve="a", x=1, mean=0.5, error=0.01, repeats=9))
        '0.500 ± 0.010'
        >>> shown(Point(curve="a", x=1, mean=0.5))
        '0.500'
    """
    error = f" ± {point.error:.3f}" if point.repeats else ""
    return f"{point.mean:.3f}{error}"


def shown_both(point: Point) -> str:
    """Return a mean with its error, and the median, as beside a limit on medians.

    Example:
        >>> shown_both(
        ...     Point(curve="a", x=1, mean=0.5, error=0.01, repeats=9, median=0.47)
        ... )
        '0.500 ± 0.010 (median 0.470)'
    """
    return f"{shown(point)} (median {point.median:.3f})"


def compared(
    what: str, mark: Mark, points: Iterable[Point], *, remark: str = ""
) -> Comparison:
    """Return a printed number beside the point at the same place."""
    (at,) = (point for point in points if point.x == mark.x)
    return Comparison(
        what=what,
        printed=mark.value,
        printed_error=mark.error,
        mean=at.mean,
        error=at.error,
        remark=remark,
    )


def verdict(*, holds: bool, fails: bool) -> Verdict:
    """Return what two tests say; neither may pass.

    Example:
        >>> verdict(holds=False, fails=False).value
        'not clear here'
    """
    if holds:
        return Verdict.HOLDS
    return Verdict.FAILS if fails else Verdict.UNCLEAR
