"""The one-run bound for pure differential privacy.

Given the output and the coins before it, a coin is guessed rightly with chance at most
``e^epsilon / (1 + e^epsilon)``; so the right guesses are stochastically fewer than
binomial, and a binomial tail is a p-value. Its lower limit on epsilon is Clopper's and
Pearson's limit on a rate, as log-odds: a beta quantile.

Valid for every mechanism. As it holds given the output, the number of guesses may
depend on the output too.

Reference: Steinke, Nasr and Jagielski, https://arxiv.org/abs/2305.08846, section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

from dpaudit.bounds.bound import GameBound, LowerBound, largest_rejected
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.errors import InvalidInputError

__all__ = ["Pure"]


@final
@dataclass(frozen=True, slots=True)
class Pure(GameBound[Counts]):
    """The bound at delta = 0.

    Example:
        >>> counts = Counts(canaries=100, guesses=100, correct=75)
        >>> round(Pure().epsilon_lower(counts, delta=0.0, alpha=0.05).epsilon_lower, 6)
        0.702214
    """

    method: ClassVar[str] = "pure"
    reference: ClassVar[str] = "https://arxiv.org/abs/2305.08846, section 5"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of the claim; delta must be 0."""
        guessed = self._guessed(counts, delta)
        return Exact().log_p_value(guessed, epsilon=epsilon, delta=0.0)

    def log_p_of(self, counts: Counts, *, delta: float) -> Callable[[float], float]:
        """Return the log of the p-value as a function of epsilon."""
        return Exact().log_p_of(self._guessed(counts, delta), delta=0.0)

    def epsilon_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest epsilon that the counts reject at level ``alpha``."""
        return largest_rejected(self, counts, delta=delta, alpha=alpha)

    def _guessed(self, counts: Counts, delta: float) -> Counts:
        """Return the counts of what was guessed: nothing else enters at delta = 0."""
        check_at_once(counts, self.method)
        if delta != 0:
            raise InvalidInputError(
                f"the pure bound is for delta=0, got {delta=}; use the exact bound"
            )
        return replace(counts, canaries=counts.guesses)
