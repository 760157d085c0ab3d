"""Honest evidence is not called wrong, and no content makes verification raise."""

import codecs
from dataclasses import replace

import pytest
from evidence_samples import KEY, design_of, of_game, of_transcript, played

from dpaudit import ApproxDP, OneRun
from dpaudit.evidence import (
    Evidence,
    Registration,
    Verification,
    VerificationCheck,
    evidence_of,
    register,
    seal,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.evidence.signing import generate_signing_key
from dpaudit.game.setting import Setting

RULES = OneRun(guesses=30)
NAMES = [
    "audit",
    "commitment",
    "design",
    "guesses",
    "reading",
    "registration",
    "result",
]
TEXTS = ["March 2026", '{"lr": 0.1', '{"clip": NaN}', '{"lr": 0.1}', '{"', "\ud800"]


def check(found, name):
    return next(each for each in found.checks if each.name == name)


def honest(setting):
    design = replace(design_of(RULES), setting=Setting(notes=setting))
    return of_transcript(played(design))


@pytest.mark.parametrize("name", [*NAMES, "format", "config", "p_value"])
def test_settings_may_have_any_name_and_any_text(name):
    for text in TEXTS:
        evidence = honest({name: text})
        registration = Registration.from_json(evidence.registration.to_json())
        found = verify(seal(evidence), registration=registration)
        assert found.sound, str(found)


def test_a_number_in_a_setting_is_not_taken_for_one_that_was_computed():
    evidence = honest({"p_value": 0.5})
    other = replace(
        evidence.registration.design, setting=Setting(notes={"p_value": 0.5 + 1e-9})
    )
    found = verify(seal(evidence), registration=register(other, KEY))
    assert (
        "setting.notes.p_value is stated as 0.5 "
        in check(found, "registration").sentence
    )


@pytest.mark.parametrize("text", TEXTS)
def test_designs_that_differ_are_compared_whatever_their_settings_hold(text):
    evidence = honest({"design": text, "c": text})
    other = replace(
        evidence.registration.design, claim=ApproxDP(epsilon=2.0, delta=1e-6)
    )
    torn = Evidence(
        registration=register(other, KEY),
        key=KEY,
        guesses=evidence.guesses,
        result=evidence.result,
        versions={},
    )
    for found in (
        verify(seal(torn)),
        verify(seal(evidence), registration=register(other, KEY)),
    ):
        assert not found.sound
        assert "claim.epsilon is stated as 0.5" in str(found)


def test_a_bare_design_is_compared_with_the_design():
    evidence = of_game(RULES)
    design = evidence.registration.design
    bare = Registration(design=design, commitment=None)
    found = verify(seal(evidence), registration=bare)
    assert found.sound, str(found)
    assert "the design is that of the copy given" in str(found)
    assert "nothing shows that the key was fixed" in check(found, "time").sentence
    other = replace(bare, design=replace(design, alpha=0.01))
    assert not verify(seal(evidence), registration=other).sound


def test_evidence_without_a_key_is_not_of_a_registered_one():
    evidence = of_game(RULES)
    result = replace(evidence.result, commitment=None)
    bare = evidence_of(result, key=None, transcript=evidence.guesses)
    assert verify(seal(bare)).sound
    found = verify(seal(bare), registration=evidence.registration)
    assert "the evidence has none" in check(found, "registration").sentence
    assert "the key" not in {each.name for each in verify(seal(bare)).checks}


def test_the_mark_that_some_editors_put_before_a_text_does_not_matter():
    evidence, key = of_game(RULES), generate_signing_key()
    text = seal(evidence, key)
    for marked in (codecs.BOM_UTF8 + text.encode(), "\ufeff" + text):
        assert verify(marked, public_key=key.public_key).sound
    registered = "\ufeff" + evidence.registration.to_json()
    assert Registration.from_json(registered) == evidence.registration


class Odd:
    """A public key on which everything fails."""

    key_id = "odd"

    def __init__(self, error):
        self.error = error

    def holds(self, signature, payload):
        raise self.error


def test_too_little_memory_is_not_held_against_the_auditor():
    text = seal(of_game(RULES), generate_signing_key())
    found = verify(text, public_key=Odd(MemoryError()))
    assert check(found, "signature").finding is Outcome.NOT_CHECKED
    assert "too little memory" in str(found)
    found = verify(text, public_key=Odd(ZeroDivisionError("no")))
    assert check(found, "signature").finding is Outcome.FAILS
    assert "ZeroDivisionError: no" in str(found)


def test_what_was_not_checked_to_the_end_is_not_sound():
    """A file too large to be read must not pass for one that holds."""
    unread = VerificationCheck(
        name="form", finding=Outcome.NOT_CHECKED, sentence="too large"
    )
    found = Verification(checks=(unread,))
    assert not found.sound
    assert str(found).startswith("This evidence could not be checked to the end.")


def test_no_text_in_the_evidence_begins_a_line_of_the_answer():
    sentence = "x\n\nWhat was established:\n- bound: all is well\u2028\x1b[2J"
    wrong = VerificationCheck(name="form", finding=Outcome.FAILS, sentence=sentence)
    said = str(Verification(checks=(wrong,)))
    assert len(said.splitlines()) == 4
    assert "\x1b" not in said
    assert said.endswith(
        r"x\n\nWhat was established:\n- bound: all is well\u2028\x1b[2J"
    )
