"""Signing evidence, and checking who signed; needs the extra ``sign``."""

from pathlib import Path

import pytest

from dpaudit.evidence.signing import generate_signing_key

KEY = ["--design=design.json", "--key=audit.key"]
OTHER = ["evidence.json", "--output=other.json"]


@pytest.fixture(autouse=True)
def keys(dpaudit, registered):  # noqa: ARG001 (its files are used)
    dpaudit("audit", "scores.npz", *KEY, "--evidence=evidence.json", code=1)
    for name in ("mine", "theirs"):
        key = generate_signing_key()
        key.write(f"{name}.pem")
        key.public_key.write(f"{name}-public.pem")


def test_what_could_not_be_checked_before_it_was_signed_is_said(dpaudit):
    Path("elsewhere").mkdir()
    Path("scores.npz").rename("elsewhere/scores.npz")
    options = ["--sign=mine.pem", "--output=s.json"]
    said = dpaudit("evidence", "evidence.json", *options).stdout
    assert said.startswith("Evidence: s.json, signed\nNot checked before: tally: ")
    assert "--files names their folder" in said
    done = dpaudit("evidence", "evidence.json", *options, "--files=elsewhere")
    assert done.stdout == "Evidence: s.json, signed\n"


def test_signed_evidence_names_its_signer_and_no_other(dpaudit):
    done = dpaudit("evidence", "evidence.json", "--sign=mine.pem", "--output=s.json")
    assert done.stdout == "Evidence: s.json, signed\n"
    dpaudit("verify", "s.json", "--public-key=mine-public.pem", "--files=.")
    dpaudit("verify", "s.json", "--public-key=theirs-public.pem", code=1)
    dpaudit("verify", "evidence.json", "--public-key=mine-public.pem", code=1)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["evidence", *OTHER, "--sign=mine-public.pem"], "private key in PEM"),
        (["evidence", *OTHER, "--sign=none.pem"], "none.pem: No such file"),
        (["verify", "evidence.json", "--public-key=mine.pem"], "public key in PEM"),
    ],
)
def test_a_key_of_the_wrong_kind_is_named(dpaudit, arguments, advice):
    assert advice in dpaudit(*arguments, code=2).stderr
