"""How a training run was configured, step by step, and which fault it would detect.

The power of an audit depends on the run that was made, not on the one that was planned:
on its steps, on the configured noise, clipping norm and sampling rate of each of them,
on how many canaries share a coordinate, on the participation schedule and on how noise
is correlated. All of it is recorded as configured, never as estimated, so that others
can recompute the forecast (``dpaudit.dpsgd.planning.as_run``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding

__all__ = [
    "DetectableFault",
    "Participation",
    "RunConfiguration",
    "StepSegment",
    "StrategyColumns",
    "merged_segments",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepSegment:
    """Consecutive steps with the same configuration.

    Attributes:
        steps: The number of steps.
        noise: Configured noise multiplier, before noise is correlated; None if it was
            not stated.
        clip: Configured clipping norm; None if sums are passed in units of it.
        rate: Configured probability that a record participates in a step, when it is
            its turn; None if records are not sampled independently.
    """

    steps: int
    noise: float | None
    clip: float | None
    rate: float | None

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)
        for name in ("noise", "clip"):
            value = getattr(self, name)
            if value is not None:
                _validate.nonnegative(name, value)
        if self.rate is not None:
            _validate.rate("rate", self.rate)


def merged_segments(steps: Iterable[StepSegment]) -> tuple[StepSegment, ...]:
    """Return a schedule with adjacent segments of the same configuration merged.

    Example:
        >>> one = StepSegment(steps=1, noise=1.5, clip=None, rate=0.1)
        >>> [each.steps for each in merged_segments([one, one, one])]
        [3]
    """
    merged: list[StepSegment] = []
    for each in steps:
        if merged and replace(merged[-1], steps=each.steps) == each:
            each = replace(each, steps=merged.pop().steps + each.steps)  # noqa: PLW2901
        merged.append(each)
    return tuple(merged)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Cohorts that take turns: cohort 0 first, and again after ``every`` steps.

    Attributes:
        every: Steps from one turn of a cohort to its next.
        cohorts: The number of cohorts, at most ``every``; the remaining steps are no
            canary's turn.
        most: Maximum number of participations of one canary; None if unlimited.
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
        """Return the cohort whose turn a step is; None if it is no cohort's turn."""
        cohort = (step - self.first) % self.every
        return cohort if cohort < self.cohorts and step >= self.first else None

    def participates(self, step: int) -> bool:
        """Return whether a canary that takes every turn participates in a step."""
        past = (step - self.first) // self.every
        limited = self.most is not None and past >= self.most
        return self.cohort_at(step) is not None and not limited

    def cohort_of(self, coordinates: int) -> NDArray[np.int64]:
        """Return the cohort of each coordinate; its canaries are in the same one."""
        return np.arange(coordinates) % self.cohorts

    def participations(self, steps: int, cohort: int = 0) -> int:
        """Return the number of turns of a cohort within the given steps."""
        participation = max(0, -(-(steps - self.first - cohort) // self.every))
        return participation if self.most is None else min(participation, self.most)

    def __str__(self) -> str:
        if self.every == 1:
            text = "every step"
        elif self.cohorts == 1:
            text = f"every {self.every} steps"
        else:
            text = f"{self.cohorts} cohorts in turn, each every {self.every} steps"
        if self.first:
            text += f", from step {self.first} on"
        return text if self.most is None else f"{text}, {self.most} times at most"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyColumns:
    """Consecutive equal columns of a strategy.

    Attributes:
        steps: The number of columns.
        entries: From the diagonal down; those past the last step are omitted.
    """

    steps: int
    entries: tuple[float, ...]

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfiguration:
    """The configuration of a run, as far as it concerns canaries.

    Attributes:
        schedule: The steps, in order.
        coordinates: How many coordinates hold canaries.
        per_coordinate: Canaries at each.
        participation: The participation schedule of canaries.
        strategy: How noise is correlated from step to step; empty if it is not.
        unmodelled: What forecasts do not model about the canaries of this run; None if
            nothing.

    Example:
        >>> step = StepSegment(steps=100, noise=1.0, clip=1.0, rate=0.1)
        >>> RunConfiguration(schedule=(step,), coordinates=500).steps
        100
    """

    schedule: tuple[StepSegment, ...]
    coordinates: int
    per_coordinate: int = 1
    participation: Participation = Participation()
    strategy: tuple[StrategyColumns, ...] = ()
    unmodelled: Finding | None = None

    def __post_init__(self) -> None:
        _validate.make_whole(self, coordinates=1, per_coordinate=1)
        if self.strategy and sum(each.steps for each in self.strategy) != self.steps:
            raise InvalidInputError(
                f"strategy must have as many columns as there are steps, {self.steps}"
            )

    @property
    def steps(self) -> int:
        """The number of steps made."""
        return sum(each.steps for each in self.schedule)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DetectableFault:
    """The smallest fault of the noise that an audit would have detected.

    Attributes:
        factor: Noise this many times smaller than configured would have refuted the
            claim with probability 0.9; None if that is not known, or if not even noise
            32 times too small would have.
        why_not: Why it is not known; None if it is.
    """

    factor: float | None
    why_not: Finding | None = None

    def __post_init__(self) -> None:
        if self.factor is not None:
            _validate.positive("factor", self.factor)
