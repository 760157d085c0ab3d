"""The bound for ranked guesses: a sequential test chooses how many to count.

Canaries are ranked by confidence; the ranking depends on the output only. The test
looks at the ``k_1`` most confident guesses, then at ``k_2``, ..., and computes at each
look the p-value of the number of correct guesses. The smallest of these p-values, each
divided by a weight fixed beforehand, is compared with its exact distribution: the
probability that independent guesses do as well at *some* look. So the correction for
many looks is exact.

With delta > 0 a separate test at each look would pay for delta each time. Here delta is
paid once: it raises the probability by at most ``m delta`` times the largest Stein
solution of the shells between looks. The smallest look determines that price, so at
each epsilon it is chosen, from ``m``, delta and alpha alone, so large that the price
stays well below alpha.

Valid for every mechanism. The ranking and the guesses may depend on the whole output,
not on the coins; the number of ranked guesses is fixed before the run. As the test
differs from one epsilon to the next, the lower bound is the last epsilon of a fixed
grid before the first one that is not rejected.

Reference: docs/explanation/bounds.md#ranked-guesses.
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

_MOST_QUICK_GUESSES = 2000  # up to here exact p-values are quick
_EPSILONS_AT_ONCE = 256  # epsilons that are tested together
_STEP = 0.01  # of the grid of epsilons on which bounds are reported
_FIRST_LEVEL = 0.012  # the smallest look is large enough to reach this p-value
_PRICE_SHARE = 0.7  # at most this share of alpha goes to delta
_LARGEST_STEIN = 0.63  # times sqrt((1 - p)/(p k)); proof in the reference above
_UNION_BELOW = 1e-10  # below this a union bound replaces the exact probability
_ROUNDED_UP = 1e-11  # by how much ``crossing`` may exceed the probability
_MULTIPLES = np.append(1.0, 1.5 * 2.0 ** np.arange(1, 64))  # looks / first look
_WEIGHTS = np.maximum(0.5 ** np.arange(64), 0.02)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedBound(GameBound[Ranked]):
    """The bound for guesses ranked by confidence, without choosing how many to make.

    Attributes:
        level: The alpha for which claim tests choose their looks; any value is valid.

    Example:
        >>> right = np.arange(1000) % 20 > 0  # 19 of 20 right, wherever one looks
        >>> ranked = Ranked(canaries=1000, right=right)
        >>> print(RankedBound().epsilon_lower(ranked, delta=1e-5, alpha=0.05))
        epsilon >= 2.57 at delta = 1e-05 (95 % confidence, \
for any mechanism; method ranked)
    """

    level: float = 0.05
    method: ClassVar[str] = "ranked"
    reference: ClassVar[str] = "docs/explanation/bounds.md#ranked-guesses"

    def log_p_value(self, ranked: Ranked, *, epsilon: float, delta: float) -> float:
        """Return the log of a claim's p-value, with looks chosen for ``level``."""
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        test = _Test(ranked, delta=delta, alpha=self.level)
        return log(max(test.p_value(epsilon), 5e-324))

    def one_event(self, ranked: Ranked) -> bool:  # noqa: ARG002
        """Return False: the looks depend on the claim."""
        return False

    def search(
        self,
        ranked: Ranked,  # noqa: ARG002
        *,
        delta: float,  # noqa: ARG002
        alpha: float,  # noqa: ARG002
    ) -> Grid:
        """Return the fixed grid, the same for all rankings."""
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
        """Return the last grid epsilon before the first that is not rejected."""
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
    """The tests of all epsilons on one ranking."""

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
        # Raised by more than rounding, so that the observed count reaches a threshold.
        levels = max(level, _UNION_BELOW) * weights * (1 + 1e-9)
        k = looks.tolist()
        crossed = crossing(k, thresholds(k, epsilon, levels), epsilon)
        # Far out the union over looks is smaller, and higher thresholds change the
        # price by less than their probability times a shell's cap: far below 1e-9.
        tail = min(crossed.probability, level * float(weights.sum()))
        return min(1.0, tail + self._slack * (crossed.price + 1e-9))

    def clearly_rejects(self, epsilons: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which epsilons are rejected even by upper bounds on their p-values.

        A union over looks bounds the probability, the caps of the shells bound the
        price. A rough cap is tried first: it costs no time and usually suffices.
        """
        looks, number = self._looks(epsilons)
        room = self._alpha - self._union(looks, number, epsilons)
        if self._slack == 0:
            return np.asarray(room >= 0)
        room = room / self._slack - 1e-9
        first = looks[:, 0]  # the smallest shell; others are at least twice as large
        rough, others = cap_bound(first, epsilons), cap_bound(2 * first, epsilons)
        clear = np.asarray(rough <= room)
        for i in np.flatnonzero(~clear & (others <= room)):
            clear[i] = shell_cap(int(first[i]), float(epsilons[i])) <= room[i]
        return clear

    def highest_p_value(self, epsilons: NDArray[np.float64]) -> float:
        """Return an upper bound on the p-values at increasing epsilons.

        Exact, except that with delta > 0 and many guesses a p-value before the last
        epsilon is replaced by its upper bound if that is at most alpha: this is quick
        and the same for every claim.
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
        """Return a union bound on the probability of a look as extreme as observed.

        It sums the levels of all looks or, where this may decide, the largest attained
        tail probabilities at or below those levels.
        """
        right, weights = self._right[looks], _WEIGHTS[: looks.shape[1]]
        odds = epsilons[:, np.newaxis]
        # Any look gives a bound; a normal approximation picks the most extreme one.
        p, q = special.expit(odds), special.expit(-odds)
        z = (right - looks * p) / np.sqrt(looks * p * q)
        best = (special.log_ndtr(-z) - np.log(weights)).argmin(axis=1)
        one = np.arange(len(best)), best
        level = upper_tails(right[one], looks[one], epsilons) / weights[best]
        union: NDArray[np.float64] = level * np.cumsum(weights)[number - 1]
        near = (self._alpha < union) & (union < 3 * self._alpha) & (level < 0.5)
        if near.any():
            tails = upper_tails(right[near], looks[near], odds[near])
            levels = (tails / weights).min(axis=1, keepdims=True) * weights
            attained = attained_tails(levels, looks[near], odds[near])
            counted = np.arange(len(weights)) < number[near, np.newaxis]
            union[near] = (attained * counted).sum(axis=1) + _ROUNDED_UP
        return union

    def _looks(
        self, epsilons: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the looks at each epsilon, from the design alone, and their number.

        One row per epsilon, padded with its last look.
        """
        last = len(self._right) - 1
        log_p_correct = np.minimum(special.log_expit(epsilons), -1e-300)  # 0 from 745
        reach = np.ceil(log(_FIRST_LEVEL) / log_p_correct)
        price = self._slack * _LARGEST_STEIN / (_PRICE_SHARE * self._alpha)
        affordable = np.ceil(price**2 * np.exp(-epsilons))
        first = np.minimum(np.maximum(reach, affordable), last)[:, np.newaxis]
        looks = first * _MULTIPLES[: last.bit_length() + 1]
        # The last shell takes all remaining guesses, so that no shell is small.
        inside = looks <= last - 2 * first
        number = inside.sum(axis=1) + 1
        looks = np.where(inside, looks, last)[:, : number.max()]
        return looks.astype(np.int64), number
