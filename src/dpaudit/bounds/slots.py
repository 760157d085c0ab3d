"""The bound for adaptive guesses in slots: so many of each weight, fixed beforehand.

Before the run a number of slots of each weight is fixed. An adaptive guesser, who
learns each coin after its guess, puts every guess into an unused slot before its coin
is revealed; slots left over count as wrong. Given the past a guess is right with chance
at most ``p = e^epsilon / (1 + e^epsilon)``, so it can be coupled with a coin of that
chance that is independent of the slot's choice; and a sequence of independent coins
stays one if it is rearranged by choices that look only at the past. So the score is
dominated by the same weights on independent coins, whose exact tail is a p-value.

With delta > 0 the couplings fail with a chance of at most ``m delta / (1 +
e^epsilon)``, which is added. The price of ``WeightedGuesses``, which is for guesses
made all at once, is not proved here.

As weights and sizes are fixed, the p-values bound one event at every epsilon.

Reference: docs/explanation/adaptive-rules.md.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from dpaudit.bounds.adaptive import coupling_price
from dpaudit.bounds.bound import GameBound, LowerBound, add_price, highest_rejected
from dpaudit.bounds.reads import Weighted
from dpaudit.errors import VoidAuditError
from dpaudit.stats.weighted import weighted_tail

__all__ = ["AdaptiveSlots"]


@final
@dataclass(frozen=True, slots=True)
class AdaptiveSlots(GameBound[Weighted]):
    """The bound for slots; the reading's classes are the slots, committed.

    Example:
        >>> slots = Weighted(
        ...     canaries=1000, weights=(2, 1), guesses=(50, 100), correct=(48, 80),
        ...     committed=True, adaptive=True,
        ... )
        >>> print(AdaptiveSlots().epsilon_lower(slots, delta=1e-5, alpha=0.05))
        epsilon >= 1.546 at delta = 1e-05 (alpha = 0.05, method slots, tier A: any \
mechanism)
    """

    method: ClassVar[str] = "slots"
    reference: ClassVar[str] = "docs/explanation/adaptive-rules.md"

    def log_p_value(self, slots: Weighted, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        if not slots.committed:
            raise VoidAuditError(
                "slots must be fixed before the run: an adaptive guesser that chooses "
                "how many guesses to make of which weight can stop when ahead"
            )
        price = coupling_price(slots.canaries, epsilon, delta)
        odds = [epsilon] * len(slots.weights)
        tail = weighted_tail(slots.weights, slots.guesses, odds, slots.score)
        return add_price(tail.log_upper, price)

    def epsilon_lower(
        self, slots: Weighted, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return a high epsilon that the guesses reject at level ``alpha``."""
        return highest_rejected(self, slots, delta=delta, alpha=alpha)
