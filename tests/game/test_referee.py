"""The referee: every breach of the rules raises, and reveals nothing."""

import json
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Coins,
    Design,
    Key,
    OneRun,
    PureDP,
    Ranking,
    WeightClasses,
)
from dpaudit.bounds import judge_claim
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Referee, Transcript
from dpaudit.stats.binomial import rate_limits

KEY = Key(bytes(range(32)))
SIGNS = 2 * Coins(key=KEY, count=100).bits().astype(int) - 1


def opened(rules, canaries=100):
    claim = PureDP(epsilon=1.0)
    return Referee(Design(canaries=canaries, rules=rules, claim=claim), KEY)


def test_the_transcript_holds_guesses_and_coins():
    referee = opened(OneRun(guesses=3))
    referee.submit([5, 99, 0], [1, -1, 0])
    transcript = referee.close()
    np.testing.assert_array_equal(transcript.truth, SIGNS[[5, 99, 0]])
    np.testing.assert_array_equal(transcript.guess, [1, -1, 0])


def test_guesses_not_made_count_as_wrong():
    referee = opened(OneRun(guesses=3))
    referee.submit([7, 8], [SIGNS[7], 0])
    counts = referee.close().reading()
    assert (counts.canaries, counts.guesses, counts.correct) == (100, 3, 1)


ANY = [OneRun(guesses=3), Ranking(guesses=3), AdaptiveCount(guesses=3)]


@pytest.mark.parametrize("rules", ANY)
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
        ([0], np.array([127], np.int8), "-1, 0 or 1 only"),
        ([0], np.array([255], np.uint8), "-1, 0 or 1 only"),
        ([0], [0.7], "-1, 0 or 1 only"),
        ([0], [float("nan")], "-1, 0 or 1 only"),
        ([0, 1], [1], "two lists of one length"),
        ([[0]], [[1]], "two lists of one length"),
    ],
)
def test_a_breach_raises_and_the_game_goes_on_unrevealed(rules, index, guess, message):
    referee = opened(rules)
    with pytest.raises(InvalidRunError, match=message):
        referee.submit(index, guess)
    referee.submit([0], [1])
    assert len(referee.close().index) == 1


@pytest.mark.parametrize(
    "rules",
    [
        OneRun(guesses=3),
        Ranking(guesses=3),
        WeightClasses(weights=(1.0,), guesses=(3,)),
    ],
)
def test_a_one_run_game_is_played_once(rules):
    referee = opened(rules)
    stake = [1.0] if isinstance(rules, WeightClasses) else None
    referee.submit([0], [1], stake)
    with pytest.raises(InvalidRunError, match="played once"):
        referee.submit([1], [1], stake)


@pytest.mark.parametrize("rules", [OneRun(guesses=3), AdaptiveCount(guesses=3)])
def test_a_closed_game_takes_no_more(rules):
    referee = opened(rules)
    referee.close()
    with pytest.raises(InvalidRunError, match="the game is closed"):
        referee.submit([1], [1])


def test_a_coin_is_revealed_after_its_canary_was_submitted_even_if_passed():
    referee = opened(AdaptiveCount(guesses=3))
    np.testing.assert_array_equal(referee.submit([4, 9], [1, 0]), SIGNS[[4, 9]])
    with pytest.raises(InvalidRunError, match="named twice"):
        referee.submit([9], [SIGNS[9]])  # its coin is known by now


def test_the_number_of_guesses_holds_over_all_turns():
    referee = opened(AdaptiveCount(guesses=2))
    referee.submit([0], [1])
    referee.submit([1], [0])
    referee.submit([2], [1])
    with pytest.raises(InvalidRunError, match="3 guesses were made"):
        referee.submit([3], [1])
    referee.submit([3], [0])  # a pass is always free


def test_what_is_handed_back_is_not_what_is_written_down():
    referee = opened(AdaptiveCount(guesses=2))
    revealed = referee.submit([0], [1])
    revealed[:] = 1
    np.testing.assert_array_equal(referee.close().truth, SIGNS[[0]])


@given(st.permutations(range(12)), st.data())
def test_a_count_of_an_adaptive_game_is_what_was_guessed(order, data):
    referee = opened(AdaptiveCount(guesses=12))
    cuts = sorted(data.draw(st.sets(st.integers(1, 11))))
    right = 0
    for start, stop in pairwise([0, *cuts, 12]):
        index = list(order[start:stop])
        guess = data.draw(
            st.lists(
                st.sampled_from([-1, 0, 1]), min_size=len(index), max_size=len(index)
            )
        )
        right += sum(g == SIGNS[i] for g, i in zip(guess, index, strict=True))
        referee.submit(index, guess)
    assert referee.close().reading().correct == right


def test_a_ranking_keeps_its_order_and_ends_in_wrong_ones():
    referee = opened(Ranking(guesses=4))
    referee.submit([3, 1, 2], [SIGNS[3], -SIGNS[1], SIGNS[2]])
    np.testing.assert_array_equal(
        referee.close().reading().right, [True, False, True, False]
    )


@pytest.mark.parametrize("rules_of", [WeightClasses, AdaptiveClasses])
def test_classes_count_what_is_right_in_each(rules_of):
    referee = opened(rules_of(weights=(1.0, 3.0), guesses=(2, 2)))
    guess = [SIGNS[0], -SIGNS[1], SIGNS[2], 0]
    referee.submit([0, 1, 2, 3], guess, [1.0, 3.0, 3.0, 7.0])
    reading = referee.close().reading()
    assert reading.guesses == (2, 2)
    assert reading.correct == (1, 1)
    assert reading.committed


def test_a_class_counts_its_own_and_no_other():
    referee = opened(WeightClasses(weights=(1.0, 3.0), guesses=(3, 2)))
    referee.submit([0, 1, 2, 3], SIGNS[:4], [1.0, 1.0, 1.0, 3.0])
    assert referee.close().reading().correct == (3, 1)


def test_a_record_of_more_guesses_than_planned_is_not_read():
    referee = opened(OneRun(guesses=2))
    referee.submit([4, 9], [1, -1])
    transcript = referee.close()
    assert len(transcript.uniforms) == 0
    fewer = replace(transcript.design, rules=OneRun(guesses=1))
    plain = json.loads(transcript.to_json()) | {"design": json.loads(fewer.to_json())}
    with pytest.raises(InvalidRunError, match=r"^2 guesses were made"):
        Transcript.from_json(json.dumps(plain)).reading()


@pytest.mark.parametrize(
    ("stake", "message"),
    [
        (None, "needs a stake"),
        ([2.0, 2.0], "one of the weights"),
        ([1.0], "as long as guess"),
        ([1.0, np.nan], "must be positive"),
        ([-1.0, 1.0], "must be positive"),
        ([1e155, 1.0], "must be positive"),
        (["much", "more"], "must hold numbers"),
        ([3.0, 3.0], "2 guesses of weight 3 were made, but the design has 1 slots"),
    ],
)
def test_a_stake_must_be_a_free_slot(stake, message):
    referee = opened(AdaptiveClasses(weights=(1.0, 3.0), guesses=(2, 1)))
    with pytest.raises(InvalidRunError, match=message):
        referee.submit([0, 1], [1, 1], stake)


def test_slots_are_used_up_over_all_turns():
    referee = opened(AdaptiveClasses(weights=(1.0, 3.0), guesses=(2, 1)))
    referee.submit([0], [1], [3.0])
    with pytest.raises(InvalidRunError, match="weight 3"):
        referee.submit([1], [1], [3.0])


def test_rounds_are_as_many_as_planned_and_empty_ones_count():
    referee = opened(AdaptiveRounds(round_weights=(1.0, 1.0, 0.5)))
    referee.submit([0, 1], [SIGNS[0], -SIGNS[1]], [2.0, 2.0])
    referee.submit([2], [0])
    transcript = referee.close()
    reading = transcript.reading()
    assert [played.guesses for played in reading.rounds] == [(2,), (0,), (0,)]
    assert reading.rounds[0].correct == (1,)
    assert reading.rounds[0].weights == (2.0,)
    assert len({*reading.uniforms, reading.noise_uniform}) == 4
    assert [*reading.uniforms, reading.noise_uniform] == transcript.uniforms.tolist()
    assert transcript.uniforms.tolist() == KEY.uniforms(4).tolist()


def test_with_a_jump_every_canary_has_its_round():
    rules = AdaptiveRounds(round_weights=(1.0, 1.0, 0.5), max_jump=0.5)
    with pytest.raises(
        InvalidRunError, match="round 0 is for canaries 0, 3, and so on"
    ):
        opened(rules).submit([0, 1], [1, 1])
    referee = opened(rules)
    referee.submit([0, 3], [1, 0])
    with pytest.raises(InvalidRunError, match="round 1 is for canaries 1, 4"):
        referee.submit([2], [0])
    referee.submit([1], [SIGNS[1]], [0.75])
    reading = referee.close().reading()
    assert [played.guesses for played in reading.rounds] == [(1,), (1,), (0,)]
    assert reading.rounds[1].weights == (0.75,)
    assert reading.max_jump == 0.5


def test_a_round_too_many_is_refused():
    referee = opened(AdaptiveRounds(round_weights=(1.0,)))
    referee.submit([0], [1])
    with pytest.raises(InvalidRunError, match="all 1 planned rounds were played"):
        referee.submit([1], [1])


def test_uniforms_come_from_the_key_alone():
    def uniforms(index):
        referee = opened(AdaptiveRounds(round_weights=(1.0, 1.0)))
        referee.submit([index], [1])
        return referee.close().uniforms

    np.testing.assert_array_equal(uniforms(0), uniforms(7))


def test_bets_carry_their_chances():
    referee = opened(AdaptiveBets())
    referee.submit([0, 1], [SIGNS[0], 0], [0.9, 0.5])
    referee.submit([2], [-SIGNS[2]], [0.6])
    reading = referee.close().reading()
    np.testing.assert_array_equal(reading.right, [True, False])
    np.testing.assert_array_equal(reading.stated_probabilities, [0.9, 0.6])


@pytest.mark.parametrize("stake", [[1.5], [-0.1], [np.nan]])
def test_a_bet_is_a_chance(stake):
    with pytest.raises(InvalidRunError, match="must be in"):
        opened(AdaptiveBets()).submit([0], [1], stake)


def test_rules_that_count_alike_take_no_stakes():
    with pytest.raises(InvalidRunError, match="OneRun has no stakes"):
        opened(OneRun(guesses=3)).submit([0], [1], [2.0])


@pytest.mark.parametrize("kind", [float, np.float32, np.int8, np.int64, object])
def test_guesses_may_be_numbers_of_any_type(kind):
    referee = opened(OneRun(guesses=3))
    referee.submit([0, 1, 2], np.array([SIGNS[0], 0, -SIGNS[2]], kind))
    assert referee.close().reading().correct == 1


@pytest.mark.parametrize("guess", [[0.5], [2.0], [-2], [np.nan], [True + 1]])
def test_what_is_no_guess_is_refused(guess):
    with pytest.raises(InvalidRunError, match=r"^guess must hold -1, 0 or 1 only"):
        opened(OneRun(guesses=3)).submit([0], guess)


def test_a_referee_does_not_travel():
    with pytest.raises(InvalidRunError, match=r"^a referee holds the key"):
        pickle.dumps(opened(OneRun(guesses=3)))


def test_a_game_without_a_turn_is_all_wrong():
    assert opened(OneRun(guesses=3)).close().reading().correct == 0


@pytest.mark.parametrize(
    "rules",
    [
        OneRun(guesses=3),
        AdaptiveRounds(round_weights=(1.0, 0.5)),
        AdaptiveBets(),
    ],
)
def test_a_transcript_reads_back_as_itself(rules):
    referee = opened(rules)
    stake = None if isinstance(rules, OneRun) else [0.5, 0.25]
    referee.submit([4, 9], [1, -1], stake)
    transcript = referee.close()
    again = Transcript.from_json(transcript.to_json())
    assert again == transcript
    assert again.to_json() == transcript.to_json()
    assert again.reading().to_json() == transcript.reading().to_json()


def test_a_transcript_with_ragged_columns_is_refused():
    referee = opened(OneRun(guesses=3))
    referee.submit([4, 9], [1, -1])
    plain = json.loads(referee.close().to_json())
    with pytest.raises(InvalidInputError, match="one length"):
        Transcript.from_json(json.dumps({**plain, "guess": [1]}))
    with pytest.raises(
        InvalidInputError, match="guess must be a list of whole numbers"
    ):
        Transcript.from_json(json.dumps({**plain, "guess": ["x", "y"]}))
    for change in (
        {"guess": [1, 2]},
        {"truth": [1, 0]},
        {"index": [4, 4]},
        {"index": [4, 100]},
        {"turn": [1, 0]},
        {"turn": [-1, 0]},
    ):
        with pytest.raises(InvalidInputError, match="names each canary once"):
            Transcript.from_json(json.dumps({**plain, **change}))


def test_a_transcript_s_uniforms_are_from_zero_to_below_one():
    referee = opened(AdaptiveRounds(round_weights=(1.0,)))
    referee.submit([4], [1], [2.0])
    plain = json.loads(referee.close().to_json())
    read = Transcript.from_json(json.dumps({**plain, "uniforms": [0.0, 0.5]}))
    assert read.uniforms.tolist() == [0.0, 0.5]
    for uniforms in ([1.0, 0.5], [-0.1, 0.5]):
        with pytest.raises(InvalidInputError):
            Transcript.from_json(json.dumps({**plain, "uniforms": uniforms}))


def test_coins_read_back_as_themselves_and_only_where_the_key_is_shown():
    coins = Coins(key=KEY, count=100)
    assert Coins.from_json(coins.to_json()) == coins
    for public in (opened(OneRun(guesses=3)).design.to_json(), repr(coins)):
        assert KEY.secret.hex()[:16] not in public


@pytest.mark.parametrize("stake", [1e155, 1e200, 5e-324])
def test_a_stake_that_arithmetic_cannot_hold_is_refused(stake):
    """Such a stake once made nothing look like certainty."""
    with pytest.raises(InvalidRunError, match="from 1e-09 to 1e"):
        opened(AdaptiveRounds(round_weights=(1.0,))).submit([0], [1], [stake])


@pytest.mark.parametrize("weight", [5e-324, 1e-200, 1.0, 1e9])
def test_rounds_without_a_guess_refute_no_more_often_than_alpha(weight):
    """Fixed keys; a valid game would fail this once in a million choices of them."""
    refuted = 0
    for seed in range(100):
        rules = AdaptiveRounds(round_weights=(weight, weight))
        design = Design(canaries=10, rules=rules, claim=PureDP(epsilon=1.0))
        key = Key(np.random.default_rng(seed).bytes(32))
        reading = Referee(design, key).close().reading()
        refuted += judge_claim(design.claim, reading, alpha=0.05).refuted
    assert rate_limits(refuted, 100, alpha=2e-6)[0] <= 0.05
