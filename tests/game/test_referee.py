"""The referee: every breach of the rules raises, and reveals nothing."""

import numpy as np
import pytest

from dpaudit import ApproxDP, Coins, Design, Key, Referee
from dpaudit.errors import VoidAuditError

KEY = Key(bytes(range(32)))
DESIGN = Design(canaries=100, guesses=3, claim=ApproxDP(epsilon=1.0, delta=0.0))


def test_the_transcript_holds_guesses_and_coins():
    transcript = Referee(DESIGN, KEY).submit([5, 99, 0], [1, -1, 0])
    signs = 2 * Coins(key=KEY, count=100).bits().astype(int) - 1
    np.testing.assert_array_equal(transcript.truth, signs[[5, 99, 0]])
    np.testing.assert_array_equal(transcript.guess, [1, -1, 0])


def test_guesses_not_made_count_as_wrong():
    signs = 2 * Coins(key=KEY, count=100).bits().astype(int) - 1
    counts = Referee(DESIGN, KEY).submit([7, 8], [signs[7], 0]).counts()
    assert (counts.canaries, counts.guesses, counts.correct) == (100, 3, 1)


@pytest.mark.parametrize(
    ("index", "guess", "message"),
    [
        ([0, 1, 2, 3], [1, 1, 1, 1], "4 guesses were made, but the design allows"),
        ([0, 0], [1, 1], "named twice"),
        ([0, 0], [1, 0], "named twice"),
        ([100], [1], "from 0 to 99"),
        ([-1], [1], "from 0 to 99"),
        ([0.5], [1], "whole numbers"),
        ([0], [2], "-1, 0 or 1 only"),
        ([0], [0.7], "-1, 0 or 1 only"),
        ([0], [float("nan")], "-1, 0 or 1 only"),
        ([0, 1], [1], "two lists of one length"),
        ([[0]], [[1]], "two lists of one length"),
    ],
)
def test_a_breach_raises_and_the_game_goes_on_unrevealed(index, guess, message):
    referee = Referee(DESIGN, KEY)
    with pytest.raises(VoidAuditError, match=message):
        referee.submit(index, guess)
    referee.submit([0], [1])


def test_a_game_is_played_once():
    referee = Referee(DESIGN, KEY)
    referee.submit([0], [1])
    with pytest.raises(VoidAuditError, match="played once"):
        referee.submit([1], [1])
