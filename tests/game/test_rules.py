"""The rules of a game: refused, by name, where no game could be played by them."""

import pytest

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    OneRun,
    Ranking,
    WeightClasses,
)
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import LARGEST_WEIGHT


@pytest.mark.parametrize("kind", [OneRun, Ranking, AdaptiveCount])
def test_a_game_has_a_guess_and_as_many_as_it_likes(kind):
    assert kind(guesses=1).guesses == 1
    for none in (0, -1, 1.5):
        with pytest.raises(InvalidInputError, match=r"^guesses must be a whole number"):
            kind(guesses=none)


@pytest.mark.parametrize("kind", [WeightClasses, AdaptiveClasses])
def test_classes_have_different_weights_and_a_guess_each(kind):
    edge = kind(weights=(1 / LARGEST_WEIGHT, LARGEST_WEIGHT), guesses=(1, 1))
    assert edge.guesses == (1, 1)
    for weights, guesses, message in (
        ((1.0,), (1, 1), "weights and guesses must have one entry per class, got 1"),
        ((), (), "weights and guesses must have one entry per class, got 0"),
        ((1.0, 1.0), (1, 1), "weights must be positive"),
        ((0.0, 1.0), (1, 1), "weights must be positive"),
        ((LARGEST_WEIGHT * 2, 1.0), (1, 1), "weights must be positive"),
        ((0.5 / LARGEST_WEIGHT, 1.0), (1, 1), "weights must be positive"),
        (("much", 1.0), (1, 1), "weights must be a list of numbers"),
        ((2.0, 1.0), (1, 0), "guesses must be a whole number >= 1"),
        ((2.0, 1.0), (1, 0.5), "guesses must be a whole number >= 1"),
    ):
        with pytest.raises(InvalidInputError, match=f"^{message}"):
            kind(weights=weights, guesses=guesses)


def test_rounds_may_count_for_nothing_but_not_all_of_them():
    assert AdaptiveRounds(round_weights=(0, LARGEST_WEIGHT)).round_weights == (
        0,
        LARGEST_WEIGHT,
    )
    for change, message in (
        ({"round_weights": (0.0, 0.0)}, "round_weights must be from 0 to"),
        ({"round_weights": ()}, "round_weights must be from 0 to"),
        ({"round_weights": (-1.0, 1.0)}, "round_weights must be from 0 to"),
        (
            {"round_weights": (2 * LARGEST_WEIGHT, 1.0)},
            "round_weights must be from 0 to",
        ),
        ({"round_weights": 3}, "round_weights must be a list of numbers"),
        ({"min_epsilon": -0.1}, "min_epsilon must be a finite number >= 0"),
        ({"max_jump": 0.0}, "max_jump must be positive"),
        ({"randomness_share": 0.51}, "randomness_share is a share of the variance"),
    ):
        with pytest.raises(InvalidInputError, match=f"^{message}"):
            AdaptiveRounds(**{"round_weights": (1.0, 1.0)} | change)


def test_bets_start_somewhere():
    with pytest.raises(
        InvalidInputError, match=r"^min_epsilon must be a finite number >= 0"
    ):
        AdaptiveBets(min_epsilon=-1.0)
