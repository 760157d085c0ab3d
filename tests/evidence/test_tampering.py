"""Tampering is found out: a small version of ``lab/measure/tampering.py``.

Seeds are fixed. What a mutant changes is random, what becomes of it is not.
"""

import json

import numpy as np
import pytest
from evidence_mutants import contents, forged
from evidence_samples import KINDS, of_scores
from evidence_trials import (
    SIGNED_WAYS,
    registration_trial,
    signed_trial,
    unsigned_trial,
)

from dpaudit import OneRun
from dpaudit.evidence import seal, verify
from dpaudit.evidence.signing import generate_signing_key

ALL = [*KINDS, "score files"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scores")


def evidence(kind, folder):
    rules = OneRun(guesses=40)
    return of_scores(folder, rules=rules) if kind == "score files" else KINDS[kind]()


@pytest.mark.parametrize("kind", ALL)
def test_no_change_of_signed_evidence_goes_unnoticed(kind, folder):
    key, rng = generate_signing_key(), np.random.default_rng(ALL.index(kind))
    text = seal(evidence(kind, folder), key)
    for way in SIGNED_WAYS:
        trial = signed_trial(
            text, key.public_key, way, mutants=6, rng=rng, files=folder
        )
        assert not trial.missed, (way, trial.missed)
        assert trial.found + trial.harmless == 6


@pytest.mark.parametrize("kind", ALL)
def test_what_goes_unnoticed_unsigned_is_listed_as_stated(kind, folder):
    rng = np.random.default_rng(100 + ALL.index(kind))
    text = seal(evidence(kind, folder))
    trial = unsigned_trial(text, mutants=24, rng=rng, files=folder)
    assert not trial.unlisted()
    assert trial.found >= 12


@pytest.mark.parametrize("kind", ALL)
def test_beside_its_registration_nothing_of_it_can_be_changed(kind, folder):
    """Not even in redacted evidence: neither the program's digest nor the nonce."""
    rng, held = np.random.default_rng(ALL.index(kind)), evidence(kind, folder)
    trial = unsigned_trial(
        seal(held),
        mutants=12,
        rng=rng,
        files=folder,
        within="registration",
        registration=held.registration,
    )
    assert not trial.missed
    assert trial.found >= 8


@pytest.mark.parametrize("kind", ALL)
def test_no_change_of_the_registered_copy_goes_unnoticed(kind, folder):
    rng = np.random.default_rng(ALL.index(kind))
    text = seal(evidence(kind, folder))
    trial = registration_trial(text, mutants=24, rng=rng, files=folder)
    assert not trial.missed
    assert trial.found >= 16


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("one run", ["guesses.index", "result.not_exercised", "versions"]),
        (
            "training",
            ["result.training.steps", "result.training.coverage", "result.scores"],
        ),
        ("redacted", ["registration"]),
        ("score files", ["guesses.coins_were_independent"]),
    ],
)
def test_what_is_listed_as_stated_can_indeed_be_changed(kind, fields, folder):
    rng, text = np.random.default_rng(7), seal(evidence(kind, folder))
    for field in fields:
        trial = unsigned_trial(text, mutants=30, rng=rng, files=folder, within=field)
        assert field in trial.stated
        assert trial.missed, field


@pytest.mark.parametrize("indent", [None, 0, 1, 4, "\t"])
def test_white_space_between_tokens_and_the_order_of_fields_are_harmless(
    indent, folder
):
    key = generate_signing_key()
    text = seal(evidence("one run", folder), key)
    plain = json.loads(text)
    turned = {name: plain[name] for name in reversed(plain)}
    again = json.dumps(turned, indent=indent)
    assert again != text
    assert contents(again) == contents(text)
    assert verify(again, public_key=key.public_key).sound


def test_a_guess_may_move_to_the_turn_before(folder):
    """Nothing shows in which turn it was; verification says so."""
    statement = json.loads(contents(seal(evidence("adaptive count", folder)))[0])
    tree = statement["predicate"]
    turns = tree["guesses"]["turn"]
    turns[turns.index(2)] = 1
    statement["predicate"] = tree
    found = verify(forged(statement))
    assert found.sound
    assert "guesses.turn" in found.stated
