"""How strong a test of a claim is, before or after it was made.

More right guesses never speak less against a claim, so a claim is refuted from some
number of right guesses on. How accurate guesses must be to get there with a given
chance needs no model of the mechanism: it is a property of the binomial law.
"""

from math import ulp
from typing import Any

from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.reads import Counts
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.stats.search import least_yes

__all__ = ["accuracy_caught", "least_refuting"]


def least_refuting(
    claim: Guarantee,
    *,
    canaries: int,
    guesses: int,
    alpha: float,
    bound: GameBound[Any] | None = None,
    alternatives: int = 2,
    records_per_coin: int = 1,
) -> int | None:
    """Return the least number of right guesses that refutes a claim, if any does.

    Args:
        claim: What is tested.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        alpha: Chance of refuting a true claim.
        bound: For guesses that are not made all at once: the bound for how they are.
        alternatives: How many records a coin chooses among.
        records_per_coin: How many records one coin controls.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> least_refuting(PureDP(epsilon=1.0), canaries=100, guesses=100, alpha=0.05)
        81
        >>> least_refuting(PureDP(epsilon=9.0), canaries=100, guesses=100, alpha=0.05)
    """

    def refutes(correct: int) -> bool:
        counts = Counts(
            canaries=canaries,
            guesses=guesses,
            correct=correct,
            alternatives=alternatives,
            records_per_coin=records_per_coin,
        )
        return test_claim(claim, counts, alpha=alpha, bound=bound).refuted

    return least_yes(refutes, 0, guesses)


def accuracy_caught(
    claim: Guarantee,
    *,
    canaries: int,
    guesses: int,
    alpha: float,
    chance: float = 0.9,
    bound: GameBound[Any] | None = None,
    alternatives: int = 2,
    records_per_coin: int = 1,
) -> float | None:
    """Return how accurate independent guesses must be to refute a claim.

    It is the smallest success probability ``a``, rounded up, with which Bin(guesses, a)
    refutes with the given chance; None if not even guesses that are all right do.

    Args:
        claim: What is tested.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        alpha: Chance of refuting a true claim.
        chance: How surely the claim must be refuted.
        bound: For guesses that are not made all at once: the bound for how they are.
        alternatives: How many records a coin chooses among.
        records_per_coin: How many records one coin controls.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> caught = accuracy_caught(claim, canaries=1000, guesses=1000, alpha=0.05)
        >>> round(caught, 4)
        0.7716
    """
    _validate.probability("chance", chance)
    v = least_refuting(
        claim,
        canaries=canaries,
        guesses=guesses,
        alpha=alpha,
        bound=bound,
        alternatives=alternatives,
        records_per_coin=records_per_coin,
    )
    if v is None:
        return None
    if v == 0:
        return 0.0
    a = float(special.betaincinv(v, guesses - v + 1, chance))
    step = ulp(a)
    while special.betainc(v, guesses - v + 1, a) < chance:  # round up
        a, step = min(1.0, a + step), 2 * step
    return a
