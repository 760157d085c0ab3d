"""What a sweep costs beyond the engine that runs it.

    python benchmarks/overhead.py --engine local
    python benchmarks/overhead.py --engine ray
    python benchmarks/overhead.py --engine local --pairs 2       # a quick look

The same trials, in the same batches, on the same two workers: once as a sweep with its
store, once by the bare engine (loky, or Ray's tasks), with nothing kept. Trials use the
CPU for 50 ms (400 of them; limit 1.05) or 1 ms (10,000; limit 1.5). Median ratio of the
CPU time of the whole process tree over interleaved pairs, with a bootstrap interval; a
limit holds if the interval's lower end is within it. Exits with 1 if one does not.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

import loky
import numpy as np
import ray
from processes import below

from dpaudit.engines.cluster import RayEngine
from dpaudit.engines.engine import Engine
from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep, run
from dpaudit.experiments.power.timing import median_ratio

WORKERS: Final = 2


def work(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Draw and add up numbers, so often."""
    total = 0.0
    for _ in range(int(setting["rounds"] or 0)):
        total += float(rng.standard_normal(1000).sum())
    return {"x": total}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many trials of so many milliseconds, and what a sweep may cost."""

    trials: int
    milliseconds: float
    limit: float


LOADS: Final = (
    Load(trials=400, milliseconds=50, limit=1.05),
    Load(trials=10_000, milliseconds=1, limit=1.5),
)


@dataclass(slots=True)
class Noted:
    """An engine that notes how many trials came back in each batch."""

    engine: Engine
    sizes: list[int]

    def map(self, function: Callable[..., Any], tasks: Any) -> Any:  # noqa: ANN401
        """Yield the function's results."""
        for result in self.engine.map(function, tasks):
            self.sizes.append(result.trials)
            yield result


def swept(engine: Engine, load: Load, setting: Setting) -> list[int]:
    """Run the trials as a sweep; return the sizes of its batches."""
    noted = Noted(engine=engine, sizes=[])
    planned = Sweep(
        name="work", revision=1, function=work, settings=[setting], trials=load.trials
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s") as store:
        run(planned, engine=noted, store=store)
    return noted.sizes


def batch(setting: Setting, first: int, size: int) -> list[Outcome]:
    """Run some trials as a script without a sweep would."""
    return [
        work(setting, np.random.default_rng([7, trial]))
        for trial in range(first, first + size)
    ]


def bare_local(setting: Setting, sizes: list[int]) -> int:
    starts = np.cumsum([0, *sizes[:-1]])
    tasks = iter([(int(s), n) for s, n in zip(starts, sizes, strict=True)])
    env = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    pool = loky.ProcessPoolExecutor(max_workers=WORKERS, env=env)
    done, under_way = 0, set()
    while True:
        for task in islice(tasks, 2 * WORKERS - len(under_way)):
            under_way.add(pool.submit(batch, setting, *task))
        if not under_way:
            break
        finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        done += sum(len(future.result()) for future in finished)
    pool.shutdown(wait=True, kill_workers=True)
    return done


def bare_ray(setting: Setting, sizes: list[int]) -> int:
    starts = np.cumsum([0, *sizes[:-1]])
    tasks = iter([(int(s), n) for s, n in zip(starts, sizes, strict=True)])
    remote = ray.remote(batch)
    done, under_way = 0, []
    while True:
        for task in islice(tasks, 2 * WORKERS - len(under_way)):
            under_way.append(remote.remote(setting, *task))
        if not under_way:
            return done
        (ready,), under_way = ray.wait(under_way, num_returns=1)
        done += len(ray.get(ready))


class Tree:
    """The CPU time of this process and all it started, also of those that ended.

    Ray's workers come and go, and nobody waits for them: their time is read three times
    a second while they live.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.33)

    def _look(self) -> None:
        for process in below(os.getpid()):
            with self._lock:
                self._last[process.pid, process.born] = process.seconds

    def cpu(self) -> float:
        """Return the seconds so far."""
        self._look()
        with self._lock:
            return sum(self._last.values())


def rounds_for(milliseconds: float) -> int:
    """Return how many rounds of work take so long here."""
    rng, rounds = np.random.default_rng(0), 2000
    before = os.times().user
    work({"rounds": rounds}, rng)
    return max(1, round(rounds * milliseconds / 1000 / (os.times().user - before)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--load", type=int, choices=[0, 1], help="only this one")
    args = parser.parse_args()
    engine: Engine = LocalEngine(workers=WORKERS)
    bare = bare_local
    if args.engine == "ray":
        engine, bare = RayEngine(workers=WORKERS), bare_ray
        list(engine.map(abs, range(10)))  # connects, and starts the workers
    within, tree = True, Tree()
    for load in LOADS if args.load is None else [LOADS[args.load]]:
        setting = {"rounds": rounds_for(load.milliseconds)}
        swept(engine, load, setting)  # warms both up
        ratios = []
        for pair in range(args.pairs):
            before = tree.cpu()
            sizes = swept(engine, load, setting)
            between = tree.cpu()
            if bare(setting, sizes) != load.trials:
                raise SystemExit("the bare engine lost trials")
            ratios.append((between - before) / (tree.cpu() - between))
            print(f"pair {pair}: {ratios[-1]:.3f}", file=sys.stderr, flush=True)
        middle, low, high = median_ratio(ratios)
        within &= low <= load.limit
        print(
            f"{args.engine}: {load.trials} trials of {load.milliseconds:g} ms in "
            f"{len(sizes)} batches: {middle:.3f} [{low:.3f}, {high:.3f}] of the bare "
            f"engine's CPU time, {len(ratios)} pairs (limit {load.limit:g})"
        )
    sys.exit(not within)


if __name__ == "__main__":
    main()
