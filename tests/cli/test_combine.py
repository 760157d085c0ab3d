"""``dpaudit combine``, as a user runs it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpaudit import Coins, Key

CLAIM = ["--canaries=400", "--epsilon=1.2", "--delta=0", "--guesses=60"]


def make_run(dpaudit, number, *, claim=CLAIM, shift=1.0):
    """Register, run and audit once; keep result and evidence."""
    key, design = f"{number}.key", f"{number}-design.json"
    dpaudit("register", *claim, f"--key={key}", f"--design={design}")
    bits = Coins(key=Key.read(key), count=400).bits()
    rng = np.random.default_rng(number)
    scores = rng.standard_normal(400) + shift * bits
    np.savez("scores.npz", id=np.arange(400), score=scores)
    options = [f"--design={design}", f"--key={key}", f"--save={number}.json"]
    evidence = f"--evidence={number}-evidence.json"
    dpaudit("audit", "scores.npz", *options, evidence, code=None)


@pytest.fixture
def runs(dpaudit, fixed_keys):  # noqa: ARG001 (so that nothing is left to chance)
    for number in range(3):
        make_run(dpaudit, number)


@pytest.mark.usefixtures("runs")
def test_runs_are_combined_from_results_or_evidence(dpaudit, schema):
    files = ["0.json", "1-evidence.json", "2.json"]
    done = dpaudit("combine", *files, "--json", code=None)
    found = schema(done.stdout, "combination")
    assert [run["file"] for run in found["runs"]] == files
    assert len({run["commitment"] for run in found["runs"]}) == 3
    x = -sum(math.log(run["p_value"]) for run in found["runs"])
    fisher = math.exp(-x) * (1 + x + x * x / 2)
    assert found["claim_test"]["p_value"] == pytest.approx(fisher, rel=1e-9)
    assert done.exit_code == (1 if fisher <= 0.05 else 0)
    assert found["refuted"] is (fisher <= 0.05)


@pytest.mark.usefixtures("runs")
def test_the_text_states_alpha_and_what_it_rests_on(dpaudit):
    done = dpaudit("combine", "0.json", "1.json", "--alpha=0.2", code=None)
    lines = done.stdout.splitlines()
    assert "By 2 independent runs together, at delta = 0" in lines[0]
    assert "80 % confidence, for any mechanism in independent runs" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["0.json", "1.json"]
    assert "all the runs that were made" in lines[3]
    assert len(lines) == 4  # nothing about missing commitments


@pytest.mark.usefixtures("fixed_keys")
def test_counts_are_added_up_if_that_was_registered(dpaudit, schema):
    for number in range(2):
        make_run(dpaudit, number, claim=[*CLAIM, "--pooled-runs=2"])
    done = dpaudit("combine", "0.json", "1-evidence.json", "--json", code=None)
    found = schema(done.stdout, "combination")
    assert found["bound"]["method"] == "pooled runs"
    assert "added up" in found["notes"][1]
    right = sum(
        json.loads(Path(f"{number}.json").read_text())["reading"]["correct"]
        for number in range(2)
    )
    p_value = stats.binom.sf(right - 1, 120, 1 / (1 + math.exp(-1.2)))
    assert found["claim_test"]["p_value"] == pytest.approx(p_value, rel=1e-9)
    options = ["--accept-unchecked-counts"]
    assert dpaudit("verify", "1-evidence.json", *options, code=None).exit_code == 0
    make_run(dpaudit, 2)
    said = dpaudit("combine", "0.json", "2.json", code=4).stderr
    assert "as it was fixed before the first" in " ".join(said.split())


def test_pooled_runs_need_a_number_of_guesses(dpaudit):
    for options in (["--pooled-runs=2"], ["--guesses=9", "--pooled-runs=1"]):
        said = dpaudit("register", *CLAIM[:3], *options, "--key=k", code=2).stderr
        assert "--pooled-runs adds up the counts" in said


@pytest.mark.usefixtures("runs")
def test_one_run_under_two_names_is_refused(dpaudit):
    said = dpaudit("combine", "0.json", "1.json", "0-evidence.json", code=4).stderr
    assert said.startswith(
        "dpaudit combine: invalid run: results 1 and 3 are of one run (commitment"
    )


@pytest.mark.usefixtures("runs")
def test_runs_about_another_claim_are_refused(dpaudit):
    other = [*CLAIM[:1], "--epsilon=3", *CLAIM[2:]]
    make_run(dpaudit, 7, claim=other)
    said = dpaudit("combine", "0.json", "7.json", code=4).stderr
    assert "result 1 is about the claim" in said


def test_runs_without_commitments_are_noted(dpaudit):
    lines = [f"{i},{i % 3 % 2},{i * 7 % 50 + i / 1000}" for i in range(50)]
    for number in range(2):
        Path("s.csv").write_text("\n".join(["id,bit,score", *lines[number:]]))
        claim = ["--epsilon=1", "--delta=0", "--guesses=20"]
        dpaudit("audit", "s.csv", *claim, f"--save={number}.json", code=None)
    said = dpaudit("combine", "0.json", "1.json", code=3).stdout
    assert "2 of 2 runs name no hash of their key" in said


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["none.json", "none.json"], "cannot read none.json"),
        (["notes.txt", "notes.txt"], "notes.txt: not JSON"),
        (["other.json", "other.json"], "this is a design, where a result is wanted"),
    ],
)
def test_misuse_exits_with_2_and_advice(dpaudit, files, said):
    Path("notes.txt").write_text("hello")
    Path("other.json").write_text('{"format": "dpaudit.design.1"}')
    done = dpaudit("combine", *files, code=2)
    assert said in done.stderr
