"""The bound for guesses decided call by call: a test of the whole claim at once.

Every canary has a run of its own, a call. A rule fixed before the calls guesses a
call's coin from its output, or abstains. With E the outputs for which it guesses
"included" and F those for which it guesses "excluded", a guess is correct with
probability ``a = (P(E | y) + P(F | x)) / 2`` and wrong with probability ``b = (P(E | x)
+ P(F | y)) / 2``. Calls are independent and alike: a function that answers differently
after some number of calls, as when a budget is spent, is not covered.

A claim limits every event: ``P(E | y) <= g(P(E | x))``, and with x and y exchanged. The
function g is the least of lines: ``delta + e^epsilon p`` and ``1 - e^-epsilon (1 -
delta - p)`` for each claimed pair, or closer ones for Renyi divergences
(``privacy/renyi.py``). As g is concave, ``a <= (g(P(E | x)) + g(P(F | y))) / 2 <=
g(b)``. If only one of the coins is ever guessed, one of the events is empty, and ``a <=
g(2 b) / 2``. So the whole claim is one hypothesis about two probabilities, whatever its
kind, and ``stats/event_test.py`` tests it exactly: no point of a curve needs to be
chosen, and delta is not paid for.

The order of outcomes is fixed with the rules, by one line above g near the frequencies
that are expected: for given counts p-values rise with the claim, and all of them bound
one event.

Reference: docs/explanation/bounds.md#the-whole-claim.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, LowerBound
from dpaudit.bounds.readings import EventCounts
from dpaudit.privacy.guarantees import ApproxDP, Guarantee
from dpaudit.stats.event_test import ConcaveLimit, Line, p_value

__all__ = ["WholeClaimBound", "event_limit"]

_TOLERANCE = 1e-3  # relative, of the search for the bound
_CANDIDATES = 5  # points of a curve next to the one that is tight
_LARGEST_EPSILON = 50.0  # of the search


@final
@dataclass(frozen=True, slots=True)
class WholeClaimBound(GameBound[EventCounts]):
    """The exact bound for guesses that are decided call by call.

    Example:
        >>> counts = EventCounts(
        ...     canaries=4000,
        ...     correct=80,
        ...     wrong=0,
        ...     slope=2.72,
        ...     intercept=0.01,
        ...     one_sided=True,
        ... )
        >>> claim = ApproxDP(epsilon=1.0, delta=0.02)
        >>> print(WholeClaimBound().judge_claim(counts, claim, alpha=0.001))
        the claim (epsilon = 1, delta = 0.02)-DP is refuted (p = 6.3e-06)
    """

    method: ClassVar[str] = "whole claim"
    reference: ClassVar[str] = "docs/explanation/bounds.md#the-whole-claim"
    rises: ClassVar[bool] = True  # the hypotheses are nested, the event is one

    def log_p_value(
        self, counts: EventCounts, *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the p-value of a claim."""
        _validate.nonnegative("epsilon", epsilon)
        return self.log_p_of(counts, delta=delta)(epsilon)

    def log_p_of(
        self, counts: EventCounts, *, delta: float
    ) -> Callable[[float], float]:
        """Return the log of the p-value as a function of epsilon."""
        _validate.probability("delta", delta)
        return lambda epsilon: _log_p(counts, ApproxDP(epsilon=epsilon, delta=delta))

    def log_p_claim(
        self,
        counts: EventCounts,
        claim: Guarantee,
        *,
        alpha: float,  # noqa: ARG002 (one test for all levels)
    ) -> float:
        """Return the log of the p-value of a claim; a curve is tested as a whole."""
        return _log_p(counts, claim)

    def epsilon_lower(
        self, counts: EventCounts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest rejected epsilon, to a thousandth, as a lower bound."""
        _validate.error_level("alpha", alpha)
        log_p, level = self.log_p_of(counts, delta=delta), log(alpha)
        low, high = 0.0, 0.0
        if log_p(0.0) <= level:
            high = 1.0
            while high < _LARGEST_EPSILON and log_p(high) <= level:
                low, high = high, 2 * high
        while high - low > _TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (middle, high) if log_p(middle) <= level else (low, middle)
        return LowerBound(
            epsilon_lower=low,
            delta=delta,
            alpha=alpha,
            method=self.method,
            reference=self.reference,
        )

    def strongest_points(self, counts: EventCounts, claim: Guarantee) -> list[ApproxDP]:
        """Return the points of a claim that are tight near the counts, tightest first.

        Args:
            counts: The counts of the calls.
            claim: The claim.
        """
        epsilons, deltas = claim.points()
        share = counts.wrong / counts.canaries / (0.5 if counts.one_sided else 1.0)
        allowed = deltas + np.exp(np.minimum(epsilons, 700.0)) * share
        best = np.argsort(allowed, kind="stable")[:_CANDIDATES]
        return [
            ApproxDP(epsilon=float(epsilons[j]), delta=float(deltas[j])) for j in best
        ]


@lru_cache(maxsize=64)
def event_limit(claim: Guarantee, *, one_sided: bool) -> ConcaveLimit:
    """Return the largest probability of a correct guess, given that of a wrong one.

    Args:
        claim: What every event satisfies.
        one_sided: Whether only one of the coins is ever guessed.

    Example:
        >>> limit = event_limit(ApproxDP(epsilon=1.0, delta=0.02), one_sided=True)
        >>> print(limit(0.0), limit(0.1).round(3))
        0.010000000000011 0.282
    """
    limit = ConcaveLimit.of_lines(*claim.event_lines())
    return limit.scaled(0.5) if one_sided else limit


@lru_cache(maxsize=256)
def _log_p(counts: EventCounts, claim: Guarantee) -> float:
    found = p_value(
        counts.correct,
        counts.wrong,
        calls=counts.canaries,
        limit=event_limit(claim, one_sided=counts.one_sided),
        line=Line(slope=counts.slope, intercept=counts.intercept),
    )
    return log(found)
