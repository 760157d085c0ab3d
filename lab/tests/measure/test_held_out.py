"""How faults and correct programs are audited, counted and kept."""

import csv
from pathlib import Path

import pytest
from held_out import (
    SETS,
    cases_of,
    in_a_process,
    kind,
    page_of,
    report,
    run,
    wanted,
    write_csv,
)
from sweeping import lines

from dpaudit.game.findings import Stage
from dpaudit.game.verdict import Verdict
from dpaudit_lab.held_out.program import HYPOTHESIS_OF

KNOWN = {
    "part": "p",
    "group": "FAULTS",
    "case": "c",
    "seed": 0,
    "in_scope": True,
    "undisclosed": False,
}
LAB = Path(__file__).parents[2]
PAGE = LAB.parent / "docs" / "explanation" / "bug-zoo.md"
CLEAN = Verdict.NO_VIOLATION_DETECTED


def row(outcome, *stages, breaks="H2", **more):
    faults = [{"stage": each, "code": "code"} for each in stages]
    return KNOWN | {"breaks": breaks, "outcome": outcome, "faults": faults} | more


def test_every_stage_belongs_to_a_hypothesis():
    assert {*Stage} == {*HYPOTHESIS_OF}


def test_faults_are_named_by_the_hypothesis_of_their_stage():
    fault, refuted = Verdict.FAULT_FOUND, Verdict.CLAIM_REFUTED
    assert kind(row(fault, "clipping")) == "named"
    assert kind(row(fault, "side-paths", "per-example-gradients")) == "named"
    assert kind(row(refuted, "clipping")) == "named"
    assert kind(row(fault, "side-paths")) == "misnamed"
    assert kind(row(refuted)) == "misnamed"
    for unsure in (Verdict.INVALID_RUN, Verdict.INCONCLUSIVE):
        assert kind(row(unsure, "clipping")) == "inconclusive or invalid"
    assert kind(row(CLEAN)) == kind(row(CLEAN, breaks=None)) == "no violation"
    assert kind(row(fault, "clipping", breaks=None)) == "fault or refuted"
    assert kind(row("refused")) == "refused"


def test_counts_have_exact_limits_and_leave_out_what_is_out_of_scope():
    rows = [
        row(Verdict.FAULT_FOUND, "clipping"),
        row(CLEAN),
        row(CLEAN, in_scope=False),
        row(CLEAN, breaks=None),
    ]
    counted = [line.split(" | ") for line in report(rows).splitlines()]
    (scope,) = (cells for cells in counted if cells[0] == "| faults in scope")
    assert scope[1:3] == ["2", "1 [0.01, 0.99]"]
    (correct,) = (cells for cells in counted if cells[0] == "| correct")
    assert correct[1:3] == ["1", "1 [0.03, 1.00]"]


def test_rows_that_are_not_public_are_in_a_table_of_their_own(tmp_path):
    path = tmp_path / "held.csv"
    rows = [row(CLEAN, case="one"), row(CLEAN, case="other", undisclosed=True)]
    for undisclosed, kept in ((False, "one"), (True, "other")):
        write_csv(path, rows, undisclosed=undisclosed)
        assert [each["case"] for each in table(path)] == [kept]


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("folder", ["results", "findings"])
def test_tables_name_cases_that_are_not_public_in_their_folder_only(folder):
    parts = [part for every in SETS.values() for part in every]
    marked = {
        (part, case.name): case.undisclosed
        for part in parts
        for _, case in cases_of(part)
    }
    found = [
        row for path in (LAB / folder).glob("held_out*.csv") for row in table(path)
    ]
    assert len(found) > 3
    for each in found:
        key = each["part"], each["case"]
        assert marked[key] is (folder == "findings"), key


def test_a_set_whose_files_are_missing_has_no_cases(capsys):
    assert cases_of("no_such_file") == []
    assert "no_such_file: not there" in capsys.readouterr().out


def test_a_case_that_takes_too_long_is_stopped():
    found = in_a_process("developed_correct", "plain", 0, limit=0.1)
    assert found == {"outcome": "raised", "error": "more than 0.1 s"}


@pytest.mark.nightly
def test_a_fault_and_a_correct_program_are_audited_once(tmp_path):
    store, table = tmp_path / "held.jsonl", tmp_path / "held.csv"
    names = ["cycle-of-loader", "double-precision"]
    every = list(wanted(SETS["developed"], 1, names))
    said = []
    faulty, correct = run(every, store, limit=300, say=said.append)
    assert kind(faulty) == "named"
    assert kind(correct) == "no violation"
    assert correct["coverage"]["clipping"] == "inspected"
    assert len(lines(store)) == len(said) == 2
    assert run(every, store, limit=300, say=said.append) == [faulty, correct]
    assert len(said) == 2
    write_csv(table, [faulty, correct])
    with table.open() as file:
        first, second = csv.DictReader(file)
    assert (first["case"], first["as"], first["hypotheses"]) == (
        names[0],
        "named",
        "H1",
    )
    assert (second["as"], second["faults"]) == ("no violation", "[]")


@pytest.mark.undisclosed
@pytest.mark.nightly
def test_undisclosed_cases_are_audited(tmp_path):
    every = list(wanted(SETS["undisclosed"], 1, None))
    for found in run(every, tmp_path / "held.jsonl", limit=300, say=print):
        assert found["outcome"] not in ("refused", "raised")


@pytest.mark.parametrize("which", ["developed", "first", "second"])
def test_the_page_shows_what_the_tables_come_to(which):
    shown = f"<!-- table: {which} -->\n\n{page_of(which)}\n\n<!-- end -->"
    assert shown in PAGE.read_text("utf-8")
