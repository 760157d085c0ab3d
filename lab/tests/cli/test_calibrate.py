"""``dpaudit-lab calibrate``, as a user runs it."""

import sys
from dataclasses import asdict, replace

import pytest
from typer.testing import CliRunner

from dpaudit.cli import _library
from dpaudit_lab.calibration import table
from dpaudit_lab.calibration.cases import Case
from dpaudit_lab.calibration.pipeline import PipelineCase, Way
from dpaudit_lab.calibration.results import read_csv
from dpaudit_lab.calibration.roads import AS_IT_WAS
from dpaudit_lab.calibration.table import Part, Plan, Row
from dpaudit_lab.calibration.whole import WholeCase
from dpaudit_lab.cli import app
from dpaudit_lab.sweeps import sweep
from dpaudit_lab.sweeps.store import Store

ROW = Row(
    part=Part.RULES,
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
RULES = tuple(
    Case(rule=rule, null="silent", canaries=100, alpha=0.05)
    for rule in (
        "betting",
        "exact, r = n",
        "PrivacyGuard fb9c26c: scan with a floor",
    )
)
WHOLE = (
    WholeCase(
        auditor="one run", guesser="everyone", mechanism="local randomised response"
    ),
)
ROADS = tuple(
    PipelineCase(
        road=road,
        rules="all",
        null="silent, all equal",
        canaries=3,
        alpha=0.3,
        way=Way.ONES,
        trials=8,
    )
    for road in ("counts", *AS_IT_WAS)
)


def run(path, *arguments):
    return CliRunner().invoke(app, ["calibrate", f"--store={path}", *arguments])


@pytest.fixture
def few(monkeypatch):
    """A table of three rules and a whole audit, or of three roads."""

    def planned(*, small, only, audits):  # noqa: ARG001 (it is small)
        return Plan(
            rules=RULES if only in (None, Part.RULES) else (),
            whole=WHOLE if only in (None, Part.WHOLE) else (),
            pipeline=ROADS if only is Part.PIPELINE else (),
            audits=audits,
        )

    monkeypatch.setattr(table, "plan", planned)


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_json_gives_every_row_and_the_chance_of_a_false_alarm(tmp_path, schema):
    done = run(tmp_path / "s.sqlite", "--trials=200", "--json")
    assert done.exit_code == 0
    found = schema(done.stdout, "calibration")
    assert found["format"] == "dpaudit.calibration.3"
    assert found["false_alarm"] == 0.001
    assert [row["runs"] for row in found["rows"]] == [200, None, None, 200]
    assert [row["fails"] for row in found["rows"]] == [False, False, True, False]
    assert [row["part"] for row in found["rows"]] == ["rules"] * 3 + ["whole"]
    again = run(tmp_path / "s.sqlite", "--trials=200", "--json")
    assert again.stdout == done.stdout


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("every", [[], ["--every"]])
def test_text_tells_ours_from_others(tmp_path, every):
    done = run(tmp_path / "s.sqlite", "--trials=100", *every)
    assert done.exit_code == 0
    assert "dpaudit's: 0 of 3 rows fail" in done.stdout
    assert "others': 1 of 1 rows fail" in done.stdout
    assert "with a chance of at most 0.001" in done.stdout
    assert ("its worst null" in done.stdout) == (not every)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("part", "rows"), [("rules", 2), ("whole", 1)])
def test_one_part_alone_can_be_asked_for(tmp_path, part, rows):
    done = run(tmp_path / "s.sqlite", "--trials=100", f"--only={part}")
    assert done.exit_code == 0
    assert f"dpaudit's: 0 of {rows} rows fail" in done.stdout


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_the_pipeline_tells_what_is_from_what_was(tmp_path):
    done = run(tmp_path / "s.sqlite", "--only=pipeline")
    assert done.exit_code == 0
    assert "dpaudit's: 0 of 1 rows fail" in done.stdout
    assert "dpaudit's as it was: 2 of 2 rows fail" in done.stdout


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_the_pipeline_fills_its_own_tables_of_a_page(tmp_path, schema):
    page, rows = tmp_path / "page.md", tmp_path / "rows.csv"
    page.write_text(
        "<!-- table: headline -->\nkept\n<!-- end -->\n"
        "<!-- table: pipeline -->\nstale\n<!-- end -->\n"
    )
    outputs = [f"--page={page}", f"--csv={rows}"]
    done = run(tmp_path / "s.sqlite", "--only=pipeline", *outputs)
    assert done.exit_code == 0
    text = page.read_text("utf-8")
    assert "kept" in text
    assert "stale" not in text
    assert "| counts | 1 |" in text
    _, counts, *_ = rows.read_text("utf-8").splitlines()
    assert counts.startswith(
        'pipeline,counts: all,True,"silent, all equal",0.0,0.0,3,0.3,,'
    )
    assert counts.endswith(",8,0.0,holds")
    found = run(tmp_path / "s.sqlite", "--only=pipeline", "--json").stdout
    rows = schema(found, "calibration")["rows"]
    assert [row["designs"] for row in rows] == [8, 8, 8]


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_a_file_gets_every_row_and_keeps_those_of_the_pipeline(tmp_path, schema):
    path, rows = tmp_path / "s.sqlite", tmp_path / "rows.csv"
    for only in (["--only=pipeline"], [], []):
        done = run(path, "--trials=100", f"--csv={rows}", "--json", *only)
        assert done.exit_code == 0
    written = read_csv(rows.read_text("utf-8"))
    assert [row.part for row in written] == ["rules"] * 3 + ["whole"] + ["pipeline"] * 3
    told = schema(done.stdout, "calibration")["rows"]
    assert [asdict(row) | {"fails": row.fails} for row in written[:4]] == told


@pytest.mark.usefixtures("few")
def test_a_file_of_something_else_is_refused_before_anything_is_simulated(tmp_path):
    path, rows = tmp_path / "s.sqlite", tmp_path / "rows.csv"
    rows.write_text("id,score\n1,2\n")
    done = run(path, "--trials=100", f"--csv={rows}")
    assert done.exit_code == 2
    assert "a file of calibration has the columns part, rule" in done.stderr
    assert rows.read_text() == "id,score\n1,2\n"
    assert not path.exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_a_page_gets_its_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- table: headline -->\n<!-- end -->\nAfter.\n")
    done = run(tmp_path / "s.sqlite", "--trials=100", f"--page={page}")
    assert done.exit_code == 0
    text = page.read_text("utf-8")
    assert text.startswith("Before.\n")
    assert "**Of ours, 0 of 3 rows fail**" in text


@pytest.mark.usefixtures("few")
def test_a_page_without_tables_is_refused_before_anything_is_simulated(tmp_path):
    page, path = tmp_path / "page.md", tmp_path / "s.sqlite"
    page.write_text("Nothing to fill.\n")
    for each in (page, tmp_path / "none.md"):
        done = run(path, "--trials=100", f"--page={each}")
        assert done.exit_code == 2
        assert "dpaudit-lab calibrate: " in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("part", ["--small", "--only=rules", "--only=whole"])
def test_a_page_is_not_filled_with_a_part_of_the_table(tmp_path, part):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: headline -->\nkept\n<!-- end -->\n")
    done = run(tmp_path / "s.sqlite", "--trials=100", f"--page={page}", part)
    assert done.exit_code == 2
    assert f"a page shows the whole table, and {part} leaves rows out" in done.stderr
    assert "kept" in page.read_text("utf-8")
    assert not (tmp_path / "s.sqlite").exists()


@pytest.mark.parametrize("part", ["--small", "--only=rules", "--only=whole"])
def test_a_file_is_not_filled_with_a_part_of_the_table(tmp_path, part):
    rows = tmp_path / "rows.csv"
    done = run(tmp_path / "s.sqlite", "--trials=100", f"--csv={rows}", part)
    assert done.exit_code == 2
    assert f"is the whole table, and {part} leaves rows out" in done.stderr
    assert not rows.exists()
    assert not (tmp_path / "s.sqlite").exists()


@pytest.mark.usefixtures("few")
def test_a_failing_row_of_ours_exits_with_1(tmp_path, monkeypatch):
    failing = replace(ROW, low=0.06, rate=0.07)
    monkeypatch.setattr(table, "table", lambda *_: [ROW, failing])
    done = run(tmp_path / "s.sqlite", "--trials=100", "--only=rules")
    assert done.exit_code == 1
    assert "dpaudit's: 1 of 2 rows fail" in done.stdout


@pytest.mark.usefixtures("few")
def test_an_interrupt_leaves_a_store_to_go_on_from(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    whole = sweep.run

    def interrupted(planned, **rest):
        whole(replace(planned, trials=1), **rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run", interrupted)
    done = run(path, "--trials=200", "--only=rules")
    assert done.exit_code == 130
    assert "the same command goes on from there" in done.stderr
    assert done.stdout == ""
    monkeypatch.undo()
    with Store(path) as store:
        assert len(list(store.rows())) == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--trials=0"], "audits must be a whole number >= 1, got audits=0"),
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
    done = run(path, "--small", "--trials=100")
    assert done.exit_code == 2
    assert "name another file with --store" in done.stderr


def test_without_loky_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "loky", None)
    monkeypatch.delitem(sys.modules, "dpaudit.engines.local", raising=False)
    monkeypatch.delitem(vars(_library), "LocalEngine", raising=False)
    done = run(tmp_path / "s.sqlite", "--small", "--trials=100")
    assert done.exit_code == 2
    assert "pip install '.[sweep]'" in done.stderr
