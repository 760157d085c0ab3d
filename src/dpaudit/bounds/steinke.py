"""The (epsilon, delta) bound as Steinke, Nasr and Jagielski published it.

With ``B`` binomial as in the exact bound, the p-value is
``P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i``. It is here to reproduce
published numbers and to compare: the exact bound is never smaller on epsilon and is
proved for every count, while this formula, as quoted, can be slightly too small where
it exceeds 0.87 (docs/explanation/errata.md), far from any audit's alpha.

Reference: https://arxiv.org/abs/2305.08846, theorem 5.2 and appendix D.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import ClassVar, final

import numpy as np

from dpaudit.bounds.bound import GameBound
from dpaudit.bounds.readings import Counts, check_at_once
from dpaudit.stats.binomial import log_tails, masses

__all__ = ["Steinke"]


@final
@dataclass(frozen=True, slots=True)
class Steinke(GameBound[Counts]):
    """The published bound.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(Steinke().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.675 at delta = 1e-05 (wrong with chance at most 0.05, \
whatever the program does; method steinke, tier A)
    """

    method: ClassVar[str] = "steinke"
    reference: ClassVar[str] = "https://arxiv.org/abs/2305.08846, theorem 5.2"
    rises: ClassVar[bool] = True  # not proved: as its authors search it

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the published p-value."""
        check_at_once(counts, self.method)
        m, r, v = counts.canaries, counts.guesses, counts.correct
        if v == 0:
            return 0.0
        upper = log_tails(v, r, epsilon)[0]
        slope = _steepest(v, r, epsilon)
        excess = log(2 * m * delta * slope) if delta * slope > 0 else -inf
        return min(0.0, float(np.logaddexp(upper, excess)))


def _steepest(v: int, r: int, log_odds: float) -> float:
    """Return the largest P[v > B >= v - i] / i over i from 1 to v."""
    low, chances = masses(r, log_odds, spread=10)
    below = chances[: max(0, v - low)]  # the masses from `low` up to v - 1
    if not len(below):
        return exp(log_tails(v, r, log_odds)[1])
    sums = np.cumsum(below[::-1])
    distance = v - (low + len(below) - 1) + np.arange(len(below))
    return float((sums / distance).max())
