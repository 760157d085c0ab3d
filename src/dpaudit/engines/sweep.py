"""Many trials of one function, resumable, the same whoever runs them.

A trial draws from a generator that is seeded by what it is: function, revision,
setting, number. So its outcome does not depend on the engine, the number of workers or
what ran before it, and a sweep that died goes on with what is missing. Trials travel
to the workers in batches of about a second's work, and each batch is stored in one
transaction: that much, per worker, is the most that a sudden death can cost.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np

from dpaudit import _canonical, _validate
from dpaudit.engines.engine import Engine
from dpaudit.engines.store import Cell, Outcome, Setting, Store

__all__ = ["Sweep", "TrialFunction", "run"]

TrialFunction: TypeAlias = Callable[[Setting, np.random.Generator], Outcome]

_BATCH_SECONDS = 1.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What to run: a function, in each of several settings, so many times.

    Attributes:
        name: Name of the function in the store.
        revision: Raise it by hand whenever the function's results change.
        function: From a setting and a generator to an outcome.
        settings: Where to try it.
        trials: How often in each setting.
    """

    name: str
    revision: int
    function: TrialFunction
    settings: Sequence[Setting]
    trials: int

    def __post_init__(self) -> None:
        _validate.whole_number("revision", self.revision)
        _validate.whole_number("trials", self.trials)

    def cell(self, setting: Setting) -> Cell:
        """Return what the store keeps the setting's trials under."""
        return Cell(
            name=self.name, revision=self.revision, setting=_canonical.text(setting)
        )


def run(
    sweep: Sweep,
    *,
    engine: Engine,
    store: Store,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Run the trials that the store does not hold yet.

    Args:
        sweep: What to run.
        engine: What runs it.
        store: Where outcomes are kept; interrupted sweeps go on from it.
        progress: Called with trials done and trials in all after every batch.
    """
    cells = {sweep.cell(s): s for s in sweep.settings}
    todo = [(c, t) for c in cells for t in store.missing(c, sweep.trials)]
    total = sweep.trials * len(cells)
    done = total - len(todo)
    progress(done, total)
    pace = _Pace()
    batches = _batches(sweep.function, cells, todo, pace)
    for result in engine.map(_run_batch, batches):
        store.add(result.cell, result.outcomes)
        pace.learn(len(result.outcomes), result.seconds)
        done += len(result.outcomes)
        progress(done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    function: TrialFunction
    cell: Cell
    setting: Setting
    trials: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchResult:
    cell: Cell
    outcomes: list[tuple[int, Outcome]]
    seconds: float


@dataclass(slots=True)
class _Pace:
    """How many trials make a second's work, as far as seen."""

    size: int = field(default=1)

    def learn(self, trials: int, seconds: float) -> None:
        fitting = int(trials * _BATCH_SECONDS / max(seconds, 1e-9))
        self.size = max(1, min(fitting, 2 * self.size))


def _batches(
    function: TrialFunction,
    cells: dict[Cell, Setting],
    todo: list[tuple[Cell, int]],
    pace: _Pace,
) -> Iterator[_Batch]:
    start = 0
    while start < len(todo):
        cell = todo[start][0]
        window = todo[start : start + pace.size]
        trials = [trial for other, trial in window if other == cell]
        yield _Batch(function=function, cell=cell, setting=cells[cell], trials=trials)
        start += len(trials)


def _run_batch(batch: _Batch) -> _BatchResult:
    start = time.perf_counter()
    outcomes = [
        (trial, batch.function(batch.setting, _generator(batch.cell, trial)))
        for trial in batch.trials
    ]
    seconds = time.perf_counter() - start
    return _BatchResult(cell=batch.cell, outcomes=outcomes, seconds=seconds)


def _generator(cell: Cell, trial: int) -> np.random.Generator:
    named = _canonical.text([cell.name, cell.revision, cell.setting])
    entropy = int.from_bytes(hashlib.sha256(named.encode()).digest(), "little")
    seed = np.random.SeedSequence(entropy, spawn_key=(trial,))
    return np.random.Generator(np.random.PCG64(seed))
