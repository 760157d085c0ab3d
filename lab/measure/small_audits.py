"""Many small audits of real Opacus runs, honest and with a quarter of the noise.

    python lab/measure/small_audits.py --store audits.sqlite   # run or resume
    python lab/measure/small_audits.py --check                 # three times, compared

The first form prints how often each kind of run was refuted, with exact 99 % limits.
``--check`` runs the sweep with one worker, with two, and with two but killed with
``kill -9`` on the way and resumed, and compares the three stores row by row.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sweeping import filled, stored

from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples")


def small_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train digits for twenty steps with canaries, and say what came of it."""
    if EXAMPLES not in sys.path:
        sys.path.insert(0, EXAMPLES)
    from opacus_digits import train_and_audit  # noqa: PLC0415 (worker's own path)

    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result, accounted = train_and_audit(
            epochs=2,
            divide_noise_by=setting["divide_noise_by"],
            canaries=1000,
            key=fixed_key(rng.bytes(32)),
            publish=lambda _: None,
        )
    return {
        "correct": result.reading.correct,
        "epsilon_lower": result.bound.epsilon_lower,
        "p_value": result.p_value,
        "refuted": result.refuted,
        "accounted": accounted,
    }


def sweep(trials: int) -> Sweep:
    settings = [{"divide_noise_by": 1}, {"divide_noise_by": 4}]
    return Sweep(
        name="small_audit",
        revision=2,
        function=small_audit,
        settings=settings,
        trials=trials,
    )


def report(trials: int, store: Store) -> None:
    for setting in sweep(trials).settings:
        found = list(store.outcomes(sweep(trials).cell(setting)))
        refuted = sum(o["refuted"] for o in found)
        low, high = rate_limits(refuted, len(found), alpha=0.01)
        bounds = np.array([o["epsilon_lower"] for o in found])
        spread = bounds.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
        print(
            f"noise / {setting['divide_noise_by']}: claim refuted in {refuted} of "
            f"{len(found)} runs, rate {refuted / len(found):.3f} "
            f"[{low:.3f}, {high:.3f}] (99 %), mean bound {bounds.mean():.3f} "
            f"± {spread:.3f}, accountant {found[0]['accounted']:.3f}"
        )


def kill_on_the_way(trials: int, path: Path) -> None:
    """Start the sweep, kill it with -9 at a random moment of its middle."""
    goal = random.Random(trials).uniform(0.2, 0.8) * 2 * trials
    command = [sys.executable, __file__, f"--trials={trials}", f"--store={path}"]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL
    )
    while process.poll() is None and stored(path) < goal:
        time.sleep(0.1)
    if process.poll() is not None:
        sys.exit("the sweep ended before it could be killed")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    print(f"killed with {stored(path)} of {2 * trials} audits in the store")


def check(trials: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for name, workers in (("one worker", 1), ("two workers", 2), ("killed", 2)):
            path = Path(folder) / f"{name}.sqlite"
            if name == "killed":
                kill_on_the_way(trials, path)
            start = time.monotonic()
            with filled(sweep(trials), path, workers=workers, doing="audits") as store:
                rows[name] = list(store.rows())
                if name == "one worker":
                    report(trials, store)
            print(f"{name}: {len(rows[name])} rows, {time.monotonic() - start:.0f} s")
    if not rows["one worker"] == rows["two workers"] == rows["killed"]:
        sys.exit("the stores differ")
    print("identical stores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=200, help="audits of each kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("small_audits.sqlite"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.trials)
    else:
        with filled(
            sweep(arguments.trials),
            arguments.store,
            workers=arguments.workers,
            doing="audits",
        ) as store:
            report(arguments.trials, store)


if __name__ == "__main__":
    main()
