"""Readings as JSON: there and back, and clear refusals."""

import json
from dataclasses import replace

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
        (3, {"committed": 1}, "^Weighted: committed must be true or false, got"),
        (0, {"adaptive": 1}, "^Counts: adaptive must be true or false, got"),
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


@pytest.mark.parametrize("place", [0, 1, 3, 4])
def test_which_game_it_was_must_be_said(place):
    plain = json.loads(reading_to_json(READINGS[place]))
    name = "committed" if plain["kind"] == "unequal" else "adaptive"
    del (plain["rounds"][0] if plain["kind"] == "rounds" else plain)[name]
    with pytest.raises(InvalidInputError, match=f"lacks the field '{name}'"):
        reading_from_json(json.dumps(plain))


def first_version(reading):
    """Return a reading as the first version wrote it, which did not say the game."""
    plain = json.loads(reading_to_json(reading))
    plain["format"] = "dpaudit.reading.1"
    for each in (plain, *plain.get("rounds", ())):
        each.pop("adaptive", None)
    if plain["kind"] == "unequal":
        del plain["committed"]
    return plain


@pytest.mark.parametrize("place", [0, 3])
def test_an_old_document_is_of_the_game_that_something_else_says(place):
    text = json.dumps(first_version(READINGS[place]))
    assert reading_from_json(text, adaptive=False) == READINGS[place]
    assert reading_from_json(text, adaptive=True) == replace(
        READINGS[place], adaptive=True
    )


def test_an_old_document_alone_is_read_as_the_game_in_which_less_is_proved():
    counts, unequal, _, weighted, rounds, _ = (
        reading_from_json(json.dumps(first_version(each))) for each in READINGS[:6]
    )
    assert (counts.adaptive, weighted.adaptive) == (True, True)
    assert unequal.committed is False
    assert rounds == READINGS[4]  # its rounds are at once by nature


def test_an_old_document_has_no_new_fields():
    for place in (0, 1, 3):
        plain = json.loads(reading_to_json(READINGS[place]))
        plain["format"] = "dpaudit.reading.1"
        with pytest.raises(InvalidInputError, match="has no field"):
            reading_from_json(json.dumps(plain))
