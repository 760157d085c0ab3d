"""The results of bounds, and how p-values become a lower bound.

The tier of a result is what it assumes about the mechanism. A: nothing. B: its privacy
curve belongs to a named family; the bound is on the family's parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import ceil, exp, floor, inf, log, log10, nextafter
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._codec import PossiblyInfinite, PrintableText
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, Guarantee
from dpaudit.stats.search import (
    at_most,
    highest_yes,
    largest_yes,
    last_yes_before_no,
    least_between,
)

__all__ = [
    "AnyBound",
    "Bound",
    "ClaimTest",
    "GameBound",
    "Grid",
    "LowerBound",
    "PValueProperty",
    "ParameterBound",
    "PointEstimate",
    "add_price",
    "first_not_rejected",
    "largest_rejected_of_rising",
    "largest_rejected_on_scan",
    "p_value_text",
    "probability",
    "rounded_down",
]

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")

_LARGEST_EPSILON = (
    1e12  # far above any real bound; from here thousandths are no longer exact
)


# Methods that assume independent runs.
_METHODS_OF_RUNS = ("separate", "whole claim", "independent runs", "pooled runs")
# Methods whose bounds are multiples of 0.01, unless the grid starts between two.
_METHODS_ON_GRID = ("ranked", "rounds", "betting", "as made")

# Epsilons where p-values are also evaluated; any would be valid.
_FIRST_EPSILONS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_CURVE_POINTS: Final = 4  # the most promising points of a curve, examined further
_LARGEST_GRID_EPSILON: Final = 1e4  # no grid search goes further


def confidence_text(alpha: float) -> str:
    """Return a confidence level in words.

    Example:
        >>> confidence_text(0.05), confidence_text(0.001)
        ('95 % confidence', '99.9 % confidence')
    """
    return f"{100 - 100 * alpha:.7g} % confidence"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """A lower bound on epsilon that holds for any mechanism (assumption-free).

    Attributes:
        epsilon_lower: No smaller epsilon is consistent with the run.
        delta: The delta at which the bound holds.
        alpha: Probability, over the run, that the bound is wrong.
        method: Name of the bound that computed it.
        reference: Where to find its proof.
        tier: What it assumes about the mechanism; ``"A"`` is nothing.
    """

    epsilon_lower: float
    delta: float
    alpha: float
    method: PrintableText
    reference: PrintableText
    tier: PrintableText = "A"

    def __str__(self) -> str:
        return (
            f"epsilon >= {self.text} at delta = {self.delta:g} "
            f"({self.confidence_text}; method {self.method})"
        )

    @property
    def text(self) -> str:
        """The bound as text, with as many decimals as it has, rounded down."""
        return self.rounded(self.epsilon_lower)

    def rounded(self, epsilon: float) -> str:
        """Return an epsilon as text, rounded down as this method's bounds are."""
        hundredths = f"{epsilon:.2f}" if epsilon < _LARGEST_EPSILON else "inf"
        if self.method in _METHODS_ON_GRID and abs(float(hundredths) - epsilon) < 1e-9:
            return hundredths
        return rounded_down(epsilon)

    @property
    def confidence_text(self) -> str:
        """The confidence level and what it assumes, as text."""
        apart = " in independent runs" if self.method in _METHODS_OF_RUNS else ""
        apart += " that are alike" if self.method == "whole claim" else ""
        return f"{confidence_text(self.alpha)}, for any mechanism{apart}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBound:
    """A lower bound on the parameter of a family of privacy curves (model-based).

    Attributes:
        parameter_lower: No smaller parameter is consistent with the run.
        parameter: Name of the parameter.
        family: Name of the family.
        model_epsilon: The epsilon, at delta, of the family's member with that
            parameter. It bounds the mechanism's epsilon only if its curve is in the
            family.
        delta: The delta at which ``model_epsilon`` is computed.
        alpha: Probability, over the run, that the bound on the parameter is wrong.
        method: Name of the bound that computed it.
        reference: Where to find its proof.
        tier: ``"B"``.
    """

    parameter_lower: float
    parameter: PrintableText
    family: PrintableText
    model_epsilon: PossiblyInfinite
    delta: float
    alpha: float
    method: PrintableText
    reference: PrintableText
    tier: PrintableText = "B"

    def __post_init__(self) -> None:
        for name in ("parameter_lower", "model_epsilon"):
            if not getattr(self, name) >= 0:
                raise InvalidInputError(
                    f"{name} must be >= 0, got {name}={getattr(self, name)!r}"
                )

    def __str__(self) -> str:
        return (
            f"{self.parameter} >= {rounded_down(self.parameter_lower)} (alpha = "
            f"{self.alpha:g}, method {self.method}, tier {self.tier}: {self.family} "
            f"only; in that family epsilon = {rounded_down(self.model_epsilon)} at "
            f"delta = {self.delta:g})"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PointEstimate:
    """A point estimate of epsilon, without confidence: neither bound nor verdict."""

    epsilon_estimate: float

    def __str__(self) -> str:
        return f"epsilon about {self.epsilon_estimate:.3g} (an estimate, not a bound)"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTest:
    """The test of a claim by one run.

    Attributes:
        claim: The guarantee claimed before the run.
        p_value: Largest probability, if the claim is true, of evidence this strong.
        alpha: Largest p-value that refutes the claim.
    """

    claim: Guarantee
    p_value: float
    alpha: float

    def __post_init__(self) -> None:
        _validate.probability("p_value", self.p_value)

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrong with probability at most ``alpha``."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        return f"the claim {self.claim} is {verdict} (p {self.p_text})"

    @property
    def p_text(self) -> str:
        """The p-value as text, with enough digits to tell it from alpha."""
        return p_value_text(self.p_value, self.alpha)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The epsilons that are tested one after the other, fixed before the run.

    Attributes:
        start: The first epsilon. A true epsilon below it is reported as 0.
        step: The distance between neighbours.
        stop: No larger bound is reported; may depend on the data.
    """

    start: float = 0.0
    step: float = 0.01
    stop: float = inf

    def __post_init__(self) -> None:
        _validate.nonnegative("start", self.start)
        if not self.step > 0:
            raise InvalidInputError(f"step must be positive, got step={self.step!r}")

    def up_to(self, epsilon: float) -> NDArray[np.float64]:
        """Return the points from the start to the first at or above an epsilon.

        Example:
            >>> Grid(start=0.5).up_to(0.515)
            array([0.5 , 0.51, 0.52])
        """
        size = max(0, ceil((epsilon - self.start) / self.step)) + 2
        points = self.start + self.step * np.arange(size, dtype=np.float64)
        return points[: int(np.searchsorted(points, epsilon)) + 1]


@final
class PValueProperty(Enum):
    """A proved property of a bound's p-values by which any rejection counts.

    Attributes:
        RISING: They increase with epsilon.
        ONE_EVENT: At all epsilons they bound the probability of the same event.
    """

    RISING = "rising"
    ONE_EVENT = "one event"


class Bound(Protocol[R_contra]):
    """Turns a reading into p-values of claims, and those into a lower bound."""

    @property
    def method(self) -> str:
        """Name of the bound."""
        ...

    @property
    def reference(self) -> str:
        """Where to find its proof."""
        ...

    def log_p_value(self, reading: R_contra, *, epsilon: float, delta: float) -> float:
        """Return the log of a p-value of the claim (epsilon, delta)."""
        ...


class GameBound(ABC, Generic[R]):
    """The bound for one kind of game; it also tests claims, points and whole curves.

    Reference: Keinan, Shenfeld and Ligett, "def:validity",
    "def:ora-asymptotic-tightness", "def:clopper-pearson-lower",
    "lem:condition-for-validity", "lem:privacy-estimations-and-bounds",
    "prop:asymptotic-validity-estimations-and-bounds",
    "prop:validity-implies-asymptotic-validity",
    "prop:characterization-of-asymptotic-tightness-of-valid-auditors".

    Attributes:
        method: Name of the bound.
        reference: Where to find its proof.
        rises: Whether p-values increase with epsilon at every delta.
        rises_without_delta: Whether they do at delta = 0.
    """

    __slots__ = ()

    method: ClassVar[str]
    reference: ClassVar[str]
    rises: ClassVar[bool] = False
    rises_without_delta: ClassVar[bool] = False

    @abstractmethod
    def log_p_value(self, reading: R, /, *, epsilon: float, delta: float) -> float:
        """Return the log of a p-value of the claim (epsilon, delta)."""

    def log_p_of(self, reading: R, /, *, delta: float) -> Callable[[float], float]:
        """Return ``log_p_value`` of one reading and delta, as a function of epsilon.

        Searches call it often, with epsilons of 0 or more: checks and preparations
        that are needed only once are done here.
        """
        return lambda epsilon: self.log_p_value(reading, epsilon=epsilon, delta=delta)

    def one_event(self, reading: R, /) -> bool:  # noqa: ARG002 (some bounds use it)
        """Return whether the p-values of all claims bound the probability of one event.

        Then the smallest over the points of a curve is a p-value of the curve, with no
        correction for many points. Otherwise the point of a curve to be tested must be
        fixed beforehand.
        """
        return True

    def search(
        self,
        reading: R,
        /,
        *,
        delta: float,
        alpha: float,  # noqa: ARG002 (some bounds use it)
    ) -> PValueProperty | Grid:
        """Return which search over epsilons is valid.

        It follows from a proved property of the p-values; without one, epsilons are
        tested on a grid fixed before the run. Both the bound and the claim test use it
        (``claim_p_value``).
        """
        if self.rises or (self.rises_without_delta and delta == 0):
            return PValueProperty.RISING
        return PValueProperty.ONE_EVENT if self.one_event(reading) else Grid()

    def epsilon_lower(self, reading: R, /, *, delta: float, alpha: float) -> LowerBound:
        """Return the lower bound, by the search that is valid for the p-values."""
        _validate.error_level("alpha", alpha)
        by = self.search(reading, delta=delta, alpha=alpha)
        if isinstance(by, Grid):
            return first_not_rejected(self, reading, delta=delta, alpha=alpha, grid=by)
        find = (
            largest_rejected_of_rising
            if by is PValueProperty.RISING
            else largest_rejected_on_scan
        )
        return find(self, reading, delta=delta, alpha=alpha)

    def claim_p_value(self, reading: R, /, claim: Guarantee, *, alpha: float) -> float:
        """Return a p-value of a claim that agrees with the lower bound.

        A claim (epsilon, delta) with epsilon > 0 has a p-value of alpha or less if and
        only if the lower bound at that delta and alpha is at least epsilon. So of two
        claims with one delta the larger is never refuted unless the smaller is.

        *Valid.* A mechanism private at epsilon is private at every larger one. On a
        grid the p-value is the largest at the points up to the first at or above
        epsilon: no smaller than the p-value at that point, which is fixed and at which
        the true guarantee holds. With one event for all claims, the smallest p-value at
        any points at or above epsilon, however chosen, is valid, as each bounds the
        probability of that event. P-values that increase with epsilon need nothing.

        *Consistent.* On a grid both ask whether all points up to the first at or above
        epsilon are rejected. Otherwise the search decides: it is run wherever its
        outcome is not certain, and a p-value on the other side of alpha is moved to
        alpha, or just above it. Both are valid: if the claim is true, a bound of
        epsilon or more has probability at most alpha, and is part of the event that
        some p-value at or above epsilon is at most alpha.

        Args:
            reading: The reading of the run.
            claim: A point, or a curve if one event serves all claims.
            alpha: The level of the lower bound; the p-value is valid at any level.
        """
        points = self._points(claim)
        by = self.search(reading, delta=max(d for _, d in points), alpha=alpha)
        if len(points) > 1 and by is PValueProperty.ONE_EVENT:
            best = self.strongest_points(reading, claim)[:_CURVE_POINTS]
            return min(self.claim_p_value(reading, p, alpha=alpha) for p in best)
        p_value = probability(self.log_p_claim(reading, claim, alpha=alpha))
        (epsilon, delta), *others = points
        if others:
            return p_value
        if epsilon == 0 or self._is_certain(p_value, reading, epsilon, delta, alpha):
            return p_value
        lower = self.epsilon_lower(reading, delta=delta, alpha=alpha).epsilon_lower
        above = nextafter(alpha, 1.0)
        return min(p_value, alpha) if lower >= epsilon else max(p_value, above)

    def judge_claim(
        self, reading: R, /, claim: Guarantee, *, alpha: float
    ) -> ClaimTest:
        """Return whether a reading refutes a claim at a level (``claim_p_value``)."""
        _validate.error_level("alpha", alpha)
        p_value = self.claim_p_value(reading, claim, alpha=alpha)
        return ClaimTest(claim=claim, p_value=p_value, alpha=alpha)

    def log_p_claim(self, reading: R, /, claim: Guarantee, *, alpha: float) -> float:
        """Return the log of a p-value of a claim, a point or a whole curve.

        For points with one delta it increases with epsilon, as far as a few epsilons
        can show.
        """
        points = self._points(claim)
        if len(points) == 1:
            return self._log_p_point(reading, *points[0], alpha=alpha)
        if not self.one_event(reading):
            raise InvalidInputError(
                f"{self.method} guesses are tested at one point of a curve; name a "
                "delta before the run and claim ApproxDP(epsilon=curve.epsilon_at("
                "delta), delta=delta)"
            )
        return min(self.log_p_value(reading, epsilon=e, delta=d) for e, d in points)

    def strongest_points(self, reading: R, /, claim: Guarantee) -> list[ApproxDP]:
        """Return points of a claim, the one with the smallest p-value first.

        Omitted are points whose p-value even at delta = 0 exceeds the smallest.
        """
        points: list[tuple[float, ApproxDP]] = []
        for epsilon, delta in self._points(claim):
            log_p = self.log_p_value(reading, epsilon=epsilon, delta=delta)
            points.append((log_p, ApproxDP(epsilon=epsilon, delta=delta)))
            least = min(log_p for log_p, _ in points)
            if self.log_p_value(reading, epsilon=epsilon, delta=0.0) > least:
                break
        return [point for _, point in sorted(points, key=lambda pair: pair[0])]

    def refuted_at(
        self, reading: R, /, claim: Guarantee, *, alpha: float
    ) -> tuple[ApproxDP, LowerBound] | None:
        """Return a refuted point of a claim and the bound at its delta, or None."""
        for point in self.strongest_points(reading, claim)[:_CURVE_POINTS]:
            lower = self.epsilon_lower(reading, delta=point.delta, alpha=alpha)
            if lower.epsilon_lower >= point.epsilon > 0:
                return point, lower
        return None

    def highest_log_p(
        self,
        reading: R,
        /,
        epsilons: NDArray[np.float64],
        *,
        delta: float,
        alpha: float,  # noqa: ARG002 (some tests depend on the level)
    ) -> float:
        """Return an upper bound on the log p-values at increasing epsilons.

        It is on the same side of alpha as the largest of them, never decreases if
        epsilons are added, and is exact if the last epsilon has the largest.
        """
        log_p, highest = self.log_p_of(reading, delta=delta), -inf
        for epsilon in reversed(epsilons.tolist()):
            highest = max(highest, log_p(epsilon))
            if highest >= 0:
                break
        return highest

    def _log_p_point(
        self, reading: R, epsilon: float, delta: float, *, alpha: float
    ) -> float:
        by = self.search(reading, delta=delta, alpha=alpha)
        if isinstance(by, Grid):
            if epsilon > min(by.stop, _LARGEST_GRID_EPSILON):
                return 0.0
            points = by.up_to(epsilon)
            if points[-1] > by.stop:
                return 0.0
            return self.highest_log_p(reading, points, delta=delta, alpha=alpha)
        if by is PValueProperty.RISING:
            return self.log_p_value(reading, epsilon=epsilon, delta=delta)
        return _least_from(epsilon, self.log_p_of(reading, delta=delta))

    def _is_certain(
        self, p_value: float, reading: R, epsilon: float, delta: float, alpha: float
    ) -> bool:
        """Return whether the search must agree with a p-value."""
        by = self.search(reading, delta=delta, alpha=alpha)
        if by is PValueProperty.ONE_EVENT:
            # At delta = 0 p-values increase: no bound exceeds an epsilon not rejected.
            pure = self.log_p_value(reading, epsilon=epsilon, delta=0.0)
            return p_value > alpha and pure > log(alpha)
        return not alpha / 2 < p_value < 2 * alpha  # far more than rounding

    @staticmethod
    def _points(claim: Guarantee) -> list[tuple[float, float]]:
        epsilons, deltas = claim.points()
        return list(zip(epsilons.tolist(), deltas.tolist(), strict=True))


AnyBound: TypeAlias = GameBound[Any]  # for any kind of reading


def _least_from(epsilon: float, log_p: Callable[[float], float]) -> float:
    """Return the smallest log p-value at some epsilons from the given one on.

    They are the given epsilon, fixed ones, and the minimum near the best of these. The
    value at the given epsilon is raised to that at the next lower one, so that the
    result increases with epsilon wherever p-values have one minimum.
    """
    tried = [(e, log_p(e)) for e in _FIRST_EPSILONS]
    best = min(range(len(tried)), key=lambda i: tried[i][1])
    low, high = tried[max(0, best - 1)][0], tried[min(best + 1, len(tried) - 1)][0]
    tried.append(least_between(log_p, low, high))
    at, below = max(pair for pair in tried if pair[0] <= epsilon)
    here = below if at == epsilon else max(below, log_p(epsilon))
    return min([here, *(value for e, value in tried if e > epsilon)])


def largest_rejected_of_rising(
    bound: Bound[R], reading: R, *, delta: float, alpha: float
) -> LowerBound:
    """Return the largest rejected epsilon as a lower bound.

    For bounds whose p-values increase with epsilon: all smaller ones are rejected too.
    """
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    return _lower(bound, largest_yes(rejected), delta=delta, alpha=alpha)


def largest_rejected_on_scan(
    bound: Bound[R], reading: R, *, delta: float, alpha: float
) -> LowerBound:
    """Return the largest rejected epsilon that a scan finds as a lower bound.

    For bounds whose p-values are not monotone in epsilon but bound, at every epsilon,
    the probability of the same event, "this much evidence or more": an (epsilon,
    delta)-DP mechanism is so at every larger epsilon too, so any rejection refutes it.
    Delta costs more at small epsilons, so rejection may begin above 0. At delta = 0 the
    p-value increases with epsilon and more is rejected: the scan begins there.
    """
    pure = largest_yes(_rejection(bound, reading, delta=0.0, alpha=alpha))
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    epsilon = highest_yes(rejected, top=pure, pieces=100 if delta else 1)
    return _lower(bound, epsilon, delta=delta, alpha=alpha)


def first_not_rejected(
    bound: Bound[R], reading: R, *, delta: float, alpha: float, grid: Grid
) -> LowerBound:
    """Return the last grid epsilon before the first not rejected as a lower bound.

    For bounds whose tests differ from one epsilon to the next. The bound exceeds the
    true epsilon only if the first grid point at or above the truth, which is fixed, was
    wrongly rejected.
    """
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    last = last_yes_before_no(
        lambda epsilon: epsilon <= grid.stop and rejected(epsilon),
        start=grid.start,
        step=grid.step,
    )
    return _lower(bound, last, delta=delta, alpha=alpha)


def _rejection(
    bound: Bound[R], reading: R, *, delta: float, alpha: float
) -> Callable[[float], bool]:
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    if isinstance(bound, GameBound):
        return at_most(bound.log_p_of(reading, delta=delta), log(alpha))
    return at_most(
        lambda epsilon: bound.log_p_value(reading, epsilon=epsilon, delta=delta),
        log(alpha),
    )


def _lower(
    bound: Bound[R], epsilon: float, *, delta: float, alpha: float
) -> LowerBound:
    return LowerBound(
        epsilon_lower=epsilon,
        delta=delta,
        alpha=alpha,
        method=bound.method,
        reference=bound.reference,
    )


def rounded_down(value: float) -> str:
    """Return a lower bound as text, never rounded up."""
    if value >= _LARGEST_EPSILON:
        return "inf" if value == inf else f"{_LARGEST_EPSILON:g}"
    return f"{floor(value * 1000) / 1000:.3f}"


def p_value_text(p_value: float, alpha: float | None = None) -> str:
    """Return a p-value as text, rounded up, with ``=`` or ``<``.

    It has two digits, or as many more as show on which side of alpha it is.

    Example:
        >>> p_value_text(0.0521), p_value_text(0.0)
        ('= 0.053', '< 1e-300')
        >>> p_value_text(0.0500041, 0.05)
        '= 0.050005'
    """
    if p_value < 1e-300:
        return "< 1e-300"
    size = floor(log10(p_value))
    for digits in range(2, 17):
        unit = 10.0 ** (size + 1 - digits)
        up = min(1.0, ceil(p_value / unit * (1 - 1e-12)) * unit)
        text = f"{up:.{digits}g}"
        below = float(f"{up - unit:.{digits}g}")
        if alpha is None or (
            float(text) <= alpha if p_value <= alpha else max(below, alpha) > alpha
        ):
            return f"= {text}"
    return f"= {p_value!r}"


def probability(log_p_value: float) -> float:
    """Return the p-value of a log p-value."""
    return exp(min(0.0, log_p_value))


def add_price(log_tail: float, price: float) -> float:
    """Return the log of a tail probability plus the price of delta, at most log 1."""
    if price == 0:
        return min(0.0, log_tail)
    return min(0.0, float(np.logaddexp(log_tail, log(price))))
