"""What all tests share, the package's and the lab's: no silent skips, one thread."""

import os

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same cases in every run, and no clock: a busy machine fails nothing.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; no test here may skip"
    return report
