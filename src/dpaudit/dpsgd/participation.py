"""Whose turn it is to join a step, where that is known to everybody.

In a fixed order, in cohorts, once every ``b`` steps: much training does not sample, or
samples only among those whose turn it is. Canaries are divided into *cohorts*, and the
cohorts take turns. Whoever has its turn joins, or joins with a chance if the training
samples within turns (cyclic Poisson sampling). A user who may take part in so many
rounds at most does not join any more once they are used up.

| what is known as | every | cohorts | most | sampled |
|---|---|---|---|---|
| full batch | 1 | 1 | | no |
| once, at a known place of T steps | T | T | | no |
| every b-th step | b | 1 | | no |
| cyclic, or fixed cohorts that take turns | b | b | | no |
| cyclic Poisson sampling | b | b | | yes |
| sampled users, k rounds at most | 1 | 1 | k | yes |

A turn with a strategy of correlated noise (``strategy``) has a *signal*: the length of
what a canary puts into independent noise. The largest is the sensitivity if no inner
product of two columns of the strategy is negative: then joining in all turns is the
worst. Else, as with negative coefficients, joining in some of them may be more, and so
may putting in different signs.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.strategy import Strategy, gram_row
from dpaudit.errors import InvalidInputError

__all__ = ["Participation", "separated_sensitivity", "signals", "weights"]

Floats: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Cohorts that take turns: cohort 0 first, and again after ``every`` steps.

    Attributes:
        every: Steps from one turn of a cohort to its next.
        cohorts: How many there are, ``every`` at most; the steps that are left are no
            canary's turn.
        most: Steps that one canary joins at most; None if there is no limit.
        first: The step of the first turn of all.

    Example:
        >>> participation = Participation(every=3, cohorts=2)
        >>> [participation.cohort_at(step) for step in range(6)]
        [0, 1, None, 0, 1, None]
    """

    every: int = 1
    cohorts: int = 1
    most: int | None = None
    first: int = 0

    def __post_init__(self) -> None:
        _validate.make_whole(self, every=1, cohorts=1, first=0)
        if self.most is not None:
            _validate.make_whole(self, most=1)
        if self.cohorts > self.every:
            raise InvalidInputError(
                f"cohorts={self.cohorts} cannot each have a step of their own in "
                f"every={self.every} steps; use as many cohorts as steps, or fewer"
            )

    def cohort_at(self, step: int) -> int | None:
        """Return whose turn a step is; None if nobody's."""
        cohort = (step - self.first) % self.every
        return cohort if cohort < self.cohorts and step >= self.first else None

    def participates(self, step: int) -> bool:
        """Return whether a step is anybody's turn who joins all of them."""
        past = (step - self.first) // self.every
        limited = self.most is not None and past >= self.most
        return self.cohort_at(step) is not None and not limited

    def cohort_of(self, coordinates: int) -> NDArray[np.int64]:
        """Return the cohort of each coordinate, its canaries together."""
        return np.arange(coordinates) % self.cohorts

    def participations(self, steps: int, cohort: int = 0) -> int:
        """Return how many turns a cohort has in so many steps."""
        participation = max(0, -(-(steps - self.first - cohort) // self.every))
        return participation if self.most is None else min(participation, self.most)

    def __str__(self) -> str:
        if self.every == 1:
            told = "every step"
        elif self.cohorts == 1:
            told = f"every {self.every} steps"
        else:
            told = f"{self.cohorts} cohorts in turn, each every {self.every} steps"
        if self.first:
            told += f", from step {self.first} on"
        return told if self.most is None else f"{told}, {self.most} times at most"


def weights(
    participation: Participation,
    strategy: Strategy,
    step: int,
    *,
    steps: int | None = None,
) -> Floats:
    """Return by what each cohort's matched filter multiplies a step's sum.

    That is the step's row of ``C^T C u``, with ``u`` the turns of the cohort.

    Args:
        participation: Who joins when.
        strategy: How noise is correlated.
        step: Which step.
        steps: How many there are; as the strategy says if left out.

    Example:
        >>> from dpaudit.dpsgd.strategy import Toeplitz
        >>> strategy = Toeplitz(coefficients=(1.0, 0.5), steps=4)
        >>> weights(Participation(every=2, cohorts=2), strategy, 1)
        array([1.  , 1.25])
    """
    ends = strategy.steps or steps or step + 1
    first, row = gram_row(strategy, step, ends)
    since = first + np.arange(len(row)) - participation.first
    cohort = since % participation.every
    mine = (cohort < participation.cohorts) & (since >= 0)
    if participation.most is not None:
        mine &= since // participation.every < participation.most
    found = np.bincount(cohort[mine], row[mine], minlength=participation.cohorts)
    return np.asarray(found, np.float64)


@lru_cache(maxsize=16)  # a plan asks again and again
def signals(participation: Participation, strategy: Strategy, steps: int) -> Floats:
    """Return ``|C u|`` for each cohort: what its canaries are to independent noise.

    Args:
        participation: Who joins when, for certain.
        strategy: How noise is correlated.
        steps: How many steps.

    Example:
        >>> from dpaudit.dpsgd.strategy import Independent
        >>> signals(Participation(every=4, cohorts=2), Independent(), 9).round(3)
        array([1.732, 1.414])
    """
    squares = np.zeros(participation.cohorts)
    for step in range(steps):
        if participation.participates(step):
            cohort = participation.cohort_at(step)
            squares[cohort] += weights(participation, strategy, step, steps=steps)[
                cohort
            ]
    found = np.sqrt(np.maximum(squares, 0.0))
    found.setflags(write=False)  # it is kept for the next who asks
    return found


def separated_sensitivity(
    strategy: Strategy, *, steps: int, separation: int, most: int | None = None
) -> float:
    """Return the largest ``|C u|`` over all ways to join with steps in between.

    Args:
        strategy: How noise is correlated; with ``separation`` bands or fewer, so that
            no two joins meet in any step.
        steps: How many steps.
        separation: From one join to the next at least.
        most: How many joins at most; no limit if left out.

    Raises:
        InvalidInputError: The strategy has more bands, which needs other methods.

    Example:
        >>> from dpaudit.dpsgd.strategy import Toeplitz
        >>> strategy = Toeplitz(coefficients=(1.0, 0.5), steps=4)
        >>> round(separated_sensitivity(strategy, steps=4, separation=2), 3)
        1.581
    """
    _validate.whole_number("separation", separation, least=1)
    if strategy.bands > separation:
        raise InvalidInputError(
            f"a strategy of {strategy.bands} bands with joins only separation="
            f"{separation} steps apart: two joins meet, and the largest sensitivity is "
            "a search over all patterns; pass a strategy of fewer bands"
        )
    columns = [strategy.column(t)[: steps - t] for t in range(steps)]
    norms = [float(column @ column) for column in columns]
    times = min(most or steps, -(-steps // separation))
    best = np.zeros(steps + separation + 1)  # from a step on, one join after the other
    for _ in range(times):
        now = np.zeros_like(best)
        for t in range(steps - 1, -1, -1):
            now[t] = max(now[t + 1], norms[t] + best[t + separation])
        best = now
    return float(np.sqrt(best[0]))
