"""Sweeps beside the bare engine: the same trials, the time of every process."""

import subprocess
import sys
from functools import partial
from operator import mul

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.benchmark import engines
from dpaudit_lab.benchmark.engines import Load, pair
from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.processes import Tree, below
from dpaudit_lab.sweeps.store import Store

LOAD = Load(trials=7, milliseconds=0.1)


def test_a_pair_runs_all_trials_twice_and_counts_the_time_of_the_workers():
    ours, bare = pair("loky", Load(trials=4, milliseconds=50))
    # Work of about 0.2 s, whatever this machine calls a millisecond just now.
    assert ours > 0.05
    assert bare > 0.05


def test_a_bare_engine_that_loses_trials_is_told_of(monkeypatch):
    monkeypatch.setattr(engines, "bare", lambda *_: 3)
    monkeypatch.setattr(engines, "swept", lambda *_: [4])
    with pytest.raises(RuntimeError, match="lost trials"):
        pair("loky", Load(trials=4, milliseconds=0.1))


def test_rows_are_compared_with_the_bare_engine():
    part = engines.engines(pairs=2, loads=(LOAD,))
    times, memory = part.sweeps()
    with Store(":memory:") as store:
        for setting in times.settings:
            found = [(0, {"ours": 3.0, "bare": 2.0}), (1, {"ours": 5.0, "bare": 2.0})]
            store.add(times.cell(setting), found)
            store.add(memory.cell(setting), [(0, {"ours": 8.0, "bare": 4.0})])
        rows = part.rows(store)
        assert engines.engines(pairs=0, loads=(LOAD,)).rows(store) == []
    ours = [row for row in rows if row.ours]
    assert len(ours) == len(rows) / 2 == len(times.settings)
    for row in ours:
        assert (row.cost.seconds, row.cost.memory) == (4.0, 8.0)
        assert row.cost.ratio.middle == 2.0
    assert ours[0].size == "7 trials of 0.1 ms"


def test_the_time_of_children_is_counted():
    tree = Tree()
    before = tree.cpu()
    busy = (
        "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert any(each.pid == child.pid for each in below(child.pid))
        during = tree.cpu()
        child.communicate(b"\n")
    assert during - before > 0.4
    assert tree.cpu() >= during


def test_memory_is_what_the_work_adds():
    """Four times 16 MB, by functions that a process of its own knows."""
    megabytes = growth(partial(bytes, 2**24), partial(mul, 4))
    assert 60 < megabytes < 80  # 64 of them, and what an interpreter needs


@pytest.mark.parametrize(("trials", "milliseconds"), [(0, 1.0), (1, 0.0)])
def test_a_load_of_nothing_is_refused(trials, milliseconds):
    with pytest.raises(InvalidInputError):
        Load(trials=trials, milliseconds=milliseconds)
