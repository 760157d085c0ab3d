"""``dpaudit bound``, as a user runs it."""

import json
from importlib import resources

import jsonschema
import pytest
from typer.testing import CliRunner

from dpaudit.bounds.methods import METHODS
from dpaudit.cli import app

COUNTS = ["--canaries=100000", "--guesses=1510", "--correct=1439", "--delta=1e-5"]
RANKED = json.dumps(
    {
        "format": "dpaudit.reading.1",
        "kind": "ranked",
        "canaries": 40,
        "right": [True] * 12,
    }
)


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["bound", *arguments], input=stdin)


def schema(name):
    folder = resources.files("dpaudit") / "schemas"
    return json.loads((folder / f"{name}.schema.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("method", "epsilon"),
    [("exact", 2.8028), ("steinke", 2.6758), ("adaptive", 2.7661)],
)
def test_json_gives_the_bound_and_all_it_rests_on(method, epsilon):
    done = run(*COUNTS, "--alpha=0.05", f"--method={method}", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("bound"))
    jsonschema.validate(found["reading"], schema("reading"))
    assert found["epsilon_lower"] == pytest.approx(epsilon, abs=6e-5)
    (bound,) = found["bounds"]
    assert bound["epsilon_lower"] == found["epsilon_lower"]
    assert (bound["method"], bound["tier"]) == (method, "A")
    assert (bound["delta"], bound["alpha"]) == (1e-5, 0.05)


@pytest.mark.parametrize(("claimed", "code"), [("2.5", 1), ("3.5", 0)])
def test_a_refuted_claim_is_exit_code_1(claimed, code):
    done = run(*COUNTS, f"--epsilon={claimed}")
    assert done.exit_code == code
    assert ("is refuted" in done.stdout) is bool(code)
    found = json.loads(run(*COUNTS, f"--epsilon={claimed}", "--json").stdout)
    jsonschema.validate(found, schema("bound"))
    assert found["claim"]["refuted"] is bool(code)


def test_the_claim_s_epsilon_has_one_name_everywhere_and_its_old_one_still_works():
    one, old = (
        run(*COUNTS, f"--{name}=2.5", "--json") for name in ("epsilon", "claim-epsilon")
    )
    assert one.exit_code == old.exit_code == 1
    assert one.stdout == old.stdout
    assert "claim-epsilon" not in run("--help").stdout


def test_no_bound_is_above_what_its_method_would_say_of_guesses_all_right():
    counts = ["--canaries=50000", "--guesses=1000", "--correct=950", "--delta=1e-4"]
    for method in ("exact", "separate"):
        done = run(*counts, "--alpha=0.001", f"--method={method}", "--json")
        found = json.loads(done.stdout)
        assert found["epsilon_lower"] <= found["ceiling"]
    assert found["epsilon_lower"] > 2.5


def test_the_help_names_every_method():
    shown = run("--help").stdout
    assert [name for name in METHODS if name not in shown] == []


def test_a_reading_comes_from_a_file_or_standard_input(tmp_path):
    path = tmp_path / "reading.json"
    path.write_text(RANKED)
    jsonschema.validate(json.loads(RANKED), schema("reading"))
    from_file, from_stdin = run(f"--reading={path}"), run("--reading=-", stdin=RANKED)
    assert from_file.stdout == from_stdin.stdout
    assert "method ranked" in from_file.stdout


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ([*COUNTS, "--alpha=0.95"], "for confidence 0.95 pass 0.05"),
        ([*COUNTS, "--correct=1511"], "expected correct <= guesses <= canaries"),
        ([*COUNTS, "--delta=2"], "delta must be in [0, 1], got delta=2.0"),
        ([*COUNTS, "--method=tea"], "--method must be one of exact, pure"),
        ([*COUNTS, "--method=pure"], "is for delta=0"),
        ([*COUNTS, "--reading=x.json"], "either --reading or the three counts"),
        (["--reading=no-such-file"], "cannot read no-such-file"),
        (["--canaries=5"], "give --canaries, --guesses and --correct"),
        ([*COUNTS, "--epsilon=-1"], "epsilon must be a finite number >= 0"),
    ],
)
def test_misuse_exits_with_2_and_advice(arguments, advice):
    done = run(*arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""
