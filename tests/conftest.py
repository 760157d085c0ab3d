"""What every test shares: which extras are tested, no silent skips, one thread."""

import os

import hypothesis
import pytest

# An extra's tests are collected unless the run says that it is absent on purpose:
# DPAUDIT_TEST_EXTRAS="" tests the core alone. A missing package is an error otherwise.
_TALLIES = ("tallies_divided", "tallies_parquet", "tallies_ties")
_NEEDS = {
    "accounting": ["accounting"],
    "opacus": [
        *(f"training/{name}" for name in ("opacus", "black_box", "bugzoo")),
        "testing/conformance/test_opacus_adapter.py",
        "experiments/benchmark/test_adapters.py",
        "reporting/loggers/test_tensorboard.py",
    ],
    "jax": ["training/jax_privacy"],
    "lightning": ["training/opacus/test_lightning.py"],
    "huggingface": [
        "training/opacus/test_huggingface.py",
        "reporting/test_model_card_huggingface.py",
    ],
    "mlflow": ["reporting/loggers/test_mlflow.py"],
    "tensorboard": ["reporting/loggers/test_tensorboard.py"],
    "report": [
        *(f"reporting/{name}" for name in ("report", "loggers")),
        *(
            f"reporting/test_{name}.py"
            for name in ("curves", "live", "model_card", "power_picture")
        ),
        "reporting/test_model_card_huggingface.py",
        "fuzzing/test_report_mutants.py",
        *(
            f"cli/test_{name}.py"
            for name in ("reproduce", "benchmark", "report", "forged")
        ),
    ],
    "sweep": [
        *(f"engines/{name}.py" for name in ("test_local", "test_sweep", "run_sweep")),
        *(f"cli/test_{name}.py" for name in ("benchmark", "calibrate", "reproduce")),
        "cli/test_sweep.py",
        "tables/test_tallies_divided.py",
        "experiments/benchmark/test_engines.py",
    ],
    "ray": ["engines/test_cluster.py", "tables/test_tallies_divided.py"],
    "sign": [
        *(
            f"evidence/test_{name}.py"
            for name in ("forgeries", "honest", "sealing", "signing", "tampering")
        ),
        "evidence/evidence_trials.py",
        "cli/test_signed_evidence.py",
        "cli/test_forged.py",
        "fuzzing/test_public_key_mutants.py",
    ],
    "tables": [
        "engines/test_export.py",
        *(f"tables/test_{name}.py" for name in ("parquet", *_TALLIES)),
        "cli/test_tally.py",
        *(f"fuzzing/{name}.py" for name in ("fuzz_parquet", "test_parquet_mutants")),
        "experiments/benchmark/test_tables.py",
        "experiments/calibration/test_pipeline.py",
    ],
    "docs": [
        "docs",
        "benchmarks",
        "golden",
    ],  # the group of that name, and the checkout
}
_TESTED = os.environ.get("DPAUDIT_TEST_EXTRAS", " ".join(_NEEDS)).split()

collect_ignore = [
    path for extra, paths in _NEEDS.items() if extra not in _TESTED for path in paths
]

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
