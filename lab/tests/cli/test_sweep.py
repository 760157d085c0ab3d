"""``dpaudit-lab sweep``, and how commands that sweep begin and end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trials
import typer
from sweep_tools import stored
from typer.testing import CliRunner

from dpaudit.cli._engines import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
)
from dpaudit.cli._shared import reported
from dpaudit_lab.cli import app
from dpaudit_lab.cli.sweeping import (
    StoreOption,
    Where,
    filled,
)
from dpaudit_lab.sweeps.store import Cell, Found, Store
from dpaudit_lab.sweeps.sweep import Sweep

SECONDS = float(os.environ.get("TRIAL_SECONDS", "0.02"))
SWEEP = Sweep(
    name="draw",
    revision=1,
    function=trials.draw,
    settings=[{"mean": 0.0, "seconds": SECONDS}, {"mean": 5.0, "seconds": SECONDS}],
    trials=200,
)
CELL = Cell(name="draw", revision=1, setting='{"mean":0.0}')


def invoke(*arguments):
    return CliRunner().invoke(app, ["sweep", *map(str, arguments)])


@pytest.fixture
def path(tmp_path):
    """A store with one trial done, one failed and one to come."""
    found = tmp_path / "s.sqlite"
    with Store(found) as store:
        store.plan([CELL], 3)
        trace = "Traceback\nRuntimeError: no luck\n"
        store.record(
            [Found(cell=CELL, outcomes=[(0, {"x": 1})], failures=[(1, trace)])]
        )
    return found


def test_status_tells_what_is_missing_and_why(path):
    done = invoke("status", path)
    assert done.exit_code == 1
    assert "draw (revision 1): 1 trials, 2 missing; 0 of 1 settings" in done.stdout
    assert "1 failed, in 1 settings; the first is trial 1 of" in done.stdout
    assert "RuntimeError: no luck" in done.stdout


def test_status_of_cells_shows_each(path):
    assert '1 of 3  {"mean":0.0}' in invoke("status", path, "--cells").stdout


def test_status_as_json(path, schema):
    found = schema(invoke("status", path, "--json").stdout, "sweep")
    assert found["format"] == "dpaudit.sweep.1"
    (cell,) = found["cells"]
    assert (cell["trials"], cell["planned"], cell["setting"]) == (1, 3, {"mean": 0.0})
    assert cell["failures"][0]["trial"] == 1


def test_a_complete_store_exits_with_0(path):
    with Store(path) as store:
        store.add(CELL, [(1, {"x": 1}), (2, {"x": 1})])
    done = invoke("status", path)
    assert done.exit_code == 0
    assert "failed" not in done.stdout


def test_export_says_how_much_was_written(path, tmp_path):
    done = invoke("export", path, tmp_path / "t.csv")
    assert done.exit_code == 0
    assert "1 trials written" in done.stdout
    assert (tmp_path / "t.csv").exists()


@pytest.mark.parametrize("command", ["status", "export"])
def test_a_store_that_is_not_there_is_not_made(command, tmp_path):
    missing = tmp_path / "none.sqlite"
    done = invoke(command, missing, *([tmp_path / "t.csv"] * (command == "export")))
    assert done.exit_code == 2
    assert "there is no store" in done.stderr
    assert not missing.exists()


def test_a_file_that_is_no_store_is_named(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 40)
    done = invoke("status", path)
    assert done.exit_code == 2
    assert "is not a store" in done.stderr


def test_another_kind_of_table_is_refused(path, tmp_path):
    done = invoke("export", path, tmp_path / "t.xlsx")
    assert done.exit_code == 2
    assert "must end in .csv or .parquet" in done.stderr


# A command that sweeps, as others are.


def command(
    store: StoreOption = Path("draw.sqlite"),
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
    fail: bool = False,  # noqa: FBT001, FBT002 (an option)
) -> None:
    where = Where(
        command="dpaudit draw",
        store=store,
        engine=engine,
        address=address,
        workers=workers,
    )
    sweep = SWEEP
    if fail:
        sweep = Sweep(
            name="luck",
            revision=1,
            function=trials.fail_at_times,
            settings=[{"mended": "no"}],
            trials=30,
        )
    with filled(where, [sweep]) as found:
        typer.echo(f"{sum(1 for _ in found.rows())} rows")


drawing = typer.Typer(pretty_exceptions_enable=False)
drawing.command()(reported("dpaudit draw")(command))


def draw(*arguments):
    return CliRunner().invoke(drawing, [*map(str, arguments)])


def test_trials_that_raised_end_the_command_with_advice(tmp_path):
    path = tmp_path / "s.sqlite"
    done = draw("--store", path, "--fail")
    assert done.exit_code == 2
    assert f"`dpaudit-lab sweep status {path}` shows why" in done.stderr
    assert "rows" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--address", "127.0.0.1:1"], "--address is for --engine ray"),
        (["--workers", "0"], "workers must be a whole number >= 1, got workers=0"),
    ],
)
def test_misuse_is_named(tmp_path, arguments, advice):
    done = draw("--store", tmp_path / "s.sqlite", *arguments)
    assert done.exit_code == 2
    assert advice in done.stderr


@pytest.mark.nightly
def test_an_interrupt_leaves_a_store_that_the_same_command_goes_on_from(tmp_path):
    path = tmp_path / "s.sqlite"
    script = [sys.executable, __file__, "--store", str(path), "--workers", "2"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(trials.__file__).parent), *sys.path]),
        "TRIAL_SECONDS": "0.05",  # long enough for a busy machine to interrupt it
    }
    process = subprocess.Popen(
        script,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        stdout=-1,
        # A shell starts what it runs in the background with interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    while stored(path) < 10 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"what was done is in {path}" in said
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    assert 10 <= stored(path) < 400
    again = subprocess.run(
        script, env=environment, check=True, capture_output=True, text=True
    )
    assert "400 rows" in again.stdout


if __name__ == "__main__":
    drawing()
