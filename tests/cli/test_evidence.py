"""``dpaudit evidence``, ``verify`` and ``explain``, on one registered audit."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Key

VERIFIED = "verification"
KEY = ["--design=design.json", "--key=audit.key"]
FILES = ["--save=result.json", "--evidence=evidence.json"]


@pytest.fixture
def audited(dpaudit, registered):
    """The registered audit with its result and its evidence."""
    dpaudit("audit", "scores.npz", *KEY, *FILES, code=1)
    return registered


def findings(found):
    return {check["name"]: check["outcome"] for check in found["checks"]}


@pytest.mark.usefixtures("audited")
def test_evidence_of_an_audit_is_verified_as_far_as_files_are_given(dpaudit, schema):
    bare = dpaudit("verify", "evidence.json", "--json", code=6).stdout
    found = schema(bare, "verification")
    assert found["sound"] is False
    assert findings(found)["tally"] == findings(found)["bound"] == "not checked"
    assert findings(found)["registration"] == "not checked"
    options = ["--registration=design.json", "--files=.", "--json"]
    full = schema(dpaudit("verify", "evidence.json", *options).stdout, "verification")
    assert findings(full)["tally"] == "holds"
    assert findings(full)["registration"] == "holds"
    options = ["-", "--accept-unchecked-counts"]
    text = Path("evidence.json").read_text()
    said = dpaudit("verify", *options, stdin=text).stdout
    assert said.startswith("The counts were not checked, as was accepted.\n")
    assert "What was established:" in said
    assert "What was not established:" in said


@pytest.mark.usefixtures("audited")
def test_evidence_made_from_the_result_is_that_of_the_audit(dpaudit):
    said = dpaudit(
        "evidence",
        "result.json",
        "--key=audit.key",
        "--scores=scores.npz",
        "--output=again.json",
    ).stdout
    assert said == "Evidence: again.json, not signed\n"
    assert Path("again.json").read_text() == Path("evidence.json").read_text()


def test_changed_scores_fail_and_exit_with_1(dpaudit, audited):
    ids, _, scores = audited
    np.savez("scores.npz", id=ids, score=scores + 1)
    said = dpaudit("verify", "evidence.json", "--files=.", code=1).stdout
    assert said.startswith("This evidence does not hold.")


@pytest.mark.usefixtures("audited")
def test_redacted_evidence_holds_no_key_and_still_verifies(dpaudit):
    done = dpaudit("evidence", "evidence.json", "--redact", "--output=public.json")
    assert done.stdout == "Evidence: public.json, not signed, redacted\n"
    secret = Key.read("audit.key").secret.hex()

    def payload(name):
        return base64.b64decode(json.loads(Path(name).read_text())["payload"]).decode()

    assert secret in payload("evidence.json")
    assert secret not in payload("public.json")
    options = ["public.json", "--registration=design.json"]
    said = dpaudit("verify", *options, code=6).stdout
    assert said.startswith("The counts were not checked.\n")
    dpaudit("verify", *options, "--accept-unchecked-counts")


@pytest.mark.usefixtures("audited")
def test_a_result_and_its_evidence_are_explained_alike(dpaudit, schema):
    one, two = (
        dpaudit("explain", name, "--json").stdout
        for name in ("result.json", "evidence.json")
    )
    assert one == two
    found = schema(one, "explanation")
    assert found["outcome"] == "claim refuted"
    assert found["claimed"] == 1.0
    assert (found["delta"], found["alpha"]) == (1e-5, 0.05)
    said = dpaudit("explain", "result.json").stdout
    assert said == found["text"] + "\n"
    assert said.startswith(found["outcome"].upper())


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["verify", "result.json"], "this is a result, where evidence is wanted"),
        (["verify", "design.json"], "give it with --registration"),
        (["verify", "scores.npz"], "not UTF-8"),
        (
            ["verify", "evidence.json", "evidence.json", "--registration=design.json"],
            "verify each with its own",
        ),
        (["verify", "none.json"], "cannot read none.json"),
        (["verify", "evidence.json", "--files=none"], "--files must be a folder"),
        (["verify", "evidence.json", "--registration=x"], "cannot read x"),
        (["verify", "evidence.json", "--registration=scores.npz"], "not UTF-8"),
        (["evidence", "result.json"], "reveal it with --key"),
        (["evidence", "result.json", "--key=none"], "cannot read none"),
        (["evidence", "result.json", "--key=scores.npz"], "does not hold a key"),
        (
            ["evidence", "evidence.json", "--key=audit.key", "--output=new.json"],
            "this is evidence already",
        ),
        (["evidence", "evidence.json", "--redact"], "would be overwritten"),
        (["evidence", "design.json"], "this is a registration, where a result is"),
        (["explain", "design.json"], "design.json: this is a registration, where a"),
        (["explain", "cut.json"], "cut.json: "),
    ],
)
def test_misuse_exits_with_2_and_advice(dpaudit, arguments, advice):
    whole = Path("evidence.json").read_text()
    Path("cut.json").write_text(whole[: len(whole) // 2])
    done = dpaudit(*arguments, code=2)
    assert done.stderr.startswith(f"dpaudit {arguments[0]}: ")
    assert advice in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.usefixtures("audited")
def test_evidence_that_was_cut_off_does_not_hold(dpaudit):
    whole = Path("evidence.json").read_text()
    Path("cut.json").write_text(whole[:-20])
    assert "does not hold" in dpaudit("verify", "cut.json", code=1).stdout


@pytest.mark.usefixtures("audited")
def test_what_is_required_and_missing_exits_with_6(dpaudit, schema):
    options = ["--require=registration"]  # the tally is required anyway
    done = dpaudit("verify", "evidence.json", *options, code=6)
    assert "What was required and is missing:" in done.stdout
    assert "- registration: it was not established; give the copy" in done.stdout
    assert "- tally: it was not established; give the folder" in done.stdout
    some = [*options, "--files=.", "--json"]
    found = schema(dpaudit("verify", "evidence.json", *some, code=6).stdout, VERIFIED)
    assert [each.split(":")[0] for each in found["missing"]] == ["registration"]
    given = [*options, "--registration=design.json", "--files=."]
    assert "required" not in dpaudit("verify", "evidence.json", *given).stdout
    more = ["--require=registration,signature", *given[1:]]
    said = dpaudit("verify", "evidence.json", *more, code=6).stdout
    assert "--public-key" in said


@pytest.mark.usefixtures("audited")
def test_what_fails_is_worse_than_what_is_missing(dpaudit):
    whole = Path("evidence.json").read_text()
    Path("cut.json").write_text(whole[:-20])
    dpaudit("verify", "cut.json", "--require=tally", code=1)


@pytest.mark.usefixtures("audited")
def test_only_what_is_known_can_be_required(dpaudit):
    said = dpaudit("verify", "evidence.json", "--require=tally,luck", code=2).stderr
    assert "registration, signature, tally" in said


@pytest.mark.usefixtures("audited")
def test_a_result_of_an_unknown_bound_is_shown_with_a_warning_first(dpaudit, schema):
    plain = json.loads(Path("result.json").read_text())
    plain["bound"] |= {"method": "mine", "reference": "a note", "epsilon_lower": 9.0}
    Path("mine.json").write_text(json.dumps(plain))
    first = "Not checked: it is by the method 'mine' (a note)"
    assert dpaudit("explain", "mine.json").stdout.startswith(first)
    found = schema(dpaudit("explain", "mine.json", "--json").stdout, "explanation")
    assert found["notice"].startswith(first)
    assert found["text"].startswith(first)


@pytest.mark.usefixtures("audited")
def test_a_copy_that_names_no_key_is_not_the_registration_that_is_required(dpaudit):
    design = json.loads(Path("design.json").read_text())["design"]
    Path("bare.json").write_text(json.dumps(design))
    options = ["--registration=bare.json", "--require=registration"]
    said = dpaudit("verify", "evidence.json", *options, code=6).stdout
    assert "- registered design: the design is that of the copy given" in said
    assert "nothing shows that the key was fixed before the run" in said


@pytest.mark.usefixtures("audited")
def test_of_evidence_whose_scores_are_elsewhere_that_is_said_first(dpaudit):
    Path("elsewhere").mkdir()
    Path("scores.npz").rename("elsewhere/scores.npz")
    said = dpaudit("explain", "evidence.json").stdout
    assert said.startswith("Not checked: the tally (the scores are in 1 file(s) that")
    assert "\n\nCLAIM REFUTED\n" in said
