"""Which extras are tested, and in which order."""

import os
import sys

# An extra's tests are collected unless the run says that it is absent on purpose:
# DPAUDIT_TEST_EXTRAS="" tests the core alone. A missing package is an error otherwise.
_TALLIES = ("tally", "tally_divided")
_NEEDS = {
    "accounting": ["accounting"],
    "opacus": [
        "cli/test_which.py",
        "test_misuse.py",
        *(f"training/{name}" for name in ("opacus", "black_box", "language_models")),
        "testing/conformance/test_opacus_adapter.py",
        "reporting/test_published.py",
    ],
    "jax": [
        "training/jax_privacy",
        "testing/conformance/test_jax_privacy_adapter.py",
    ],
    "pfl": ["training/pfl", "testing/conformance/test_pfl_adapter.py"],
    "opendp": ["testing/opendp"],
    "flower": ["training/flower", "testing/conformance/test_flower_adapter.py"],
    "lightning": ["training/opacus/test_lightning.py"],
    "huggingface": [
        "training/opacus/test_huggingface.py",
        "training/language_models/test_inserting.py",
        "reporting/test_model_card_huggingface.py",
    ],
    "report": [
        "test_misuse.py",
        "reporting/report",
        *(f"reporting/test_{name}.py" for name in ("live", "model_card")),
        "reporting/test_model_card_huggingface.py",
        "reporting/test_published.py",
        "fuzzing/test_report_mutants.py",
        "cli/test_report.py",
        "cli/test_forged.py",
    ],
    "sweep": [
        "engines/test_local.py",
        "tables/test_tally_divided.py",
    ],
    "sign": [
        *(
            f"evidence/test_{name}.py"
            for name in ("forgeries", "sealing", "signing", "tampering")
        ),
        "evidence/evidence_trials.py",
        "cli/test_signed_evidence.py",
        "cli/test_forged.py",
        "fuzzing/test_public_key_mutants.py",
    ],
    "tables": [
        "engines/divided_tallies.py",
        "reporting/test_published.py",
        *(f"tables/test_{name}.py" for name in ("parquet", *_TALLIES)),
        "cli/test_tally.py",
        *(f"fuzzing/{name}.py" for name in ("fuzz_parquet", "test_parquet_mutants")),
    ],
    "docs": ["docs", "golden"],  # the group of that name, and the checkout
}
# pfl cannot be beside jax-privacy, and opendp pins polars, so they are tested where
# they are asked for.
_COMMON = " ".join(extra for extra in _NEEDS if extra not in ("opendp", "pfl"))
_TESTED = os.environ.get("DPAUDIT_TEST_EXTRAS", _COMMON).split()

collect_ignore = [
    path for extra, paths in _NEEDS.items() if extra not in _TESTED for path in paths
]


def pytest_collection_modifyitems(items):
    """Put tests of JAX Privacy last, also if all are run in one process.

    Others copy the process, which cannot be done once JAX is in use. So no test module
    may have an array of JAX, which would start it when tests are collected.
    """
    items.sort(key=lambda item: "jax_privacy" in item.nodeid)
    jax = sys.modules.get("jax")
    if jax is not None and jax._src.xla_bridge._backends:
        raise RuntimeError("a test module started JAX when it was imported")
