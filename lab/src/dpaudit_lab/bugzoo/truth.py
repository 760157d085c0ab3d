"""What a faulty training claims, and what it spends in truth.

Where a fault amounts to other noise, sensitivity, sample rate or number of steps, the
truth is the accountant's own value for these (``Effective``): the worst pair of data
sets attains it, so it is exact up to the accountant's rounding. Where noise is nearly
gone, grids of privacy losses would need too much memory, and a lower bound is at hand
(``nearly_noiseless``). Where an output is possible with a record and impossible without
it, with more chance than delta, no epsilon holds (``Infinite``). What is known for one
pair of data sets only, from simulation, is a lower bound too (``AtLeast``).
"""

from dataclasses import dataclass
from functools import cache
from math import inf, log, log1p
from typing import Final, TypeAlias, final

from scipy import special

from dpaudit.accounting import accountant_curve
from dpaudit.privacy.guarantees import PrivacyCurve

__all__ = [
    "DELTA",
    "AtLeast",
    "Effective",
    "History",
    "Infinite",
    "Truth",
    "claimed_curve",
    "epsilon_of",
    "few_records",
    "nearly_noiseless",
]

History: TypeAlias = tuple[tuple[float, float, int], ...]

DELTA: Final = 1e-5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The training is as private as another one that is accounted for rightly.

    Attributes:
        claimed: What the accountant of the faulty run is told.
        spent: What it should have been told.
        how: Why.
    """

    claimed: History
    spent: History
    how: str

    @property
    def epsilon(self) -> float:
        """The true epsilon at ``DELTA``."""
        return epsilon_of(self.spent)

    def __str__(self) -> str:
        return f"{self.epsilon:.2f}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """The true epsilon is this or more.

    Attributes:
        claimed: What the accountant of the faulty run is told.
        epsilon: A lower bound on the true epsilon at ``DELTA``.
        how: Why.
    """

    claimed: History
    epsilon: float
    how: str

    def __str__(self) -> str:
        return f"at least {self.epsilon:.4g}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Infinite:
    """No epsilon holds at ``DELTA``.

    Attributes:
        claimed: What the accountant of the faulty run is told.
        how: The proof.
    """

    claimed: History
    how: str

    @property
    def epsilon(self) -> float:
        """Infinity."""
        return inf

    def __str__(self) -> str:
        return "infinite"


Truth: TypeAlias = Effective | AtLeast | Infinite


@cache
def claimed_curve(history: History) -> PrivacyCurve:
    """Return the curve that an accountant stands for after a history."""
    return accountant_curve(history)


def epsilon_of(history: History) -> float:
    """Return the accountant's epsilon at ``DELTA``.

    Example:
        >>> round(epsilon_of(((1.9938, 1.0, 1),)), 3)
        2.0
    """
    return claimed_curve(history).epsilon_at(DELTA)


def nearly_noiseless(noise: float, rate: float, steps: int) -> float:
    """Return a lower bound on epsilon at ``DELTA``, for little noise.

    All other records have the zero gradient. If the record is there, some step's sum
    exceeds the sensitivity with chance at least ``(1 - (1 - rate)^steps) / 2``: a half
    whenever the record joins. If it is not, with chance at most
    ``steps Phi(-1 / noise)``. The claim (epsilon, delta) bounds the first by e^epsilon
    times the second, plus delta.

    Args:
        noise: Standard deviation of the noise over what the record alone puts in.
        rate: Sample rate.
        steps: Number of steps.

    Example:
        >>> 4990 < nearly_noiseless(0.01, 0.1, 100) < 5010
        True
    """
    joined = -special.expm1(steps * log1p(-rate))
    alarm = log(steps) + float(special.log_ndtr(-1 / noise))
    return log(joined / 2 - DELTA) - alarm


def few_records(*, dimension: int, rate: float, steps: int) -> float:
    """Return a lower bound on epsilon if sums are divided by the realised batch size.

    Of two records, both with the zero gradient, one is removed. The output of a step is
    noise, of half its size if both records join. Its square norm is below half of the
    expected one with chance above ``rate^2 / 2`` in some step if there are two
    records; if there is one, with chance at most ``exp(-d (ln 2 - 1/2) / 2)`` in any,
    by Chernoff's bound for the chi-square law, where ``d`` is the dimension.

    Args:
        dimension: How many parameters are trained; at least 10.
        rate: Sample rate.
        steps: Number of steps.

    Example:
        >>> round(few_records(dimension=1000, rate=0.1, steps=100))
        91
    """
    small = -special.expm1(steps * log1p(-(rate**2) / 2))
    alarm = log(steps) - dimension * (log(2) - 0.5) / 2
    return log(small - DELTA) - alarm
