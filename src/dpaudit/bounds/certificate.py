"""A lower bound on the whole privacy curve, from one set of counts.

Solving the exact p-value for delta: with confidence ``1 - alpha``, for *all* epsilons
at once, the mechanism's delta at epsilon is at least

    (alpha - beta) v b_v / (m beta (1 - beta))      wherever beta < alpha.

No charge for the many epsilons: the p-value rises with delta and falls with ``v``, so
"some true point of the curve is rejected" is the event that ``V`` reaches a certain
count, and at that count one true point has a p-value of at most alpha.

Reference: docs/explanation/exact-bound.md.
"""

from dataclasses import dataclass
from math import exp, log
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.bounds.exact import group_growth
from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.stats.binomial import log_mass, log_tails

__all__ = ["CurveCertificate"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCertificate:
    """What counts say about delta at every epsilon (tier A).

    Attributes:
        counts: What the guesser did.
        alpha: Chance that the certificate is wrong anywhere.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> certificate = CurveCertificate(counts=counts, alpha=0.05)
        >>> certificate.delta_lower([1.0, 2.0, 3.0]).round(5)
        array([0.00062, 0.00046, 0.     ])
    """

    counts: Counts
    alpha: float

    def __post_init__(self) -> None:
        check_at_once(self.counts, "exact")
        _validate.error_level("alpha", self.alpha)

    def delta_lower(self, epsilons: ArrayLike) -> NDArray[np.float64]:
        """Return a lower bound on delta at each epsilon."""
        return np.array([self._at(float(e)) for e in np.atleast_1d(epsilons)])

    def refutes(self, claim: Guarantee) -> bool:
        """Return whether the claim's curve is too low somewhere."""
        epsilons, deltas = claim.points()
        return bool(np.any(deltas < self.delta_lower(epsilons)))

    def _at(self, epsilon: float) -> float:
        m, r, v = self.counts.canaries, self.counts.guesses, self.counts.correct
        g = self.counts.records_per_coin
        log_odds = g * epsilon - log(self.counts.alternatives - 1)
        upper, lower = log_tails(v, r, log_odds)
        if v == 0 or upper >= log(self.alpha):
            return 0.0
        mass = float(log_mass(v, r, log_odds))
        room = log(self.alpha) + np.log1p(-exp(upper - log(self.alpha)))
        log_delta = float(room) + log(v) + mass - log(m) - upper - lower
        # What the coin's group shows is shared by its records.
        return exp(min(0.0, log_delta) - log(group_growth(epsilon, records=g)))
