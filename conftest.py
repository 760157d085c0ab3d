"""What all tests share, the package's and the lab's: no silent skips, one thread."""

import os

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Extras that do not go with all others: their examples run where their tests do; see
# tests/conftest.py.
APART = {
    "flower": "training/flower",
    "opendp": "testing/opendp.py",
    "pfl": "training/pfl",
}
_there = os.environ.get("DPAUDIT_TEST_EXTRAS", "").split()
collect_ignore = [
    f"src/dpaudit/{path}" for name, path in APART.items() if name not in _there
]

# The same cases in every run, and no clock: a busy machine fails nothing.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch):
    """Let each test use the keys of others; within one, a key has one output.

    Keys that are to have several are fixed ones, dpaudit.testing.fixed_key.
    """
    monkeypatch.setattr("dpaudit.game.key_use._USES", {})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; no test here may skip"
    return report
