"""The exact one-run bound for approximate differential privacy.

Each of ``m`` canaries is included by a fair coin; the guesser names ``r`` of the
coins, ``v`` rightly. Under (epsilon, delta)-DP the chance of that many right guesses
is at most ``beta + m delta beta (1 - beta) / (v b_v)``, where ``beta`` is the tail and
``b_v`` the mass at ``v`` of a binomial with success probability
``e^epsilon / (1 + e^epsilon)``; some mechanism attains it. The proof solves the
binomial's Stein equation and swaps each coin once.

Valid for every mechanism and every guesser that sees the whole output at once and
makes no more than ``r`` guesses, a number fixed before the run.

Reference: docs/explanation/exact-bound.md; for the game, Steinke, Nasr and Jagielski,
https://arxiv.org/abs/2305.08846.
"""

from dataclasses import dataclass
from math import exp, log
from typing import final

from dpaudit import _validate
from dpaudit.bounds.bound import ClaimTest, LowerBound
from dpaudit.bounds.reads import Counts
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import log_mass, log_tails
from dpaudit.stats.search import largest_yes

__all__ = ["Exact"]


@final
@dataclass(frozen=True, slots=True)
class Exact:
    """The tightest bound that counts can give against every mechanism.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(Exact().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.802 at delta = 1e-05 (alpha = 0.05, method exact, tier A: any \
mechanism)
        >>> claim = ApproxDP(epsilon=2.5, delta=1e-5)
        >>> Exact().test_claim(counts, claim, alpha=0.05).refuted
        True
    """

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
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        m, r, v = counts.canaries, counts.guesses, counts.correct
        if v == 0:
            return 1.0
        upper, lower = log_tails(v, r, epsilon)
        excess = exp(upper + lower - log(v) - log_mass(v, r, epsilon))
        return min(1.0, exp(upper) + m * delta * excess)

    def epsilon_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest epsilon that the counts reject at level ``alpha``."""
        _validate.probability("delta", delta)
        _validate.error_level("alpha", alpha)

        def rejected(epsilon: float) -> bool:
            return self.p_value(counts, epsilon=epsilon, delta=delta) <= alpha

        return LowerBound(
            epsilon_lower=largest_yes(rejected),
            delta=delta,
            alpha=alpha,
            method="exact",
            reference="docs/explanation/exact-bound.md",
        )

    def test_claim(self, counts: Counts, claim: ApproxDP, *, alpha: float) -> ClaimTest:
        """Return whether the counts refute the claim at level ``alpha``."""
        _validate.error_level("alpha", alpha)
        p_value = self.p_value(counts, epsilon=claim.epsilon, delta=claim.delta)
        return ClaimTest(claim=claim, p_value=p_value, alpha=alpha)
