"""The rules of a game: refused, by name, where no game could be played by them."""

import pytest

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    OneRun,
    Ranking,
)
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import LARGEST_WEIGHT


@pytest.mark.parametrize("kind", [OneRun, Ranking, AdaptiveCount])
def test_a_game_has_a_guess_and_as_many_as_it_likes(kind):
    assert kind(guesses=1).guesses == 1
    for none in (0, -1, 1.5):
        with pytest.raises(InvalidInputError, match=r"^guesses must be a whole number"):
            kind(guesses=none)


@pytest.mark.parametrize("kind", [Classes, AdaptiveClasses])
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
    assert AdaptiveRounds(weights=(0, LARGEST_WEIGHT)).weights == (0, LARGEST_WEIGHT)
    for change, message in (
        ({"weights": (0.0, 0.0)}, "weights must be from 0 to"),
        ({"weights": ()}, "weights must be from 0 to"),
        ({"weights": (-1.0, 1.0)}, "weights must be from 0 to"),
        ({"weights": (2 * LARGEST_WEIGHT, 1.0)}, "weights must be from 0 to"),
        ({"weights": 3}, "weights must be a list of numbers"),
        ({"start": -0.1}, "start must be a finite number >= 0"),
        ({"jump": 0.0}, "jump must be positive"),
        ({"noise": 0.51}, "noise is a share of the variance"),
    ):
        with pytest.raises(InvalidInputError, match=f"^{message}"):
            AdaptiveRounds(**{"weights": (1.0, 1.0)} | change)


def test_bets_start_somewhere():
    with pytest.raises(InvalidInputError, match=r"^start must be a finite number >= 0"):
        AdaptiveBets(start=-1.0)
