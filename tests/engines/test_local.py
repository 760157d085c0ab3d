"""The local engine: everything once, in any order, and never far ahead."""

import os
import time

import pytest
import trials

from dpaudit.engines import engine as engines
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import InvalidInputError, WorkerDiedError


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_comes_back_once(workers):
    found = LocalEngine(workers=workers).map(abs, range(-50, 0))
    assert sorted(found) == list(range(1, 51))


def test_tasks_run_in_other_processes():
    assert os.getpid() not in set(LocalEngine(workers=1).map(trials.process, range(3)))


def test_tasks_wait_until_results_are_consumed():
    pulled = []
    tasks = (pulled.append(i) or i for i in range(1000))
    results = LocalEngine(workers=2).map(abs, tasks)
    for consumed in range(1, 4):
        next(results)
        time.sleep(0.3)
        assert len(pulled) <= consumed + 4
    results.close()


def test_an_error_in_a_task_is_raised_here():
    with pytest.raises(RuntimeError, match="task 7"):
        list(LocalEngine(workers=1).map(trials.refuse, [7]))


def test_what_a_dying_worker_lost_is_run_again(tmp_path):
    tasks = [(tmp_path, number) for number in range(8)]
    found = list(LocalEngine(workers=2).map(trials.die_once, tasks))
    assert sorted(found) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_that_kills_every_worker_ends_the_run(monkeypatch):
    monkeypatch.setattr(engines, "DEATHS", 1)
    with pytest.raises(WorkerDiedError, match=r"died 2 times .* under way .*: 7"):
        list(LocalEngine(workers=1).map(trials.die, [7]))


def test_no_workers_is_refused():
    with pytest.raises(InvalidInputError, match="workers must be a whole number >= 1"):
        LocalEngine(workers=0)
