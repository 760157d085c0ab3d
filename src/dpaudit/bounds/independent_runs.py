"""Several independent runs, one statement.

P-values of independent runs are combined by Fisher's product; at every epsilon the
combined p-value is larger than at a smaller one, so the largest rejected epsilon
counts. Bets of independent runs are bets in a row: their wealths multiply. How many
runs there are must be fixed before the first, whatever they show.

Counts may be pooled instead, if that was fixed before the first run: what independent
runs show together is one mechanism that is private for each of their coins, so all
guesses of all runs are judged as those of one run with all the coins. Which of the two
shows more depends on delta: pooled, it is paid for all coins at once. Whoever takes the
better of both afterwards is wrong up to twice as often.

One more run is worth most at delta > 0: no audit of one run can reliably certify more
than the mechanism's epsilon at ``delta / alpha``, and ``k`` runs lift that to
``delta / alpha^(1/k)``.

Reference: docs/explanation/ceilings.md.
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
    reference: ClassVar[str] = "docs/explanation/ceilings.md"
    rises: ClassVar[bool] = True  # those of every run do

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
    """The bound for the counts of several runs, added up.

    That counts are added up must be fixed before the first run.

    Attributes:
        by: The bound of the runs' game.

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
    reference: ClassVar[str] = "docs/explanation/ceilings.md"

    def log_p_value(
        self, runs: Sequence[Counts], *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the p-value of a claim."""
        return self.by.log_p_value(self.added(runs), epsilon=epsilon, delta=delta)

    def epsilon_lower(
        self, runs: Sequence[Counts], *, delta: float, alpha: float
    ) -> LowerBound:
        """Return what the bound of the game makes of all guesses."""
        found = self.by.epsilon_lower(self.added(runs), delta=delta, alpha=alpha)
        return replace(found, method=self.method, reference=self.reference)

    @staticmethod
    def added(runs: Sequence[Counts]) -> Counts:
        """Return the counts of all runs as those of one."""
        if not runs:
            raise InvalidInputError("there must be at least one run to combine")
        one = {replace(run, canaries=0, guesses=0, correct=0) for run in runs}
        if len(one) > 1:
            raise InvalidInputError("only counts of one kind of game can be added up")
        return replace(
            runs[0],
            canaries=sum(run.canaries for run in runs),
            guesses=sum(run.guesses for run in runs),
            correct=sum(run.correct for run in runs),
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
