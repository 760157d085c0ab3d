"""Sweeps that are killed on the way, and what is in their stores after resuming.

    python lab/measure/faults.py --store faults.sqlite         # run or resume
    python lab/measure/faults.py --sweeps 1                    # a quick look

A sweep of 2,000 trials of 20 ms runs on two workers, and at five random moments of it
something is killed with -9: a local worker, a Ray worker, the raylet (Ray's process of
the node), or the driver. A driver that does not end with success is started again. At
the end the store is compared, row by row, with that of an undisturbed sweep in this
process. Six sweeps, so 30 kills, of each kind. Exits with 1 if a store differs, if
fewer were killed, or if a driver did not survive the death of a worker.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from sweeping import stored

from dpaudit.engines.cluster import RayEngine
from dpaudit.engines.engine import Engine
from dpaudit.engines.local import LocalEngine
from dpaudit_lab.benchmark.processes import below
from dpaudit_lab.sweeps.progress import watched
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, run

T = TypeVar("T")
R = TypeVar("R")

KILLS: Final = 5  # in each sweep
VICTIMS: Final = ("local worker", "Ray worker", "raylet", "driver")
_TRIALS: Final = 2000
_LIMIT_SECONDS: Final = 600


class Here:
    """An engine that runs everything in this process, one after the other."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results."""
        return map(function, tasks)


def draw(setting: Setting, rng: np.random.Generator) -> Outcome:
    time.sleep(float(setting["seconds"] or 0))
    return {"x": float(rng.normal()), "y": float(rng.random())}


def disturbed() -> Sweep:
    settings = [{"case": case, "seconds": 0.02} for case in range(10)]
    return Sweep(name="draw", revision=1, function=draw, settings=settings, trials=200)


def drive(path: Path, engine: str) -> None:
    """Run the sweep that is to be killed."""
    chosen: Engine = RayEngine(workers=2) if engine == "ray" else LocalEngine(workers=2)
    with Store(path) as store:
        run(disturbed(), engine=chosen, store=store)


def several_kills(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Run a sweep, kill something of it five times, and look at the store."""
    victim = str(setting["victim"])
    killed, starts = 0, 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draws.sqlite"
        driver = start(path, victim)
        for at in sorted(rng.integers(1, 0.9 * _TRIALS, KILLS)):
            while stored(path) < max(at, _TRIALS * (driver.poll() is not None)):
                if driver.poll() is not None:  # killed, or dead of something else
                    driver, starts = start(path, victim), starts + 1
                if starts > 2 * KILLS:
                    raise RuntimeError(path.with_suffix(".log").read_text())
                time.sleep(0.05)
            time.sleep(float(rng.uniform(0, 0.5)))
            # A raylet that was killed a moment ago may not have a successor yet.
            hit = False
            while not hit and driver.poll() is None:
                hit = kill(driver, victim, rng)
                time.sleep(0.0 if hit else 0.5)
            killed += hit
        while driver.wait(_LIMIT_SECONDS) != 0:
            driver, starts = start(path, victim), starts + 1
            if starts > 2 * KILLS:
                raise RuntimeError(path.with_suffix(".log").read_text())
        with Store(path) as store:
            found = list(store.rows())
    return {
        "killed": killed,
        "starts": starts,
        "trials": len(found),
        "identical": found == undisturbed(),
    }


def start(path: Path, victim: str) -> "subprocess.Popen[bytes]":
    engine = "local" if victim in ("local worker", "driver") else "ray"
    with path.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--drive", str(path), "--engine", engine],
            stdout=log,
            stderr=log,
        )


def kill(
    driver: "subprocess.Popen[bytes]", victim: str, rng: np.random.Generator
) -> bool:
    """Kill one process of the kind; return whether there was one."""
    marks = {"local worker": "loky", "Ray worker": "ray::_call", "raylet": "/raylet "}
    if victim == "driver":
        found = [driver.pid] if driver.poll() is None else []
    else:
        # Ray renames a worker while it runs a task; loky's helper is no worker.
        found = [
            process.pid
            for process in below(driver.pid)
            if marks[victim] in process.command
            and "resource_tracker" not in process.command
        ]
    if not found:
        return False
    try:
        os.kill(int(rng.choice(found)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@cache
def undisturbed() -> list[tuple[str, int, str, int, str]]:
    """Return what the store must hold, from a sweep in this process alone."""
    with Store(":memory:") as store:
        run(disturbed(), engine=Here(), store=store)
        return list(store.rows())


def report(planned: Sweep, store: Store) -> bool:
    """Print what was found; return whether all of it is as it should be."""
    fine = True
    for setting in planned.settings:
        victim = str(setting["victim"])
        found = list(store.outcomes(planned.cell(setting), planned.trials))
        killed = sum(o["killed"] for o in found)
        same = sum(o["identical"] and o["trials"] == _TRIALS for o in found)
        again = sum(o["starts"] - 1 for o in found)
        fine &= killed >= min(30, KILLS * planned.trials) and same == planned.trials
        # Ray can take a driver down with its raylet; then it is resumed as well.
        fine &= victim in {"raylet", "driver"} or again == 0
        print(
            f"{victim}: {killed} killed in {len(found)} sweeps of {_TRIALS} trials; "
            f"drivers started again {again} times; {same} of {planned.trials} stores "
            "identical to an undisturbed one"
        )
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sweeps", type=int, default=6)
    parser.add_argument("--store", type=Path, default=Path("faults.sqlite"))
    parser.add_argument("--only", choices=VICTIMS)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(args.drive, args.engine)
        return
    victims = [args.only] if args.only else VICTIMS
    planned = Sweep(
        name="kills",
        revision=3,
        function=several_kills,
        settings=[{"victim": victim} for victim in victims],
        trials=args.sweeps,
    )
    with Store(args.store) as store:
        with watched("killing") as progress:
            run(planned, engine=Here(), store=store, progress=progress)
        sys.exit(not report(planned, store))


if __name__ == "__main__":
    main()
