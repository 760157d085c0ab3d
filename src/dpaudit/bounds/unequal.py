"""The bound for biased inclusion coins of known bias.

A canary included with probability ``pi`` is in, given the output, with odds at most
``e^epsilon pi / (1 - pi)``, and out with odds at most ``e^epsilon (1 - pi) / pi``. So
the correct guesses are dominated by two binomial counts, one for guesses "in" and one
for guesses "out". Guessing "in" where most are in counts as no evidence.

With delta > 0 each guess is coupled with such a coin; a canary's coupling fails with
probability at most ``delta (pi (1 - p_in) + (1 - pi) (1 - p_out))``. If the output
decides how many guesses are "in" and "out", that is added for all canaries. If both
numbers are fixed before the run, it is first multiplied by the probability that one
guess decides the count, averaged over all degrees of mixing the coins with fresh ones,
as for weighted guesses: at most ``0.938 / sqrt(s)``, where ``s`` is the variance of the
count of the others.

If both numbers are fixed before the run, the sum bounds the probability of one event,
"so many correct or more", at every epsilon. If the output decides the split, the
p-value at one epsilon still holds: given the output the split is fixed, the coupled
coins are independent with its probabilities, and the price of failed couplings does not
depend on it. But the event then differs from one output to the next, and so may the
epsilons that are rejected; so epsilons are tested one after the other, on a fixed grid.

Reference: docs/explanation/bounds.md#variants, unequal inclusion.
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar, final

from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import (
    GameBound,
    add_price,
)
from dpaudit.bounds.readings import BiasedCoinCounts
from dpaudit.bounds.weighted import most_decides
from dpaudit.stats.weighted import weighted_tail

__all__ = ["BiasedCoinsBound"]


@final
@dataclass(frozen=True, slots=True)
class BiasedCoinsBound(GameBound[BiasedCoinCounts]):
    """The bound for a known inclusion probability that is not one half.

    Example:
        >>> nothing = BiasedCoinCounts(
        ...     canaries=1000, inclusion=0.9, guesses_in=1000, guesses_out=0,
        ...     correct=905, committed=True,
        ... )
        >>> found = BiasedCoinsBound().epsilon_lower(nothing, delta=0.0, alpha=0.05)
        >>> found.epsilon_lower
        0.0
    """

    method: ClassVar[str] = "unequal"
    reference: ClassVar[str] = "docs/explanation/bounds.md#variants"
    rises_without_delta: ClassVar[bool] = True

    def log_p_value(
        self, counts: BiasedCoinCounts, *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the p-value of a claim."""
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        pi = counts.inclusion
        bias = log(pi) - log(1 - pi)
        odds_in, odds_out = epsilon + bias, epsilon - bias
        tail = weighted_tail(
            (1.0, 1.0),
            (counts.guesses_in, counts.guesses_out),
            (odds_in, odds_out),
            counts.correct,
        )
        price = counts.canaries * delta * _price(counts, odds_in, odds_out)
        return add_price(tail.log_upper, price)

    def one_event(self, counts: BiasedCoinCounts) -> bool:
        """Return whether both numbers of guesses were fixed before the run."""
        return counts.committed


def _price(counts: BiasedCoinCounts, odds_in: float, odds_out: float) -> float:
    """Return what one canary can add to the tail probability, per unit of delta."""
    pi, price = counts.inclusion, 0.0
    made = (counts.guesses_in, counts.guesses_out)
    wrong = special.expit([-odds_in, -odds_out])  # 1 - p of either kind
    variances = wrong * special.expit([odds_in, odds_out])
    for n, prior, failing, own in zip(
        made, (pi, 1 - pi), wrong, variances, strict=True
    ):
        if not counts.committed:
            price += prior * failing
        elif n:  # a kind of guess that is never made costs nothing
            price += prior * failing * most_decides(variances @ made - own)
    return float(price)
