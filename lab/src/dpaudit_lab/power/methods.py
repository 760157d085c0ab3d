"""The methods that are compared, each from the scores and coins of a draw to a bound.

Ours, and the bound that Steinke, Nasr and Jagielski published. Those that count a
number of guesses are told the best one (``plan``); the ranked bound is told
nothing. Peers are in files of their own (``peers``).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import Counts, Ranked, Weighted
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import WeightedBound
from dpaudit_lab.power.plan import WEIGHTS, Guesses, class_sizes
from dpaudit_lab.power.task import Draw

__all__ = [
    "Method",
    "RankedAll",
    "SurestCounted",
    "SurestWeighted",
    "methods",
    "most_confident_right",
]


class Method(Protocol):
    """Turns scores and coins into a lower bound on epsilon."""

    @property
    def key(self) -> str:
        """Its name in a store."""
        ...

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SurestCounted:
    """A bound on how many of the surest guesses are right, their number planned.

    Attributes:
        key: Its name in a store.
        bound: What counts are given to.
        guesses: How many guesses are counted.
    """

    key: str
    bound: ExactBound | SteinkeBound
    guesses: int

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        task, right = drawn.task, most_confident_right(drawn, self.guesses)
        counts = Counts(
            canaries=task.canaries, guesses=self.guesses, correct=int(right.sum())
        )
        found = self.bound.epsilon_lower(counts, delta=task.delta, alpha=task.alpha)
        return found.epsilon_lower


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SurestWeighted:
    """The bound for weighted guesses, classes and weights planned.

    Attributes:
        guesses: How many guesses are counted, in all classes.
        key: Its name in a store.
    """

    guesses: int
    key: str = "weighted"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        task, right = drawn.task, most_confident_right(drawn, self.guesses)
        sizes = class_sizes(self.guesses)
        ends = np.cumsum([0, *sizes])
        reading = Weighted(
            canaries=task.canaries,
            weights=tuple(map(float, WEIGHTS)),
            guesses=sizes,
            correct=tuple(int(right[a:b].sum()) for a, b in pairwise(ends)),
            committed=True,
        )
        found = WeightedBound().epsilon_lower(
            reading, delta=task.delta, alpha=task.alpha
        )
        return found.epsilon_lower


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedAll:
    """The bound on all guesses in order of confidence: no number is chosen.

    Nor is ``mu`` used: scores are centred at their median, which knows no coin.

    Attributes:
        key: Its name in a store.
    """

    key: str = "ranked"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        task = drawn.task
        reading = Ranked.of(drawn.scores - np.median(drawn.scores), drawn.bits)
        found = RankedBound().epsilon_lower(reading, delta=task.delta, alpha=task.alpha)
        return found.epsilon_lower


def methods(guesses: Guesses) -> tuple[Method, ...]:
    """Return our methods and the published one, as planned."""
    always: tuple[Method, ...] = (
        SurestCounted(key="exact", bound=ExactBound(), guesses=guesses.exact),
        RankedAll(),
        SurestCounted(key="steinke", bound=SteinkeBound(), guesses=guesses.steinke),
    )
    if guesses.weighted is None:
        return always
    return (*always, SurestWeighted(guesses=guesses.weighted))


def most_confident_right(drawn: Draw, guesses: int) -> NDArray[np.bool_]:
    """Return which of the surest guesses are right, the surest first."""
    above = drawn.scores - drawn.task.mu / 2
    # The surest are found first and only they are sorted.
    surest = np.argpartition(-np.abs(above), guesses - 1)[:guesses]
    surest = surest[np.argsort(-np.abs(above[surest]))]
    return np.asarray((above[surest] >= 0) == (drawn.bits[surest] == 1))
