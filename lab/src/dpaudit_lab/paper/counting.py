"""From counts of right guesses to what the paper plots: bound, estimation, accuracy.

The *bound* is Steinke, Nasr and Jagielski's at delta = 1e-5 and alpha = 0.05; the
*estimation* is the log-odds of the share of right guesses, without correction for
chance; the *efficacy* is that share. Beside the bound stands the exact one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from math import isfinite
from typing import Final, TypeAlias, final

from scipy import special

from dpaudit.bounds.bound import LowerBound
from dpaudit.bounds.exact import ExactBound, PureBound
from dpaudit.bounds.readings import Counts
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit_lab.paper.training import CEILING, EPSILON, TRUTH
from dpaudit_lab.pictures.chart import (
    Curve,
    Limit,
    Look,
    Point,
    mean_point,
    true_and_shown,
)

__all__ = [
    "ACCURACY_CURVES",
    "ALPHA",
    "BOUND_CURVES",
    "DELTA",
    "LEFT_OUT",
    "LIMITS",
    "NO_MEDIAN",
    "TRUE_SHARE",
    "CountCurve",
    "Reading",
    "accuracy",
    "epsilon_curves",
    "estimation",
    "exact",
    "pure",
    "steinke",
]

DELTA, ALPHA = 1e-5, 0.05
# For captions of charts that show estimations and medians.
LEFT_OUT: Final = (
    " Bars: medians; the black limit is on\nmedians. Where a run guesses all right its "
    "estimation is infinite; the mean is left out."
)

LIMITS: Final = true_and_shown(truth=TRUTH[EPSILON], ceiling=CEILING[EPSILON])

TRUE_SHARE: Final = Limit(
    name="true epsilon, as a share", level=float(special.expit(TRUTH[EPSILON]))
)

NO_MEDIAN: Final = Curve(
    name="no audit's median above", colour=6, look=Look.MEDIAN_LIMIT
)

Reading: TypeAlias = Callable[[int, int, int], float]  # canaries, guesses, right


@cache
def _bound(
    bound: SteinkeBound | ExactBound, canaries: int, guesses: int, correct: int
) -> LowerBound:
    counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
    return bound.epsilon_lower(counts, delta=DELTA, alpha=ALPHA)


def _level(
    bound: SteinkeBound | ExactBound, canaries: int, guesses: int, correct: int
) -> float:
    if guesses == 0:
        return 0.0
    return _bound(bound, canaries, guesses, correct).epsilon_lower


@cache
def pure(guesses: int, correct: int) -> float:
    """Return the bound at delta = 0, from the guesses that were made.

    Example:
        >>> round(pure(100, 75), 6)
        0.702214
    """
    if guesses == 0:
        return 0.0
    counts = Counts(canaries=guesses, guesses=guesses, correct=correct)
    return PureBound().epsilon_lower(counts, delta=0.0, alpha=ALPHA).epsilon_lower


steinke: Reading = partial(_level, SteinkeBound())
exact: Reading = partial(_level, ExactBound())


def estimation(canaries: int, guesses: int, correct: int) -> float:
    """Return the log-odds of the share of right guesses; infinite if all are right.

    Example:
        >>> round(estimation(1000, 100, 75), 6)  # ln 3
        1.098612
    """
    return float(special.logit(accuracy(canaries, guesses, correct)))


def accuracy(canaries: int, guesses: int, correct: int) -> float:  # noqa: ARG001 (a Reading)
    """Return the share of right guesses.

    Example:
        >>> accuracy(1000, 100, 75)
        0.75
    """
    return correct / guesses


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountCurve:
    """A curve whose points are readings of counts.

    Attributes:
        curve: Its name and look.
        guesser: Whose guesses are counted, as the outcomes of trials name them.
        reading: What is read off each count.
    """

    curve: Curve
    guesser: str
    reading: Reading

    def points(self, x: float, counts: Iterable[tuple[int, int, int]]) -> list[Point]:
        """Return the point at x, or none if the mean is infinite.

        Args:
            x: Where.
            counts: Canaries, guesses and right guesses of each repeat.
        """
        values = [self.reading(*count) for count in counts]
        if not all(map(isfinite, values)):
            return []
        return [mean_point(self.curve.name, x, values)]


BOUND_CURVES: Final = (
    CountCurve(
        curve=Curve(name="estimation", colour=1, published=True),
        guesser="sums",
        reading=estimation,
    ),
    CountCurve(
        curve=Curve(name="bound (Steinke et al.)", colour=0, published=True),
        guesser="sums",
        reading=steinke,
    ),
    CountCurve(
        curve=Curve(name="exact bound, same guesses", colour=0, look=Look.BESIDE),
        guesser="sums",
        reading=exact,
    ),
    CountCurve(
        curve=Curve(name="exact bound, likeliest guesses", colour=2),
        guesser="likeliest",
        reading=exact,
    ),
)
ACCURACY_CURVES: Final = (
    CountCurve(
        curve=Curve(name="by sorted sums, as in the paper", colour=0, published=True),
        guesser="sums",
        reading=accuracy,
    ),
    CountCurve(
        curve=Curve(name="likeliest guesses", colour=2),
        guesser="likeliest",
        reading=accuracy,
    ),
)


def epsilon_curves(epsilon: float, colour: int) -> tuple[CountCurve, CountCurve]:
    """Return the bound as in the paper, named by its epsilon, and the exact one."""
    name = f"epsilon = {epsilon:g}"
    printed = Curve(name=name, colour=colour, published=True)
    beside = Curve(name=f"{name}, exact bound", colour=colour, look=Look.BESIDE)
    return (
        CountCurve(curve=printed, guesser="sums", reading=steinke),
        CountCurve(curve=beside, guesser="sums", reading=exact),
    )
