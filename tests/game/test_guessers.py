"""The maximum-likelihood guesser: the best there is, and blind to all but log-odds."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import (
    Confident,
    Everyone,
    Extremes,
    MostLikely,
    most_likely,
)
from dpaudit.mechanisms.local import LocalRandomisedResponse


@given(hnp.arrays(float, st.integers(1, 5), elements=st.floats(-6, 6)), st.data())
def test_no_guesser_expects_more_right(log_odds, data):
    guesses = data.draw(st.integers(1, len(log_odds)))
    index, guess = most_likely(log_odds, guesses=guesses)
    expected = special.expit(guess * log_odds[index]).sum()
    for other in product((-1, 0, 1), repeat=len(log_odds)):
        made = np.array(other)
        if np.count_nonzero(made) == guesses:
            right = (special.expit(made * log_odds) * (made != 0)).sum()
            assert right <= expected + 1e-12


def test_ties_go_to_the_smaller_index():
    index, guess = most_likely(np.array([0.0, 1.0, -1.0, 1.0]), guesses=3)
    np.testing.assert_array_equal(index, [1, 2, 3])
    np.testing.assert_array_equal(guess, [1, -1, 1])


def test_all_may_be_guessed_and_no_more():
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    made = Extremes(score=np.asarray, top=3, bottom=1).guess(scores)
    assert dict(zip(made.index.tolist(), made.guess.tolist(), strict=True)) == {
        0: 1,
        2: 1,
        1: 1,
        3: -1,
    }
    with pytest.raises(
        InvalidInputError, match=r"^cannot guess top=3 and bottom=2 of 4"
    ):
        Extremes(score=np.asarray, top=3, bottom=2).guess(scores)


def test_ties_of_scores_go_to_the_smaller_index():
    """Many ties: a sort that is not stable would show."""
    made = Extremes(score=np.asarray, top=20, bottom=20).guess(np.zeros(100))
    assert made.index.tolist() == list(range(40))
    assert made.guess.tolist() == [1] * 20 + [-1] * 20


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (Extremes, {"top": -1, "bottom": 1}, "^top must be a whole number >= 0"),
        (Extremes, {"top": 1, "bottom": 0.5}, "^bottom must be a whole number >= 0"),
    ],
)
def test_numbers_of_guesses_that_are_none_are_refused(kind, change, message):
    with pytest.raises(InvalidInputError, match=message):
        kind(score=np.asarray, **change)


@pytest.mark.parametrize("kind", [MostLikely, partial(Confident, threshold=1.0)])
def test_a_guesser_makes_a_guess(kind):
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    assert kind(mechanism=mechanism, guesses=1).guesses == 1
    with pytest.raises(
        InvalidInputError, match=r"^guesses must be a whole number >= 1"
    ):
        kind(mechanism=mechanism, guesses=0)


class Says:
    """A mechanism whose outputs are log-odds."""

    def log_odds(self, output):
        return np.array(output)


def test_everyone_is_guessed_by_the_sign_alone():
    made = Everyone(mechanism=Says()).guess([-0.2, 0.0, 0.3, -9.0])
    assert made.index.tolist() == [0, 1, 2, 3]
    assert made.guess.tolist() == [-1, 1, 1, -1]
    sure = Confident(mechanism=Says(), threshold=0.0, guesses=3)
    assert sure.guess([-0.2, 0.0, 0.3]).guess.tolist() == [1, -1, 1]
    sure = Confident(mechanism=Says(), threshold=0.2, guesses=2)
    assert sure.guess([-0.2, 0.1, 0.3, 0.0]).index.tolist() == [2, 0]
