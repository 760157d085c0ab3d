"""What the runs of the bug zoo showed: the file that is checked in, and its page."""

from pathlib import Path

import bugzoo_results
import pytest

from dpaudit.game.text.stages import stage_name
from dpaudit.game.text.terms import terms_of
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.bugzoo import BUGS
from dpaudit_lab.bugzoo.bug import insertion_name

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "bug-zoo.md"


@pytest.fixture(scope="module")
def held():
    return bugzoo_results.read_csv(bugzoo_results.RESULTS.read_text("utf-8"))


def test_the_file_that_is_checked_in_is_as_it_would_be_written(held):
    text = bugzoo_results.RESULTS.read_text("utf-8")
    assert bugzoo_results.csv_text(held) == text


def test_every_bug_has_a_row_that_says_what_is_known_of_it(held):
    assert [row["bug"] for row in held] == list(BUGS)
    for row in held:
        bug = BUGS[row["bug"]]
        assert row["title"] == bug.title
        assert row["stage"] == stage_name(bug.stage, terms_of(None))
        assert row["default"]
        assert row["canary"] == insertion_name(bug.insertion)
        assert int(row["canaries"] or 0) == bug.canaries
        told = (row["story"], row["truth_because"], row["seen_by"], row["remark"])
        assert told == (bug.story, bug.truth.how, bug.seen_by, bug.remark)


def test_limits_are_those_of_the_counts(held):
    for row in held:
        assert bool(row["runs"]) == bool(row["canary"])
        if not row["runs"]:
            continue
        low, high = rate_limits(int(row["caught"]), int(row["runs"]), alpha=0.05)
        assert (row["low"], row["high"]) == (f"{low:.4g}", f"{high:.4g}")


def test_a_bug_without_any_privacy_is_shown_as_such(held):
    row = {**held[0], "title": "none", "truth": "infinite", "ratio": "inf"}
    seen = {"default": "1 of 2", "hypothesis": "H2", "caught_by": "clipping: none"}
    counted = {"canary": "Dirac; sums", "caught": "3", "runs": "4"}
    assert bugzoo_results.table([row | seen | counted]).splitlines()[2:] == [
        "| none | infinite | ∞ | 1 of 2 | H2 | clipping: none | Dirac; sums: 3 of 4 |"
    ]
    assert bugzoo_results.table([row | seen | {"runs": ""}]).endswith("none |  |")


def test_each_audit_fills_its_own_columns():
    held = [{"bug": "b", "default": "1 of 2", "runs": "20", "title": "old"}]
    known = [{"bug": "a", "title": "first"}, {"bug": "b", "title": "second"}]
    first, second = bugzoo_results.merged(held, known, {"b": {"default": "2 of 2"}})
    assert first["title"] == "first"
    assert first["runs"] == first["default"] == ""
    assert second["title"] == "second"
    assert (second["runs"], second["default"]) == ("20", "2 of 2")


def test_the_page_shows_what_the_file_comes_to(held):
    table = bugzoo_results.table(held)
    shown = f"<!-- table: results -->\n\n{table}\n\n<!-- end -->"
    assert shown in PAGE.read_text("utf-8")
