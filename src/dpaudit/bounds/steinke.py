"""The (epsilon, delta) bound of most public code for one-run audits.

With ``B`` binomial as in the exact bound, the p-value is
``P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i``. It is here to reproduce
published numbers and to compare with the exact bound, which is proved for every count.
Close to 1, far from any audit's alpha, this p-value can be slightly too small: for
m = r = 2, v = 1, epsilon = 1 and delta = 0.01 it is 0.93056, and a private mechanism
reaches 0.93108 (tests/bounds/test_published.py).

Public code attributes the formula to Steinke, Nasr and Jagielski. We have not checked
what they state and prove.

References: ``_one_run_p_value`` of https://github.com/google-deepmind/jax_privacy,
which cites https://arxiv.org/abs/2305.08846.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import ClassVar, final

import numpy as np

from dpaudit.bounds.bound import GameBound
from dpaudit.bounds.readings import Counts, check_at_once
from dpaudit.stats.binomial import log_tails, masses

__all__ = ["SteinkeBound"]


@final
@dataclass(frozen=True, slots=True)
class SteinkeBound(GameBound[Counts]):
    """The bound as public code implements it.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(SteinkeBound().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.675 at delta = 1e-05 (95 % confidence, \
for any mechanism; method steinke)
    """

    method: ClassVar[str] = "steinke"
    reference: ClassVar[str] = "https://arxiv.org/abs/2305.08846"
    rises: ClassVar[bool] = True  # not proved; the public code's search assumes it

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value."""
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
    low, probabilities = masses(r, log_odds, spread=10)
    below = probabilities[: max(0, v - low)]  # of the counts from `low` up to v - 1
    if not len(below):
        return exp(log_tails(v, r, log_odds)[1])
    sums = np.cumsum(below[::-1])
    distance = v - (low + len(below) - 1) + np.arange(len(below))
    return float((sums / distance).max())
