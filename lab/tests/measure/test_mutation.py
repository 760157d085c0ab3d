"""What became of the mutants: the file that is checked in, and its page."""

import json
from collections import Counter
from pathlib import Path

import mutation_results
import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "developer" / "checks.md"


@pytest.fixture(scope="module")
def held():
    return json.loads(mutation_results.RESULTS.read_text("utf-8"))


def test_packages_are_the_sums_of_their_modules():
    def row(module, *counts):
        names = ("mutants", "tried", "killed", "timeout", "survived", "wording")
        return dict(
            zip(("module", *names, "wording survived"), (module, *counts), strict=True)
        )

    rows = [
        row("a/one", 100, 60, 40, 1, 19, 10, 9),
        row("a/two", 50, 40, 40, 0, 0, 0, 0),
        row("b/one", 10, 10, 5, 0, 5, 10, 5),
    ]
    assert mutation_results.by_package(rows).splitlines()[2:] == [
        "| a | 150 | 100 | 80 | 1 | 19 | 81.0% | 88.9% of 90 |",
        "| b | 10 | 10 | 5 | 0 | 5 | 50.0% | 100.0% of 0 |",
        "| **all** | 160 | 110 | 85 | 1 | 24 | 78.2% | 88.9% of 90 |",
    ]


def test_reasons_are_told_by_their_kind():
    reasons = ["equivalent: both", "equivalent", "open", "the wording of a message"]
    rows = [{"mutants": 2, "why": why} for why in [*reasons, "a rougher price"]]
    assert mutation_results.reasons(rows) == (
        "Of 10 survivors 4 are equivalent, 2 change the wording of a sentence, 2 have "
        "another reason, and 2 are open."
    )


def test_the_file_that_is_checked_in_is_as_it_would_be_written(held):
    text = mutation_results.RESULTS.read_text("utf-8")
    assert mutation_results.as_text(held) == text


def test_every_mutant_that_was_tried_has_one_fate(held):
    for row in held["modules"]:
        assert row["killed"] + row["timeout"] + row["survived"] == row["tried"]
        assert row["wording survived"] <= min(row["wording"], row["survived"])
        assert row["tried"] <= row["mutants"]


def test_every_survivor_is_listed_with_what_it_changes_and_why(held):
    listed = Counter()
    for row in held["survivors"]:
        listed[row["module"]] += row["mutants"]
        assert row["why"]
        assert bool(row["changes"]) is ("wording" not in row["why"])
        assert len(row["changes"]) <= row["mutants"]
    assert listed == Counter({r["module"]: r["survived"] for r in held["modules"]})


def test_the_page_shows_what_the_file_comes_to(held):
    text = PAGE.read_text("utf-8")
    table = mutation_results.by_package(held["modules"])
    assert f"<!-- table -->\n{table}\n<!-- end of table -->" in text
    said = mutation_results.reasons(held["survivors"])
    assert f"<!-- survivors -->\n{said}\n<!-- end of survivors -->" in text
