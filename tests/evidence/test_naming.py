"""The program and the verifier's nonce, as part of a design."""

import hashlib
from dataclasses import replace

import pytest
from evidence_samples import CLAIM, KEY, of_transcript, played

from dpaudit import Design, OneRun
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import VerificationOutcome as Outcome
from dpaudit.evidence import naming, register, seal, verify


def said(found, finding, words):
    return any(c.finding is finding and words in c.sentence for c in found.checks)


def test_the_program_and_the_nonce_are_bound_and_shown(tmp_path):
    program = tmp_path / "program.py"
    program.write_bytes(b"print('noise')\n")
    digest = hashlib.sha256(b"print('noise')\n").hexdigest()
    setting = naming(program=program, nonce="from Ann")
    design = Design(canaries=60, rules=OneRun(guesses=30), claim=CLAIM, setting=setting)
    evidence = of_transcript(played(design))
    found = verify(seal(evidence), registration=register(design, KEY))
    assert found.sound
    assert said(found, Outcome.NOT_CHECKED, f"has the SHA-256 {digest}")
    assert said(found, Outcome.NOT_CHECKED, "It holds the nonce 'from Ann'")
    for name in ("program_sha256", "nonce"):
        other = replace(design, setting=replace(setting, **{name: "0" * 64}))
        wrong = verify(seal(evidence), registration=register(other, KEY))
        assert said(wrong, Outcome.FAILS, f"setting.{name}")


@pytest.mark.parametrize("nonce", ["", "two\nlines"])
def test_a_nonce_is_one_line_of_text(nonce):
    with pytest.raises(InvalidInputError, match="nonce"):
        naming(nonce=nonce)


def test_a_program_is_one_file(tmp_path):
    with pytest.raises(InvalidInputError, match="one file"):
        naming(program=tmp_path)


def test_a_digest_is_taken_as_it_is_given(tmp_path):
    program = tmp_path / "model.bin"
    program.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert naming(program=f"sha256:{digest}") == naming(program=program)
    for odd in (digest, f"sha256:{digest[1:]}", f"sha256:{digest.upper()}"):
        with pytest.raises(InvalidInputError, match="64 hex digits"):
            naming(program=odd)
