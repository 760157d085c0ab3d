"""Guessers on the same sums: oracles by hand, and sums of which nothing is known."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from sweep_tools import InOrder

from dpaudit.errors import InvalidInputError
from dpaudit_lab.benchmark.guessers import (
    SMALL_GAMES,
    Game,
    Guessers,
    bound_of,
    by_likelihood,
    by_sums,
    run_of,
)
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run

NOISE = 2.4224014  # of epsilon = 2 by the RDP accountant, as in the paper
GAME = Game(coordinates=30, per_coordinate=1, steps=5, guesses=8)


def test_the_posterior_of_a_lone_canary_is_a_product_of_two_densities():
    played = run_of(GAME, 1)
    # It joined a step with chance 1/10, or did not: normal with mean 1 or 0.
    odds = sum(
        np.log(0.9 + 0.1 * np.exp((2 * x - 1) / (2 * NOISE**2))) for x in played.sums
    )
    surest = sorted(range(30), key=lambda i: -abs(odds[i]))[:8]
    made = by_likelihood(played)
    assert made.index.tolist() == surest
    assert (made.guess == np.sign(odds[surest])).all()


def test_sums_are_sorted_and_guessed_from_both_ends():
    game = replace(GAME, per_coordinate=2)
    played = run_of(game, 2)
    total = np.sum(played.sums, axis=0)
    made = by_sums(played)
    included = {int(i) // 2 for i in made.index[made.guess == 1]}
    excluded = {int(i) // 2 for i in made.index[made.guess == -1]}
    order = np.argsort(total).tolist()
    assert included == set(order[-2:])
    assert excluded == set(order[:2])


def test_sums_tell_of_their_coins_unless_silent():
    """Four standard errors of a correlation of 0; false alarm below 7e-5."""
    game = Game(coordinates=2000, per_coordinate=1, steps=50)
    far = {}
    for silent in (False, True):
        played = run_of(game, 0, silent=silent)
        total = np.sum(played.sums, axis=0)
        far[silent] = np.corrcoef(total, played.bits)[0, 1] * np.sqrt(2000)
    assert far[False] > 4
    assert abs(far[True]) < 4


def test_runs_are_the_same_for_whoever_asks():
    one, two, other = run_of(GAME, 3), run_of(GAME, 3), run_of(GAME, 4)
    assert np.array_equal(one.sums, two.sums)
    assert not np.array_equal(one.sums, other.sums)


def test_the_table_has_both_guessers_on_the_same_runs():
    part = Guessers(trials=3, pairs=0, games=SMALL_GAMES)
    (game,) = SMALL_GAMES
    with Store(":memory:") as store:
        for sweep in part.sweeps():
            run(sweep, engine=InOrder(), store=store)
        rows = part.rows(store)
    assert [row.ours for row in rows] == [True, False]
    for row, guesser in zip(rows, (by_likelihood, by_sums), strict=True):
        known = [bound_of(guesser, run_of(game, number)) for number in range(3)]
        assert row.bound.mean == pytest.approx(np.mean(known))
        assert [wrong.epsilon for wrong in row.wrong] == [0.0, 2.0]
        assert [wrong.draws for wrong in row.wrong] == [9, 3]
        assert (row.cost.seconds, row.cost.ratio, row.cost.memory) == (None,) * 3


def test_times_are_compared_with_those_of_the_sums():
    part = Guessers(trials=1, pairs=2, games=SMALL_GAMES)
    bounds, silent, times, memory = part.sweeps()
    setting = asdict(SMALL_GAMES[0])
    made_up = {"likelihood": 3.0, "sums": 1.5}
    with Store(":memory:") as store:
        for sweep in (bounds, silent, times, memory):
            found = [(trial, made_up) for trial in range(sweep.trials)]
            store.add(sweep.cell(setting), found)
        ours, theirs = part.rows(store)
    assert (ours.cost.seconds, ours.cost.ratio.middle, ours.cost.memory) == (3, 2, 3)
    assert (theirs.cost.seconds, theirs.cost.ratio, theirs.cost.memory) == (
        1.5,
        None,
        1.5,
    )
    assert [wrong.hits for wrong in ours.wrong] == [3, 1]
    assert [wrong.hits for wrong in theirs.wrong] == [3, 0]


@pytest.mark.parametrize(
    "wrong",
    [{"coordinates": 0}, {"per_coordinate": 0}, {"steps": 0}, {"guesses": 1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_game_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        replace(GAME, **wrong)
