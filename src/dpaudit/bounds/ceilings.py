"""What an audit could show at best, before it is run.

*Of a design*: the bound if every guess were right.

*Of the mechanism*: let ``M'`` run ``M`` with chance ``w`` and say nothing otherwise.
All its deltas are ``w`` times those of ``M``, and with chance ``w`` nothing tells them
apart. A test of (epsilon, delta) at level alpha may reject ``M'`` with ``w = delta /
delta_M(epsilon)`` only with chance alpha, hence rejects ``M`` with chance at most
``alpha / w``. So no valid one-run audit reliably certifies more than the mechanism's
epsilon at ``delta / alpha``; with ``k`` independent runs, at ``delta / alpha^(1/k)``.
What reports more assumes more.

Reference: docs/explanation/ceilings.md.
"""

from dataclasses import replace
from math import inf, log

from dpaudit import _validate
from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.bound import Estimate
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantee import Guarantee

__all__ = ["design_ceiling", "estimate", "mechanism_ceiling"]


def design_ceiling(counts: Counts, *, delta: float, alpha: float) -> float:
    """Return the bound of the game if every guess of the design were right.

    Example:
        >>> counts = Counts(canaries=1000, guesses=100, correct=0)
        >>> round(design_ceiling(counts, delta=0.0, alpha=0.05), 2)
        3.49
    """
    perfect = replace(counts, correct=counts.guesses)
    bound = Adaptive() if counts.adaptive else Exact()
    return bound.epsilon_lower(perfect, delta=delta, alpha=alpha).epsilon_lower


def mechanism_ceiling(
    mechanism: Guarantee, *, delta: float, alpha: float, runs: int = 1
) -> float:
    """Return the most that valid audits of a mechanism can reliably certify.

    Example:
        >>> from dpaudit.privacy.guarantees import GaussianDP
        >>> round(mechanism_ceiling(GaussianDP(mu=1.0), delta=1e-5, alpha=0.05), 3)
        3.616
        >>> two = mechanism_ceiling(GaussianDP(mu=1.0), delta=1e-5, alpha=0.05, runs=2)
        >>> round(two, 3)
        4.013
    """
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    _validate.whole_number("runs", runs, least=1)
    return mechanism.epsilon_at(min(1.0, delta / alpha ** (1 / runs)))


def estimate(counts: Counts) -> Estimate:
    """Return the epsilon at which as many right guesses would be expected.

    Example:
        >>> print(estimate(Counts(canaries=100, guesses=100, correct=75)))
        epsilon about 1.1 (an estimate, not a bound)
    """
    r, v, k = counts.guesses, counts.correct, counts.alternatives
    if r == 0:
        raise InvalidInputError("an estimate needs at least one guess")
    if v == r:
        return Estimate(epsilon_estimate=inf)
    if v == 0:
        return Estimate(epsilon_estimate=0.0)
    whole = log(v / (r - v)) + log(k - 1)
    return Estimate(epsilon_estimate=max(0.0, whole) / counts.records_per_coin)
