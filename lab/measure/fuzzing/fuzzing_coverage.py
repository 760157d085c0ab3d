"""What share of the readers' code the mutants reach; needs ``coverage``."""

import io
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import coverage

__all__ = ["covered"]

# Files that read what comes from outside.
READERS = (
    "_canonical.py", "bounds/reading_json.py", "bounds/readings.py",
    "evidence/*.py", "game/coins.py", "game/design.py",
    "game/pairs.py", "game/rules/*.py", "game/setting.py", "game/score_summary.py",
    "game/transcript.py",
    "privacy/guarantees.py", "tables/*.py", "training/audit.py", "cli/*.py",
)  # fmt: skip


def covered(asked: str, cases: int, seed: int) -> str:
    """Return a report of the lines and branches that some cases of targets reach."""
    measured = coverage.Coverage(
        branch=True,
        data_file=None,
        include=[f"*/dpaudit/{each}" for each in READERS],
    )
    measured.start()
    from fuzz_judging import judged  # noqa: PLC0415 (measured from its import on)
    from fuzz_targets import TARGETS, chosen  # noqa: PLC0415

    with TemporaryDirectory() as folder:
        for name in chosen(asked):
            for sample in TARGETS[name].seeds:
                judged(TARGETS[name], sample, Path(folder))
            for number in range(cases):
                data = TARGETS[name].case(Random(f"{name}:{seed}:{number}"))
                judged(TARGETS[name], data, Path(folder))
    measured.stop()
    report = io.StringIO()
    measured.report(file=report, show_missing=False)
    return report.getvalue()
