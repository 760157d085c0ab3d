"""Designs and commitments: same bytes from the same value, bound to both parts."""

import hashlib
import json
from dataclasses import replace

import pytest

from dpaudit import ApproxDP, Commitment, Design, Key, ThreatModel
from dpaudit.errors import InvalidInputError

KEY = Key(bytes(range(32)))
DESIGN = Design(
    canaries=10,
    guesses=5,
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
    setting={"steps": 3, "layout": "random"},
)


def test_the_json_is_canonical_and_complete():
    text = DESIGN.to_json()
    assert text == (
        '{"alpha":0.05,"canaries":10,"claim":{"adjacency":"add-remove","delta":1e-05,"epsilon":2.0},'
        '"format":"dpaudit.design.1","guesses":5,'
        '"setting":{"layout":"random","steps":3},'
        '"threat_model":"an observer of every iterate"}'
    )
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


def test_the_order_of_settings_does_not_matter():
    other = replace(DESIGN, setting=dict(reversed(DESIGN.setting.items())))
    assert other.to_json() == DESIGN.to_json()


def test_the_commitment_is_a_plain_hash_of_key_and_design():
    message = b"dpaudit commitment 1" + KEY.secret + DESIGN.to_json().encode()
    assert Commitment.to(KEY, DESIGN).sha256 == hashlib.sha256(message).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"canaries": 11},
        {"guesses": 4},
        {"alpha": 0.01},
        {"claim": ApproxDP(epsilon=2.0, delta=1e-6)},
        {"threat_model": ThreatModel.FINAL_MODEL},
        {"setting": {"steps": 4, "layout": "random"}},
    ],
)
def test_a_commitment_holds_for_no_other_design(change):
    assert not Commitment.to(KEY, DESIGN).holds_for(KEY, replace(DESIGN, **change))


def test_more_guesses_than_canaries_are_refused():
    with pytest.raises(
        InvalidInputError, match="cannot guess guesses=11 of canaries=10"
    ):
        replace(DESIGN, guesses=11)


def test_a_setting_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(DESIGN, setting={"noise": float("nan")}).to_json()
