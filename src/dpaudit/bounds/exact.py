"""The exact one-run bound for approximate differential privacy.

Each of ``m`` canaries is included by a fair coin; the guesser names ``r`` of the
coins, ``v`` rightly. Under (epsilon, delta)-DP the chance of that many right guesses
is at most ``beta + m delta beta (1 - beta) / (v b_v)``, where ``beta`` is the tail and
``b_v`` the mass at ``v`` of a binomial with success probability
``e^epsilon / (1 + e^epsilon)``; some mechanism attains it. The proof solves the
binomial's Stein equation and swaps each coin once.

Valid for every mechanism and every guesser that sees the whole output at once and
makes no more than ``r`` guesses, a number fixed before the run.

If a coin chooses one of ``k`` records (replace-one adjacency), a guess is right by
chance one time in ``k`` and epsilon becomes ``epsilon - ln(k - 1)`` in the binomial. If
one coin controls ``g`` records, the claim is first turned into what it implies for
groups of ``g``: ``g epsilon`` and ``delta (e^(g epsilon) - 1) / (e^epsilon - 1)``.

Reference: docs/explanation/exact-bound.md; for the game, Steinke, Nasr and Jagielski,
https://arxiv.org/abs/2305.08846.
"""

from dataclasses import dataclass
from math import expm1, inf, log
from typing import ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, LowerBound, largest_rejected, probability
from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.stats.binomial import log_mass, log_tails

__all__ = ["Exact", "group_claim", "group_growth"]


@final
@dataclass(frozen=True, slots=True)
class Exact(GameBound[Counts]):
    """The tightest bound that counts can give against every mechanism.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(Exact().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.802 at delta = 1e-05 (alpha = 0.05, method exact, tier A: any \
mechanism)
    """

    method: ClassVar[str] = "exact"
    reference: ClassVar[str] = "docs/explanation/exact-bound.md"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value, which may be far below any float."""
        check_at_once(counts, self.method)
        epsilon, delta = group_claim(epsilon, delta, records=counts.records_per_coin)
        m, r, v = counts.canaries, counts.guesses, counts.correct
        if v == 0:
            return 0.0
        log_odds = epsilon - log(counts.alternatives - 1)
        upper, lower = log_tails(v, r, log_odds)
        if delta == 0 or lower == -inf:
            return upper
        mass = float(log_mass(v, r, log_odds))
        excess = log(m) + log(delta) + upper + lower - log(v) - mass
        return min(0.0, float(np.logaddexp(upper, excess)))

    def p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return how surprising the counts are if the claim is true.

        Args:
            counts: What the guesser did.
            epsilon: Claimed epsilon.
            delta: Claimed delta.

        Returns:
            The largest chance, over all (epsilon, delta)-DP mechanisms and guessers,
            of as many correct guesses or more.
        """
        return probability(self.log_p_value(counts, epsilon=epsilon, delta=delta))

    def log_p_claim(
        self,
        counts: Counts,
        claim: Guarantee,
        *,
        alpha: float,
    ) -> float:
        """Return the log of the p-value of a claim; a curve is tested as a whole."""
        from dpaudit.bounds.fdp import curve_log_p_value  # noqa: PLC0415 (it reads this)

        if isinstance(claim, GaussianDP | PrivacyCurve):
            return curve_log_p_value(counts, claim)
        return GameBound.log_p_claim(self, counts, claim, alpha=alpha)

    def epsilon_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest epsilon that the counts reject at level ``alpha``."""
        return largest_rejected(self, counts, delta=delta, alpha=alpha)


def group_claim(epsilon: float, delta: float, *, records: int) -> tuple[float, float]:
    """Return what an (epsilon, delta) claim implies for groups of records.

    Example:
        >>> group_claim(0.5, 1e-5, records=1)
        (0.5, 1e-05)
        >>> group_claim(0.0, 1e-5, records=3)[1] == 3 * 1e-5
        True
    """
    _validate.nonnegative("epsilon", epsilon)
    _validate.probability("delta", delta)
    growth = group_growth(epsilon, records=records)
    return records * epsilon, min(1.0, delta * growth) if delta else 0.0


def group_growth(epsilon: float, *, records: int) -> float:
    """Return how many times delta grows from one record to a group of them.

    Example:
        >>> group_growth(0.0, records=3)
        3.0
    """
    if records == 1 or epsilon == 0:
        return float(records)
    if epsilon * records > 700:
        return inf
    return expm1(records * epsilon) / expm1(epsilon)
