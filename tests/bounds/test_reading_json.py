"""Readings as JSON: there and back, and clear refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpaudit.bounds import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.readings import Reading, Unequal
from dpaudit.errors import InvalidInputError

PLAYED = Weighted(
    canaries=9, weights=(2.5, 1.0), guesses=(3, 4), correct=(2, 1), committed=True
)
READINGS = [
    Counts(canaries=10**9, guesses=5, correct=4),
    Unequal(
        canaries=9,
        inclusion=0.25,
        guesses_in=2,
        guesses_out=3,
        correct=4,
        committed=True,
    ),
    Ranked(canaries=9, right=np.array([True, False, True])),
    PLAYED,
    Rounds(canaries=9, rounds=(PLAYED,), weights=(1.0,), uniforms=(0.25,)),
    Bets(canaries=9, right=np.array([True, False]), stakes=np.array([0.9, 0.6])),
    Counts(canaries=9, guesses=5, correct=4, adaptive=True),
    replace(PLAYED, adaptive=True),
]


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: type(r).__name__)
def test_a_reading_survives_the_journey(reading):
    text = reading.to_json()
    again = Reading.from_json(text)
    assert type(again) is type(reading)
    assert again.to_json() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "not JSON"),
        ("[]", "an object"),
        ({"format": "other"}, "an object"),
        ({"kind": "tea"}, "kind must be one of counts, unequal"),
        ({"extra": 1}, "has no field 'extra'"),
        ({"correct": "4"}, "correct must be a whole number, got '4'"),
        ({"correct": True}, "correct must be a whole number, got True"),
        ({"correct": 6}, "expected correct <= guesses"),
        ({"correct": 0.5}, "correct must be a whole number"),
        ({"correct": None}, "correct must be a whole number, got None"),
        ({"correct": 1e999}, "Infinity is no finite number"),
    ],
)
def test_what_is_no_reading_is_refused(change, message):
    good = json.loads(READINGS[0].to_json())
    text = change if isinstance(change, str) else json.dumps(good | change)
    with pytest.raises(InvalidInputError, match=message):
        Reading.from_json(text)


def test_a_missing_field_is_named():
    with pytest.raises(InvalidInputError, match="lacks the field"):
        Reading.from_json('{"format":"dpaudit.reading.1","kind":"counts","canaries":1}')


@pytest.mark.parametrize(
    ("reading", "change", "message"),
    [
        (2, {"right": [1, 0]}, "^right must be a list of true and false only"),
        (5, {"right": [True, 0]}, "^right must be a list of true and false only"),
        (3, {"committed": 1}, "^committed must be true or false, got"),
        (0, {"adaptive": 1}, "^adaptive must be true or false, got"),
        (4, {"rounds": [5]}, "an object with"),
        (0, {"kind": None}, "^kind must be one of counts, unequal"),
    ],
)
def test_numbers_do_not_stand_for_yes_and_no(reading, change, message):
    good = json.loads(READINGS[reading].to_json())
    with pytest.raises(InvalidInputError, match=message):
        Reading.from_json(json.dumps(good | change))


def test_a_document_without_a_kind_is_refused():
    with pytest.raises(InvalidInputError, match=r"^kind must be one of"):
        Reading.from_json('{"format":"dpaudit.reading.1","canaries":1}')


def test_no_bets_and_whole_stakes_are_bets_all_the_same():
    text = '{"format":"dpaudit.reading.1","kind":"bets","canaries":3'
    none = Reading.from_json(text + ',"right":[],"stakes":[]}')
    assert (none.right.dtype, none.stakes.dtype) == (bool, np.float64)
    whole = Reading.from_json(text + ',"right":[true],"stakes":[1]}')
    assert whole.stakes.dtype == np.float64


@pytest.mark.parametrize("place", [0, 1, 3, 4])
def test_which_game_it_was_must_be_said(place):
    plain = json.loads(READINGS[place].to_json())
    name = "committed" if plain["kind"] == "unequal" else "adaptive"
    del (plain["rounds"][0] if plain["kind"] == "rounds" else plain)[name]
    with pytest.raises(InvalidInputError, match=f"lacks the field '{name}'"):
        Reading.from_json(json.dumps(plain))


def test_a_round_is_read_as_nothing_but_a_round():
    plain = json.loads(READINGS[4].to_json())
    plain["rounds"] = [json.loads(READINGS[0].to_json())]
    with pytest.raises(InvalidInputError, match="must be of kind weighted"):
        Reading.from_json(json.dumps(plain))
