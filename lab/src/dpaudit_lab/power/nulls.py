"""Draws of which the truth is known, to count how often a method exceeds it.

The scores are those of a local Laplace mechanism: Laplace with scale 1, and ``epsilon``
higher for included canaries. The log-odds of a score never exceed ``epsilon``, and most
attain it, so this is a mechanism exactly at its claim; with ``epsilon`` 0 the scores
say nothing at all. A method that promises to be wrong at most with chance alpha may
exceed the truth in that share of the draws.

What exceeds ``e^(epsilon - t)`` times the other chance is ``1 - e^(-t/2)``, so at delta
the truth is ``epsilon + 2 ln(1 - delta)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import Final, Self, final

from dpaudit import _validate
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.power.task import Draw, Task, numbered

__all__ = ["MOST_CANARIES", "NULLS", "SURE", "Null", "Wrong", "null_draw"]

MOST_CANARIES: Final = 10_000  # with more, enough draws take too long
SURE: Final = 0.001  # chance that either limit of a rate is wrong


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """Laplace scores, exactly as private as they are said to be.

    Attributes:
        epsilon: How much higher those of included canaries are.

    Example:
        >>> Null(epsilon=1.0).truth(0.0), Null(epsilon=0.0).truth(0.1)
        (1.0, 0.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)

    def truth(self, delta: float) -> float:
        """Return the least epsilon that holds with that delta."""
        return max(0.0, self.epsilon + 2 * log1p(-delta))


NULLS: Final = (Null(epsilon=0.0), Null(epsilon=1.0))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """How often a method was above the truth.

    Attributes:
        epsilon: The truth, without delta.
        draws: How many draws.
        hits: In how many of them it was above.

    Example:
        >>> often = Wrong(epsilon=0.0, draws=2000, hits=180)
        >>> often.rate, often.fails(0.05), often.fails(0.08)
        (0.09, True, False)
    """

    epsilon: float
    draws: int
    hits: int

    def __post_init__(self) -> None:
        _validate.whole_number("draws", self.draws, least=1)
        _validate.whole_number("hits", self.hits)

    @classmethod
    def of(cls, bounds: Sequence[float], *, epsilon: float, truth: float) -> Self:
        """Count the bounds that are above the truth, of which epsilon is the name."""
        hits = sum(bound > truth for bound in bounds)
        return cls(epsilon=epsilon, draws=len(bounds), hits=hits)

    @property
    def rate(self) -> float:
        """The share of the draws."""
        return self.hits / self.draws

    @property
    def limits(self) -> tuple[float, float]:
        """Exact limits of the chance (Clopper and Pearson), 99.9 % on each side."""
        return rate_limits(self.hits, self.draws, alpha=2 * SURE)

    def fails(self, alpha: float) -> bool:
        """Return whether it is shown to be wrong more often than alpha."""
        return self.limits[0] > alpha


def null_draw(task: Task, null: Null, number: int) -> Draw:
    """Return a draw by its number: the same scores and coins for whoever asks.

    Example:
        >>> drawn = null_draw(Task(canaries=1000), Null(epsilon=0.0), 7)
        >>> len(drawn.scores), drawn.number
        (1000, 7)
    """
    rng = numbered("dpaudit null", task.canaries, null.epsilon, number)
    bits = rng.integers(0, 2, task.canaries, "uint8")
    scores = rng.laplace(size=task.canaries) + null.epsilon * bits
    return Draw(task=task, number=number, scores=scores, bits=bits)
