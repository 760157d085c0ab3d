"""The bound for ranked guesses: how many to count is found by looking, validly.

Canaries are ordered by confidence, an order that only the output decides. The bound
looks at the most confident ``k_1``, then ``k_2``, ..., of them, and asks at each look
how surprising so many right guesses are. The smallest of these p-values, each divided
by a weight fixed beforehand, is judged by the exact chance that independent guesses
would do as well at *some* look; so looking many times is paid for, but no more than
needed.

With delta > 0 each look alone would be charged for delta. Here delta is paid once: the
chance rises by at most ``m delta`` times the largest Stein solution of the shells
between looks. The smallest look sets that price, so at each epsilon it is chosen, from
``m``, delta and alpha alone, large enough for the price to leave room.

Valid for every mechanism; the order and the guesses may depend on the whole output, not
on the coins, while the number of guesses ranked is fixed before the run. As the test
differs from one epsilon to the next, the lower bound is the last epsilon of a fixed
grid before the first one that is not rejected.

Reference: docs/explanation/ranked-bound.md.
"""

from dataclasses import dataclass, replace
from math import ceil, exp, inf, log, sqrt
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, LowerBound
from dpaudit.bounds.readings import Ranked
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.binomial import log_upper_tails
from dpaudit.stats.ranked_tail import crossing, shell_cap, thresholds
from dpaudit.stats.search import last_yes_before_no

__all__ = ["RankedLooks"]

_STEP = 0.01  # the grid of epsilons on which bounds are reported
_FIRST_LEVEL = 0.012  # the smallest look can reach at least this p-value
_PRICE_SHARE = 0.7  # of alpha, at most, goes to delta
_LARGEST_STEIN = 0.63  # of sqrt((1 - p) / (p k)); see docs/explanation/ranked-bound.md
_LEAST_WEIGHT = 0.02
_FAR_OUT = 1e-10  # below this a union over the looks replaces the exact chance


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLooks(GameBound[Ranked]):
    """The bound for guesses in order of confidence; no number of guesses is needed.

    Attributes:
        level: The level that claim tests choose their looks for; any is valid.

    Example:
        >>> right = np.arange(1000) % 20 > 0  # 19 of 20 right, wherever one looks
        >>> ranked = Ranked(canaries=1000, right=right)
        >>> print(RankedLooks().epsilon_lower(ranked, delta=1e-5, alpha=0.05))
        epsilon >= 2.570 at delta = 1e-05 (wrong with chance at most 0.05, \
whatever the program does; method ranked, tier A)
    """

    level: float = 0.05
    method: ClassVar[str] = "ranked"
    reference: ClassVar[str] = "docs/explanation/ranked-bound.md"

    def log_p_value(self, ranked: Ranked, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim, with looks chosen for the level."""
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        test = _Test(ranked, delta=delta, alpha=self.level)
        return log(max(test.p_value(epsilon), 5e-324))

    def one_event(self, ranked: Ranked) -> bool:  # noqa: ARG002
        """Return False: where it looks depends on the claim."""
        return False

    def log_p_claim(self, ranked: Ranked, claim: Guarantee, *, alpha: float) -> float:
        """Return the log of the p-value of a claim, with looks chosen for alpha."""
        looks = replace(self, level=alpha)
        return GameBound.log_p_claim(looks, ranked, claim, alpha=alpha)

    def epsilon_lower(
        self, ranked: Ranked, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the last epsilon of the grid before the first that is not rejected."""
        _validate.probability("delta", delta)
        _validate.error_level("alpha", alpha)
        test = _Test(ranked, delta=delta, alpha=alpha)
        return LowerBound(
            epsilon_lower=last_yes_before_no(test.rejects, start=0.0, step=_STEP),
            delta=delta,
            alpha=alpha,
            method=self.method,
            reference=self.reference,
        )


class _Test:
    """The test of every epsilon on one ranking."""

    def __init__(self, ranked: Ranked, *, delta: float, alpha: float) -> None:
        self._m, self._delta, self._alpha = ranked.canaries, delta, alpha
        self._right = np.append(0, np.cumsum(ranked.right, dtype=np.int64))

    def rejects(self, epsilon: float) -> bool:
        return self._clearly_rejects(epsilon) or self.p_value(epsilon) <= self._alpha

    def p_value(self, epsilon: float) -> float:
        looks = self._looks(epsilon)
        weights = _weights(len(looks))
        tails = log_upper_tails(self._right[looks].tolist(), looks, epsilon)
        least = min(
            tail - log(weight) for tail, weight in zip(tails, weights, strict=True)
        )
        if least > log(0.5):
            return 1.0
        level = exp(least)
        # Raised by more than rounding, so that the count seen is among those counted.
        levels = max(level, _FAR_OUT) * weights * (1 + 1e-9)
        found = crossing(looks, thresholds(looks, epsilon, levels), epsilon)
        # Far out the union over looks is smaller, and higher thresholds change the
        # price by less than their chance times a shell's cap: far below 1e-9.
        chance = min(found.chance, level * float(weights.sum()))
        return min(1.0, chance + self._m * self._delta * (found.price + 1e-9))

    def _clearly_rejects(self, epsilon: float) -> bool:
        """Decide what ``p_value`` would, if rough upper bounds already suffice.

        The tails are bounded by Chernoff's inequality, the chance by the union over
        looks, the price by what shells can cost: at first roughly, as that takes no
        time and mostly suffices.
        """
        looks = self._looks(epsilon)
        weights = _weights(len(looks))
        k = np.array(looks, np.float64)
        rate = self._right[looks] / k
        p, q = float(special.expit(epsilon)), float(special.expit(-epsilon))
        divergence = special.rel_entr(rate, p) + special.rel_entr(1 - rate, q)
        tails = np.where(rate > p, np.exp(-k * divergence), 1.0)
        chance = float((tails / weights).min() * weights.sum())
        if chance >= self._alpha:
            return False
        slack = self._m * self._delta
        return slack == 0 or any(
            chance + slack * cap(looks, epsilon) <= self._alpha
            for cap in (_rough_price_cap, _price_cap)
        )

    def _looks(self, epsilon: float) -> list[int]:
        """Choose where to look, from the design alone."""
        last = len(self._right) - 1
        surest = min(float(special.log_expit(epsilon)), -1e-300)  # 0 from 745 on
        reach = ceil(log(_FIRST_LEVEL) / surest)
        price = self._m * self._delta * _LARGEST_STEIN / (_PRICE_SHARE * self._alpha)
        first = max(reach, ceil(price**2 * exp(-epsilon)))
        looks = [first, 3 * first]
        while looks[-1] <= last - 2 * first:
            looks.append(2 * looks[-1])
        # The last shell takes in what is left, so that no shell is a small one.
        return [k for k in looks if k <= last - 2 * first] + [last]


def _price_cap(looks: list[int], epsilon: float) -> float:
    """Return what the shells can cost at most, whatever the thresholds.

    The two smallest sizes are computed, larger ones are bounded.
    """
    first, *larger = np.unique(np.diff([0, *looks])).tolist()
    computed = [shell_cap(size, epsilon) for size in (first, *larger[:1])]
    return max([*computed, *(_shell_bound(size, epsilon) for size in larger[1:])])


def _rough_price_cap(looks: list[int], epsilon: float) -> float:
    """Return the same, a few times as large; the smallest shell is the dearest."""
    return _shell_bound(int(np.diff([0, *looks]).min()), epsilon)


def _shell_bound(size: int, epsilon: float) -> float:
    """Return the bound of T4, docs/explanation/ranked-bound.md."""
    return 0.938 * sqrt(exp(-epsilon) / (size - 1)) if size > 1 else inf


def _weights(looks: int) -> NDArray[np.float64]:
    return np.asarray(np.maximum(0.5 ** np.arange(looks), _LEAST_WEIGHT))
