"""Correct runs are not reported as faulty: a few of each kind that the study makes.

All of them: ``python lab/measure/correct_runs.py``.
"""

import numpy as np
import pytest
from correct_runs import half_run, opacus_run, report, sweeps


@pytest.mark.parametrize(
    "kind",
    [
        "SumsAudit, bfloat16",
        pytest.param("SumsAudit, noise in float32", marks=pytest.mark.nightly),
    ],
)
def test_a_correct_loop_in_bfloat16_has_no_fault(kind):
    found = half_run({"kind": kind}, np.random.default_rng(1))
    assert (found["faults"], found["remarks"]) == ("", "")
    assert found["checked"]


@pytest.mark.parametrize(
    "kind",
    [
        "float64, resumed",
        pytest.param("ghost, micro-batches", marks=pytest.mark.nightly),
    ],
)
def test_a_correct_run_of_opacus_has_no_fault(kind):
    found = opacus_run({"kind": kind}, np.random.default_rng(0))
    assert (found["faults"], found["remarks"]) == ("", "")
    assert found["passed"], (found["left"], found["reason"])


def test_the_study_makes_three_hundred_runs_and_a_hundred_in_half_precision():
    assert {
        name: sum(sweep.trials for _ in sweep.settings)
        for name, sweep in sweeps(25).items()
    } == {"opacus": 300, "half": 100}


def test_the_study_fails_on_a_fault_and_counts_refutations_apart(capsys):
    fine = {
        "faults": "",
        "remarks": "",
        "p_value": 1.0,
        "checked": True,
        "passed": True,
    }
    assert report({"one": [fine] * 25})
    assert report({"one": [fine] * 24 + [{**fine, "p_value": 1e-4}]})
    assert "refuted at p <= 0.001: 1 of 25" in capsys.readouterr().out
    assert not report({"one": [fine] * 24 + [{**fine, "faults": "noise: none"}]})
