"""What a bound returns, and how a p-value becomes a bound.

A tier says what a statement assumes of the mechanism. A: nothing. B: that its privacy
curve belongs to a named family; the statement is about the family's parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, floor, inf, log, log10
from typing import ClassVar, Generic, Protocol, TypeVar, final

import numpy as np

from dpaudit import _validate
from dpaudit._codec import Extended, Words
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.search import (
    at_most,
    highest_yes,
    largest_yes,
    last_yes_before_no,
)

__all__ = [
    "Bound",
    "ClaimTest",
    "Estimate",
    "GameBound",
    "Grid",
    "LowerBound",
    "ParameterBound",
    "add_price",
    "first_not_rejected",
    "highest_rejected",
    "largest_rejected",
    "p_value_text",
    "probability",
    "rounded_down",
]

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")

_BEYOND = 1e12  # an epsilon that nothing shows; thousandths of it are no longer exact


# Methods that take runs to be independent.
_OF_RUNS = ("separate", "classic", "independent runs", "pooled runs")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """A lower bound on epsilon that holds for any mechanism (tier A).

    Attributes:
        epsilon_lower: No smaller epsilon is consistent with the run.
        delta: The delta at which the bound holds.
        alpha: Probability, over the run, that the bound is wrong.
        method: Name of the bound that made it.
        reference: Where its proof stands.
        tier: What it assumes; ``"A"`` is nothing about the mechanism.
    """

    epsilon_lower: float
    delta: float
    alpha: float
    method: Words
    reference: Words
    tier: Words = "A"

    def __str__(self) -> str:
        return (
            f"epsilon >= {rounded_down(self.epsilon_lower)} at delta = {self.delta:g} "
            f"({self.sure}; method {self.method}, tier {self.tier})"
        )

    @property
    def sure(self) -> str:
        """How often it may be wrong, and of which programs that is known."""
        apart = " in runs that share nothing" if self.method in _OF_RUNS else ""
        return (
            f"wrong with chance at most {self.alpha:g}, whatever the program does"
            f"{apart}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBound:
    """A lower bound on the parameter of a family of privacy curves (tier B).

    Attributes:
        parameter_lower: No smaller parameter is consistent with the run.
        parameter: What the parameter is called.
        family: Which family.
        model_epsilon: The epsilon of the family's member with that parameter, at
            delta. It bounds the mechanism's epsilon only if its curve is in the family.
        delta: The delta at which ``model_epsilon`` is read off.
        alpha: Probability, over the run, that the bound on the parameter is wrong.
        method: Name of the bound that made it.
        reference: Where its proof stands.
        tier: ``"B"``.
    """

    parameter_lower: float
    parameter: Words
    family: Words
    model_epsilon: Extended
    delta: float
    alpha: float
    method: Words
    reference: Words
    tier: Words = "B"

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
class Estimate:
    """A guess at epsilon with no confidence attached: neither bound nor verdict."""

    epsilon_estimate: float

    def __str__(self) -> str:
        return f"epsilon about {self.epsilon_estimate:.3g} (an estimate, not a bound)"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTest:
    """Whether a run speaks against a claim.

    Attributes:
        claim: What was claimed before the run.
        p_value: Largest chance, if the claim is true, of evidence this strong.
        alpha: Largest p-value that refutes the claim.
    """

    claim: Guarantee
    p_value: float
    alpha: float

    def __post_init__(self) -> None:
        _validate.probability("p_value", self.p_value)

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrongly so with chance at most ``alpha``."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        return f"the claim {self.claim} is {verdict} (p {p_value_text(self.p_value)})"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The epsilons that are tested one after the other, fixed before the run.

    Attributes:
        start: The first. A truth below it is reported as 0.
        step: The distance from one to the next.
        stop: Nothing above is reported; it may depend on the data.
    """

    start: float = 0.0
    step: float = 0.01
    stop: float = inf

    def __post_init__(self) -> None:
        _validate.nonnegative("start", self.start)
        if not self.step > 0:
            raise InvalidInputError(f"step must be positive, got step={self.step!r}")


class Bound(Protocol[R_contra]):
    """Turns a reading into p-values of claims, and those into a lower bound."""

    @property
    def method(self) -> str:
        """Name of the bound."""
        ...

    @property
    def reference(self) -> str:
        """Where its proof stands."""
        ...

    def log_p_value(self, reading: R_contra, *, epsilon: float, delta: float) -> float:
        """Return the log of a p-value of the claim (epsilon, delta)."""
        ...


class GameBound(ABC, Generic[R]):
    """The bound of a game: it also tests claims, points and whole curves.

    Attributes:
        method: Name of the bound.
        reference: Where its proof stands.
    """

    __slots__ = ()

    method: ClassVar[str]
    reference: ClassVar[str]

    @abstractmethod
    def log_p_value(self, reading: R, /, *, epsilon: float, delta: float) -> float:
        """Return the log of a p-value of the claim (epsilon, delta)."""

    @abstractmethod
    def epsilon_lower(self, reading: R, /, *, delta: float, alpha: float) -> LowerBound:
        """Return the lower bound."""

    def log_p_of(self, reading: R, /, *, delta: float) -> Callable[[float], float]:
        """Return ``log_p_value`` of one reading and delta, as a function of epsilon.

        Searches ask it often, with epsilons of 0 or more: what can be checked or
        prepared once is done here.
        """
        return lambda epsilon: self.log_p_value(reading, epsilon=epsilon, delta=delta)

    def one_event(self, reading: R, /) -> bool:  # noqa: ARG002 (some ask it)
        """Return whether the p-values of all claims bound the chance of one event.

        Then the least over the points of a curve is a p-value of the curve, without any
        charge for the many points. A test that differs from one claim to the next
        must be told beforehand which point of a curve it is to test.
        """
        return True

    def log_p_claim(
        self,
        reading: R,
        /,
        claim: Guarantee,
        *,
        alpha: float,  # noqa: ARG002 (a test may be made for a level)
    ) -> float:
        """Return the log of a p-value of a claim, a point or a whole curve."""
        epsilons, deltas = claim.points()
        if len(epsilons) > 1 and not self.one_event(reading):
            raise InvalidInputError(
                f"{self.method} guesses are tested at one point of a curve; name a "
                "delta before the run and claim ApproxDP(epsilon=curve.epsilon_at("
                "delta), delta=delta)"
            )
        return min(
            self.log_p_value(reading, epsilon=float(e), delta=float(d))
            for e, d in zip(epsilons, deltas, strict=True)
        )


def largest_rejected(
    bound: Bound[R], reading: R, *, delta: float, alpha: float
) -> LowerBound:
    """Bound epsilon from below by the largest one that is rejected.

    For bounds whose p-values, at all epsilons, are bounds on the chance of one and the
    same event "this much evidence or more": a mechanism that is (epsilon, delta)-DP is
    so at every larger epsilon too, so any rejection refutes it.
    """
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    return _lower(bound, largest_yes(rejected), delta=delta, alpha=alpha)


def highest_rejected(
    bound: Bound[R], reading: R, *, delta: float, alpha: float
) -> LowerBound:
    """Bound epsilon like ``largest_rejected`` where p-values rise and fall.

    Delta is dearer at small epsilons, so rejection may begin above 0. Without delta the
    p-value only rises, and more is rejected: there is nothing to find above.
    """
    pure = largest_yes(_rejection(bound, reading, delta=0.0, alpha=alpha))
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    found = highest_yes(rejected, top=pure, pieces=100 if delta else 1)
    return _lower(bound, found, delta=delta, alpha=alpha)


def first_not_rejected(
    bound: Bound[R], reading: R, *, delta: float, alpha: float, grid: Grid
) -> LowerBound:
    """Bound epsilon by the last of a fixed grid before the first that is not rejected.

    For bounds whose tests differ from one epsilon to the next. The bound exceeds the
    truth only if the grid's first point at or above the truth, which is fixed, was
    wrongly rejected.
    """
    rejected = _rejection(bound, reading, delta=delta, alpha=alpha)
    found = last_yes_before_no(
        lambda epsilon: epsilon <= grid.stop and rejected(epsilon),
        start=grid.start,
        step=grid.step,
    )
    return _lower(bound, found, delta=delta, alpha=alpha)


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
    """Return a lower bound as text that does not say more than was shown."""
    if value >= _BEYOND:
        return "inf" if value == inf else f"{_BEYOND:g}"
    return f"{floor(value * 1000) / 1000:.3f}"


def p_value_text(p_value: float) -> str:
    """Return a p-value as text, rounded up, with its sign of equality.

    Example:
        >>> p_value_text(0.0521), p_value_text(0.0)
        ('= 0.053', '< 1e-300')
    """
    if p_value < 1e-300:
        return "< 1e-300"
    unit = 10.0 ** (floor(log10(p_value)) - 1)
    return f"= {min(1.0, ceil(p_value / unit * (1 - 1e-12)) * unit):.2g}"


def probability(log_p_value: float) -> float:
    """Return the p-value of a log p-value."""
    return exp(min(0.0, log_p_value))


def add_price(log_tail: float, price: float) -> float:
    """Return the log of a tail plus what delta can add to it, at most log 1."""
    if price == 0:
        return min(0.0, log_tail)
    return min(0.0, float(np.logaddexp(log_tail, log(price))))
