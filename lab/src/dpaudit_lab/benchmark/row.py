"""A row of the benchmark: what one method shows of one task, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self, final

import numpy as np

from dpaudit.errors import InvalidInputError
from dpaudit.stats.intervals import standard_error
from dpaudit_lab.power.nulls import Wrong
from dpaudit_lab.power.timing import Ratio, ratio_of
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["Bound", "Comparison", "Cost", "Part", "Row", "cost_of"]


class Part(StrEnum):
    """What is compared."""

    BOUNDS = "bounds"
    GUESSERS = "guessers"
    ADAPTERS = "adapters"
    TABLES = "tables"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A mean lower bound on epsilon.

    Attributes:
        mean: The mean.
        error: Its standard error; None if there is a single draw.
        draws: Over how many draws.
    """

    mean: float
    error: float | None
    draws: int

    @classmethod
    def of(cls, bounds: Sequence[float]) -> Self:
        """Return the mean of some bounds.

        Example:
            >>> Bound.of([1.0, 2.0, 3.0])
            Bound(mean=2.0, error=0.5773502691896258, draws=3)
        """
        if not bounds:
            raise InvalidInputError("a mean needs at least one bound, got none")
        mean, error = float(np.mean(bounds)), standard_error(bounds)
        return cls(mean=mean, error=error, draws=len(bounds))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a method costs.

    Attributes:
        seconds: Median CPU time; None if it was not taken.
        ratio: How many times that of the row it is compared with, pair by pair; None
            for that row itself.
        memory: By how many MiB it raised the largest memory of a process; None if it
            was not taken.
    """

    seconds: float | None = None
    ratio: Ratio | None = None
    memory: float | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one method shows, and what it costs.

    Attributes:
        part: Of the benchmark.
        size: Of the task, in words.
        method: What the method is called, with the version of a peer.
        ours: Whether it is one of dpaudit's own.
        cost: Its time and memory.
        bound: Its mean bound on epsilon, if it has one.
        wrong: How often it was above a truth that is known.
        guesses: How many guesses were planned, if any were.
    """

    part: Part
    size: str
    method: str
    ours: bool
    cost: Cost
    bound: Bound | None = None
    wrong: tuple[Wrong, ...] = ()
    guesses: int | None = None


class Comparison(Protocol):
    """A part of the benchmark: what it needs in a store, and what it makes of it."""

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps that fill its rows."""
        ...

    def rows(self, store: Store) -> list[Row]:
        """Return its rows; what the store does not hold is left out."""
        ...

    def left_out(self, store: Store) -> list[str]:
        """Return which rows are missing, and how to get them."""
        ...


def cost_of(
    times: Sequence[float], beside: Sequence[float], memory: Sequence[float]
) -> Cost:
    """Return a cost from pairs of times and some measurements of memory.

    Example:
        >>> found = cost_of([2.0, 4.0], [1.0, 2.0], [])
        >>> found.seconds, found.ratio.middle, found.memory
        (3.0, 2.0, None)
    """
    itself = times is beside or not times
    return Cost(
        seconds=float(np.median(times)) if times else None,
        ratio=None if itself else ratio_of(times, beside),
        memory=float(np.median(memory)) if memory else None,
    )
