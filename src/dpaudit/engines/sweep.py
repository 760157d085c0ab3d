"""Many trials of one function, resumable, the same whoever runs them.

A trial draws from a generator that is seeded by what it is: function, revision,
setting, number. So its outcome does not depend on the engine, the number of workers or
what ran before it, and a sweep that died goes on with what is missing. Trials travel
to the workers in batches of about a second's work, and each batch is stored in one
transaction: that much, per worker, is the most that a sudden death can cost.

A trial that raises is stored with its traceback, and the others go on. It is tried
again whenever the sweep is.
"""

import hashlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np

from dpaudit import _canonical, _validate
from dpaudit.engines.engine import Engine
from dpaudit.engines.progress import Progress, Tally
from dpaudit.engines.store import Cell, Found, Outcome, Setting, Store

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
    progress: Callable[[Progress], None] = lambda _progress: None,
) -> Progress:
    """Run the trials that the store does not hold yet.

    Args:
        sweep: What to run.
        engine: What runs it.
        store: Where outcomes are kept; interrupted sweeps go on from it.
        progress: Told how far the sweep is, at first and after every batch.

    Returns:
        How far it came: all the way, but for trials that raised.
    """
    cells = {sweep.cell(s): s for s in sweep.settings}
    store.plan(cells, sweep.trials)
    missing = {cell: store.missing(cell, sweep.trials) for cell in cells}
    tally = Tally.start(store, missing, trials=sweep.trials)
    progress(tally.progress)
    pace = _Pace()
    todo = [(cell, trial) for cell in cells for trial in missing[cell]]
    batches = _batches(sweep.function, cells, todo, pace)
    for result in engine.map(_run_batch, batches):
        store.record(result.found)
        pace.learn(result.trials, result.seconds)
        tally.add(result.found)
        progress(tally.progress)
    return tally.progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some trials of one cell."""

    cell: Cell
    setting: Setting
    trials: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    function: TrialFunction
    parts: list[_Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchResult:
    found: list[Found]
    trials: int
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
        parts: dict[Cell, list[int]] = {}
        for cell, trial in todo[start : start + pace.size]:
            parts.setdefault(cell, []).append(trial)
            start += 1
        yield _Batch(
            function=function,
            parts=[
                _Part(cell=cell, setting=cells[cell], trials=trials)
                for cell, trials in parts.items()
            ],
        )


def _run_batch(batch: _Batch) -> _BatchResult:
    start = time.perf_counter()
    found = [_run_part(batch.function, part) for part in batch.parts]
    return _BatchResult(
        found=found,
        trials=sum(len(part.trials) for part in batch.parts),
        seconds=time.perf_counter() - start,
    )


def _run_part(function: TrialFunction, part: _Part) -> Found:
    outcomes, failures = [], []
    for trial in part.trials:
        try:
            outcome = function(part.setting, _generator(part.cell, trial))
            _canonical.text(outcome)  # what cannot be stored has failed as well
        except Exception:  # whatever a trial raises
            failures.append((trial, traceback.format_exc()))
        else:
            outcomes.append((trial, outcome))
    return Found(cell=part.cell, outcomes=outcomes, failures=failures)


def _generator(cell: Cell, trial: int) -> np.random.Generator:
    named = _canonical.text([cell.name, cell.revision, cell.setting])
    entropy = int.from_bytes(hashlib.sha256(named.encode()).digest(), "little")
    # The number is the spawn key: experiments read it to give two cells the same draws.
    seed = np.random.SeedSequence(entropy, spawn_key=(trial,))
    return np.random.Generator(np.random.PCG64(seed))
