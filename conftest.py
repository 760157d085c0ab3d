"""What all tests share, the package's and the lab's: no silent skips, one thread."""

import os

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Extras that do not go with all others: their examples run where their tests do; see
# tests/conftest.py.
APART = ("flower", "pfl")
_there = os.environ.get("DPAUDIT_TEST_EXTRAS", "").split()
collect_ignore = [
    f"src/dpaudit/training/{name}" for name in APART if name not in _there
]

# The same cases in every run, and no clock: a busy machine fails nothing.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")


# Modules whose tests take longest, much of it waiting. They come first, so that none of
# them is still running when the others are done.
LONGEST = (
    "lab/tests/sweeps/test_cluster.py",
    "lab/tests/calibration/test_table.py",
    "tests/dpsgd/test_plans_at_size.py",
    "lab/tests/bugzoo/test_zoo.py",
    "tests/dpsgd/test_planning.py",
    "lab/tests/power/test_power.py",
    "tests/accounting/test_curves.py",
    "tests/cli/test_plan.py",
    "tests/training/jax_privacy/test_audit.py",
    "tests/plugin/test_plugin.py",
    "lab/tests/measure/test_soak.py",
    "lab/tests/bugzoo/test_default.py",
    "lab/tests/bugzoo/test_ranks.py",
    "tests/training/opacus/test_ranks.py",
    "tests/training/test_noise.py",
    "tests/training/opacus/test_audit.py",
)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(LONGEST)))


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
