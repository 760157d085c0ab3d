"""The Ray engine, on a real cluster of this machine's own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import divided_tallies
import pytest
import ray
import run_sweep
import trials

from dpaudit.engines import engine as engines
from dpaudit.engines.cluster import RayEngine
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import InvalidInputError, UnreachableError, WorkerDiedError
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep, run

pytestmark = pytest.mark.nightly

ENGINE = RayEngine(workers=2)

# Ray asks a node five times before it calls it dead: every 3 s, unless told otherwise.
QUICK = {
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_initial_delay_ms": "1000",
}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Start the cluster of these tests; its address is for other processes."""
    list(ENGINE.map(abs, [0]))
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def test_every_task_comes_back_once():
    assert sorted(ENGINE.map(abs, range(-50, 0))) == list(range(1, 51))


def test_tasks_run_in_other_processes():
    assert os.getpid() not in set(ENGINE.map(trials.process, range(3)))


def test_tasks_wait_until_results_are_consumed():
    pulled = []
    tasks = (pulled.append(i) or i for i in range(1000))
    results = ENGINE.map(abs, tasks)
    for consumed in range(1, 4):
        next(results)
        time.sleep(0.3)
        assert len(pulled) <= consumed + 4
    results.close()


def test_an_error_in_a_task_is_raised_here():
    with pytest.raises(RuntimeError, match="task 7"):
        list(ENGINE.map(trials.refuse, [7]))


def test_what_a_dying_worker_lost_is_run_again(tmp_path):
    tasks = [(tmp_path, number) for number in range(8)]
    assert sorted(ENGINE.map(trials.die_once, tasks)) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_that_kills_every_worker_ends_the_run(monkeypatch):
    monkeypatch.setattr(engines, "DEATHS", 1)
    with pytest.raises(WorkerDiedError, match=r"died 2 times .* under way .*: 7"):
        list(ENGINE.map(trials.die, [7]))


def test_the_rows_are_those_of_the_local_engine():
    sweep = Sweep(
        name="draw",
        revision=1,
        function=trials.draw,
        settings=[{"mean": 0.0}, {"mean": 5.0}],
        trials=40,
    )
    found = []
    for engine in (ENGINE, LocalEngine(workers=1)):
        with Store(":memory:") as store:
            run(sweep, engine=engine, store=store)
            found.append(list(store.rows()))
    assert found[0] == found[1]
    assert len(found[0]) == 80


def test_tallies_are_those_of_one_pass(tmp_path):
    divided_tallies.check(ENGINE, divided_tallies.write_files(tmp_path))


def test_a_cluster_whose_node_is_killed_is_made_anew(tmp_path):
    """In a process of its own: it kills the raylet that it is connected through."""
    path = tmp_path / "s.sqlite"
    script = Path(run_sweep.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(path), "--kill-raylet"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | QUICK,
    )
    assert done.returncode == 0, done.stderr
    assert "killed 2 raylets, and went on" in done.stdout
    with Store(path) as store, Store(":memory:") as undisturbed:
        run(run_sweep.SWEEP, engine=LocalEngine(workers=1), store=undisturbed)
        assert list(store.rows()) == list(undisturbed.rows())


def test_a_trial_that_kills_its_worker_is_found_and_the_others_are_run(monkeypatch):
    """No death is forgiven: whether some are is shown above, and each takes seconds."""
    monkeypatch.setattr(engines, "DEATHS", 0)
    sweep = Sweep(
        name="odd",
        revision=1,
        function=trials.odd,
        settings=[{"what": "die"}],
        trials=6,
    )
    cell = sweep.cell(sweep.settings[0])
    with Store(":memory:") as store:
        assert run(sweep, engine=ENGINE, store=store).failed == 1
        assert store.missing(cell, 6) == [2]


def test_fewer_workers_than_the_cluster_has_are_all_that_run():
    """The cluster of these tests has two processors."""
    assert RayEngine(workers=1)._most() == 1
    assert RayEngine(workers=2)._most() == RayEngine()._most() == 4


def test_workers_have_one_thread():
    assert set(ENGINE.map(trials.threads, range(2))) == {("1", "1", "1")}


def test_workers_have_one_thread_though_somebody_else_connected(cluster):
    """In a process of its own, as this one is connected by the engine."""
    script = (
        "import os, ray, sys, trials\n"
        "from dpaudit.engines.cluster import RayEngine\n"
        "paths = {'env_vars': {'PYTHONPATH': os.environ['PYTHONPATH']}}\n"
        "ray.init(address=sys.argv[1], runtime_env=paths)\n"
        "print(set(RayEngine(workers=1).map(trials.threads, range(2))))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(trials.__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", script, cluster],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.strip() == "{('1', '1', '1')}"


def test_a_cluster_that_is_not_there_is_named():
    """In a process of its own, as this one is connected."""
    script = (
        "from dpaudit.engines.cluster import RayEngine\n"
        "list(RayEngine(address='127.0.0.1:1').map(abs, [1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    name = f"{UnreachableError.__module__}.{UnreachableError.__name__}"
    assert f"{name}: no Ray cluster could be reached at 127.0.0.1:1" in done.stderr


def test_no_workers_is_refused():
    with pytest.raises(InvalidInputError, match="workers must be a whole number >= 1"):
        RayEngine(workers=0)
