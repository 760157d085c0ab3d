"""``dpaudit-lab benchmark``, as a user runs it."""

import csv
import io
import json
import shutil
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from dpaudit_lab.benchmark.guessers import SMALL_GAMES, Guessers
from dpaudit_lab.cli import app
from dpaudit_lab.cli._benchmark_shown import charts_of
from dpaudit_lab.pictures.chart import Look
from dpaudit_lab.power.methods import methods
from dpaudit_lab.power.nulls import NULLS, null_draw
from dpaudit_lab.power.peers import PEERS, peer_null_sweep, peer_sweep
from dpaudit_lab.power.plan import Guesses
from dpaudit_lab.power.sweeps import plan_sweep
from dpaudit_lab.power.task import Task, draw
from dpaudit_lab.sweeps.store import Store

TASK = Task(canaries=60)
PLAN = Guesses(exact=20, steinke=20, weighted=None)
OURS = [
    "exact, guesses planned",
    "ranked, nothing planned",
    "Steinke et al., guesses planned",
]
LOOP = "Steinke et al., by the published loop"
PEER = ["jax-privacy 2.0.0, as it comes", "jax-privacy 2.0.0, Split"]
pytestmark = pytest.mark.nightly  # they read what one benchmark of 20 s measured
JAX = PEERS["jax-privacy"]
PEER_MODULES = ("jax_privacy", "privacy_guard")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store that the command has filled; the planning was done before."""
    path = tmp_path_factory.mktemp("filled") / "power.sqlite"
    with Store(path) as opened:
        opened.add(plan_sweep([TASK]).cell(asdict(TASK)), [(0, asdict(PLAN))])
    with pytest.MonkeyPatch.context() as patch:
        for name in PEER_MODULES:
            patch.setitem(sys.modules, name, None)
        done = run(path, "--json", pairs=2)
    assert done.exit_code == 0, done.stderr
    return path, done.stdout


@pytest.fixture
def store(filled, tmp_path):
    """A copy of it."""
    return shutil.copy(filled[0], tmp_path / "power.sqlite")


@pytest.fixture(autouse=True)
def no_peer(monkeypatch):
    for name in PEER_MODULES:
        monkeypatch.setitem(sys.modules, name, None)


def run(store, *arguments, only="bounds", pairs=0):
    small = [f"--store={store}", "--canaries=60", "--trials=3", f"--pairs={pairs}"]
    return CliRunner().invoke(app, ["benchmark", f"--only={only}", *small, *arguments])


def add_peer(store):
    """Put into a store what the peer is made to have found."""
    bounds = {"jax_privacy": 0.25, "jax_privacy_split": 1.0}
    times = {f"{key} seconds": seconds for key, seconds in bounds.items()}
    timed = {"ranked": 1.0, "ranked seconds": 0.5} | bounds | times
    sweeps = [(peer_sweep(JAX, "2.0.0", TASK, PLAN, trials=3), timed)]
    for null in NULLS:
        sweep = peer_null_sweep(JAX, "2.0.0", TASK, PLAN, null, trials=9)
        sweeps.append((sweep, bounds))
    with Store(store) as opened:
        for sweep, found in sweeps:
            cell = sweep.cell(sweep.settings[0])
            opened.add(cell, [(trial, found) for trial in range(sweep.trials)])


@pytest.mark.nightly
def test_json_gives_bounds_errors_and_costs_of_the_numbered_draws(filled, schema):
    path, text = filled
    found = schema(text, "benchmark")
    assert found["format"] == "dpaudit.benchmark.2"
    rows = found["rows"]
    assert [row["method"] for row in rows] == [*OURS, LOOP]
    assert {(row["part"], row["size"]) for row in rows} == {("bounds", "60 canaries")}
    assert (found["mu"], found["delta"], found["alpha"]) == (1.0, 1e-5, 0.05)
    assert round(found["truth"], 3) == 4.377
    assert round(found["ceiling"], 3) == 3.616
    for row, method in zip(rows, methods(PLAN), strict=False):
        known = [method.epsilon_lower(draw(TASK, number)) for number in range(3)]
        assert row["mean"] == pytest.approx(sum(known) / 3, abs=1e-12)
        assert row["draws"] == 3
        for rate, null in zip(row["wrong"], NULLS, strict=True):
            drawn = [null_draw(TASK, null, number) for number in range(9)]
            above = [method.epsilon_lower(one) > null.truth(1e-5) for one in drawn]
            assert (rate["hits"], rate["draws"]) == (sum(above), 9)
    assert rows[3]["mean"] == pytest.approx(rows[2]["mean"], abs=1e-6)
    assert [row["guesses"] for row in rows] == [20, None, 20, 20]
    assert all(row["seconds"] > 0 and row["memory_mib"] >= 0 for row in rows)
    assert [row["pairs"] for row in rows] == [2, None, 2, 2]
    compared = [row for row in rows if row["pairs"]]
    assert all(r["ratio_low"] <= r["ratio"] <= r["ratio_high"] for r in compared)
    assert run(path, "--json", pairs=2).stdout == text


def test_text_says_what_is_left_out_and_how_to_get_it(store):
    done = run(store)
    assert done.exit_code == 0, done.stderr
    assert all(name in done.stdout for name in [*OURS, LOOP])
    assert "no valid audit of one run reliably shows more than 3.616" in done.stdout
    assert "weighted guesses are left out at 60 canaries" in done.stdout
    assert "jax-privacy is not installed, so its rows are left out" in done.stdout
    assert "pip install -r lab/measure/peers-requirements.txt" in done.stdout
    assert "pip install --no-deps privacyguard-platform==0.0.2" in done.stdout


def test_a_store_filled_elsewhere_shows_the_peer_that_is_not_installed_here(store):
    before = json.loads(run(store, "--json").stdout)
    add_peer(store)
    found = json.loads(run(store, "--json", pairs=2).stdout)
    first, split = found["rows"][4:]
    assert (first["ratio"], split["ratio"], split["pairs"]) == (0.5, 2.0, 2)
    found = json.loads(run(store, "--json").stdout)
    assert [row["method"] for row in found["rows"]] == [*OURS, LOOP, *PEER]
    assert found["rows"][:4] == before["rows"]
    first, split = found["rows"][4:]
    assert (first["mean"], split["mean"]) == (0.25, 1.0)
    # 0.25 exceeds 0 and not 1; 1 exceeds 0, and what is left of 1 at delta.
    assert [rate["hits"] for rate in first["wrong"]] == [9, 0]
    assert [rate["hits"] for rate in split["wrong"]] == [9, 9]
    assert [rate["fails"] for rate in split["wrong"]] == [True, True]
    shown = run(store).stdout
    assert "!100.0 %" in shown
    assert "a rate between ! is shown to be above alpha" in shown
    assert "jax-privacy is not installed" not in shown
    assert "PrivacyGuard is not installed" in shown


def test_a_peer_that_fails_is_told_of(store, tmp_path, monkeypatch):
    # It is there, but cannot be imported.
    broken = tmp_path / "broken" / "jax_privacy.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('broken')", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "jax_privacy")
    monkeypatch.syspath_prepend(broken.parent)
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    done = run(store)
    assert done.exit_code == 2
    assert "dpaudit-lab benchmark: " in done.stderr
    assert "dpaudit-lab sweep status" in done.stderr
    assert done.stdout == ""


def test_parts_are_chosen_and_have_small_versions(store, schema):
    done = run(store, "--small", "--json", only="guessers,adapters")
    assert done.exit_code == 0, done.stderr
    rows = schema(done.stdout, "benchmark")["rows"]
    # Without times and memory there is nothing to say of adapters.
    assert {row["part"] for row in rows} == {"guessers"}
    part = Guessers(trials=3, pairs=0, games=SMALL_GAMES)
    with Store(store) as opened:
        known = part.rows(opened)
    assert [row["mean"] for row in rows] == [row.bound.mean for row in known]


def test_the_tables_are_written_into_a_page(store, tmp_path):
    page = tmp_path / "page.md"
    named = ("when", "bounds", "costs")
    page.write_text("".join(f"<!-- table: {n} -->\n<!-- end -->\n" for n in named))
    made_up = {"likelihood": 2.5, "sums": 0.0}  # a page has the games of full size
    with Store(store) as opened:
        for sweep in Guessers(trials=3, pairs=0).sweeps():
            for setting in sweep.settings:
                found = [(trial, made_up) for trial in range(sweep.trials)]
                opened.add(sweep.cell(setting), found)
    small = [f"--store={store}", "--canaries=60", "--trials=3", "--pairs=0"]
    done = CliRunner().invoke(app, ["benchmark", *small, f"--page={page}"])
    assert done.exit_code == 0, done.stderr
    written = page.read_text("utf-8")
    assert "Measured on 2" in written
    assert "| method | 60 canaries |" in written
    assert "| **exact, guesses planned** | " in written
    assert "<!-- table: costs -->\n<!-- end -->" in written  # nothing was timed


def test_the_table_is_written_as_csv(store, tmp_path):
    path = tmp_path / "power.csv"
    done = run(store, f"--csv={path}", "--json")
    assert done.exit_code == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    known = json.loads(done.stdout)["rows"]
    assert [row["method"] for row in rows] == [row["method"] for row in known]
    assert [float(row["mean"]) for row in rows] == [row["mean"] for row in known]
    assert [row["guesses"] for row in rows] == ["20", "", "20", "20"]
    rate = known[0]["wrong"][0]
    assert float(rows[0]["wrong_at_0"]) == rate["hits"] / rate["draws"]
    assert int(rows[0]["wrong_at_0_draws"]) == rate["draws"]


def test_bounds_and_times_are_drawn_as_panels(store, tmp_path):
    """Others' methods are dashed; without times there are bounds alone."""
    path = tmp_path / "power.svg"
    done = run(store, f"--picture={path}")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == run(store).stdout
    assert path.read_text("utf-8").startswith("<?xml")
    rows = [
        SimpleNamespace(
            method=name,
            ours=name == "exact",
            canaries=size,
            mean=1.0,
            error=0.1,
            draws=3,
            seconds=seconds,
        )
        for name, seconds in (("exact", 0.02), ("Steinke et al.", 3.0))
        for size in (100, 1000)
    ]
    bounds, times = charts_of(rows, TASK)
    assert [curve.look for curve in bounds.curves] == [Look.MEASURED, Look.OTHERS]
    assert times.y_ticks == (0.01, 0.1, 1.0, 10.0)
    assert {point.mean for point in times.points} == {0.02, 3.0}
    for row in rows:
        row.seconds = None
    assert len(charts_of(rows, TASK)) == 1


def test_costs_may_be_left_out(store):
    done = run(store, "--json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {(row["seconds"], row["memory_mib"]) for row in rows} == {(None, None)}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--canaries=10,many"], "whole numbers with commas between, such as 1000,"),
        (["--canaries="], "whole numbers with commas between"),
        (["--canaries=10"], "canaries must be a whole number >= 20, got canaries=10"),
        (["--trials=0"], "--trials must be a whole number >= 1, got --trials=0"),
        (["--pairs=-1"], "--pairs must be a whole number >= 0, got --pairs=-1"),
        (["--workers=0"], "workers must be a whole number >= 1, got workers=0"),
        (["--only=bound"], "some of bounds, guessers, adapters, tables, got"),
        (["--page=a.md"], "a page shows the whole benchmark of one date"),
        (
            ["--csv=/dev/null/a.csv"],
            "a.csv cannot be written (",
        ),
    ],
)
def test_misuse_exits_with_2_and_advice(store, arguments, advice):
    done = run(store, *arguments)
    assert done.exit_code == 2
    assert "dpaudit-lab benchmark: " in done.stderr
    assert advice in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 40)
    done = run(path)
    assert done.exit_code == 2
    assert "name another file with --store" in done.stderr
