"""A sweep in a process of its own, to be killed: python run_sweep.py STORE."""

import sys

import trials

from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import Sweep, run

SWEEP = Sweep(
    name="draw",
    revision=1,
    function=trials.draw,
    settings=[{"mean": 0.0, "seconds": 0.02}, {"mean": 5.0, "seconds": 0.02}],
    trials=100,
)

if __name__ == "__main__":
    with Store(sys.argv[1]) as store:
        run(SWEEP, engine=LocalEngine(workers=2), store=store)
