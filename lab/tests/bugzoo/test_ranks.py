"""Bugs on two ranks: real gloo processes."""

from importlib import import_module
from pathlib import Path

import pytest

from dpaudit_lab.bugzoo.processes import on_two_ranks

pytestmark = pytest.mark.nightly


def test_noise_on_two_ranks_is_shared_repeated_or_missing_as_the_bugs_say(monkeypatch):
    """24,000 numbers of noise 2.25: five standard errors are 2.3 %, fixed seed."""
    monkeypatch.syspath_prepend(Path(__file__).parent)  # where ranks find what they run
    look_at_all = import_module("zoo_ranks").look_at_all
    found = on_two_ranks(
        look_at_all, "honest noise-same-in-shards noise-after-reduce", 0
    )

    honest = found["honest: rank 0"]
    assert honest == pytest.approx(2.25, rel=0.025)
    assert found["honest: rank 1"] == pytest.approx(honest)
    halves = found["honest: halves differ"]
    assert halves == pytest.approx(2.25 * 2**0.5, rel=0.035)

    same = found["noise-same-in-shards: rank 0"]
    assert same == pytest.approx(2.25, rel=0.035)
    assert found["noise-same-in-shards: rank 1"] == pytest.approx(same)
    assert found["noise-same-in-shards: halves differ"] < 1e-4

    assert found["noise-after-reduce: rank 0"] == pytest.approx(2.25, rel=0.025)
    assert found["noise-after-reduce: rank 1"] < 1e-4
