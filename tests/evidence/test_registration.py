"""What a registration binds, program and nonce too, and what no registration shows."""

import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from evidence_samples import (
    CLAIM,
    KEY,
    of_transcript,
    played,
    said,
)

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, PureDP
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import (
    Registration,
    evidence_of,
    identify_run,
    register,
    seal,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.game import Referee
from dpaudit.game.result import conclude
from dpaudit.game.setting import Setting


def test_registrations_that_were_made_and_not_shown_are_named():
    """Many registrations of an honest program, until one of them refutes its claim."""
    claim = PureDP(epsilon=1.0)
    design = Design(canaries=400, rules=OneRun(guesses=400), claim=claim)
    rng, p = np.random.default_rng(0), 1 / (1 + math.exp(-1))
    for i in range(200):
        key = Key(hashlib.sha256(str(i).encode()).digest())
        coins = 2 * Coins(key=key, count=400).bits().astype(int) - 1
        referee = Referee(design, key)
        guess = np.where(rng.random(400) < p, coins, -coins)
        referee.submit(index=np.arange(400), guess=guess)
        transcript = referee.close()
        result = conclude(transcript, commitment=referee.commitment)
        if result.claim_test.refuted:
            break
    assert i > 0
    assert result.claim_test.refuted
    evidence = evidence_of(result, key=key, transcript=transcript)
    found = verify(seal(evidence), registration=register(design, key))
    assert found.sound  # nothing in it is wrong, and it shows nothing
    assert said(found, Outcome.NOT_CHECKED, "that this was the only registration")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"guesses":1,', '"guesses":true,'),
        ('"delta":0.0', '"delta":-0.0'),
        ('"bins":1', '"bins":1,"bins":1'),
    ],
)
def test_a_value_has_one_spelling(old, new):
    claim = ApproxDP(epsilon=1.0, delta=0.0)
    design = Design(
        canaries=9,
        rules=OneRun(guesses=1),
        claim=claim,
        setting=Setting(notes={"bins": 1}),
    )
    text = register(design, KEY).to_json()
    assert old in text
    indented = json.dumps(json.loads(text), indent=2)  # says the same, to everyone
    assert Registration.from_json(indented).design == design
    with pytest.raises(InvalidInputError):
        Registration.from_json(text.replace(old, new))


def test_an_unnamed_program_is_among_what_is_not_established():
    design = Design(canaries=60, rules=OneRun(guesses=30), claim=CLAIM)
    found = verify(seal(of_transcript(played(design))))
    assert said(found, Outcome.NOT_CHECKED, "no digest of one was registered")


def test_a_commitment_that_is_not_there_is_not_spoken_of():
    design = Design(canaries=60, rules=OneRun(guesses=30), claim=CLAIM)
    bare = replace(of_transcript(played(design)).result, commitment=None)
    text = seal(evidence_of(bare, key=None))
    for given in (None, Registration(design=design, commitment=None)):
        found = verify(text, registration=given, accept_unchecked_counts=True)
        assert found.sound
        names = ("registration", "registered design", "time")
        told = [c.sentence for c in found.checks if c.name in names]
        assert told
        assert not any("commitment" in each for each in told)


def test_what_could_not_be_read_again_is_not_registered():
    claim = ApproxDP(epsilon=-0.0, delta=1e-5)
    design = Design(canaries=9, rules=OneRun(guesses=1), claim=claim)
    with pytest.raises(InvalidInputError, match=r"epsilon as -0\.0"):
        register(design, KEY)


def test_a_setting_holds_any_number():
    design = Design(
        canaries=9,
        rules=OneRun(guesses=1),
        claim=CLAIM,
        setting=Setting(notes={"shift": -0.0}),
    )
    registered = register(design, KEY)
    again = Registration.from_json(registered.to_json())
    assert again.to_json() == registered.to_json()


# The program and the verifier's nonce, as part of a design.


def test_the_program_and_the_nonce_are_bound_and_shown(tmp_path):
    program = tmp_path / "program.py"
    program.write_bytes(b"print('noise')\n")
    digest = hashlib.sha256(b"print('noise')\n").hexdigest()
    setting = identify_run(program=program, nonce="from Ann")
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
        identify_run(nonce=nonce)


def test_a_program_is_one_file(tmp_path):
    with pytest.raises(InvalidInputError, match="one file"):
        identify_run(program=tmp_path)


def test_a_digest_is_taken_as_it_is_given(tmp_path):
    program = tmp_path / "model.bin"
    program.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert identify_run(program=f"sha256:{digest}") == identify_run(program=program)
    for odd in (digest, f"sha256:{digest[1:]}", f"sha256:{digest.upper()}"):
        with pytest.raises(InvalidInputError, match="64 hex digits"):
            identify_run(program=odd)
