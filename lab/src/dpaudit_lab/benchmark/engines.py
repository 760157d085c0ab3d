"""Sweeps beside the engines that run them: loky, and Ray's tasks.

The same trials, in the same batches, on the same two workers: once as a sweep, with its
store and its retries, once by the bare engine, with nothing kept. What is compared is
the CPU time of the whole process tree, and the memory of the process that hands the
trials out.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dpaudit import _validate
from dpaudit.engines.engine import ONE_THREAD, Engine
from dpaudit_lab.benchmark.costs import BARE, Costs, not_installed
from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.processes import PROC, Tree
from dpaudit_lab.benchmark.row import Part
from dpaudit_lab.benchmark.work import work
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, run

__all__ = [
    "LOADS",
    "SMALL_LOADS",
    "WORKERS",
    "Load",
    "bare",
    "engine_named",
    "engines",
    "pair",
    "rounds_for",
    "swept",
]

WORKERS: Final = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many trials that use the CPU for so many milliseconds each.

    Attributes:
        trials: How many.
        milliseconds: Of CPU time, about.
    """

    trials: int
    milliseconds: float

    def __post_init__(self) -> None:
        _validate.whole_number("trials", self.trials, least=1)
        _validate.positive("milliseconds", self.milliseconds)


LOADS: Final = (Load(trials=2000, milliseconds=1),)
SMALL_LOADS: Final = (Load(trials=8, milliseconds=1),)


@cache
def rounds_for(milliseconds: float) -> int:
    """Return how many rounds of work take so long here."""
    rng, rounds = np.random.default_rng(0), 2000
    before = os.times().user
    work({"rounds": rounds}, rng)
    return max(1, round(rounds * milliseconds / 1000 / (os.times().user - before)))


@dataclass(slots=True)
class _Noted:
    """An engine that notes how many trials came back in each batch."""

    engine: Engine
    sizes: list[int]

    def map(self, function: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[Any]:
        for result in self.engine.map(function, tasks):
            self.sizes.append(result.trials)
            yield result


def swept(engine: Engine, load: Load) -> list[int]:
    """Run the trials as a sweep; return the sizes of its batches."""
    noted = _Noted(engine=engine, sizes=[])
    planned = Sweep(
        name="work",
        revision=1,
        function=work,
        settings=[{"rounds": rounds_for(load.milliseconds)}],
        trials=load.trials,
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s") as store:
        run(planned, engine=noted, store=store)
    return noted.sizes


def _script_batch() -> Callable[[int, int, int], list[float]]:
    """Return what runs some trials as a script would that knows nothing of dpaudit.

    It is made here so that it travels to the workers whole, and they import no more
    than it does.
    """

    def batch(rounds: int, first: int, size: int) -> list[float]:
        import numpy as np  # noqa: PLC0415 (there)

        found = []
        for trial in range(first, first + size):
            rng, total = np.random.default_rng([7, trial]), 0.0
            for _ in range(rounds):
                total += float(rng.standard_normal(1000).sum())
            found.append(total)
        return found

    return batch


def bare(name: str, load: Load, sizes: list[int]) -> int:
    """Run the trials by the bare engine, in such batches; return how many were run."""
    starts = np.cumsum([0, *sizes[:-1]])
    tasks = iter([(int(s), n) for s, n in zip(starts, sizes, strict=True)])
    return _BARE[name](rounds_for(load.milliseconds), tasks)


def _bare_loky(rounds: int, tasks: Iterator[tuple[int, int]]) -> int:
    import loky  # noqa: PLC0415 (an extra)

    pool = loky.ProcessPoolExecutor(max_workers=WORKERS, env=dict(ONE_THREAD))
    batch, done, under_way = _script_batch(), 0, set[Future[list[float]]]()
    while True:
        for task in islice(tasks, 2 * WORKERS - len(under_way)):
            under_way.add(pool.submit(batch, rounds, *task))
        if not under_way:
            break
        finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        done += sum(len(future.result()) for future in finished)
    pool.shutdown(wait=True, kill_workers=True)
    return done


def _bare_ray(rounds: int, tasks: Iterator[tuple[int, int]]) -> int:
    import ray  # noqa: PLC0415 (an extra)

    remote: Any = ray.remote(_script_batch())
    done = 0
    under_way: list[Any] = []
    while True:
        for task in islice(tasks, 2 * WORKERS - len(under_way)):
            under_way.append(remote.remote(rounds, *task))
        if not under_way:
            return done
        (ready,), under_way = ray.wait(under_way, num_returns=1)
        done += len(ray.get(ready))


_BARE: Final = {"loky": _bare_loky, "ray": _bare_ray}


def engine_named(name: str) -> Engine:
    """Return our engine that runs trials by loky or by Ray."""
    if name == "ray":
        from dpaudit.engines.cluster import RayEngine  # noqa: PLC0415 (an extra)

        return RayEngine(workers=WORKERS)
    from dpaudit.engines.local import LocalEngine  # noqa: PLC0415 (an extra)

    return LocalEngine(workers=WORKERS)


@cache
def _warm(name: str) -> tuple[Engine, Tree]:
    """Return an engine that has run something: Ray connects, and starts its workers."""
    engine = engine_named(name)
    for _ in engine.map(abs, range(10)):
        pass
    return engine, Tree()


def pair(name: str, load: Load) -> tuple[float, float]:
    """Return the CPU seconds of a sweep and of the bare engine, one after the other."""
    engine, tree = _warm(name)
    rounds_for(load.milliseconds)
    before = tree.cpu()
    sizes = swept(engine, load)
    between = tree.cpu()
    if bare(name, load, sizes) != load.trials:
        raise RuntimeError("the bare engine lost trials")
    return between - before, tree.cpu() - between


def pair_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time a sweep and the bare engine in turn."""
    del rng
    ours, theirs = pair(str(setting["engine"]), _load(setting))
    return {"ours": ours, BARE: theirs}


def memory_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Measure the memory of a sweep and of the bare engine, each in its process."""
    del rng
    name, load = str(setting["engine"]), _load(setting)
    ready = partial(_ready, name)
    # Batches of about a second's work, as a sweep hands them out.
    size = max(1, min(load.trials, round(1000 / load.milliseconds)))
    sizes = [size] * (load.trials // size)
    return {
        "ours": growth(ready, partial(_swept_there, load)),
        BARE: growth(ready, partial(_bare_there, load, sizes)),
    }


def _ready(name: str) -> str:
    _warm(name)
    return name


def _swept_there(load: Load, name: str) -> object:
    return swept(_warm(name)[0], load)


def _bare_there(load: Load, sizes: list[int], name: str) -> object:
    return bare(name, load, sizes)


def engines(*, pairs: int = 20, loads: tuple[Load, ...] = LOADS) -> Costs:
    """Return the comparison of sweeps with the engines that run them.

    Args:
        pairs: How often each is timed.
        loads: What they run.
    """
    there = [name for name in _EXTRAS if find_spec(name) and PROC.exists()]
    return Costs(
        part=Part.SWEEPS,
        settings=[
            {
                "engine": name,
                "version": version(name),
                "trials": load.trials,
                "milliseconds": float(load.milliseconds),
            }
            for name in there
            for load in loads
        ],
        times=pair_trial,
        memory=memory_trial,
        size=lambda s: f"{s['trials']:,} trials of {s['milliseconds']:g} ms",
        names=_names,
        missing=tuple(_missing(name) for name in _EXTRAS if name not in there),
        pairs=pairs,
    )


def _names(setting: Setting) -> dict[str, str]:
    engine = f"{setting['engine']} {setting['version']}"
    return {"ours": f"a sweep by {engine}", BARE: f"{engine}, bare"}


def _missing(name: str) -> str:
    if not PROC.exists():
        return f"sweeps by {name} are left out: their time is read from {PROC} of Linux"
    return not_installed(name, _EXTRAS[name])


_EXTRAS: Final = {"loky": "sweep", "ray": "ray"}


def _load(setting: Setting) -> Load:
    return Load(
        trials=int(setting["trials"] or 0),
        milliseconds=float(setting["milliseconds"] or 0),
    )
