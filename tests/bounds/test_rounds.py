"""The bound for rounds: right, valid against guessers who learn, useful, silent."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.bounds.adaptive import coupling_price
from dpaudit.bounds.bound import Grid
from dpaudit.bounds.reads import Rounds, Weighted
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.stats.binomial import rate_limits


def played(weights, sizes, correct):
    return Weighted(
        canaries=max(1, sum(sizes)),
        weights=tuple(weights),
        guesses=tuple(sizes),
        correct=tuple(correct),
        committed=False,
    )


def game(rounds, uniforms, *, weights=None, canaries=None):
    return Rounds(
        canaries=canaries or max(1, sum(sum(r.guesses) for r in rounds)),
        rounds=tuple(rounds),
        weights=tuple(weights or [1.0] * len(rounds)),
        uniforms=tuple(uniforms),
    )


def p_value(reading, *, epsilon, delta=0.0):
    return math.exp(StoufferRounds().log_p_value(reading, epsilon=epsilon, delta=delta))


def lower(reading, *, delta=0.0, alpha=0.05, grid=None):
    bound = StoufferRounds(grid=grid or Grid())
    return bound.epsilon_lower(reading, delta=delta, alpha=alpha).epsilon_lower


def outcomes(sizes, p):
    laws = [stats.binom.pmf(np.arange(n + 1), n, p) for n in sizes]
    for counts in itertools.product(*(range(n + 1) for n in sizes)):
        yield counts, math.prod(law[c] for law, c in zip(laws, counts, strict=True))


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize(
    ("weights", "sizes", "uniform"),
    [
        ((1,), (6,), True),
        ((1,), (0,), True),
        ((3, 1), (3, 4), True),
        ((2.5, 1.2), (3, 4), False),
        ((0.7, 0.4), (0, 2), False),
    ],
)
def test_one_round_is_a_p_value_and_uniform_if_weights_are_whole(
    weights, sizes, uniform, epsilon
):
    """Exact: the p-value is straight in the uniform, so its law is a sum of shares."""
    for a in (0.01, 0.05, 0.3, 0.8):
        below = 0.0
        for counts, chance in outcomes(sizes, special.expit(epsilon)):
            least, most = (
                p_value(game([played(weights, sizes, counts)], [u]), epsilon=epsilon)
                for u in (0.0, 1.0)
            )
            share = (a - least) / (most - least) if most > least else a >= most
            below += chance * np.clip(share, 0, 1)
        assert below <= a * (1 + 1e-9)
        if uniform:
            assert below == pytest.approx(a, rel=1e-6)


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.floats(0.01, 0.99), st.floats(0.2, 2)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 2),
    st.sampled_from([0.0, 1e-3]),
    st.data(),
)
def test_p_value_agrees_with_randomised_binomial_tails(made, epsilon, delta, data):
    """By scipy: tails, ties shared by the uniform, and Stouffer's combination."""
    right = [data.draw(st.integers(0, n)) for n, _, _ in made]
    sizes, uniforms, weights = zip(*made, strict=True)
    p = special.expit(epsilon)
    tails = [
        stats.binom.sf(v, n, p) + u * stats.binom.pmf(v, n, p)
        for v, n, u in zip(right, sizes, uniforms, strict=True)
    ]
    combined = stats.combine_pvalues(tails, method="stouffer", weights=weights).pvalue
    want = min(1.0, float(combined) + coupling_price(50, epsilon, delta))
    reading = game(
        [played((1,), (n,), (v,)) for n, v in zip(sizes, right, strict=True)],
        uniforms,
        weights=weights,
        canaries=50,
    )
    got = p_value(reading, epsilon=epsilon, delta=delta)
    assert got == pytest.approx(want, rel=1e-6, abs=1e-9)


def one_game(rng):
    """Play four rounds against silence: guess three each until ahead, then pass.

    Returns the game, and its p-value if empty rounds were left out with their weight.
    """
    weights, uniforms = (1.0, 0.8, 0.6, 0.4), rng.random(4)
    rounds, tails = [], []
    for j in range(4):
        z = sum(w * -special.ndtri(t) for w, t in zip(weights, tails, strict=False))
        ahead = z > 1.645 * math.sqrt(sum(w * w for w in weights[:j]))
        size = 0 if tails and ahead else 3
        right = int(rng.integers(0, 2, size).sum())
        rounds.append(played((1,), (size,), (right,)))
        if size:
            tie = uniforms[j] * stats.binom.pmf(right, size, 0.5)
            tails.append(stats.binom.sf(right, size, 0.5) + tie)
    dropped = stats.combine_pvalues(
        tails, method="stouffer", weights=weights[: len(tails)]
    ).pvalue
    return game(rounds, uniforms, weights=weights), dropped


def test_passing_when_ahead_is_no_use():
    """800 games; without the empty rounds' uniforms it would be nearly twice alpha.

    The lower 99.9 % limit exceeds alpha, if all is well, in under one seed in 1000.
    """
    rng = np.random.default_rng(8)
    games, dropped = zip(*(one_game(rng) for _ in range(3000)), strict=True)
    kept = [p_value(played_game, epsilon=0.0) for played_game in games[:800]]
    assert rate_limits(sum(p <= 0.05 for p in kept), 800, alpha=0.002)[0] <= 0.05
    assert rate_limits(sum(p <= 0.05 for p in dropped), 3000, alpha=0.002)[0] > 0.05


def next_size(first):
    """Choose the second round by how the first went: few guesses after a good one."""
    return {0: 6, 1: 6, 2: 3, 3: 1, 4: 0}[first]


@pytest.mark.parametrize("epsilon", [0.0, 0.8])
def test_a_second_round_that_leans_on_the_first_is_wrong_as_often_as_it_says(epsilon):
    """Exact over counts; the uniforms are the midpoints of 60 by 60 cells."""
    p, cells, alpha = float(special.expit(epsilon)), 60, 0.1
    wrong = 0.0
    middle = (np.arange(cells) + 0.5) / cells
    for first, c1 in outcomes((4,), p):
        size = next_size(first[0])
        for second, c2 in outcomes((size,), p):
            before, after = (
                [
                    p_value(game([played((1,), (n,), v)], [u]), epsilon=epsilon)
                    for u in (0.0, 1.0)
                ]
                for n, v in ((4, first), (size, second))
            )
            z1 = special.ndtri(before[0] + middle * (before[1] - before[0]))
            z2 = special.ndtri(after[0] + middle * (after[1] - after[0]))
            refuted = (z1[:, None] + z2) / math.sqrt(2) <= special.ndtri(alpha)
            wrong += c1 * c2 * refuted.mean()
    assert wrong == pytest.approx(alpha, abs=0.004)


def test_one_more_right_guess_or_a_smaller_uniform_only_lowers_the_p_value():
    for v, u in itertools.product(range(6), (0.2, 0.5, 0.9)):
        here, better, luckier = (
            p_value(
                game(
                    [played((2, 1), (3, 6), (1, a)), played((1,), (4,), (2,))], [b, 0.4]
                ),
                epsilon=0.4,
            )
            for a, b in ((v, u), (v + 1, u), (v, u - 0.1))
        )
        assert better <= here * (1 + 1e-9)
        assert luckier <= here * (1 + 1e-9)


def test_every_epsilon_up_to_the_bound_is_rejected_and_the_next_is_not():
    reading = game(
        [played((2, 1), (30, 40), (27, 30)), played((1,), (50,), (40,))],
        [0.3, 0.6],
        canaries=150,
    )
    found = lower(reading, delta=1e-5)
    steps = round(found / 0.01)
    values = [p_value(reading, epsilon=0.01 * k, delta=1e-5) for k in range(steps + 2)]
    assert steps > 80
    assert max(values[:-1]) <= 0.05 < values[-1]


def test_a_grid_that_starts_higher_pays_less_for_delta():
    reading = game([played((1,), (300,), (298,))], [0.5], canaries=100_000)
    assert lower(reading, delta=2e-6) == 0.0
    assert lower(reading, delta=2e-6, grid=Grid(start=2.0)) > 3


def test_rounds_that_get_better_show_most_of_an_epsilon_of_two():
    rounds = [played((1,), (300,), (264,)) for _ in range(3)]  # 0.88 is expit(2)
    assert 1.7 < lower(game(rounds, [0.5] * 3), delta=1e-6) < 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_says_nothing_at_or_below_chance(delta):
    half = [played((1,), (40,), (20,))] * 2
    none = [played((1,), (40,), (0,))] * 2
    empty = [played((1,), (0,), (0,))] * 2
    for rounds in (half, none, empty):
        assert lower(game(rounds, [0.5, 0.5]), delta=delta) == 0.0


def test_a_lucky_uniform_does_not_reject_every_epsilon():
    perfect = Weighted(
        canaries=5, weights=(1,), guesses=(5,), correct=(5,), committed=True
    )
    game = Rounds(canaries=5, rounds=(perfect,), weights=(1.0,), uniforms=(0.01,))
    found = StoufferRounds().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
    most = -math.log(0.05 ** (-1 / 5) - 1)  # every guess right, as one game
    assert most - 0.01 <= found <= most


def test_a_game_without_guesses_shows_nothing():
    empty = Weighted(
        canaries=5, weights=(1,), guesses=(0,), correct=(0,), committed=True
    )
    game = Rounds(canaries=5, rounds=(empty,), weights=(1.0,), uniforms=(0.001,))
    found = StoufferRounds().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
    assert found == 0.0
