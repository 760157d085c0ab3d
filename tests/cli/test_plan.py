"""``dpaudit plan``, as a user runs it."""

import json
import sys
from functools import cache
from importlib import resources
from types import ModuleType

import jsonschema
import pytest
from typer.testing import CliRunner

from dpaudit import Design, GaussianDP, _progress
from dpaudit.cli import _library, app
from dpaudit.dpsgd.planning import plan, plan_audit
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.errors import MissingExtraError

TRAINED = ["--epsilon=2", "--delta=1e-5", "--steps=1", "--rate=1"]
SMALL = [*TRAINED, "--coordinates=60", "--noise=2.15", "--per-coordinate=2"]


@pytest.fixture(scope="module", autouse=True)
def once():
    """Plans and limits are the same every time: each is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_library, "plan_audit", cache(plan_audit))
        patch.setattr(plan, "training_limit", cache(training_limit))
        yield


def run(*arguments):
    return CliRunner().invoke(app, ["plan", *arguments])


def found(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    folder = resources.files("dpaudit") / "schemas"
    schema = json.loads((folder / "plan.schema.json").read_text("utf-8"))
    jsonschema.validate(told, schema)
    return told


@pytest.fixture
def accountant(monkeypatch):
    """An accountant of the full batch in one step, whether one is installed or not."""
    module = ModuleType("dpaudit.accounting")
    asked = []

    def noise_for(epsilon, delta, *, sample_rate, steps, method):
        asked.append((epsilon, delta, sample_rate, steps, method))
        return 2.15

    module.noise_for = noise_for
    module.accountant_curve = lambda history: GaussianDP(mu=1 / history[0][0])
    monkeypatch.setitem(sys.modules, "dpaudit.accounting", module)
    return asked


@pytest.fixture
def no_accountant(monkeypatch):
    monkeypatch.delitem(sys.modules, "dpaudit.accounting", raising=False)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)


@pytest.mark.nightly
def test_json_holds_the_design_that_an_audit_is_opened_with(accountant):
    plan = found(*SMALL)
    design = Design.of_plain(plan["design"])
    assert (design.canaries, design.bound_delta, design.alpha) == (120, 1e-5, 0.05)
    assert (plan["coordinates"], plan["per_coordinate"]) == (60, 2)
    assert plan["ceiling"] < plan["true_epsilon"]
    assert plan["needed"] is None
    assert plan["text"].startswith("DP-SGD of 1 step with")
    assert accountant == []  # the noise was given


@pytest.mark.nightly
@pytest.mark.usefixtures("accountant")
def test_alpha_is_taken():
    one, other = (found(*SMALL, f"--alpha={alpha}") for alpha in (0.05, 0.2))
    assert other["alpha"] == 0.2
    assert other["expected"]["mean"] > one["expected"]["mean"] + 0.1


@pytest.mark.usefixtures("accountant")
def test_without_delta_nothing_limits_gaussian_noise():
    plan = found(*SMALL, "--delta=0")
    assert (plan["true_epsilon"], plan["ceiling"]) == ("inf", "inf")
    assert 0 < plan["expected"]["mean"] < 2


@pytest.mark.nightly
@pytest.mark.usefixtures("accountant")
def test_a_target_is_answered_with_numbers_of_canaries():
    without = [option for option in SMALL if "--coordinates" not in option]
    plan = found(*without, "--target-epsilon=0.6")
    needed = plan["needed"]
    assert plan["target_epsilon"] == 0.6
    assert (plan["coordinates"], plan["per_coordinate"]) == (needed["coordinates"], 2)
    assert needed["expected"]["mean"] == pytest.approx(0.6, abs=0.04)
    assert plan["expected"]["mean"] == pytest.approx(0.6, abs=0.06)


@pytest.mark.nightly
@pytest.mark.usefixtures("accountant")
def test_a_target_above_the_ceiling_is_said_to_be_out_of_reach():
    done = run(*SMALL, "--target-epsilon=5")
    assert done.exit_code == 0
    assert "no number of canaries is enough: no one-run audit" in done.stdout


@pytest.mark.usefixtures("no_accountant")
def test_without_an_accountant_the_noise_must_be_given():
    done = run(*TRAINED, "--coordinates=200")
    assert done.exit_code == 2
    assert (
        "pip install '.[accounting]' in a checkout of dpaudit, or give it by"
        in done.stderr
    )


@pytest.mark.usefixtures("no_accountant")
def test_without_an_accountant_the_ceiling_is_left_open_and_that_is_said():
    with pytest.raises(MissingExtraError):
        import dpaudit.accounting  # noqa: F401, PLC0415
    plan = found(*SMALL)
    assert plan["true_epsilon"] is None
    assert plan["ceiling"] is None
    assert "what an accountant proves is not known" in plan["text"]


@pytest.mark.usefixtures("accountant")
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--alpha=0.95"], "for confidence 0.95 pass 0.05"),
        (["--delta=2"], "delta must be in [0, 1]"),
        (["--coordinates=0"], "coordinates must be a whole number >= 1"),
        (["--per-coordinate=0"], "per_coordinate must be a whole number >= 1"),
        (["--steps=0"], "steps must be a whole number >= 1"),
        (["--rate=0"], "rate must be in (0, 1]"),
        (["--noise=0"], "noise must be a finite number > 0"),
        (["--epsilon=-1"], "epsilon must be a finite number >= 0"),
        (["--target-epsilon=0"], "target_epsilon must be a finite number > 0"),
    ],
)
def test_misuse_exits_with_2_and_advice(arguments, advice):
    done = run(*SMALL, *arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("accountant")
def test_neither_coordinates_nor_target_is_refused():
    done = run(*TRAINED)
    assert done.exit_code == 2
    assert "give --coordinates, or --target-epsilon" in done.stderr


@pytest.mark.usefixtures("accountant")
def test_what_takes_long_says_so_beside_the_same_answer(monkeypatch):
    answer = run(*SMALL, "--json").stdout
    monkeypatch.setattr(_progress, "_SECONDS_BEFORE_NOTE", 0.0)
    monkeypatch.setattr(_library, "plan_audit", plan_audit)
    done = run(*SMALL, "--json")
    assert done.exit_code == 0
    assert done.stdout == answer


@pytest.mark.usefixtures("no_accountant")
def test_neither_epsilon_nor_noise_is_too_little():
    bare = ["--delta=1e-5", "--steps=1", "--rate=1", "--coordinates=200"]
    done = run(*bare)
    assert done.exit_code == 2
    assert "give --epsilon, --noise, or both" in done.stderr
    done = run(*bare, "--noise=2.15")
    assert done.exit_code == 2
    assert "or give the claim's by --epsilon" in done.stderr


@pytest.mark.usefixtures("accountant")
def test_the_limit_is_said_unless_not_wanted():
    assert "limit" not in found(*SMALL, "--no-limit")
    told = found(*SMALL)
    assert told["limit"]["low"] == told["limit"]["value"] == told["limit"]["high"]
    assert told["expected"]["mean"] < told["limit"]["value"] < told["ceiling"]
    said = " ".join(run(*SMALL).stdout.split())
    shown = f"is at most epsilon = {told['limit']['value']:.4g}"
    assert shown in " ".join(said.split())
