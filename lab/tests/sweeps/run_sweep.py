"""A sweep in a process of its own, to be killed: python run_sweep.py STORE [...].

``--kill-raylet`` runs it on a Ray cluster of its own, and kills the cluster's node.
"""

import os
import signal
import subprocess
import sys

import trials

from dpaudit.engines.local import LocalEngine
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep, run

SWEEP = Sweep(
    name="draw",
    revision=1,
    function=trials.draw,
    settings=[{"mean": 0.0, "seconds": 0.02}, {"mean": 5.0, "seconds": 0.02}],
    trials=100,
)


def raylets():
    """Return the raylets that this process started."""
    found = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [row.split() for row in found.stdout.splitlines()]
    return [int(pid) for pid, command in rows if command == "raylet"]


def kill_once(progress):
    """Kill the raylets on the way; there are none before the cluster is there."""
    if progress.done >= 40 and not KILLED:
        kill()


def kill():
    for pid in raylets():
        os.kill(pid, signal.SIGKILL)
        KILLED.append(pid)


KILLED = []

if __name__ == "__main__":
    with Store(sys.argv[1]) as store:
        if "--kill-raylet" in sys.argv:
            from dpaudit.engines.cluster import RayEngine

            engine = RayEngine(workers=1)  # each of three clusters starts its own
            run(SWEEP, engine=engine, store=store, progress=kill_once)
            kill()  # between two sweeps of one process
            found = sorted(engine.map(abs, range(-5, 0)))
            if found == [1, 2, 3, 4, 5]:
                print(f"killed {len(KILLED)} raylets, and went on", flush=True)
        else:
            run(SWEEP, engine=LocalEngine(workers=2), store=store)
