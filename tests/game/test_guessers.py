"""The maximum-likelihood guesser: the best there is, and blind to all but log-odds."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from dpaudit.game.guessers import most_likely


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
