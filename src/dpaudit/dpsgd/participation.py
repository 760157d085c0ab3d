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

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.strategy import Strategy, gram_row
from dpaudit.errors import InvalidInputError
from dpaudit.game.configuration import Participation

__all__ = ["Participation", "separated_sensitivity", "signals", "weights"]

Floats: TypeAlias = NDArray[np.float64]


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
