"""Sweeps: the same rows for any number of workers and after any death."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import run_sweep
import trials

from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import Sweep, run

SWEEP = Sweep(
    name="draw",
    revision=1,
    function=trials.draw,
    settings=[{"mean": 0.0}, {"mean": 5.0}],
    trials=40,
)


class InOrder:
    """An engine that runs everything here, one after the other."""

    def map(self, function, tasks):
        return map(function, tasks)


def rows(sweep, engine):
    with Store(":memory:") as store:
        run(sweep, engine=engine, store=store)
        return list(store.rows())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_rows_do_not_depend_on_the_workers(workers):
    assert rows(SWEEP, LocalEngine(workers=workers)) == rows(SWEEP, InOrder())


def test_trials_are_independent_draws():
    """Fixed seeds; the limits would fail one choice of seeds in 15,000 each."""
    with Store(":memory:") as store:
        run(SWEEP, engine=InOrder(), store=store)
        for setting in SWEEP.settings:
            x = np.array([o["x"] for o in store.outcomes(SWEEP.cell(setting))])
            assert len(set(x)) == 40
            assert abs(x.mean() - setting["mean"]) < 4 / np.sqrt(40)


def test_a_new_revision_draws_anew():
    newer = Sweep(**{f: getattr(SWEEP, f) for f in Sweep.__slots__} | {"revision": 2})
    old = {row[4] for row in rows(SWEEP, InOrder())}
    assert old.isdisjoint(row[4] for row in rows(newer, InOrder()))


def test_only_what_is_missing_is_run():
    class Counting(InOrder):
        ran = 0

        def map(self, function, tasks):
            for task in tasks:
                Counting.ran += len(task.trials)
                yield function(task)

    more = Sweep(**{f: getattr(SWEEP, f) for f in Sweep.__slots__} | {"trials": 50})
    seen = []
    with Store(":memory:") as store:
        run(SWEEP, engine=InOrder(), store=store)
        run(more, engine=Counting(), store=store, progress=lambda *p: seen.append(p))
        assert list(store.rows()) == rows(more, InOrder())
    assert Counting.ran == 20
    assert seen[0] == (80, 100)
    assert seen[-1] == (100, 100)


def test_a_batch_is_about_a_second_of_work():
    sizes = []

    class Watching(InOrder):
        def map(self, function, tasks):
            for task in tasks:
                sizes.append(len(task.trials))
                yield function(task)

    slow = Sweep(
        name="draw",
        revision=1,
        function=trials.draw,
        settings=[{"mean": 0.0, "seconds": 0.2}],
        trials=12,
    )
    rows(slow, Watching())
    assert sizes[0] == 1
    assert max(sizes) in (3, 4, 5)


def test_a_sweep_killed_with_9_resumes_to_the_same_rows(tmp_path):
    path = tmp_path / "s.sqlite"
    command = [sys.executable, str(Path(run_sweep.__file__)), str(path)]
    process = subprocess.Popen(command, start_new_session=True)
    while stored(path) < 20 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 20 <= stored(path) < 200
    subprocess.run(command, check=True)
    with Store(path) as store:
        assert list(store.rows()) == rows(run_sweep.SWEEP, InOrder())


def stored(path):
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return connection.execute("select count(*) from trials").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def test_a_trial_that_raises_ends_the_sweep_with_its_error():
    failing = Sweep(
        name="fail", revision=1, function=trials.fail, settings=[{"a": 1}], trials=2
    )
    with Store(":memory:") as store, pytest.raises(RuntimeError, match="no trial in"):
        run(failing, engine=LocalEngine(workers=1), store=store)
