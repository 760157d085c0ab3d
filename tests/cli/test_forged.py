"""What does not hold is neither signed nor redacted nor shown; extras sign, report.

A forger who can compute hashes changes what evidence or a result says, and hands it to
somebody who signs it, or who makes a page of it. A registration that two readers read
in two ways is refused.
"""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.evidence import open_envelope, seal
from dpaudit.evidence.signing import generate_signing_key
from dpaudit.game.result import judge

KEY = ["--design=design.json", "--key=audit.key"]
FILES = ["--save=result.json", "--evidence=evidence.json"]
SHOWN = (["explain"], ["explain", "--json"], ["report"])


@pytest.fixture(autouse=True)
def audited(dpaudit, registered):  # noqa: ARG001 (its files are used)
    """The registered audit with its result and its evidence, and a signer."""
    dpaudit("audit", "scores.npz", *KEY, *FILES, code=1)
    key = generate_signing_key()
    key.write("mine.pem")


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def better(plain):
    plain["bound"]["epsilon_lower"] = 7.5
    plain["design_test"]["p_value"] = 1e-9


def forge_evidence():
    """Write evidence of a better bound, with the hash that belongs to it."""
    envelope = json.loads(Path("evidence.json").read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    predicate = statement["predicate"]
    better(predicate["result"])
    digest = hashlib.sha256(canonical(predicate["result"]).encode()).hexdigest()
    statement["subject"][1]["digest"]["sha256"] = digest
    envelope["payload"] = base64.b64encode(canonical(statement).encode()).decode()
    Path("forged.json").write_text(canonical(envelope))


def forge_result():
    result = json.loads(Path("result.json").read_text())
    better(result)
    Path("forged.json").write_text(canonical(result))


def forge_tally():
    """Write evidence that hides what the scores give, right in itself."""
    evidence, _ = open_envelope(Path("evidence.json").read_text())
    audit = evidence.result
    result = judge(
        replace(audit.reading, correct=audit.reading.guesses // 2),
        design=audit.design,
        commitment=audit.commitment,
        scores=audit.scores,
    )
    Path("forged.json").write_text(seal(replace(evidence, result=result)))


@pytest.mark.parametrize("option", ["--sign=mine.pem", "--redact"])
@pytest.mark.parametrize(
    ("forge", "check"), [(forge_tally, "tally"), (forge_evidence, "bound")]
)
def test_forged_evidence_is_neither_signed_nor_redacted(dpaudit, forge, check, option):
    forge()
    options = [option, "--output=out.json"]
    said = dpaudit("evidence", "forged.json", *options, code=2).stderr
    assert f"does not hold ({check}: " in said
    assert not Path("out.json").exists()


@pytest.mark.parametrize("option", ["--sign=mine.pem", "--redact"])
def test_of_a_forged_result_no_evidence_is_signed_or_redacted(dpaudit, option):
    forge_result()
    options = ["--key=audit.key", "--scores=scores.npz", option, "--output=out.json"]
    said = dpaudit("evidence", "forged.json", *options, code=2).stderr
    assert "does not hold (bound: " in said
    assert not Path("out.json").exists()


@pytest.mark.parametrize("command", SHOWN)
@pytest.mark.parametrize("forge", [forge_evidence, forge_result, forge_tally])
def test_what_is_forged_is_not_shown(dpaudit, command, forge):
    forge()
    said = dpaudit(command[0], "forged.json", *command[1:], code=2)
    assert "does not hold" in said.stderr
    assert said.stdout == ""
    assert not Path("audit.html").exists()


def test_a_registration_that_says_two_things_is_refused(dpaudit):
    """Whoever takes the first of two keys reads another claim than verify does."""
    text = Path("design.json").read_text()
    first = canonical(
        {"adjacency": "add-remove", "delta": 1e-5, "epsilon": 0.1, "kind": "approx"}
    )
    assert text.count('"claim":{') == 1
    two = text.replace('"claim":{', f'"claim":{first},"claim":{{')
    Path("two.json").write_text(two)
    done = dpaudit("verify", "evidence.json", "--registration=two.json", code=2)
    assert "the key 'claim' appears twice" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"canaries":400', '"canaries":400.0'),
        ('"canaries":400', '"canaries":true'),
        ('"alpha":0.05', '"alpha":"0.05"'),
        ('"epsilon":1.0', '"epsilon":1'),
    ],
)
def test_a_registration_is_written_in_one_way(dpaudit, old, new):
    text = Path("design.json").read_text()
    assert text.count(old) == 1
    Path("two.json").write_text(text.replace(old, new))
    dpaudit("verify", "evidence.json", "--registration=two.json", code=2)
    dpaudit("audit", "scores.npz", "--design=two.json", "--key=audit.key", code=2)
