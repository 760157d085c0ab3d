"""One lower bound from several independent runs.

P-values of independent runs are combined by Fisher's product; the combined p-value
increases with epsilon, so the largest rejected epsilon counts. Bets of independent runs
form one sequence of bets: their wealths multiply. The number of runs must be fixed
before the first, whatever the runs show.

Counts may be pooled instead, if that was fixed before the first run: independent runs
together are one mechanism that is private for each of their coins, so all guesses of
all runs are judged as those of one run with all the coins. Which of the two gives the
better bound depends on delta: pooling pays for all coins at once. Choosing the better
one afterwards up to doubles the error probability.

A further run helps most at delta > 0: no audit of one run can reliably certify more
than the mechanism's epsilon at ``delta / alpha``, and ``k`` runs raise that to
``delta / alpha^(1/k)``.

Reference: docs/explanation/why-the-bound-is-lower.md#several-runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from dpaudit.bounds.bound import GameBound, LowerBound
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Bets, Counts
from dpaudit.errors import InvalidInputError
from dpaudit.stats.combine import fisher

__all__ = ["IndependentRunsBound", "PooledRunsBound", "bets_in_a_row"]


@final
@dataclass(frozen=True, slots=True)
class IndependentRunsBound(GameBound[Sequence[Counts]]):
    """The exact bound for the counts of several independent runs.

    Example:
        >>> run = Counts(canaries=1000, guesses=100, correct=90)
        >>> one = ExactBound().epsilon_lower(run, delta=1e-5, alpha=0.05).epsilon_lower
        >>> by = IndependentRunsBound()
        >>> both = by.epsilon_lower([run, run], delta=1e-5, alpha=0.05)
        >>> both.epsilon_lower > one
        True
    """

    method: ClassVar[str] = "independent runs"
    reference: ClassVar[str] = "docs/explanation/why-the-bound-is-lower.md#several-runs"
    rises: ClassVar[bool] = True  # the p-values of every run do

    def log_p_value(
        self, runs: Sequence[Counts], *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the combined p-value of a claim."""
        if not runs:
            raise InvalidInputError("there must be at least one run to combine")
        return fisher(
            [ExactBound().log_p_value(r, epsilon=epsilon, delta=delta) for r in runs]
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRunsBound:
    """The bound for the pooled counts of several runs.

    The decision to pool must be fixed before the first run.

    Attributes:
        by: The bound for the game of each run.

    Example:
        >>> run = Counts(canaries=1000, guesses=100, correct=90)
        >>> for bound in (IndependentRunsBound(), PooledRunsBound()):
        ...     found = bound.epsilon_lower([run, run], delta=1e-5, alpha=0.05)
        ...     print(bound.method, round(found.epsilon_lower, 3))
        independent runs 1.724
        pooled runs 1.798
    """

    by: GameBound[Counts] = field(default_factory=ExactBound)

    method: ClassVar[str] = "pooled runs"
    reference: ClassVar[str] = "docs/explanation/why-the-bound-is-lower.md#several-runs"

    def log_p_value(
        self, runs: Sequence[Counts], *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the p-value of a claim."""
        return self.by.log_p_value(self.added(runs), epsilon=epsilon, delta=delta)

    def epsilon_lower(
        self, runs: Sequence[Counts], *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the lower bound from the pooled counts."""
        lower = self.by.epsilon_lower(self.added(runs), delta=delta, alpha=alpha)
        return replace(lower, method=self.method, reference=self.reference)

    @staticmethod
    def added(runs: Sequence[Counts]) -> Counts:
        """Return the pooled counts of all runs."""
        if not runs:
            raise InvalidInputError("there must be at least one run to combine")
        one = {
            replace(run, canaries=0, guesses=0, correct=0, abstained=0) for run in runs
        }
        if len(one) > 1:
            raise InvalidInputError("only counts of one kind of game can be added up")
        return replace(
            runs[0],
            canaries=sum(run.canaries for run in runs),
            guesses=sum(run.guesses for run in runs),
            correct=sum(run.correct for run in runs),
            abstained=sum(run.abstained for run in runs),
        )


def bets_in_a_row(runs: Sequence[Bets]) -> Bets:
    """Return the bets of independent runs as one sequence."""
    if not runs:
        raise InvalidInputError("there must be at least one run to combine")
    return Bets(
        canaries=sum(run.canaries for run in runs),
        right=np.concatenate([run.right for run in runs]),
        stated_probabilities=np.concatenate([run.stated_probabilities for run in runs]),
    )
