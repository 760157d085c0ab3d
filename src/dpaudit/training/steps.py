"""Compare the configuration of each step with what was accounted for.

An accountant's claim covers the steps in its history: their number, and the noise
multiplier and sampling rate of each. A claim for fewer steps, more noise or a lower
rate than those of the run is a claim about another run, whatever was measured. No
probability is involved: both sides are numbers that the program itself states.

Steps compose in any order, so the claim covers the run if every step has an entry of
its own with no more noise and no lower rate. More noise than was accounted for, or a
lower rate, is no fault.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.configuration import StepSegment, merged_segments
from dpaudit.game.findings import Finding, Stage, fault, inspected

if TYPE_CHECKING:
    from dpaudit.accounting.history import History  # its package needs an extra

__all__ = [
    "ConfiguredSteps",
    "accounting_compared",
    "accounting_faults",
    "history_compared",
]

_ROUNDING: Final = 1e-6  # relative tolerance for numbers in an accountant's history
_fault = partial(fault, Stage.ACCOUNTING)


@final
class ConfiguredSteps:
    """Noise multiplier, clipping norm and rate of every step, as configured.

    Attributes:
        runs: Steps in order, consecutive equal ones merged.
        count: Number of steps made.

    Example:
        >>> steps = ConfiguredSteps()
        >>> for noise in (1.0, 1.0, 0.9):
        ...     steps.add(StepSegment(steps=1, noise=noise, clip=2.0, rate=0.1))
        >>> [(each.steps, each.noise) for each in steps.runs], steps.count
        ([(2, 1.0), (1, 0.9)], 3)
    """

    def __init__(self, runs: Iterable[StepSegment] = ()) -> None:
        self.runs = list(merged_segments(runs))
        self.count = sum(each.steps for each in self.runs)

    def add(self, step: StepSegment) -> None:
        """Add a step, or several equal ones."""
        self.runs[-1:] = merged_segments([*self.runs[-1:], step])
        self.count += step.steps

    def saved(self) -> NDArray[np.float64]:
        """Return a row for each run of equal steps, with -1 for unknown values."""
        rows = [(each.steps, each.noise, each.clip, each.rate) for each in self.runs]
        known = [[-1.0 if value is None else value for value in row] for row in rows]
        return np.array(known, np.float64).reshape(-1, 4)

    @classmethod
    def restored(cls, rows: NDArray[np.float64]) -> "ConfiguredSteps":
        """Return the steps whose ``saved`` rows are given."""
        known = ([None if value < 0 else value for value in row] for row in rows)
        return cls(
            StepSegment(steps=int(steps or 0), noise=noise, clip=clip, rate=rate)
            for steps, noise, clip, rate in known
        )


def accounting_faults(
    history: "History", steps: ConfiguredSteps, *, before: int = 0
) -> Iterator[Finding]:
    """Yield a fault for each way in which the accountant's claim misses the run.

    Args:
        history: The accountant's history: noise multiplier, rate, steps.
        steps: The steps that were made.
        before: Number of steps in the history when the first of these was made.

    Example:
        >>> first = StepSegment(steps=10, noise=1.0, clip=1.0, rate=0.1)
        >>> later = StepSegment(steps=10, noise=0.8, clip=1.0, rate=0.1)
        >>> steps = ConfiguredSteps([first, later])
        >>> for fault in accounting_faults([(1.0, 0.1, 20)], steps):
        ...     print(fault.code, fault.numbers["step"])
        accounting.noise_differs 11
    """
    made = steps.count
    noise = _expanded((each.noise or 0.0, each.steps) for each in steps.runs)
    rate = _expanded((each.rate or 0.0, each.steps) for each in steps.runs)
    noises = _expanded((s, n) for s, _, n in history)[before:]
    rates = _expanded((q, n) for _, q, n in history)[before:]
    if len(noises) < made:
        yield _fault("accounting.steps_missing", made=made, accounted=len(noises))
    count = min(made, len(noises))
    if not count:
        return
    # Steps that are missing from the history are reported as missing, nothing else.
    noise, rate = noise[:count], rate[:count]
    lowest, least = np.sort(noise), np.sort(noises)[:count]
    too_little = bool(np.any(lowest < least * (1 - _ROUNDING)))
    if too_little:
        less = noise < noises[:count] * (1 - _ROUNDING)
        at = int(np.argmax(less))
        yield _fault(
            "accounting.noise_differs",
            step=at + 1,
            noise=noise[at],
            less=int(less.sum()),
            steps=count,
            accounted=noises[at],
        )
    highest, most = np.sort(rate)[::-1], np.sort(rates)[::-1][:count]
    too_often = bool(np.any(highest > most * (1 + _ROUNDING)))
    if too_often:
        more = rate > rates[:count] * (1 + _ROUNDING)
        at = int(np.argmax(more))
        yield _fault(
            "accounting.rate_differs",
            step=at + 1,
            rate=rate[at],
            more=int(more.sum()),
            steps=count,
            accounted=rates[at],
        )
    if not (too_little or too_often or _covered(noise, rate, noises, rates)):
        yield _fault("accounting.not_together")


def history_compared(
    history: "History", *, steps: int, noise: float | None, rate: float
) -> Iterator[Finding]:
    """Yield findings on a run of equal steps compared with what was accounted for.

    Args:
        history: The accountant's history: noise multiplier, rate, steps.
        steps: Number of steps made.
        noise: The multiplier of each; None skips its comparison.
        rate: The sampling rate of each.

    Example:
        >>> found = history_compared([(1.0, 0.1, 20)], steps=30, noise=1.0, rate=0.1)
        >>> [each.code for each in found]
        ['accounting.compared', 'accounting.steps_missing']
    """
    noise = max(s for s, *_ in history) if noise is None else noise
    alike = StepSegment(steps=steps, noise=noise, clip=None, rate=rate)
    made = ConfiguredSteps([alike])
    yield accounting_compared(made)
    yield from accounting_faults(history, made)


def accounting_compared(steps: ConfiguredSteps) -> Finding:
    """Return the check that steps were compared with an accountant's history."""
    return inspected(Stage.ACCOUNTING, "accounting.compared", steps=steps.count)


def _covered(
    noise: NDArray[np.float64],
    rate: NDArray[np.float64],
    noises: NDArray[np.float64],
    rates: NDArray[np.float64],
) -> bool:
    """Return whether every step has an entry with no more noise and no lower rate.

    In order of increasing noise, each step takes, of the entries with no more noise,
    the one with the lowest sufficient rate. Later steps may take any that is left and
    more, so if any assignment covers all steps, this one does.
    """
    wanted, low = noise * (1 + _ROUNDING), rate * (1 - _ROUNDING)
    size = len(noise)
    if np.all(noises[:size] <= wanted) and np.all(rates[:size] >= low):
        return True  # in the order in which they were made
    entries = sorted(zip(noises.tolist(), rates.tolist(), strict=True))
    pool: list[float] = []
    taken = 0
    for most, least in sorted(zip(wanted.tolist(), low.tolist(), strict=True)):
        while taken < len(entries) and entries[taken][0] <= most:
            insort(pool, entries[taken][1])
            taken += 1
        place = bisect_left(pool, least)
        if place == len(pool):
            return False
        pool.pop(place)
    return True


def _expanded(runs: Iterator[tuple[float, int]]) -> NDArray[np.float64]:
    """Return one value for each step."""
    kept = [(float(value), int(steps)) for value, steps in runs]
    return np.repeat([v for v, _ in kept], [n for _, n in kept]).astype(np.float64)
