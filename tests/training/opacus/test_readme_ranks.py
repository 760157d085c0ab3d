"""README's code under DDP, in real gloo processes, beside the same in one process.

Noise and canaries come from the same seeds, and the real records' part is subtracted,
so the audit reads the same sums whatever the batches are.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).with_name("readme_ranks.py")


@cache
def found(world, case="correct"):
    """What each rank found; None for a rank that was killed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        outputs = [folder / f"{rank}.json" for rank in range(world)]
        running = [
            subprocess.Popen(
                [
                    *(sys.executable, PROGRAM, str(rank), str(world)),
                    *(folder / "init", out, case),
                ],
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, out in enumerate(outputs)
        ]
        for process in running:
            _, error = process.communicate(timeout=300)
            assert process.returncode in (0, -9), error
        return [
            json.loads(out.read_text("utf-8")) if out.exists() else None
            for out in outputs
        ]


@pytest.mark.parametrize(
    ("world", "case"),
    [(2, "correct"), (4, "correct"), (2, "logged"), (2, "native")],
)
def test_ranks_come_to_the_verdict_of_a_single_process(world, case):
    """``logged`` exchanges the loss in each step; ``native`` is torch's own DDP."""
    (single,) = found(1)
    for rank in found(world, case):
        assert rank["verdict"] == single["verdict"] == "no violation detected"
        assert rank["bound"] == pytest.approx(single["bound"], abs=1e-9)
        assert rank["transcript"] == single["transcript"]
        assert not rank["faults"]
        assert rank["groups"]


def test_noise_that_the_program_rescales_is_read_as_it_was_added():
    """Gradients are cut after the noise, as in many loops; only one rank draws it."""
    (single,) = found(1, "reworked")
    for rank in found(2, "reworked"):
        assert not rank["faults"]
        assert rank["verdict"] == single["verdict"] == "no violation detected"
        assert rank["bound"] == pytest.approx(single["bound"], abs=1e-9)


def test_the_first_rank_announces_for_all():
    assert [len(rank["said"]) for rank in found(2)] == [4, 0]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("less noise", "noise.scale"),
        ("clipping", "probe.too_large"),
        ("buffer", "interference.held"),
        ("every rank draws from all", "sampling.too_often"),
    ],
)
def test_a_fault_on_one_rank_is_in_the_result_of_all(case, code):
    for rank in found(2, case):
        assert code in rank["faults"]
        assert rank["verdict"] in ("fault found", "claim refuted")


@pytest.mark.parametrize(
    ("world", "case", "steps"),
    [(2, "killed", 10), (4, "killed", 10), (2, "killed late", 60)],
)
def test_after_a_lost_rank_the_result_is_partial(world, case, steps):
    *alive, killed = found(world, case)
    assert killed is None
    for rank in alive:
        assert rank["steps"] == steps
        assert rank["verdict"] == "inconclusive"
        assert "another rank was lost" in rank["reason"]
        assert rank["groups"]
