"""Many trials of one function, resumable, the same whoever runs them.

A trial draws from a generator that is seeded by what it is: function, revision,
setting, number. So its outcome does not depend on the engine, the number of workers or
what ran before it, and a sweep that died goes on with what is missing. Trials travel
to the workers in batches of about a second's work, by what was seen so far; a worker
that took twice that long sends back what it has, and the rest is run later. Each batch
is stored in one transaction: so much, or one trial, is the most that a sudden death
can cost each worker.

A trial that raises, or whose outcome cannot be stored, is stored with its traceback,
and the others go on. So is one that kills its worker whenever it is run: the batches
under way in several deaths are run alone, and halved until it is found. Failed trials
are tried again whenever the sweep is.
"""

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast, final

import numpy as np

from dpaudit import _canonical, _validate
from dpaudit.engines.engine import Engine
from dpaudit.errors import WorkerDiedError
from dpaudit_lab.sweeps.progress import Progress, Tally
from dpaudit_lab.sweeps.store import Cell, Found, Outcome, Setting, Store

__all__ = ["Sweep", "TrialFunction", "run"]

TrialFunction: TypeAlias = Callable[[Setting, np.random.Generator], Outcome]

_BATCH_SECONDS: Final = 1.0
_MOST_TRIALS: Final = 1000  # in a batch, so that it and its outcomes stay small
_SCALARS: Final = (str, int, float, bool, type(None))


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

    def columns(self, store: Store, setting: Setting) -> dict[str, list[Any]]:
        """Return what a store holds of the setting's trials, name by name."""
        found = list(store.outcomes(self.cell(setting), self.trials))
        return {key: [each[key] for each in found] for key in (found or [{}])[0]}


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
        How far it came: all the way, but for trials that failed.
    """
    cells = {sweep.cell(s): s for s in sweep.settings}
    store.plan(cells, sweep.trials)
    tally = Tally.start(store, cells, trials=sweep.trials)
    progress(tally.progress)
    pace = _Pace()

    def keep(results: Iterable[_BatchResult]) -> None:
        for result in results:
            store.record(result.found)
            pace.learn(result.trials, result.seconds)
            tally.add(result.found)
            progress(tally.progress)

    # Once, and again for what slow batches left and what dying workers lost.
    while any(tally.left.values()):
        parts = (
            _Part(cell=cell, setting=setting, trials=_todo(sweep, store, tally, cell))
            for cell, setting in cells.items()
            if tally.left[cell]
        )
        try:
            keep(engine.map(_run_batch, _batches(sweep.function, parts, pace)))
        except WorkerDiedError as error:
            for suspect in error.tasks:
                keep(_alone(engine, cast(_Batch, suspect)))
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

    def halves(self) -> "list[_Batch]":
        """Return two batches of half the trials each; none if there is but one."""
        flat = [(part, trial) for part in self.parts for trial in part.trials]
        middle = len(flat) // 2
        halves = (flat[:middle], flat[middle:]) if middle else ()
        return [
            _Batch(
                function=self.function,
                parts=[replace(part, trials=[trial]) for part, trial in half],
            )
            for half in halves
        ]


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
        self.size = max(1, min(fitting, 2 * self.size, _MOST_TRIALS))


def _todo(sweep: Sweep, store: Store, tally: Tally, cell: Cell) -> list[int]:
    """Return the trials of a cell that are missing, and did not fail just now."""
    missing = store.missing(cell, sweep.trials)
    return [trial for trial in missing if trial not in tally.failed[cell]]


def _batches(
    function: TrialFunction, parts: Iterable[_Part], pace: _Pace
) -> Iterator[_Batch]:
    """Yield batches of the size that the pace says when each is taken."""
    batch: list[_Part] = []
    room = pace.size
    for part in parts:
        start = 0
        while start < len(part.trials):
            taken = part.trials[start : start + room]
            batch.append(replace(part, trials=taken))
            start, room = start + len(taken), room - len(taken)
            if room == 0:
                yield _Batch(function=function, parts=batch)
                batch, room = [], pace.size
    if batch:
        yield _Batch(function=function, parts=batch)


def _run_batch(batch: _Batch) -> _BatchResult:
    """Run trials one after the other, until all are done or it takes too long."""
    start = time.perf_counter()
    found, trials = [], 0
    for part in batch.parts:
        outcomes, failures = [], []
        for trial in part.trials:
            if trials and time.perf_counter() - start > 2 * _BATCH_SECONDS:
                break
            trials += 1
            try:
                outcomes.append((trial, _outcome(batch.function, part, trial)))
            except KeyboardInterrupt:
                raise
            except BaseException:  # whatever a trial raises, to leave the program too
                failures.append((trial, _traceback()))
        found.append(Found(cell=part.cell, outcomes=outcomes, failures=failures))
    seconds = time.perf_counter() - start
    return _BatchResult(found=found, trials=trials, seconds=seconds)


def _outcome(function: TrialFunction, part: _Part, trial: int) -> Outcome:
    """Run a trial and return its outcome, if it is one that can be stored."""
    outcome = function(dict(part.setting), _generator(part.cell, trial))
    if not isinstance(outcome, Mapping):
        raise TypeError(f"a trial must return a mapping, got {outcome!r}")
    for name, value in outcome.items():
        if not isinstance(name, str) or not isinstance(value, _SCALARS):
            raise TypeError(
                "a trial's outcome must map names to numbers, texts or None, got "
                f"{name!r}: {value!r}"
            )
    _canonical.text(outcome)
    return outcome


def _traceback() -> str:
    """Return the traceback of the error at hand as text that can be stored."""
    return traceback.format_exc().encode("utf-8", "backslashreplace").decode("utf-8")


def _alone(engine: Engine, batch: _Batch) -> Iterator[_BatchResult]:
    """Run a batch with nothing beside it, halved as long as its workers die."""
    waiting = [batch]
    while waiting:
        suspect = waiting.pop()
        try:
            yield from engine.map(_run_batch, [suspect])
        except WorkerDiedError as error:
            halves = suspect.halves()
            waiting += halves
            if not halves:
                yield _died(suspect, error)


def _died(batch: _Batch, error: WorkerDiedError) -> _BatchResult:
    """Return that the one trial of a batch failed, as workers die of it."""
    (part,) = batch.parts
    found = Found(
        cell=part.cell,
        outcomes=[],
        failures=[(trial, f"{error}") for trial in part.trials],
    )
    return _BatchResult(found=[found], trials=1, seconds=_BATCH_SECONDS)


def _generator(cell: Cell, trial: int) -> np.random.Generator:
    named = _canonical.text([cell.name, cell.revision, cell.setting])
    entropy = int.from_bytes(hashlib.sha256(named.encode()).digest(), "little")
    # The number is the spawn key: experiments read it to give two cells the same draws.
    seed = np.random.SeedSequence(entropy, spawn_key=(trial,))
    return np.random.Generator(np.random.PCG64(seed))
