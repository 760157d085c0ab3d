"""What a run was configured to do in each step, and whether the accountant was told.

An accountant's claim is about the steps that it was told of: so many, each with a noise
multiplier and a sampling rate. A claim about fewer steps, more noise or a lower rate
than those of the run is about another run, whatever was measured. No probability is
involved: both sides are numbers that the program itself states.

Steps compose in any order, so the two are compared as sorted lists: the claim covers
the run if to every step there is an entry of its own with no more noise, and one with
no lower rate. More noise than was accounted for, or a lower rate, is no fault.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.accounting.history import History
from dpaudit.game.ledger import Fault, How, Look, Road

__all__ = ["ConfiguredSteps", "accounting_faults", "accounting_look"]

_ROUNDING: Final = 1e-6  # relative, of what an accountant is told


@final
class ConfiguredSteps:
    """Noise multiplier, clipping norm and rate of every step, as they were set.

    Attributes:
        runs: Steps in order, those alike that follow each other together: noise
            multiplier, clipping norm, sampling rate, number of steps.
        count: How many steps were made.

    Example:
        >>> steps = ConfiguredSteps()
        >>> for noise in (1.0, 1.0, 0.9):
        ...     steps.add(noise=noise, clip=2.0, rate=0.1)
        >>> steps.runs, steps.count
        ([(1.0, 2.0, 0.1, 2), (0.9, 2.0, 0.1, 1)], 3)
    """

    def __init__(self, runs: Sequence[tuple[float, float, float, int]] = ()) -> None:
        self.runs = list(runs)
        self.count = sum(steps for *_, steps in self.runs)

    def add(self, *, noise: float, clip: float, rate: float) -> None:
        """Take note of a step."""
        before = self.runs.pop() if self.runs else (noise, clip, rate, 0)
        if before[:3] != (noise, clip, rate):
            self.runs.append(before)
            before = (noise, clip, rate, 0)
        self.runs.append((noise, clip, rate, before[3] + 1))
        self.count += 1

    def plain(self) -> list[list[float]]:
        """Return the same as JSON has it."""
        return [list(each) for each in self.runs]

    @classmethod
    def of(cls, plain: Sequence[Sequence[Any]]) -> "ConfiguredSteps":
        """Return what ``plain`` returned."""
        return cls([(float(s), float(c), float(q), int(n)) for s, c, q, n in plain])


def accounting_faults(
    history: History, steps: ConfiguredSteps, *, before: int = 0
) -> Iterator[Fault]:
    """Return where an accountant's claim is about less than was done.

    Args:
        history: What the accountant was told: noise multiplier, rate, steps.
        steps: What was done.
        before: How many steps it had been told of when the first of these was made.

    Example:
        >>> steps = ConfiguredSteps([(1.0, 1.0, 0.1, 10), (0.8, 1.0, 0.1, 10)])
        >>> for fault in accounting_faults([(1.0, 0.1, 20)], steps):
        ...     print(fault.said)
        noise multiplier differs from the accountant's at step 11
    """
    made = steps.count
    noise, rate = (
        _expanded((s, n) for s, _, _, n in steps.runs),
        _expanded((q, n) for _, _, q, n in steps.runs),
    )
    told_noise = _expanded((s, n) for s, _, n in history)[before:]
    told_rate = _expanded((q, n) for _, q, n in history)[before:]
    if len(told_noise) < made:
        yield Fault(
            road=Road.ACCOUNTING,
            said="the accountant was not told of every step",
            measured=f"{made} steps",
            claimed=f"{len(told_noise)}",
            cause="steps of an optimizer that the accountant is not attached to, or an "
            "accountant that was set back",
        )
    count = min(made, len(told_noise))
    if not count:
        return
    lowest, least = np.sort(noise)[:count], np.sort(told_noise)[:count]
    if np.any(lowest < least * (1 - _ROUNDING)):
        less = noise[:count] < told_noise[:count] * (1 - _ROUNDING)
        at = int(np.argmax(less))
        yield Fault(
            road=Road.ACCOUNTING,
            said=f"noise multiplier differs from the accountant's at step {at + 1}",
            measured=f"{noise[at]:.4g}, and less than was accounted for in "
            f"{_of(int(less.sum()), count)}",
            claimed=f"{told_noise[at]:.4g}",
            cause="a noise schedule that the accountant was not told of",
        )
    highest, most = np.sort(rate)[::-1][:count], np.sort(told_rate)[::-1][:count]
    if np.any(highest > most * (1 + _ROUNDING)):
        more = rate[:count] > told_rate[:count] * (1 + _ROUNDING)
        at = int(np.argmax(more))
        yield Fault(
            road=Road.ACCOUNTING,
            said=f"sampling rate differs from the accountant's at step {at + 1}",
            measured=f"{rate[at]:.6g}, and more than was accounted for in "
            f"{_of(int(more.sum()), count)}",
            claimed=f"{told_rate[at]:.6g}",
            cause="an accountant that was told another batch size or number of records "
            "than the loader has",
        )


def accounting_look(steps: ConfiguredSteps) -> Look:
    """Return what was looked at where an accountant's history is known."""
    return Look(
        road=Road.ACCOUNTING,
        how=How.PROBED,
        said=f"number, noise multiplier and rate of {steps.count} steps were compared "
        "with the accountant's history",
    )


def _expanded(runs: Iterator[tuple[float, int]]) -> NDArray[np.float64]:
    """Return a number for each step."""
    kept = [(float(value), int(steps)) for value, steps in runs]
    return np.repeat([v for v, _ in kept], [n for _, n in kept]).astype(np.float64)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} steps"
