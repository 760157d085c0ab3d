"""What a run may have shown: refused, by name, where it cannot have been so."""

from itertools import permutations

import numpy as np
import pytest

from dpaudit.bounds import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.readings import Unequal, check_jump
from dpaudit.errors import InvalidInputError

GOOD = {
    Counts: {"canaries": 5, "guesses": 4, "correct": 3},
    Unequal: {
        "canaries": 5,
        "inclusion": 0.3,
        "guesses_in": 2,
        "guesses_out": 2,
        "correct": 3,
        "committed": False,
    },
    Ranked: {"canaries": 5, "right": np.array([True, False])},
    Weighted: {
        "canaries": 5,
        "weights": (2.0, 1.0),
        "guesses": (2, 3),
        "correct": (1, 3),
        "committed": True,
    },
    Bets: {"canaries": 2, "right": np.ones(2, bool), "stakes": np.array([0.0, 1.0])},
}
PLAYED = Weighted(**GOOD[Weighted])
GOOD[Rounds] = {
    "canaries": 10,
    "rounds": (PLAYED, PLAYED),
    "weights": (1.0, 0.0),
    "uniforms": (0.0, 1.0),
    "jump": 10.0,
    "noise": 0.5,
    "noise_uniform": 0.0,
}


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
        (Unequal, {"committed": None}, "committed must be true or false"),
        (Weighted, {"committed": 0}, "committed must be true or false"),
        (Weighted, {"adaptive": "no"}, "adaptive must be true or false"),
        (Unequal, {"guesses_in": -1}, "guesses_in must be a whole number"),
        (Unequal, {"guesses_out": 0.5}, "guesses_out must be a whole number"),
        (Unequal, {"correct": -1}, "correct must be a whole number"),
        (Unequal, {"inclusion": 0.0}, "inclusion is the known chance"),
        (Unequal, {"inclusion": 1.0}, "inclusion is the known chance"),
        (Unequal, {"correct": 5}, "expected correct <= guesses_in"),
        (Unequal, {"guesses_in": 4}, "expected correct <= guesses_in"),
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
        (Rounds, {"weights": (1.0,)}, "rounds, weights and uniforms must have one"),
        (Rounds, {"uniforms": (0.5,)}, "rounds, weights and uniforms must have one"),
        (
            Rounds,
            {"rounds": (), "weights": (), "uniforms": ()},
            "rounds, weights and uniforms must have one",
        ),
        (Rounds, {"weights": (0.0, 0.0)}, "weights must be >= 0, finite and not all"),
        (Rounds, {"weights": (-1.0, 1.0)}, "weights must be >= 0, finite and not all"),
        (Rounds, {"weights": (np.inf, 1)}, "weights must be >= 0, finite and not all"),
        (Rounds, {"canaries": 9, "jump": None}, "more guesses than canaries=9"),
        (Rounds, {"uniforms": (0.5, 1.5)}, "uniforms must be in"),
        (Rounds, {"noise_uniform": -0.5}, "uniforms must be in"),
        (Rounds, {"jump": 0.0}, "jump must be positive and at most 10"),
        (Rounds, {"noise": 0.6}, "noise is a share of the variance"),
        (Bets, {"canaries": 0}, "canaries must be a whole number >= 1"),
        (Bets, {"stakes": np.ones(1)}, "right and stakes must be two lists of one"),
        (
            Bets,
            {"right": np.ones((1, 2), bool), "stakes": np.ones((1, 2))},
            "right and stakes must be two lists of one",
        ),
        (Bets, {"canaries": 1}, "2 bets on canaries=1; each canary may be guessed"),
        (Bets, {"stakes": np.array([0.5, 1.1])}, "stakes must hold chances in"),
        (Bets, {"stakes": np.array([-0.1, 1.0])}, "stakes must hold chances in"),
        (Bets, {"stakes": np.array([np.nan, 1.0])}, "stakes must hold chances in"),
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
    plan = {"canaries": 9, "weights": (1, 1), "uniforms": (0.5, 0.5)}
    assert Rounds(rounds=(five, four), jump=0.3, **plan).jump == 0.3
    assert Rounds(rounds=(four, five), **plan).jump is None
    with pytest.raises(InvalidInputError, match=r"^with a jump, round 1 of 2 is for 4"):
        Rounds(rounds=(four, five), jump=0.3, **plan)


@pytest.mark.parametrize(("jump", "noise"), [(-1.0, 0.0), (10.1, 0.0), (np.nan, 0.0)])
def test_a_jump_that_limits_nothing_is_refused(jump, noise):
    with pytest.raises(InvalidInputError, match=r"^jump must be positive"):
        check_jump(jump, noise)


def test_guesses_are_ranked_by_how_far_they_are_from_even():
    """The surest first; log-odds of 0 guess "in", as any of 0 or more do."""
    log_odds = np.array([0.5, -3.0, 0.0, 2.0])
    ranked = Ranked.of(log_odds, np.array([0, 0, 1, 1], np.uint8))
    assert ranked.canaries == 4
    assert ranked.right.tolist() == [True, True, False, True]


def test_the_order_of_rows_gains_nothing_where_guesses_are_equally_sure(subtests):
    """Rows may follow the coins: one right guess of 2.0 and two of three of 1.0."""
    for order in list(permutations(range(4))):
        with subtests.test(order=order):
            log_odds = np.array([2.0, -1.0, 1.0, 1.0])[list(order)]
            bits = np.array([1, 0, 0, 1], np.uint8)[list(order)]
            right = Ranked.of(log_odds, bits).right
            assert right.tolist() == [True, False, True, True]


def test_the_score_is_the_weight_of_what_was_right():
    assert PLAYED.score == 2.0 * 1 + 1.0 * 3


def test_the_guesses_of_a_round_are_made_at_once():
    adaptive = Weighted(**GOOD[Weighted], adaptive=True)
    with pytest.raises(InvalidInputError, match=r"round are made all at once"):
        Rounds(**GOOD[Rounds] | {"rounds": (PLAYED, adaptive)})
