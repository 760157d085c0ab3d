"""``dpaudit gaps``, as a user runs it."""

import json
import math
from importlib import resources

import jsonschema
import pytest
from typer.testing import CliRunner

from dpaudit import _progress
from dpaudit.cli import app
from dpaudit.mechanisms.catalogue import MECHANISMS


def run(*arguments):
    return CliRunner().invoke(app, ["gaps", *arguments])


def levels(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    folder = resources.files("dpaudit") / "schemas"
    schema = json.loads((folder / "gaps.schema.json").read_text("utf-8"))
    jsonschema.validate(found, schema)
    return {level["name"]: level for level in found["levels"]}, found


@pytest.mark.nightly
def test_count_as_typed():
    found, whole = levels("count", "--n", "100")
    assert (whole["elements"], whole["guesses"], whole["mechanism"]) == (
        100,
        100,
        "count",
    )
    assert found["claim"]["epsilon"] == "inf"
    # E|O - 50| of 100 fair coins is 100 C(100, 50) / 2^101.
    accuracy = 0.5 + math.comb(100, 50) / 2**101
    want = math.log(accuracy / (1 - accuracy))
    assert found["elements"]["epsilon"] == pytest.approx(want, abs=1e-9)
    assert found["outputs"]["takes"] == "inf"
    assert whole["largest"] == "outputs"


@pytest.mark.nightly
def test_count_in_sets_as_typed_shows_what_other_coins_hide():
    _, whole = levels("count-in-sets", "--n", "10", "--set-size", "5")
    full, adaptive, none = whole["knowledge"]
    assert [each["name"] for each in whole["knowledge"]] == [
        "full knowledge",
        "adaptivity",
        "one run",
    ]
    assert (full["epsilon"], full["low"]) == ("inf", "inf")
    # E max(h, a - h) / a for 5, 4, 3, 2 and 1 fair coins left, and for 5 alone
    accuracy = (11 / 16 + 11 / 16 + 3 / 4 + 3 / 4 + 1) / 5
    want = math.log(accuracy / (1 - accuracy))
    assert adaptive["epsilon"] == pytest.approx(want, abs=1e-9)
    assert none["epsilon"] == pytest.approx(math.log(11 / 5), abs=1e-9)
    assert "interference is behind it" in whole["text"]
    lines = run("count-in-sets", "--n", "10", "--set-size", "5").stdout.splitlines()
    assert lines[9].split()[0] == "known"
    assert lines[11].split()[:2] == ["adaptivity", "all"]


def test_local_laplace_as_typed():
    found, _ = levels("local-laplace", "--epsilon", "1")
    assert found["interference"]["epsilon"] == pytest.approx(1.0)
    accuracy = 1 - math.exp(-0.5) / 2
    want = math.log(accuracy / (1 - accuracy))
    assert found["elements"]["epsilon"] == pytest.approx(want, abs=1e-8)


def test_delta_alpha_guesses_and_a_bound_are_taken():
    found, whole = levels(
        "local-gaussian",
        "--n=200",
        "--guesses=20",
        "--delta=1e-5",
        "--alpha=0.1",
        "--observed=0.5",
    )
    assert (whole["delta"], whole["alpha"], whole["guesses"]) == (1e-5, 0.1, 20)
    assert found["claim"]["epsilon"] == pytest.approx(4.3772, abs=1e-4)
    assert whole["remainder"] == pytest.approx(0.5 - found["statistics"]["epsilon"])


@pytest.mark.nightly
def test_the_seed_decides_what_is_simulated():
    arguments = ["count", "--n=10", "--json"]
    one, two, other = (run(*arguments, f"--seed={seed}").stdout for seed in (1, 1, 2))
    assert one == two
    assert one != other


@pytest.mark.nightly
@pytest.mark.parametrize(("set_size", "least"), [(2, 1.0), (10, 0.5)])
def test_the_set_size_is_taken(set_size, least):
    """Half of all pairs are alike, and then known; guesses about the rest are coins."""
    found, _ = levels("count-in-sets", "--n=20", f"--set-size={set_size}")
    accuracy = 0.5 + math.comb(set_size, set_size // 2) / 2 ** (set_size + 1)
    want = math.log(accuracy / (1 - accuracy))
    assert found["elements"]["epsilon"] == pytest.approx(want, abs=1e-9)
    assert want > least


def test_an_unknown_name_lists_the_known_ones():
    done = run("nonsense")
    assert done.exit_code == 2
    assert [name for name in MECHANISMS if name not in done.stderr] == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["xor", "--alpha=0.95"], "for confidence 0.95 pass 0.05"),
        (["xor", "--delta=2"], "delta must be in [0, 1]"),
        (["xor", "--n=0"], "elements must be a whole number >= 1"),
        (["xor", "--n=5", "--guesses=6"], "guesses=6"),
        (["local-laplace", "--epsilon=-1"], "epsilon must be a finite number > 0"),
        (["count-in-sets", "--n=20", "--set-size=7"], "not a multiple of set_size=7"),
        (["xor", "--seed=-1"], "--seed must be a whole number >= 0"),
        (["xor", "--observed=nan"], "--observed must be a finite number >= 0"),
    ],
)
def test_misuse_exits_with_2_and_advice(arguments, advice):
    done = run(*arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""


def test_what_takes_long_says_so_beside_the_answer(monkeypatch):
    answer = run("xor", "--json").stdout
    monkeypatch.setattr(_progress, "_SECONDS_BEFORE_NOTE", 0.0)
    done = run("xor", "--json")
    assert done.exit_code == 0
    assert done.stdout == answer
