"""Bounds on weighted guesses, made at once or one after the other.

More confident guesses may count more. Guesses are put into classes; a correct guess
adds the weight of its class to the score. At delta = 0 the score is dominated by the
same weighted sum of independent coins with success probability ``p = e^epsilon / (1 +
e^epsilon)``, and the tail of that sum is a p-value. The two bounds differ in how
guesses enter a class, and in the price of delta.

*All at once* (``WeightedBound``). The classes depend on the output only, and the
domination holds given the output. With delta > 0 the tail rises by at most ``m delta
Y``, where ``Y`` bounds the Stein solution of a weighted sum: ``(1 - p)`` times the
probability, averaged over all degrees of mixing given coins with fresh ones, that one
guess decides. If the class sizes were fixed before the run, that probability is small
in a large class: a sum of ``N`` such coins takes any one value with probability at most
``0.4689`` over its standard deviation (Baillon, Cominetti and Vaisman 2016), which
gives ``Y <= 0.938 c sqrt(e^-epsilon / N)``, ``c`` being the ratio of weights rounded
up. If the output decided the sizes, only ``Y <= 1 - p`` holds. If all is fixed, or
delta is 0, the p-values bound the probability of one event, "this much weight or more",
at every epsilon, so the largest rejected epsilon counts. Otherwise different outputs
may favour different epsilons, and the bound is the last of a grid before the first that
is not rejected.

*In turn* (``AdaptiveWeightedBound``). Before the run a number of slots of each weight
is fixed. An adaptive guesser, who learns each coin after its guess, puts every guess
into an unused slot before its coin is revealed; unused slots count as wrong. Given the
past a guess is correct with probability at most ``p``, so it can be coupled with a coin
of that probability that is independent of the choice of slot; and independent coins
stay independent if rearranged by choices that depend only on the past. With delta > 0
the couplings fail with a probability of at most ``m delta / (1 + e^epsilon)``, which is
added; the price of ``WeightedBound`` is not proved here. As weights and sizes are
fixed, the p-values bound one event at every epsilon.

References: docs/explanation/bounds.md#weighted-guesses; for slots,
docs/explanation/bounds.md#why-they-are-valid.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import ClassVar, final

import numpy as np
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bound import (
    GameBound,
    add_price,
)
from dpaudit.bounds.readings import Weighted, check_at_once
from dpaudit.errors import InvalidRunError
from dpaudit.stats.weighted import weighted_tail

__all__ = [
    "AdaptiveWeightedBound",
    "WeightedBound",
    "most_decides",
    "weighted_price",
]

_CONCENTRATION = 0.46883  # Baillon, Cominetti, Vaisman: 0.468822..., rounded up


@final
@dataclass(frozen=True, slots=True)
class WeightedBound(GameBound[Weighted]):
    """The bound for guesses in classes of different weight.

    Example:
        >>> weighted = Weighted(
        ...     canaries=1000, weights=(2, 1), guesses=(50, 100), correct=(48, 80),
        ...     committed=True,
        ... )
        >>> print(WeightedBound().epsilon_lower(weighted, delta=1e-5, alpha=0.05))
        epsilon >= 1.549 at delta = 1e-05 (95 % confidence, \
for any mechanism; method weighted)
    """

    method: ClassVar[str] = "weighted"
    reference: ClassVar[str] = "docs/explanation/bounds.md#weighted-guesses"
    rises_without_delta: ClassVar[bool] = True

    def log_p_value(self, weighted: Weighted, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        check_at_once(weighted, self.method)
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        odds = [epsilon] * len(weighted.weights)
        tail = weighted_tail(weighted.weights, weighted.guesses, odds, weighted.score)
        price = weighted.canaries * delta * weighted_price(weighted, epsilon)
        return add_price(tail.log_upper, price)

    def one_event(self, weighted: Weighted) -> bool:
        """Return whether weights and numbers of guesses were fixed before the run."""
        return weighted.committed


def most_decides(variance: float) -> float:
    """Return a bound on the probability that one guess decides, averaged over mixing.

    It is the mean over ``u`` of the probability that a count of independent coins, of
    variance ``(1 - u) variance`` or more, has one given value.
    """
    return min(1.0, 2 * _CONCENTRATION / sqrt(variance)) if variance > 0 else 1.0


def weighted_price(weighted: Weighted, epsilon: float) -> float:
    """Return a bound on the Stein solution of the weighted sum."""
    most = float(special.expit(-epsilon))
    if not weighted.committed:
        return most
    w, n = np.array(weighted.weights), np.array(weighted.guesses)
    prices = []
    for c in np.flatnonzero(n):
        others = n - (np.arange(len(n)) == c)
        spread = np.sqrt(exp(-epsilon) / np.maximum(others, 1))
        with np.errstate(over="ignore", invalid="ignore"):  # beside tiny weights
            ratios = np.ceil(w[c] / w)
            bounds = np.where(others > 0, 2 * _CONCENTRATION * ratios * spread, most)
        prices.append(min(most, float(np.nan_to_num(bounds, nan=most).min())))
    return max(prices, default=0.0)


@final
@dataclass(frozen=True, slots=True)
class AdaptiveWeightedBound(GameBound[Weighted]):
    """The bound for adaptive guesses in slots: the reading's committed classes.

    Example:
        >>> slots = Weighted(
        ...     canaries=1000, weights=(2, 1), guesses=(50, 100), correct=(48, 80),
        ...     committed=True, adaptive=True,
        ... )
        >>> print(AdaptiveWeightedBound().epsilon_lower(slots, delta=1e-5, alpha=0.05))
        epsilon >= 1.546 at delta = 1e-05 (95 % confidence, \
for any mechanism; method slots)
    """

    method: ClassVar[str] = "slots"
    reference: ClassVar[str] = "docs/explanation/bounds.md#why-they-are-valid"
    rises_without_delta: ClassVar[bool] = True

    def log_p_value(self, slots: Weighted, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        if not slots.committed:
            raise InvalidRunError(
                "slots must be fixed before the run: an adaptive guesser that chooses "
                "how many guesses to make of which weight can stop when ahead"
            )
        price = coupling_failure_probability(slots.canaries, epsilon, delta)
        odds = [epsilon] * len(slots.weights)
        tail = weighted_tail(slots.weights, slots.guesses, odds, slots.score)
        return add_price(tail.log_upper, price)
