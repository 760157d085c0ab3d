"""The (epsilon, delta) bound for guessers that learn coins as they go.

An adaptive guesser makes at most ``r`` guesses, a number fixed before the run, in any
order, each canary once; a coin is revealed after its guess, or abstention. The correct
guesses exceed a binomial count only where a coin's odds exceed ``e^epsilon``, and over
the whole game the expected sum of those excesses is at most ``m delta / (1 +
e^epsilon)``. Bounding the tail by a ramp of length ``L`` instead of a step divides
their effect by ``L``:

    P[V >= v] <= (1/L) (sum over l < L of P[B >= v - l] + m delta / (1 + e^epsilon)),

for every ``L``, and so for the best. It bounds the same tail at every epsilon, so the
largest rejected epsilon counts, wherever it is.

Valid for every mechanism. (Plugging in the number of guesses *made*, where stopping may
depend on revealed coins, is not: docs/explanation/errata.md.)

Reference: docs/explanation/bounds.md#why-they-are-valid.
"""

from dataclasses import dataclass
from math import inf, log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound
from dpaudit.bounds.readings import Counts
from dpaudit.stats.binomial import log_mass, log_tails

__all__ = ["AdaptiveBound", "coupling_failure_probability"]

_CHUNK = 4096


@final
@dataclass(frozen=True, slots=True)
class AdaptiveBound(GameBound[Counts]):
    """The bound for adaptive guesses, by a ramp.

    Reference: Keinan, Shenfeld and Ligett, "prop:adaptive-ora-is-valid".

    Example:
        >>> counts = Counts(
        ...     canaries=100_000, guesses=1510, correct=1439, adaptive=True
        ... )
        >>> print(AdaptiveBound().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.766 at delta = 1e-05 (95 % confidence, \
for any mechanism; method adaptive)
    """

    method: ClassVar[str] = "adaptive"
    reference: ClassVar[str] = "docs/explanation/bounds.md#why-they-are-valid"
    rises_without_delta: ClassVar[bool] = True

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value with the best ramp."""
        r, v = counts.guesses, counts.correct
        if v == 0:
            return 0.0
        price = coupling_failure_probability(counts.canaries, epsilon, delta)
        return min(0.0, _best_ramp(v, r, epsilon, price))


def coupling_failure_probability(canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability that guesses beat coins of the claimed odds.

    It is ``m delta / (1 + e^epsilon)``: except on an event of that probability, correct
    guesses can be coupled with coins whose odds are ``e^epsilon``.
    """
    _validate.nonnegative("epsilon", epsilon)
    _validate.probability("delta", delta)
    return canaries * delta * float(special.expit(-epsilon))


def _best_ramp(v: int, r: int, log_odds: float, price: float) -> float:
    """Return the log of the least (1/L) (sum of L tails below v + price)."""
    if price == 0:
        return log_tails(v, r, log_odds)[0]
    total, length, best = price, 0, inf
    # A further tail lowers the mean as long as it is below the mean; tails only grow.
    while length < v:
        chunk = _tails_down(v - length, r, log_odds)
        means = (total + np.cumsum(chunk)) / (length + np.arange(1, len(chunk) + 1))
        best = min(best, float(means.min()))
        if chunk[-1] >= best:
            break
        total, length = total + float(chunk.sum()), length + len(chunk)
    return log(best)


def _tails_down(v: int, r: int, log_odds: float) -> NDArray[np.float64]:
    """Return P[B >= v], P[B >= v - 1], ..., down to 1 or at most ``_CHUNK`` of them."""
    k = np.arange(v - 1, max(0, v - _CHUNK), -1)
    first = np.exp(log_tails(v, r, log_odds)[0])
    tails = np.cumsum(np.append(first, np.exp(log_mass(k, r, log_odds))))
    return np.asarray(np.minimum(1.0, tails))
