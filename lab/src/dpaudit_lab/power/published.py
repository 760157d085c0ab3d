"""The bound of ``dpaudit.bounds.steinke`` by the loop that most scripts copy.

Written from the formula: the p-value of ``v`` right guesses of ``r`` among ``m``
canaries is ``P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i``, the maximum
found by a loop over ``i`` that adds up one binomial chance after the other; the bound
is found by halving an interval of epsilons. ``bounds.steinke`` has the same number with
the loop as one array, so what differs is the time. Copies of the loop name Steinke,
Nasr and Jagielski as its source, https://arxiv.org/abs/2305.08846.
"""

from dataclasses import dataclass
from typing import Any, final

from scipy import special

from dpaudit_lab.power.methods import most_confident_right
from dpaudit_lab.power.task import Draw

__all__ = ["PublishedLoop", "load", "published_bound", "published_p_value"]

_HALVINGS = 30


def load() -> Any:  # noqa: ANN401 (SciPy has no types)
    """Return the binomial law that the procedure asks, slow to import."""
    from scipy import stats  # noqa: PLC0415

    return stats.binom


def published_p_value(m: int, r: int, v: int, *, epsilon: float, delta: float) -> float:
    """Return the published p-value, summed term by term.

    Example:
        >>> round(published_p_value(100, 4, 4, epsilon=0.0, delta=0.0), 6)
        0.0625
    """
    binom = load()
    right = float(special.expit(epsilon))
    chance = float(binom.sf(v - 1, r, right))
    summed = steepest = 0.0
    for i in range(1, v + 1):
        summed += float(binom.pmf(v - i, r, right))
        steepest = max(steepest, summed / i)
    return min(1.0, chance + 2 * m * delta * steepest)


def published_bound(m: int, r: int, v: int, *, delta: float, alpha: float) -> float:
    """Return the largest epsilon that is rejected, by halving; 0 if none is."""

    def rejected(epsilon: float) -> bool:
        return published_p_value(m, r, v, epsilon=epsilon, delta=delta) < alpha

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, high + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLoop:
    """The loop on the surest guesses, their number planned.

    Attributes:
        guesses: How many guesses are counted.
        key: Its name in a store.
    """

    guesses: int
    key: str = "published"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        task = drawn.task
        right = int(most_confident_right(drawn, self.guesses).sum())
        return published_bound(
            task.canaries, self.guesses, right, delta=task.delta, alpha=task.alpha
        )
