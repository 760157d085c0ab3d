"""The bound for ranked guesses: how many to count is found by looking, validly.

Canaries are ordered by confidence, an order that only the output decides. The bound
looks at the most confident ``k_1``, then ``k_2``, ..., of them, and asks at each look
how surprising so many right guesses are. The smallest of these p-values, each divided
by a weight fixed beforehand, is judged by the exact probability that independent
guesses would do as well at *some* look; so looking many times is paid for, but no more
than needed.

With delta > 0 each look alone would be charged for delta. Here delta is paid once: the
probability rises by at most ``m delta`` times the largest Stein solution of the shells
between looks. The smallest look sets that price, so at each epsilon it is chosen, from
``m``, delta and alpha alone, large enough for the price to leave room.

Valid for every mechanism; the order and the guesses may depend on the whole output, not
on the coins, while the number of guesses ranked is fixed before the run. As the test
differs from one epsilon to the next, the lower bound is the last epsilon of a fixed
grid before the first one that is not rejected.

Reference: docs/explanation/ranked-bound.md.
"""

from dataclasses import dataclass
from math import exp, log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, Grid, LowerBound
from dpaudit.bounds.readings import Ranked
from dpaudit.stats.binomial_tails import attained_tails, upper_tails
from dpaudit.stats.ranked_tail import (
    cap_bound,
    crossing,
    least_log_tail,
    shell_cap,
    thresholds,
)
from dpaudit.stats.search import last_yes_before_no

__all__ = ["RankedBound"]

_MOST_QUICK_GUESSES = 2000  # guesses for which p-values are quick
_EPSILONS_AT_ONCE = 256  # epsilons that are looked at together
_STEP = 0.01  # the grid of epsilons on which bounds are reported
_FIRST_LEVEL = 0.012  # the smallest look can reach at least this p-value
_PRICE_SHARE = 0.7  # of alpha, at most, goes to delta
_LARGEST_STEIN = 0.63  # of sqrt((1 - p) / (p k)); see docs/explanation/ranked-bound.md
_UNION_BELOW = 1e-10  # below this a union over the looks replaces the exact probability
_ROUNDED_UP = 1e-11  # by how much ``crossing`` may exceed the probability
_MULTIPLES = np.append(1.0, 1.5 * 2.0 ** np.arange(1, 64))  # looks, over the first
_WEIGHTS = np.maximum(0.5 ** np.arange(64), 0.02)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedBound(GameBound[Ranked]):
    """The bound for guesses in order of confidence; no number of guesses is needed.

    Attributes:
        level: The level that claim tests choose their looks for; any is valid.

    Example:
        >>> right = np.arange(1000) % 20 > 0  # 19 of 20 right, wherever one looks
        >>> ranked = Ranked(canaries=1000, right=right)
        >>> print(RankedBound().epsilon_lower(ranked, delta=1e-5, alpha=0.05))
        epsilon >= 2.57 at delta = 1e-05 (95 % confidence, \
for any mechanism; method ranked)
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

    def search(
        self,
        ranked: Ranked,  # noqa: ARG002 (whatever it is)
        *,
        delta: float,  # noqa: ARG002
        alpha: float,  # noqa: ARG002
    ) -> Grid:
        """Return the grid of all rankings."""
        return Grid(step=_STEP)

    def highest_log_p(
        self,
        ranked: Ranked,
        epsilons: NDArray[np.float64],
        *,
        delta: float,
        alpha: float,
    ) -> float:
        """Return the largest log p-value, with looks chosen for alpha."""
        test = _Test(ranked, delta=delta, alpha=alpha)
        return log(max(test.highest_p_value(epsilons), 5e-324))

    def epsilon_lower(
        self, ranked: Ranked, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the last epsilon of the grid before the first that is not rejected."""
        _validate.probability("delta", delta)
        _validate.error_level("alpha", alpha)
        test = _Test(ranked, delta=delta, alpha=alpha)
        return LowerBound(
            epsilon_lower=last_yes_before_no(
                test.rejects, start=0.0, step=_STEP, clearly=test.clearly_rejects
            ),
            delta=delta,
            alpha=alpha,
            method=self.method,
            reference=self.reference,
        )


class _Test:
    """The test of every epsilon on one ranking."""

    def __init__(self, ranked: Ranked, *, delta: float, alpha: float) -> None:
        self._slack, self._alpha = ranked.canaries * delta, alpha
        self._right = np.append(0, np.cumsum(ranked.right, dtype=np.int64))

    def rejects(self, epsilon: float) -> bool:
        return self.p_value(epsilon) <= self._alpha

    def p_value(self, epsilon: float) -> float:
        (looks,), _ = self._looks(np.array([epsilon]))
        weights = _WEIGHTS[: len(looks)]
        least = least_log_tail(looks, self._right[looks], epsilon, weights)
        if least > log(0.5):
            return 1.0
        level = exp(least)
        # Raised by more than rounding, so that the count seen is among those counted.
        levels = max(level, _UNION_BELOW) * weights * (1 + 1e-9)
        k = looks.tolist()
        found = crossing(k, thresholds(k, epsilon, levels), epsilon)
        # Far out the union over looks is smaller, and higher thresholds change the
        # price by less than their probability times a shell's cap: far below 1e-9.
        chance = min(found.probability, level * float(weights.sum()))
        return min(1.0, chance + self._slack * (found.price + 1e-9))

    def clearly_rejects(self, epsilons: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Decide what ``p_value`` would, where upper bounds of it already suffice.

        The probability is bounded by the union over looks, the price by what shells can
        cost: at first roughly, as that takes no time and mostly suffices.
        """
        looks, number = self._looks(epsilons)
        room = self._alpha - self._union(looks, number, epsilons)
        if self._slack == 0:
            return np.asarray(room >= 0)
        room = room / self._slack - 1e-9
        first = looks[:, 0]  # the smallest shell, and others are twice as large
        rough, others = cap_bound(first, epsilons), cap_bound(2 * first, epsilons)
        clear = np.asarray(rough <= room)
        for i in np.flatnonzero(~clear & (others <= room)):
            clear[i] = shell_cap(int(first[i]), float(epsilons[i])) <= room[i]
        return clear

    def highest_p_value(self, epsilons: NDArray[np.float64]) -> float:
        """Return the largest p-value at rising epsilons, or something larger.

        Of many guesses, before the last epsilon, a p-value with delta counts as its
        upper bound if that is at most alpha: the same for every claim, and quick.
        """
        highest = self.p_value(float(epsilons[-1]))
        for end in range(len(epsilons) - 1, 0, -_EPSILONS_AT_ONCE):
            block = epsilons[max(0, end - _EPSILONS_AT_ONCE) : end]
            looks, number = self._looks(block)
            union, first = self._union(looks, number, block), looks[:, 0]
            rough = union
            if self._slack:
                rough = union + self._slack * (cap_bound(first, block) + 1e-9)
            for i in np.argsort(-rough):
                if highest >= min(1.0, rough[i]):
                    break
                epsilon, upper = float(block[i]), float(union[i])
                if self._slack:
                    cap = shell_cap(int(first[i]), epsilon)
                    price = max(cap, float(cap_bound(2 * first[i], epsilon)))
                    upper += self._slack * (price + 1e-9)
                exact = self._slack == 0 or len(self._right) <= _MOST_QUICK_GUESSES
                if upper > highest and (exact or upper > self._alpha):
                    upper = self.p_value(epsilon)
                highest = max(highest, upper)
        return highest

    def _union(
        self,
        looks: NDArray[np.int64],
        number: NDArray[np.int64],
        epsilons: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Bound the probability that some look is as surprising as was seen.

        It is the sum of the levels of all looks, or, where that may decide, of the
        largest tails that are attained within them.
        """
        right, weights = self._right[looks], _WEIGHTS[: looks.shape[1]]
        odds = epsilons[:, np.newaxis]
        # Any look gives a bound; the most surprising one is guessed by a normal
        # distribution.
        p, q = special.expit(odds), special.expit(-odds)
        surprise = (right - looks * p) / np.sqrt(looks * p * q)
        best = (special.log_ndtr(-surprise) - np.log(weights)).argmin(axis=1)
        one = np.arange(len(best)), best
        level = upper_tails(right[one], looks[one], epsilons) / weights[best]
        found: NDArray[np.float64] = level * np.cumsum(weights)[number - 1]
        near = (self._alpha < found) & (found < 3 * self._alpha) & (level < 0.5)
        if near.any():
            tails = upper_tails(right[near], looks[near], odds[near])
            levels = (tails / weights).min(axis=1, keepdims=True) * weights
            attained = attained_tails(levels, looks[near], odds[near])
            counted = np.arange(len(weights)) < number[near, np.newaxis]
            found[near] = (attained * counted).sum(axis=1) + _ROUNDED_UP
        return found

    def _looks(
        self, epsilons: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Choose where to look, from the design alone, and how often.

        There is a row for each epsilon, filled up with its last look.
        """
        last = len(self._right) - 1
        surest = np.minimum(special.log_expit(epsilons), -1e-300)  # 0 from 745 on
        reach = np.ceil(log(_FIRST_LEVEL) / surest)
        price = self._slack * _LARGEST_STEIN / (_PRICE_SHARE * self._alpha)
        dear = np.ceil(price**2 * np.exp(-epsilons))
        first = np.minimum(np.maximum(reach, dear), last)[:, np.newaxis]
        looks = first * _MULTIPLES[: last.bit_length() + 1]
        # The last shell takes in what is left, so that no shell is a small one.
        inside = looks <= last - 2 * first
        number = inside.sum(axis=1) + 1
        looks = np.where(inside, looks, last)[:, : number.max()]
        return looks.astype(np.int64), number
