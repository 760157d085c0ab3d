"""Bugs on two ranks: real gloo processes."""

from importlib import import_module
from pathlib import Path

import pytest

from dpaudit_lab.bugzoo.processes import on_two_ranks


def test_noise_on_two_ranks_is_shared_repeated_or_missing_as_the_bugs_say(monkeypatch):
    """24,000 numbers of noise 2.25: five standard errors are 2.3 %, fixed seed."""
    monkeypatch.syspath_prepend(Path(__file__).parent)  # where ranks find what they run
    look = import_module("zoo_ranks").look
    names = ("honest", "noise-same-in-shards", "noise-after-reduce")
    honest, same, after = (on_two_ranks(look, name, 0) for name in names)

    assert honest["rank 0"] == pytest.approx(2.25, rel=0.025)
    assert honest["rank 1"] == pytest.approx(honest["rank 0"])
    assert honest["halves differ"] == pytest.approx(2.25 * 2**0.5, rel=0.035)

    assert same["rank 0"] == pytest.approx(2.25, rel=0.035)
    assert same["rank 1"] == pytest.approx(same["rank 0"])
    assert same["halves differ"] < 1e-4

    assert after["rank 0"] == pytest.approx(2.25, rel=0.025)
    assert after["rank 1"] < 1e-4
