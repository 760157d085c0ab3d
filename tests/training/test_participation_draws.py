"""Who joins a step: independent draws at the rate, unrelated to the coins."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpaudit import Coins, Key
from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidInputError
from dpaudit.training.participation_draws import ParticipationDraws, drawn

KEY = Key(bytes(range(32)))


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_every_set_of_canaries_is_drawn_as_often_as_independent_draws_would(rate):
    """Chi-square over all eight sets; a fixed key, passed by 99.9 % of keys."""
    steps = 20_000
    seen = dict.fromkeys(product((0, 1), repeat=3), 0)
    for step in range(steps):
        who = np.zeros(3, int)
        who[drawn(KEY, step, canaries=3, sample_rate=rate)] = 1
        seen[tuple(who)] += 1
    expected = [steps * np.prod([rate if x else 1 - rate for x in who]) for who in seen]
    found, expected = np.array(list(seen.values())), np.array(expected)
    rare = expected < 5  # sets that hardly ever come up are taken together
    found = [*found[~rare], found[rare].sum()] if rare.any() else found
    expected = [*expected[~rare], expected[rare].sum()] if rare.any() else expected
    assert stats.chisquare(found, expected).pvalue > 1e-3


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.5, 1.0])
def test_many_canaries_are_drawn_at_the_rate(rate):
    """Six standard deviations of a binomial count, at a fixed key."""
    n = 200_000
    who = drawn(KEY, 7, canaries=n, sample_rate=rate)
    assert np.all(np.diff(who) > 0)
    assert who.min() >= 0
    assert who.max() < n
    assert abs(len(who) - n * rate) <= 6 * np.sqrt(n * rate * (1 - rate)) + 1e-9


def test_joining_counts_the_included_ones_that_are_drawn():
    draws = ParticipationDraws(key=KEY, canaries=60, per_coordinate=4, sample_rate=0.4)
    bits = Coins(key=KEY, count=60).bits()
    for step in range(5):
        who = set(drawn(KEY, step, canaries=60, sample_rate=0.4).tolist())
        by_hand = [
            sum(int(bits[i]) for i in range(4 * c, 4 * c + 4) if i in who)
            for c in range(15)
        ]
        assert draws.contributions(step).tolist() == by_hand


def test_draws_do_not_depend_on_the_coins_or_on_earlier_steps():
    once = drawn(KEY, 3, canaries=100, sample_rate=0.2)
    drawn(KEY, 0, canaries=100, sample_rate=0.2)
    np.testing.assert_array_equal(once, drawn(KEY, 3, canaries=100, sample_rate=0.2))
    bits = Coins(key=KEY, count=100_000).bits()
    who = np.zeros(100_000)
    who[drawn(KEY, 1, canaries=100_000, sample_rate=0.5)] = 1
    # Four standard errors of a correlation, at a fixed key.
    assert abs(np.corrcoef(bits, who)[0, 1]) < 4 / np.sqrt(100_000)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(InvalidInputError, match=r"sample_rate must be in \(0, 1\]"):
        ParticipationDraws(key=KEY, canaries=4, per_coordinate=1, sample_rate=rate)


def test_canaries_join_in_their_turns_only():
    participation = Participation(every=3, cohorts=2, first=1)
    draws = ParticipationDraws(
        key=KEY,
        canaries=12,
        per_coordinate=2,
        sample_rate=1.0,
        participation=participation,
    )
    inside = Coins(key=KEY, count=12).bits().reshape(6, 2).sum(axis=1)
    for step in range(8):
        cohort = {1: 0, 2: 1, 4: 0, 5: 1, 7: 0}.get(step)
        by_hand = [inside[c] if c % 2 == cohort else 0 for c in range(6)]
        assert draws.contributions(step).tolist() == by_hand


def test_nobody_joins_more_often_than_a_cap_allows():
    capped = ParticipationDraws(
        key=KEY,
        canaries=50,
        per_coordinate=1,
        sample_rate=0.4,
        participation=Participation(most=2),
    )
    free = ParticipationDraws(key=KEY, canaries=50, per_coordinate=1, sample_rate=0.4)
    used = np.zeros(50, int)
    for step in range(12):
        now = free.contributions(step) * (used < 2)
        assert capped.contributions(step).tolist() == now.tolist()
        used += now
    assert used.max() == 2
    # A resumed run asks for a late step first, and for earlier ones again.
    again = ParticipationDraws(
        key=KEY,
        canaries=50,
        per_coordinate=1,
        sample_rate=0.4,
        participation=Participation(most=2),
    )
    late = [again.contributions(11).tolist(), again.contributions(3).tolist()]
    assert late == [capped.contributions(11).tolist(), capped.contributions(3).tolist()]
