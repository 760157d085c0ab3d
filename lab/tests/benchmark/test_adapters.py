"""Audited training beside plain: the same network, and a real audit on top."""

import pytest
from torch import nn

from dpaudit_lab.benchmark.adapters import (
    KINDS,
    SMALL_KINDS,
    Kind,
    adapters,
    pair_trial,
    training,
)
from dpaudit_lab.sweeps.store import Store

TINY = Kind(
    inputs=4, hidden=5, layers=2, records=40, batch=8, mode="hooks", coordinates=10
)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_an_audited_training_ends_in_a_result_and_a_plain_one_has_no_audit():
    steps, audit = training(TINY, audited=True)
    steps(3)
    found = audit.finish()
    assert (found.training.steps, len(found.transcript.guess)) == (3, 10)
    _, none = training(TINY, audited=False)
    assert none is None


def test_parameters_are_counted():
    layers = [nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 10)]
    known = sum(p.numel() for layer in layers for p in layer.parameters())
    assert TINY.parameters == known
    assert round(KINDS["ghost"].parameters, -5) == 2_100_000


def test_a_pair_times_both():
    taken = pair_trial({"kind": "digits", "steps": 1}, None)
    assert taken["ours"] > 0
    assert taken["bare"] > 0


def test_rows_are_compared_with_plain_training():
    part = adapters(pairs=1, kinds=SMALL_KINDS)
    times, memory = part.sweeps()
    (setting,) = times.settings
    with Store(":memory:") as store:
        store.add(times.cell(setting), [(0, {"ours": 3.0, "bare": 2.0})])
        store.add(memory.cell(setting), [(0, {"ours": 8.0, "bare": 4.0})])
        ours, bare = part.rows(store)
    assert (ours.cost.ratio.middle, ours.cost.memory) == (1.5, 8.0)
    assert (bare.cost.ratio, bare.cost.seconds) == (None, 2.0)
    assert "1,000 canaries" in ours.size
