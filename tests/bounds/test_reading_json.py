"""Readings as JSON: there and back, and clear refusals."""

import json

import numpy as np
import pytest

from dpaudit import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.reading_json import reading_from_json, reading_to_json
from dpaudit.bounds.reads import Unequal
from dpaudit.errors import InvalidInputError

PLAYED = Weighted(
    canaries=9, weights=(2.5, 1.0), guesses=(3, 4), correct=(2, 1), committed=True
)
READINGS = [
    Counts(canaries=10**9, guesses=5, correct=4, alternatives=3, records_per_coin=2),
    Unequal(canaries=9, inclusion=0.25, guesses_in=2, guesses_out=3, correct=4),
    Ranked(canaries=9, right=np.array([True, False, True])),
    PLAYED,
    Rounds(canaries=9, rounds=(PLAYED,), weights=(1.0,), uniforms=(0.25,)),
    Bets(canaries=9, right=np.array([True, False]), stakes=np.array([0.9, 0.6])),
]


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: type(r).__name__)
def test_a_reading_survives_the_journey(reading):
    text = reading_to_json(reading)
    again = reading_from_json(text)
    assert type(again) is type(reading)
    assert reading_to_json(again) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ({"format": "other"}, "expected an object"),
        ({"kind": "tea"}, "kind must be one of counts, unequal"),
        ({"extra": 1}, "Counts has no field 'extra'"),
        ({"correct": "4"}, "correct must be a number, got '4'"),
        ({"correct": True}, "correct must be a number, got True"),
        ({"correct": 6}, "expected correct <= guesses"),
        ({"correct": 0.5}, "correct must be a whole number"),
        ({"correct": None}, "Counts:"),
        ({"correct": 1e999}, "Infinity is no finite number"),
    ],
)
def test_what_is_no_reading_is_refused(change, message):
    good = json.loads(reading_to_json(READINGS[0]))
    text = change if isinstance(change, str) else json.dumps(good | change)
    with pytest.raises(InvalidInputError, match=message):
        reading_from_json(text)


def test_a_missing_field_is_named():
    with pytest.raises(InvalidInputError, match="guesses"):
        reading_from_json('{"format":"dpaudit.reading.1","kind":"counts","canaries":1}')


@pytest.mark.parametrize(
    ("reading", "change", "message"),
    [
        (2, {"right": [1, 0]}, "^Ranked: right must hold true and false only"),
        (5, {"right": [True, 0]}, "^Bets: right must hold true and false only"),
        (3, {"committed": 1}, "^Weighted: committed must be true or false, got 1"),
        (4, {"rounds": [5]}, "^Rounds: Weighted must be an object, got 5"),
        (0, {"kind": None}, "^kind must be one of counts, unequal"),
    ],
)
def test_numbers_do_not_stand_for_yes_and_no(reading, change, message):
    good = json.loads(reading_to_json(READINGS[reading]))
    with pytest.raises(InvalidInputError, match=message):
        reading_from_json(json.dumps(good | change))


def test_a_document_without_a_kind_is_refused():
    with pytest.raises(InvalidInputError, match=r"^kind must be one of"):
        reading_from_json('{"format":"dpaudit.reading.1","canaries":1}')


def test_no_bets_and_whole_stakes_are_bets_all_the_same():
    text = '{"format":"dpaudit.reading.1","kind":"bets","canaries":3'
    none = reading_from_json(text + ',"right":[],"stakes":[]}')
    assert (none.right.dtype, none.stakes.dtype) == (bool, np.float64)
    whole = reading_from_json(text + ',"right":[true],"stakes":[1]}')
    assert whole.stakes.dtype == np.float64
