"""The bound for classic auditing: one coin per run, many independent runs.

In each run the mechanism sees one of two neighbouring data sets, by a fair coin, and
the guesser names it. Runs are independent, so without abstention each guess is right
with chance at most ``(e^epsilon + delta) / (1 + e^epsilon)``, and the right guesses are
stochastically fewer than binomial. That costs less for delta than one run does: there
is no ``m delta``. Where some runs were passed the exact one-run bound holds, as for any
independent coins; both bound one tail, so the smaller p-value is valid.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithm 2;
Jagielski, Ullman and Oprea, https://arxiv.org/abs/2006.07709.
"""

from dataclasses import dataclass
from math import inf, log, log1p
from typing import ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, LowerBound, largest_rejected
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.stats.binomial import log_tails

__all__ = ["Classic"]


@final
@dataclass(frozen=True, slots=True)
class Classic(GameBound[Counts]):
    """The bound for independent runs; ``canaries`` counts the runs.

    Example:
        >>> runs = Counts(canaries=1000, guesses=1000, correct=880)
        >>> print(Classic().epsilon_lower(runs, delta=1e-5, alpha=0.05))
        epsilon >= 1.829 at delta = 1e-05 (alpha = 0.05, method classic, tier A: any \
mechanism)
    """

    method: ClassVar[str] = "classic"
    reference: ClassVar[str] = "https://arxiv.org/abs/2503.07199, algorithm 2"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        check_at_once(counts, self.method)
        _validate.probability("delta", delta)
        one_run = Exact().log_p_value(counts, epsilon=epsilon, delta=delta)
        plain = counts.alternatives == 2 and counts.records_per_coin == 1
        if counts.guesses < counts.canaries or not plain:
            return one_run
        log_delta = log(delta) if delta else -inf
        if delta == 1:
            return 0.0
        log_odds = float(np.logaddexp(epsilon, log_delta)) - log1p(-delta)
        return min(one_run, log_tails(counts.correct, counts.guesses, log_odds)[0])

    def epsilon_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest epsilon that the runs reject at level ``alpha``."""
        return largest_rejected(self, counts, delta=delta, alpha=alpha)
