"""What an audit can be expected to find, before it is run.

From the distribution of V, the number of right guesses, follow the mean and the spread
of the lower bound on epsilon, and the probability that a claim is refuted. More right
guesses never speak less against a claim, so a claim is refuted from some number of
right guesses on, and its probability to be refuted is the distribution's mass from
there.

Reference: docs/explanation/exact-bound.md for the bound and the test.
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
    """What is to be expected of an audit.

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
            f"a bound of {self.expected_bound:.3f} on average, give or take "
            f"{self.spread:.3f}; the claim is refuted with chance {self.refutes:.3f}"
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
    """Return what the exact bound and the test of a claim can be expected to say.

    Args:
        correct_guesses: The probability of 0, 1, ..., ``guesses`` right.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        claim: What is tested.
        delta: The delta of the bound.
        alpha: Probability of being wrong, of the bound and of the test.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> all_right = np.zeros(101)
        >>> all_right[100] = 1.0
        >>> print(power(all_right, canaries=100, guesses=100, delta=0.0, alpha=0.05,
        ...     claim=PureDP(epsilon=3.0)))
        a bound of 3.493 on average, give or take 0.000; the claim is refuted with \
chance 1.000
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
    """Return the exact bound for each number of right guesses that may well occur.

    Numbers with a probability below 1e-12 get 0. Of more than 64 others, 64 are
    computed. In between the bound is the one without delta, in closed form (Clopper and
    Pearson), less what delta takes, on chords; that moves a mean by less than 1e-5.

    Example:
        >>> pmf = np.array([0.0, 0.0, 0.5, 0.5])
        >>> bounds_by_count(pmf, canaries=3, guesses=3, delta=0.0, alpha=0.05).round(3)
        array([0., 0., 0., 0.])
        >>> bounds_by_count(pmf, canaries=3, guesses=3, delta=0.0, alpha=0.3).round(3)
        array([0.   , 0.   , 0.   , 0.706])
    """
    distribution = _checked(correct_guesses, guesses)
    seen = np.flatnonzero(distribution > _NEGLIGIBLE)

    def bound(correct: int) -> float:
        counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
        found = ExactBound().epsilon_lower(counts, delta=delta, alpha=alpha)
        return found.epsilon_lower

    found = np.zeros(guesses + 1)
    # Bounds rise with the number right; most of the lower ones are 0.
    first = least_yes(lambda v: bound(v) > 0, int(seen[0]), int(seen[-1]))
    if first is None:
        return found
    seen = seen[seen >= first]
    at = np.unique(np.linspace(0, len(seen) - 1, _KNOTS).round().astype(np.int64))
    pure = special.logit(special.betaincinv(seen, guesses - seen + 1, alpha))
    taken = pure[at] - [bound(int(v)) for v in seen[at]]
    found[seen] = pure - np.interp(seen, seen[at], taken)
    return found


def _checked(distribution: NDArray[np.float64], guesses: int) -> NDArray[np.float64]:
    distribution = np.asarray(distribution, np.float64)
    if distribution.shape != (guesses + 1,):
        raise InvalidInputError(
            f"the law of the number right among guesses={guesses} has {guesses + 1} "
            f"chances, got shape {distribution.shape}"
        )
    if not (np.all(distribution >= 0) and abs(distribution.sum() - 1) < 1e-6):
        raise InvalidInputError(
            "chances must be at least 0 and add up to 1; divide counts of a "
            f"simulation by their number, got a sum of {distribution.sum():g}"
        )
    return distribution


def _mass_from(distribution: NDArray[np.float64], least: int | None) -> float:
    return 0.0 if least is None else min(1.0, float(distribution[least:].sum()))
