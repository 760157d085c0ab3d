"""The table of a comparison: which sweeps fill it, and what it makes of a store.

One row per method and number of canaries: the mean bound with its standard error over
the draws, the median CPU time, and the median ratio to the ranked bound's time on the
same draws. What a store does not hold is left out, so a table can be made where a peer
is not installed from a store that was filled where it is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from math import sqrt
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import Sweep
from dpaudit.experiments.power.peers import peer_bound_sweep, peer_time_sweep
from dpaudit.experiments.power.plan import Guesses
from dpaudit.experiments.power.sweeps import bound_sweep, time_sweep
from dpaudit.experiments.power.task import Task
from dpaudit.experiments.power.timing import Ratio, ratio_of

__all__ = ["Comparison", "Row"]

# What a method is called, by its name in a store; {} is the version of the peer.
_NAMES: dict[str, str] = {
    "exact": "exact, guesses planned",
    "ranked": "ranked, nothing planned",
    "weighted": "weighted, guesses planned",
    "steinke": "Steinke et al., guesses planned",
    "jax_privacy": "jax-privacy {}, as it comes",
    "jax_privacy_split": "jax-privacy {}, Split",
}
_OURS = ("exact", "ranked", "weighted")
_COMPARED_WITH = "ranked"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one method shows of so many canaries.

    Attributes:
        canaries: Canaries of each audit.
        method: What the method is called.
        ours: Whether it is one of dpaudit's own.
        guesses: How many guesses were planned; None if none were.
        draws: How many audits.
        mean: Mean lower bound on epsilon.
        error: Its standard error; None if there is a single draw.
        seconds: Median CPU time from scores to bound; None if it was not taken.
        ratio: How many times the ranked bound's CPU time that is.
    """

    canaries: int
    method: str
    ours: bool
    guesses: int | None
    draws: int
    mean: float
    error: float | None
    seconds: float | None
    ratio: Ratio | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared, once the numbers of guesses are planned.

    Attributes:
        plans: The tasks, with the numbers of guesses planned for them.
        trials: Draws of each task.
        pairs: Draws on which methods are timed; 0 for none.
        peer: Version of jax-privacy.
    """

    plans: Mapping[Task, Guesses]
    trials: Mapping[Task, int]
    pairs: int
    peer: str

    def __post_init__(self) -> None:
        _validate.whole_number("pairs", self.pairs)
        for trials in self.trials.values():
            _validate.whole_number("trials", trials, least=1)

    def sweeps(self) -> list[Sweep]:
        """Return what our rows need."""
        bounds = [self._bounds(task) for task in self.plans]
        return [*bounds, *(self._times(task) for task in self.plans)]

    def peer_sweeps(self) -> list[Sweep]:
        """Return what the peer's rows need."""
        bounds = [self._peer_bounds(task) for task in self.plans]
        return [*bounds, *(self._peer_times(task) for task in self.plans)]

    def table(self, store: Store) -> list[Row]:
        """Return the rows that a store holds, by number of canaries."""
        return list(chain.from_iterable(self._rows(store, task) for task in self.plans))

    def _rows(self, store: Store, task: Task) -> list[Row]:
        bounds = _columns(store, self._bounds(task))
        bounds |= _columns(store, self._peer_bounds(task))
        times = _columns(store, self._times(task))
        beside = _columns(store, self._peer_times(task))
        return [
            self._row(task, key, bounds[key], times if key in times else beside)
            for key in _NAMES
            if key in bounds
        ]

    def _row(
        self, task: Task, key: str, bounds: list[float], times: dict[str, list[float]]
    ) -> Row:
        draws, timed = len(bounds), key in times
        error = float(np.std(bounds, ddof=1)) / sqrt(draws) if draws > 1 else None
        return Row(
            canaries=task.canaries,
            method=_NAMES[key].format(self.peer),
            ours=key in _OURS,
            guesses=asdict(self.plans[task]).get(key),
            draws=draws,
            mean=float(np.mean(bounds)),
            error=error,
            seconds=float(np.median(times[key])) if timed else None,
            ratio=ratio_of(times[key], times[_COMPARED_WITH]) if timed else None,
        )

    def _bounds(self, task: Task) -> Sweep:
        return bound_sweep(task, self.plans[task], trials=self.trials[task])

    def _times(self, task: Task) -> Sweep:
        return time_sweep(task, self.plans[task], pairs=self.pairs)

    def _peer_bounds(self, task: Task) -> Sweep:
        return peer_bound_sweep(task, version=self.peer, trials=self.trials[task])

    def _peer_times(self, task: Task) -> Sweep:
        return peer_time_sweep(task, version=self.peer, pairs=self.pairs)


def _columns(store: Store, sweep: Sweep) -> dict[str, list[float]]:
    """Return the outcomes of a sweep of one setting, name by name."""
    (setting,) = sweep.settings
    outcomes = list(store.outcomes(sweep.cell(setting), sweep.trials))
    return {key: [o[key] for o in outcomes] for key in (outcomes or [{}])[0]}
