"""The expected bound and the power of an audit, before it is run.

The distribution of V, the number of correct guesses, gives the mean and the spread of
the lower bound on epsilon, and the probability that a claim is refuted. More correct
guesses are never weaker evidence against a claim, so a claim is refuted from some
number of correct guesses on, and the power is the mass of the distribution from there.

Reference: docs/explanation/bounds.md#the-exact-bound for the bound and the test.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.power import least_refuting
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.search import least_yes

__all__ = ["Power", "bounds_by_count", "power"]

_NEGLIGIBLE = 1e-12
_KNOTS = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The expected outcome of an audit.

    Attributes:
        expected_bound: The mean of the lower bound on epsilon.
        spread: Its standard deviation from run to run.
        refutes: The probability that the claim is refuted.
    """

    expected_bound: float
    spread: float
    refutes: float

    def __str__(self) -> str:
        return (
            f"mean bound {self.expected_bound:.3f} ± {self.spread:.3f} (standard "
            "deviation over runs); the claim is refuted with probability "
            f"{self.refutes:.3f}"
        )


def power(
    correct_guesses: NDArray[np.float64],
    *,
    canaries: int,
    guesses: int,
    claim: Guarantee,
    delta: float,
    alpha: float,
) -> Power:
    """Return the expected exact bound and the power of the test of a claim.

    Args:
        correct_guesses: The probabilities of 0, 1, ..., ``guesses`` correct guesses.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        claim: The claim that is tested.
        delta: The delta of the bound.
        alpha: Significance level of the bound and of the test.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> all_right = np.zeros(101)
        >>> all_right[100] = 1.0
        >>> print(power(all_right, canaries=100, guesses=100, delta=0.0, alpha=0.05,
        ...     claim=PureDP(epsilon=3.0)))
        mean bound 3.493 ± 0.000 (standard deviation over runs); the claim is refuted \
with probability 1.000
    """
    distribution = _checked(correct_guesses, guesses)
    bounds = bounds_by_count(
        distribution, canaries=canaries, guesses=guesses, delta=delta, alpha=alpha
    )
    mean = float(distribution @ bounds)
    refuting = least_refuting(claim, canaries=canaries, guesses=guesses, alpha=alpha)
    return Power(
        expected_bound=mean,
        spread=float(np.sqrt(distribution @ (bounds - mean) ** 2)),
        refutes=_mass_from(distribution, refuting),
    )


def bounds_by_count(
    correct_guesses: NDArray[np.float64],
    *,
    canaries: int,
    guesses: int,
    delta: float,
    alpha: float,
) -> NDArray[np.float64]:
    """Return the exact bound for each number of correct guesses likely to occur.

    Numbers with a probability below 1e-12 get 0. Of the others at most 64 are computed.
    In between, the bound is the one at delta = 0, in closed form (Clopper-Pearson),
    minus the linearly interpolated effect of delta; that moves a mean by less than
    1e-5.

    Example:
        >>> pmf = np.array([0.0, 0.0, 0.5, 0.5])
        >>> bounds_by_count(pmf, canaries=3, guesses=3, delta=0.0, alpha=0.05).round(3)
        array([0., 0., 0., 0.])
        >>> bounds_by_count(pmf, canaries=3, guesses=3, delta=0.0, alpha=0.3).round(3)
        array([0.   , 0.   , 0.   , 0.706])
    """
    distribution = _checked(correct_guesses, guesses)
    likely = np.flatnonzero(distribution > _NEGLIGIBLE)

    def bound(correct: int) -> float:
        counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
        lower = ExactBound().epsilon_lower(counts, delta=delta, alpha=alpha)
        return lower.epsilon_lower

    bounds = np.zeros(guesses + 1)
    # Bounds increase with the number correct; most of the lower ones are 0.
    first = least_yes(lambda v: bound(v) > 0, int(likely[0]), int(likely[-1]))
    if first is None:
        return bounds
    v = likely[likely >= first]
    knots = np.unique(np.linspace(0, len(v) - 1, _KNOTS).round().astype(np.int64))
    pure = special.logit(special.betaincinv(v, guesses - v + 1, alpha))
    delta_effect = pure[knots] - [bound(int(correct)) for correct in v[knots]]
    bounds[v] = pure - np.interp(v, v[knots], delta_effect)
    return bounds


def _checked(distribution: NDArray[np.float64], guesses: int) -> NDArray[np.float64]:
    distribution = np.asarray(distribution, np.float64)
    if distribution.shape != (guesses + 1,):
        raise InvalidInputError(
            f"the distribution of correct guesses among guesses={guesses} has "
            f"{guesses + 1} probabilities, got shape {distribution.shape}"
        )
    if not (np.all(distribution >= 0) and abs(distribution.sum() - 1) < 1e-6):
        raise InvalidInputError(
            "probabilities must be at least 0 and add up to 1; divide counts of a "
            f"simulation by their number, got a sum of {distribution.sum():g}"
        )
    return distribution


def _mass_from(distribution: NDArray[np.float64], least: int | None) -> float:
    return 0.0 if least is None else min(1.0, float(distribution[least:].sum()))
