"""``dpaudit calibrate``, as a user runs it."""

import json
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from dpaudit.cli.calibrate import calibrate
from dpaudit.engines import sweep
from dpaudit.experiments import calibration
from dpaudit.experiments.calibration import Case, Row

ROW = Row(
    rule="betting",
    ours=True,
    null="silent",
    epsilon=0.0,
    delta=0.0,
    canaries=100,
    alpha=0.05,
    runs=100,
    rate=0.01,
    low=0.0,
    high=0.1,
)

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(calibrate)


def run(path, *arguments):
    return CliRunner().invoke(app, [f"--store={path}", *arguments])


@pytest.fixture
def few(monkeypatch):
    """A table of three cases."""
    chosen = [
        Case(rule="betting", null="silent", canaries=100, alpha=0.05),
        Case(rule="exact, r = n", null="silent", canaries=100, alpha=0.05),
        Case(
            rule="PrivacyGuard fb9c26c: scan with a floor",
            null="silent",
            canaries=100,
            alpha=0.05,
        ),
    ]
    monkeypatch.setattr(calibration, "cases", lambda **_: chosen)


@pytest.mark.usefixtures("few")
def test_json_gives_every_row_and_the_chance_of_a_false_alarm(tmp_path):
    done = run(tmp_path / "s.sqlite", "--runs=200", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["format"] == "dpaudit.calibration.1"
    assert found["false_alarm"] == 0.001
    assert [row["runs"] for row in found["rows"]] == [200, None, None]
    assert [row["fails"] for row in found["rows"]] == [False, False, True]
    again = run(tmp_path / "s.sqlite", "--runs=200", "--json")
    assert again.stdout == done.stdout


@pytest.mark.usefixtures("few")
def test_text_tells_ours_from_others(tmp_path):
    done = run(tmp_path / "s.sqlite", "--runs=100")
    assert done.exit_code == 0
    assert "dpaudit's rules: 0 of 2 rows fail" in done.stdout
    assert "others' rules: 1 of 1 rows fail" in done.stdout
    assert "with a chance of at most 0.001" in done.stdout


@pytest.mark.usefixtures("few")
def test_a_failing_row_of_ours_exits_with_1(tmp_path, monkeypatch):
    failing = replace(ROW, low=0.06, rate=0.07)
    monkeypatch.setattr(calibration, "table", lambda *_, **__: [ROW, failing])
    done = run(tmp_path / "s.sqlite", "--runs=100")
    assert done.exit_code == 1
    assert "dpaudit's rules: 1 of 2 rows fail" in done.stdout


@pytest.mark.usefixtures("few")
def test_an_interrupt_leaves_a_store_to_go_on_from(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    whole = sweep.run

    def interrupted(planned, **rest):
        whole(replace(planned, trials=1), **rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run", interrupted)
    done = run(path, "--runs=200")
    assert done.exit_code == 130
    assert "the same command goes on from there" in done.stderr
    assert done.stdout == ""
    monkeypatch.undo()
    with calibration.Store(path) as store:
        assert len(list(store.rows())) == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--runs=50"], "runs must be a positive multiple of 100, got runs=50"),
        (["--workers=0"], "workers must be a whole number >= 1, got workers=0"),
    ],
)
def test_misuse_exits_with_2_and_advice(tmp_path, arguments, advice):
    done = run(tmp_path / "s.sqlite", "--small", *arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 40)
    done = run(path, "--small", "--runs=100")
    assert done.exit_code == 2
    assert "name another file with --store" in done.stderr


def test_without_loky_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "loky", None)
    monkeypatch.delitem(sys.modules, "dpaudit.engines.local", raising=False)
    done = run(tmp_path / "s.sqlite", "--small", "--runs=100")
    assert done.exit_code == 2
    assert "pip install 'dpaudit[sweep]'" in done.stderr
