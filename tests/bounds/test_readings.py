"""Readings: refused by name where they cannot have been; as JSON, there and back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpaudit.bounds import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.readings import BiasedCoinCounts, Reading
from dpaudit.errors import InvalidInputError

SLOTS = {
    "canaries": 5,
    "weights": (2.0, 1.0),
    "guesses": (2, 3),
    "correct": (1, 3),
    "committed": True,
}
PLAYED = Weighted(**SLOTS)
GOOD = {
    Counts: {"canaries": 5, "guesses": 4, "correct": 3},
    BiasedCoinCounts: {
        "canaries": 5,
        "inclusion": 0.3,
        "guesses_in": 2,
        "guesses_out": 2,
        "correct": 3,
        "committed": False,
    },
    Ranked: {"canaries": 5, "right": np.array([True, False])},
    Weighted: SLOTS,
    Rounds: {
        "canaries": 10,
        "rounds": (PLAYED, PLAYED),
        "round_weights": (1.0, 0.0),
        "uniforms": (0.0, 1.0),
        "max_jump": 10.0,
        "randomness_share": 0.5,
        "noise_uniform": 0.0,
    },
    Bets: {
        "canaries": 2,
        "right": np.ones(2, bool),
        "stated_probabilities": np.array([0.0, 1.0]),
    },
}
READINGS = [kind(**given) for kind, given in GOOD.items()]
READINGS += [replace(READINGS[0], adaptive=True), replace(PLAYED, adaptive=True)]


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
        ('{"format":"dpaudit.reading.1","canaries":1}', "^kind must be one of"),
        (
            '{"format":"dpaudit.reading.1","kind":"counts","canaries":1}',
            "lacks the field",
        ),
        ({"format": "other"}, "an object"),
        ({"kind": "tea"}, "kind must be one of counts, counts-as-made, event-counts"),
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


@pytest.mark.parametrize(
    ("reading", "change", "message"),
    [
        (2, {"right": [1, 0]}, "^right must be a list of true and false only"),
        (5, {"right": [True, 0]}, "^right must be a list of true and false only"),
        (3, {"committed": 1}, "^committed must be true or false, got"),
        (0, {"adaptive": 1}, "^adaptive must be true or false, got"),
        (4, {"rounds": [5]}, "an object with"),
        (
            0,
            {"kind": None},
            "^kind must be one of counts, counts-as-made, event-counts",
        ),
    ],
)
def test_numbers_do_not_stand_for_yes_and_no(reading, change, message):
    good = json.loads(READINGS[reading].to_json())
    with pytest.raises(InvalidInputError, match=message):
        Reading.from_json(json.dumps(good | change))


def test_no_bets_and_whole_stakes_are_bets_all_the_same():
    text = '{"format":"dpaudit.reading.1","kind":"bets","canaries":3'
    none = Reading.from_json(text + ',"right":[],"stated_probabilities":[]}')
    assert (none.right.dtype, none.stated_probabilities.dtype) == (bool, np.float64)
    whole = Reading.from_json(text + ',"right":[true],"stated_probabilities":[1]}')
    assert whole.stated_probabilities.dtype == np.float64


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


# What a run may have shown: refused, by name, where it cannot have been so.


@pytest.mark.parametrize("kind", GOOD)
def test_what_can_have_been_is_accepted_up_to_the_edge(kind):
    assert kind(**GOOD[kind]).canaries == GOOD[kind]["canaries"]


def test_what_cannot_have_been_is_refused(subtests):
    for kind, change, message in [
        (Counts, {"canaries": -1}, "canaries must be a whole number >= 0"),
        (Counts, {"guesses": 2.5}, "guesses must be a whole number >= 0"),
        (Counts, {"correct": -1}, "correct must be a whole number >= 0"),
        (Counts, {"correct": 5}, "expected correct <= guesses <= canaries, got"),
        (Counts, {"guesses": 6}, "expected correct <= guesses <= canaries, got"),
        (Counts, {"adaptive": 1}, "adaptive must be true or false, got adaptive=1"),
        (BiasedCoinCounts, {"committed": None}, "committed must be true or false"),
        (Weighted, {"committed": 0}, "committed must be true or false"),
        (Weighted, {"adaptive": "no"}, "adaptive must be true or false"),
        (BiasedCoinCounts, {"guesses_in": -1}, "guesses_in must be a whole number"),
        (BiasedCoinCounts, {"guesses_out": 0.5}, "guesses_out must be a whole number"),
        (BiasedCoinCounts, {"correct": -1}, "correct must be a whole number"),
        (BiasedCoinCounts, {"inclusion": 0.0}, "inclusion is the known probability"),
        (BiasedCoinCounts, {"inclusion": 1.0}, "inclusion is the known probability"),
        (BiasedCoinCounts, {"correct": 5}, "expected correct <= guesses_in"),
        (BiasedCoinCounts, {"guesses_in": 4}, "expected correct <= guesses_in"),
        (Ranked, {"canaries": 0}, "canaries must be a whole number >= 1"),
        (Ranked, {"canaries": 1}, "right must list between 1 and canaries=1"),
        (Ranked, {"right": np.zeros(0, bool)}, "right must list between 1 and"),
        (Ranked, {"right": np.ones((1, 2), bool)}, "right must list between 1"),
        (Weighted, {"canaries": 0}, "canaries must be a whole number >= 1"),
        (Weighted, {"weights": (1.0,)}, "weights, guesses and correct must have one"),
        (Weighted, {"correct": (1,)}, "weights, guesses and correct must have one"),
        (
            Weighted,
            {"weights": (), "guesses": (), "correct": ()},
            "weights, guesses and correct must have one",
        ),
        (Weighted, {"weights": (0.0, 1.0)}, "weights must be positive"),
        (Weighted, {"weights": (np.inf, 1.0)}, "weights must be positive"),
        (Weighted, {"weights": (np.nan, 1.0)}, "weights must be positive"),
        (Weighted, {"correct": (3, 0)}, "expected 0 <= correct <= guesses in every"),
        (Weighted, {"correct": (-1, 0)}, "expected 0 <= correct <= guesses in every"),
        (Weighted, {"canaries": 4}, "expected 0 <= correct <= guesses in every"),
        (Rounds, {"canaries": 0}, "canaries must be a whole number >= 1"),
        (
            Rounds,
            {"round_weights": (1.0,)},
            "rounds, round_weights and uniforms must have one",
        ),
        (
            Rounds,
            {"uniforms": (0.5,)},
            "rounds, round_weights and uniforms must have one",
        ),
        (
            Rounds,
            {"rounds": (), "round_weights": (), "uniforms": ()},
            "rounds, round_weights and uniforms must have one",
        ),
        (
            Rounds,
            {"round_weights": (0.0, 0.0)},
            "round_weights must be >= 0, finite and not all",
        ),
        (
            Rounds,
            {"round_weights": (-1.0, 1.0)},
            "round_weights must be >= 0, finite and not all",
        ),
        (
            Rounds,
            {"round_weights": (np.inf, 1)},
            "round_weights must be >= 0, finite and not all",
        ),
        (Rounds, {"canaries": 9, "max_jump": None}, "more guesses than canaries=9"),
        (Rounds, {"uniforms": (0.5, 1.5)}, "uniforms must be in"),
        (Rounds, {"noise_uniform": -0.5}, "uniforms must be in"),
        *(
            (Rounds, {"max_jump": jump}, "max_jump must be positive and at most 10")
            for jump in (0.0, -1.0, 10.1, np.nan)
        ),
        (
            Rounds,
            {"randomness_share": 0.6},
            "randomness_share is a share of the variance",
        ),
        (Bets, {"canaries": 0}, "canaries must be a whole number >= 1"),
        (
            Bets,
            {"stated_probabilities": np.ones(1)},
            "right and stated_probabilities must be two lists of one",
        ),
        (
            Bets,
            {"right": np.ones((1, 2), bool), "stated_probabilities": np.ones((1, 2))},
            "right and stated_probabilities must be two lists of one",
        ),
        (Bets, {"canaries": 1}, "2 bets on canaries=1; each canary may be guessed"),
        (
            Bets,
            {"stated_probabilities": np.array([0.5, 1.1])},
            "stated_probabilities must be in",
        ),
        (
            Bets,
            {"stated_probabilities": np.array([-0.1, 1.0])},
            "stated_probabilities must be in",
        ),
        (
            Bets,
            {"stated_probabilities": np.array([np.nan, 1.0])},
            "stated_probabilities must be in",
        ),
    ]:
        with (
            subtests.test(kind=kind, change=change, message=message),
            pytest.raises(InvalidInputError, match=f"^{message}"),
        ):
            kind(**GOOD[kind] | change)


def test_with_a_jump_a_round_is_for_its_own_canaries():
    """Of nine canaries round 0 has five (0, 2, 4, 6, 8) and round 1 has four."""
    four = Weighted(
        canaries=9, weights=(1.0,), guesses=(4,), correct=(2,), committed=True
    )
    five = Weighted(
        canaries=9, weights=(1.0,), guesses=(5,), correct=(2,), committed=True
    )
    plan = {"canaries": 9, "round_weights": (1, 1), "uniforms": (0.5, 0.5)}
    assert Rounds(rounds=(five, four), max_jump=0.3, **plan).max_jump == 0.3
    assert Rounds(rounds=(four, five), **plan).max_jump is None
    with pytest.raises(InvalidInputError, match=r"^with a jump, round 1 of 2 is for 4"):
        Rounds(rounds=(four, five), max_jump=0.3, **plan)


def test_the_score_is_the_weight_of_what_was_right():
    assert PLAYED.score == 2.0 * 1 + 1.0 * 3


def test_the_guesses_of_a_round_are_made_at_once():
    adaptive = Weighted(**GOOD[Weighted], adaptive=True)
    with pytest.raises(InvalidInputError, match=r"round are made all at once"):
        Rounds(**GOOD[Rounds] | {"rounds": (PLAYED, adaptive)})
