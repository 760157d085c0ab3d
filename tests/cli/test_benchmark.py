"""``dpaudit benchmark``, as a user runs it."""

import csv
import io
import json
import sys
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from dpaudit.cli import app
from dpaudit.engines.store import Store
from dpaudit.experiments.power import peers
from dpaudit.experiments.power.methods import methods
from dpaudit.experiments.power.peers import peer_bound_sweep, peer_time_sweep
from dpaudit.experiments.power.plan import Guesses
from dpaudit.experiments.power.sweeps import plan_sweep
from dpaudit.experiments.power.task import Task, draw

TASK = Task(canaries=60)
PLAN = Guesses(exact=20, steinke=20, weighted=None)
OURS = [
    "exact, guesses planned",
    "ranked, nothing planned",
    "Steinke et al., guesses planned",
]
PEER = ["jax-privacy 2.0.0, as it comes", "jax-privacy 2.0.0, Split"]


@pytest.fixture
def store(tmp_path):
    """A store in which the planning, which takes its time, is done."""
    path = tmp_path / "power.sqlite"
    with Store(path) as opened:
        opened.add(plan_sweep([TASK]).cell(asdict(TASK)), [(0, asdict(PLAN))])
    return path


@pytest.fixture(autouse=True)
def no_peer(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)


def run(store, *arguments):
    small = [f"--store={store}", "--canaries=60", "--trials=3", "--pairs=2"]
    return CliRunner().invoke(app, ["benchmark", *small, *arguments])


def add_peer(store):
    """Put into a store what the peer is made to have found."""
    with Store(store) as opened:
        for sweep, outcome in (
            (peer_bound_sweep(TASK, version="2.0.0", trials=3), {}),
            (peer_time_sweep(TASK, version="2.0.0", pairs=2), {"ranked": 0.5}),
        ):
            found = outcome | {"jax_privacy": 0.25, "jax_privacy_split": 1.0}
            cell = sweep.cell(sweep.settings[0])
            opened.add(cell, [(trial, found) for trial in range(sweep.trials)])


def test_json_gives_the_mean_bound_of_the_numbered_draws(store, schema):
    done = run(store, "--json")
    assert done.exit_code == 0, done.stderr
    found = schema(done.stdout, "benchmark")
    assert found["format"] == "dpaudit.benchmark.1"
    assert [row["method"] for row in found["rows"]] == OURS
    assert (found["mu"], found["delta"], found["alpha"]) == (1.0, 1e-5, 0.05)
    assert round(found["truth"], 3) == 4.377
    assert round(found["ceiling"], 3) == 3.616
    for row, method in zip(found["rows"], methods(PLAN), strict=True):
        known = [method.epsilon_lower(draw(TASK, number)) for number in range(3)]
        assert row["mean"] == pytest.approx(sum(known) / 3, abs=1e-12)
        assert (row["draws"], row["pairs"]) == (3, 2)
        assert row["seconds"] > 0
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert [row["guesses"] for row in found["rows"]] == [20, None, 20]
    again = run(store, "--json")
    assert again.stdout == done.stdout


def test_text_says_what_is_left_out_and_how_to_get_it(store):
    done = run(store)
    assert done.exit_code == 0, done.stderr
    assert all(name in done.stdout for name in OURS)
    assert "no valid audit of one run reliably shows more than 3.616" in done.stdout
    assert "weighted guesses are left out at 60 canaries" in done.stdout
    assert "jax-privacy is not installed, so its rows are left out" in done.stdout
    assert "pip install -r benchmarks/peers-requirements.txt" in done.stdout


def test_an_installed_peer_stands_beside_us_on_the_same_draws(store, monkeypatch):
    before = json.loads(run(store, "--json").stdout)
    monkeypatch.setattr(peers, "installed_version", lambda: "2.0.0")
    add_peer(store)
    done = run(store, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["method"] for row in found["rows"]] == OURS + PEER
    assert found["rows"][:3] == before["rows"]
    first, split = found["rows"][3:]
    assert (first["mean"], first["seconds"], first["ratio"]) == (0.25, 0.25, 0.5)
    assert (split["mean"], split["ratio"]) == (1.0, 2.0)
    assert len(found["left_out"]) == 1


def test_a_store_filled_elsewhere_shows_the_peer_that_is_not_installed_here(store):
    add_peer(store)
    done = run(store)
    assert done.exit_code == 0, done.stderr
    assert all(name in done.stdout for name in OURS + PEER)
    assert "not installed" not in done.stdout


def test_a_peer_that_fails_is_told_of(store, tmp_path, monkeypatch):
    # Said to be there, but the workers cannot import it.
    broken = tmp_path / "broken" / "jax_privacy.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('broken')", encoding="utf-8")
    monkeypatch.syspath_prepend(broken.parent)
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    monkeypatch.setattr(peers, "installed_version", lambda: "0.0.0")
    done = run(store)
    assert done.exit_code == 2
    assert "dpaudit benchmark: " in done.stderr
    assert "dpaudit sweep status" in done.stderr
    assert done.stdout == ""


def test_the_table_is_written_as_csv(store, tmp_path):
    path = tmp_path / "power.csv"
    done = run(store, f"--csv={path}", "--json")
    assert done.exit_code == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    known = json.loads(done.stdout)["rows"]
    assert [row["method"] for row in rows] == [row["method"] for row in known]
    assert [float(row["mean"]) for row in rows] == [row["mean"] for row in known]
    assert [row["guesses"] for row in rows] == ["20", "", "20"]


def test_times_may_be_left_out(store):
    done = run(store, "--pairs=0", "--json")
    assert done.exit_code == 0, done.stderr
    assert {row["seconds"] for row in json.loads(done.stdout)["rows"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--canaries=10,many"], "whole numbers with commas between, such as 1000,"),
        (["--canaries="], "whole numbers with commas between"),
        (["--canaries=10"], "canaries must be a whole number >= 20, got canaries=10"),
        (["--trials=0"], "--trials must be a whole number >= 1, got --trials=0"),
        (["--pairs=-1"], "--pairs must be a whole number >= 0, got --pairs=-1"),
        (["--workers=0"], "workers must be a whole number >= 1, got workers=0"),
        (["--csv=no/such/folder/a.csv"], "No such file or directory"),
    ],
)
def test_misuse_exits_with_2_and_advice(store, arguments, advice):
    done = run(store, *arguments)
    assert done.exit_code == 2
    assert "dpaudit benchmark: " in done.stderr
    assert advice in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 40)
    done = run(path)
    assert done.exit_code == 2
    assert "name another file with --store" in done.stderr
