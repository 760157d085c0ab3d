"""Several independent runs, one statement.

P-values of independent runs are combined by Fisher's product; at every epsilon the
combined p-value is larger than at a smaller one, so the largest rejected epsilon
counts. Bets of independent runs are bets in a row: their wealths multiply.

One more run is worth most at delta > 0: no audit of one run can reliably certify more
than the mechanism's epsilon at ``delta / alpha``, and ``k`` runs lift that to
``delta / alpha^(1/k)``.

Reference: docs/explanation/ceilings.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpaudit.bounds.bound import LowerBound, largest_rejected
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.readings import Bets, Counts
from dpaudit.errors import InvalidInputError
from dpaudit.stats.combine import fisher

__all__ = ["IndependentRuns", "bets_in_a_row"]


@final
@dataclass(frozen=True, slots=True)
class IndependentRuns:
    """The exact bound for the counts of several independent runs.

    Example:
        >>> run = Counts(canaries=1000, guesses=100, correct=90)
        >>> one = Exact().epsilon_lower(run, delta=1e-5, alpha=0.05).epsilon_lower
        >>> both = IndependentRuns().epsilon_lower([run, run], delta=1e-5, alpha=0.05)
        >>> both.epsilon_lower > one
        True
    """

    method: ClassVar[str] = "independent runs"
    reference: ClassVar[str] = "docs/explanation/ceilings.md"

    def log_p_value(
        self, runs: Sequence[Counts], *, epsilon: float, delta: float
    ) -> float:
        """Return the log of the combined p-value of a claim."""
        if not runs:
            raise InvalidInputError("there must be at least one run to combine")
        return fisher(
            [Exact().log_p_value(r, epsilon=epsilon, delta=delta) for r in runs]
        )

    def epsilon_lower(
        self, runs: Sequence[Counts], *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the largest epsilon that the runs together reject."""
        return largest_rejected(self, runs, delta=delta, alpha=alpha)


def bets_in_a_row(runs: Sequence[Bets]) -> Bets:
    """Return the bets of independent runs as one sequence."""
    if not runs:
        raise InvalidInputError("there must be at least one run to combine")
    return Bets(
        canaries=sum(run.canaries for run in runs),
        right=np.concatenate([run.right for run in runs]),
        stakes=np.concatenate([run.stakes for run in runs]),
    )
