"""``dpaudit bound``, as a user runs it."""

import json

import pytest
from typer.testing import CliRunner

from dpaudit.cli import app

COUNTS = ["--canaries=100000", "--guesses=1510", "--correct=1439", "--delta=1e-5"]


def run(*arguments):
    return CliRunner().invoke(app, ["bound", *arguments])


def test_json_gives_the_bound_and_all_it_rests_on():
    done = run(*COUNTS, "--alpha", "0.05", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found.pop("epsilon_lower") == pytest.approx(2.8028, abs=5e-5)
    assert found == {
        "format": "dpaudit.bound.1",
        "canaries": 100000,
        "guesses": 1510,
        "correct": 1439,
        "delta": 1e-5,
        "alpha": 0.05,
        "method": "exact",
        "tier": "A",
        "reference": "docs/explanation/exact-bound.md",
    }


def test_text_is_one_line():
    done = run(*COUNTS)
    assert done.stdout == (
        "epsilon >= 2.802 at delta = 1e-05 "
        "(alpha = 0.05, method exact, tier A: any mechanism)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--alpha", "0.95"], "for confidence 0.95 pass 0.05"),
        (["--correct", "1511"], "expected correct <= guesses <= canaries"),
        (["--delta", "2"], "delta must be in [0, 1], got delta=2.0"),
    ],
)
def test_misuse_exits_with_2_and_advice(arguments, advice):
    done = run(*COUNTS, *arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""
