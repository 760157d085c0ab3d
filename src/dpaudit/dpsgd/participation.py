"""Public participation schedules: which records may participate in which step.

Much training does not sample, or samples only within a fixed schedule: in a fixed
order, in cohorts, once every ``b`` steps. Canaries are divided into *cohorts* that
alternate. In its scheduled steps a cohort's records all participate, or are sampled
independently (cyclic Poisson sampling). A user with a maximum number of rounds stops
participating when it is reached.

| known as | every | cohorts | most | sampled |
|---|---|---|---|---|
| full batch | 1 | 1 | | no |
| once, at a known one of T steps | T | T | | no |
| every b-th step | b | 1 | | no |
| cyclic, or fixed cohorts that alternate | b | b | | no |
| cyclic Poisson sampling | b | b | | yes |
| sampled users, k rounds at most | 1 | 1 | k | yes |

A schedule with a strategy of correlated noise (``strategy``) has a *signal*: the norm
of a canary's contribution relative to independent noise. The largest is the sensitivity
if no inner product of two columns of the strategy is negative: then participating in
all scheduled steps is the worst case. Otherwise, as with negative coefficients, some of
the steps, or contributions of different signs, may give more.
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
    """Return the weight of a step's sum in each cohort's matched filter.

    That is the step's row of ``C^T C u``, with ``u`` the steps of the cohort.

    Args:
        participation: The participation schedule.
        strategy: The strategy that correlates the noise.
        step: The step.
        steps: The number of steps; by default the strategy's.

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
    total = np.bincount(cohort[mine], row[mine], minlength=participation.cohorts)
    return np.asarray(total, np.float64)


@lru_cache(maxsize=16)  # a plan needs it repeatedly
def signals(participation: Participation, strategy: Strategy, steps: int) -> Floats:
    """Return ``|C u|`` for each cohort: a canary's signal in independent noise.

    Args:
        participation: The participation schedule, without sampling.
        strategy: The strategy that correlates the noise.
        steps: The number of steps.

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
    norms = np.sqrt(np.maximum(squares, 0.0))
    norms.setflags(write=False)  # it is cached
    return norms


def separated_sensitivity(
    strategy: Strategy, *, steps: int, separation: int, most: int | None = None
) -> float:
    """Return the largest ``|C u|`` over participations with a minimum separation.

    Args:
        strategy: The strategy, with at most ``separation`` bands, so that no two
            participations overlap in any step.
        steps: The number of steps.
        separation: The minimum number of steps from one participation to the next.
        most: The maximum number of participations; by default no limit.

    Raises:
        InvalidInputError: The strategy has more bands, which is not supported.

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
    best = np.zeros(steps + separation + 1)  # from each step on
    for _ in range(times):
        now = np.zeros_like(best)
        for t in range(steps - 1, -1, -1):
            now[t] = max(now[t + 1], norms[t] + best[t + separation])
        best = now
    return float(np.sqrt(best[0]))
