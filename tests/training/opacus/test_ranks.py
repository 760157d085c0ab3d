"""Audits of distributed training: two real gloo processes, DDP and FSDP."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from private_runs import NOISE, slope
from ranks import MODES, STEPS

pytestmark = pytest.mark.nightly

WORLD = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, by mode; all modes in one start of the processes."""
    folder = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("ranks.py")
    running = [
        subprocess.Popen(
            [
                sys.executable,
                program,
                str(rank),
                str(WORLD),
                folder / "init",
                folder / f"{rank}.json",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    for process in running:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("mode", list(MODES))
def test_the_sum_over_ranks_rises_by_the_clipping_norm(found, mode):
    """Four standard errors: fixed seeds but for the key; fails once in 16,000 times."""
    ranks = [each[mode] for each in found]
    joined = np.array(ranks[0]["joined"])
    if mode == "ddp-records":  # each rank fetches its own records
        joined = sum(np.array(rank["joined"]) for rank in ranks)
        joined = joined * np.array(ranks[0]["included"])
    for rank in ranks:
        held = np.array(rank["held"])
        seen = np.array(rank["seen"])[:, held]
        rise, error, noise = slope(joined[:, held], seen)
        assert abs(rise - 1.0) < 4 * error
        assert noise == pytest.approx(NOISE, rel=0.08)
        assert len(seen) == STEPS


@pytest.mark.parametrize("mode", list(MODES))
def test_the_audit_finds_that_canaries_arrived_over_all_ranks(found, mode):
    """Four standard errors: fails once in 16,000 times."""
    one, other = (each[mode]["signal"] for each in found)
    assert one == other
    assert abs(one["slope"] - 1) < 4 * one["error"]
    # Noise over the root of what joined; records join on either of two ranks.
    assert one["error"] == pytest.approx(
        NOISE / np.sqrt(400 * STEPS * 0.1 / 2), rel=0.4
    )


@pytest.mark.parametrize("mode", list(MODES))
def test_every_rank_comes_to_the_same_result(found, mode):
    first, second = (each[mode] for each in found)
    assert first["transcript"] == second["transcript"]
    assert first["epsilon"] == second["epsilon"]


@pytest.mark.parametrize("mode", list(MODES))
def test_honest_ranks_have_no_fault(found, mode):
    """One false alarm in ten thousand runs is allowed for."""
    assert [each[mode]["faults"] for each in found] == [[], []]
    first, second = (each[mode]["checks"] for each in found)
    assert mode == "fsdp" or first == second  # of shards, each tells of its own


def test_sharded_ranks_hold_every_coordinate_once(found):
    held = [np.array(each["fsdp"]["held"]) for each in found]
    assert np.all(held[0] ^ held[1])
    assert all(each.sum() > 50 for each in held)
