"""The bound for rounds: right, valid against guessers who learn, useful, silent."""

import itertools
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bound import Grid
from dpaudit.bounds.readings import Rounds, Weighted
from dpaudit.bounds.rounds import RoundsBound, guess_weights, rounds_price
from dpaudit.stats.binomial import rate_limits

SURE = 50.0  # log-odds beyond every claim, so that all such guesses count the same


def played(stated, sizes, correct):
    return Weighted(
        canaries=max(1, sum(sizes)),
        weights=tuple(stated),
        guesses=tuple(sizes),
        correct=tuple(correct),
        committed=False,
    )


def game(rounds, uniforms, *, round_weights=None, canaries=None, **fixed):
    return Rounds(
        canaries=canaries or max(1, sum(sum(r.guesses) for r in rounds)),
        rounds=tuple(rounds),
        round_weights=tuple(round_weights or [1.0] * len(rounds)),
        uniforms=tuple(uniforms),
        **fixed,
    )


def p_value(reading, *, epsilon, delta=0.0):
    return math.exp(RoundsBound().log_p_value(reading, epsilon=epsilon, delta=delta))


def lower(reading, *, delta=0.0, alpha=0.05, grid=None):
    bound = RoundsBound(grid=grid or Grid())
    return bound.epsilon_lower(reading, delta=delta, alpha=alpha).epsilon_lower


def outcomes(sizes, p):
    laws = [stats.binom.pmf(np.arange(n + 1), n, p) for n in sizes]
    for counts in itertools.product(*(range(n + 1) for n in sizes)):
        yield counts, math.prod(law[c] for law, c in zip(laws, counts, strict=True))


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize(
    ("beyond", "sizes"), [((2.0,), (6,)), ((3.0, 1.0), (3, 4)), ((0.7, 0.4), (1, 2))]
)
def test_one_round_has_a_uniform_p_value(beyond, sizes, epsilon):
    """Exact: the p-value is straight in the uniform, so its law is a sum of shares."""
    stated = [epsilon + x for x in beyond]
    for a in (0.01, 0.05, 0.3, 0.8):
        below = 0.0
        for counts, chance in outcomes(sizes, special.expit(epsilon)):
            least, most = (
                p_value(game([played(stated, sizes, counts)], [u]), epsilon=epsilon)
                for u in (0.0, 1.0)
            )
            share = (a - least) / (most - least) if most > least else a >= most
            below += chance * np.clip(share, 0, 1)
        assert below == pytest.approx(a, rel=1e-6)


def test_a_round_without_a_guess_that_counts_is_left_to_committed_chance():
    """By scipy: half of the variance is the uniform's."""
    weak, empty = played((0.5,), (6,), (6,)), played((SURE,), (0,), (0,))
    tail = stats.binom.sf(5, 6, special.expit(1.0)) * 0.3
    for u in (0.001, 0.3, 0.9):
        want = stats.combine_pvalues([tail, u], method="stouffer").pvalue
        for nothing in (weak, empty):
            rounds = [played((SURE,), (6,), (6,)), nothing]
            reading = game(rounds, [0.3, 0.01], noise_uniform=u)
            assert p_value(reading, epsilon=1.0) == pytest.approx(want, rel=1e-6)


def test_chance_alone_refutes_nothing():
    empty = played((SURE,), (0,), (0,))
    one = played((SURE,), (6,), (6,))
    for rounds in ([empty], [empty, empty, one]):
        reading = game(rounds, [1e-9] * len(rounds), noise_uniform=1e-9)
        assert p_value(reading, epsilon=0.0) == 1.0


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
    want = min(1.0, float(combined) + coupling_failure_probability(50, epsilon, delta))
    reading = game(
        [played((SURE,), (n,), (v,)) for n, v in zip(sizes, right, strict=True)],
        uniforms,
        round_weights=weights,
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
        rounds.append(played((SURE,), (size,), (right,)))
        if size:
            tie = uniforms[j] * stats.binom.pmf(right, size, 0.5)
            tails.append(stats.binom.sf(right, size, 0.5) + tie)
    dropped = stats.combine_pvalues(
        tails, method="stouffer", weights=weights[: len(tails)]
    ).pvalue
    noise = rng.random()
    return game(rounds, uniforms, round_weights=weights, noise_uniform=noise), dropped


@pytest.mark.nightly
def test_passing_when_ahead_is_no_use():
    """400 games; without the empty rounds' uniforms it would be nearly twice alpha.

    The lower 99.9 % limit exceeds alpha, if all is well, in under one seed in 1000.
    """
    rng = np.random.default_rng(8)
    games, dropped = zip(*(one_game(rng) for _ in range(3000)), strict=True)
    kept = [p_value(played_game, epsilon=0.0) for played_game in games[:400]]
    assert rate_limits(sum(p <= 0.05 for p in kept), 400, alpha=0.002)[0] <= 0.05
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
                    p_value(game([played((SURE,), (n,), v)], [u]), epsilon=epsilon)
                    if n
                    else u
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
                    [played((2, 1), (3, 6), (1, a)), played((SURE,), (4,), (2,))],
                    [b, 0.4],
                ),
                epsilon=0.4,
            )
            for a, b in ((v, u), (v + 1, u), (v, u - 0.1))
        )
        assert better <= here * (1 + 1e-9)
        assert luckier <= here * (1 + 1e-9)


def test_a_grid_that_starts_higher_pays_less_for_delta():
    reading = game([played((SURE,), (300,), (298,))], [0.5], canaries=100_000)
    assert lower(reading, delta=2e-6) == 0.0
    assert lower(reading, delta=2e-6, grid=Grid(start=2.0)) > 3


def test_rounds_that_get_better_show_most_of_an_epsilon_of_two():
    rounds = [played((SURE,), (300,), (264,)) for _ in range(3)]  # 0.88 is expit(2)
    assert 1.7 < lower(game(rounds, [0.5] * 3), delta=1e-6) < 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_says_nothing_at_or_below_chance(delta):
    half = [played((SURE,), (40,), (20,))] * 2
    none = [played((SURE,), (40,), (0,))] * 2
    empty = [played((SURE,), (0,), (0,))] * 2
    for rounds in (half, none, empty):
        assert lower(game(rounds, [0.5, 0.5]), delta=delta) == 0.0


def test_a_lucky_uniform_does_not_reject_every_epsilon():
    perfect = Weighted(
        canaries=5, weights=(SURE,), guesses=(5,), correct=(5,), committed=True
    )
    game = Rounds(canaries=5, rounds=(perfect,), round_weights=(1.0,), uniforms=(0.01,))
    found = RoundsBound().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
    most = -math.log(0.05 ** (-1 / 5) - 1)  # every guess right, as one game
    assert most - 0.01 <= found <= most


def test_a_game_without_guesses_shows_nothing():
    empty = Weighted(
        canaries=5, weights=(SURE,), guesses=(0,), correct=(0,), committed=True
    )
    game = Rounds(canaries=5, rounds=(empty,), round_weights=(1.0,), uniforms=(0.001,))
    found = RoundsBound().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
    assert found == 0.0


@given(
    st.lists(
        st.tuples(st.floats(0.1, 4), st.integers(1, 60)),
        min_size=1,
        max_size=6,
        unique_by=lambda c: c[0],
    ),
    st.floats(0, 2),
    st.floats(0.1, 2),
)
def test_weights_rise_with_what_was_stated_and_are_capped(classes, epsilon, step):
    """The heaviest guess is within the step wherever equal weights would be."""
    stated, guesses = (
        np.array(column) for column in zip(*sorted(classes), strict=True)
    )
    weights = guess_weights(stated, guesses, epsilon=epsilon, step=step)
    assert np.all(np.diff(weights) >= 0)
    assert np.all(weights[stated <= epsilon] == 0)
    p = special.expit(epsilon)
    used = weights > 0
    if used.any():
        deviation = math.sqrt(p * (1 - p) * float(guesses @ np.square(weights)))
        equal = 1 / math.sqrt(p * (1 - p) * guesses[used].sum())
        # Whole numbers from 0 to 8 in the place of real ones: a sixteenth either way.
        assert weights.max() / deviation <= 1.1 * max(step, equal)


def fixed_price(jump, noise, weights, *, canaries, epsilon, delta):
    """By hand: what is left after each round, and how likely one guess decides."""
    squares = [w * w for w in weights]
    shares = [(1 - noise) * s / sum(squares) for s in squares]
    total = 0.0
    for i in range(canaries):
        r = i % len(weights)
        left = noise + sum(shares[r + 1 :])
        spread = stats.norm(scale=math.sqrt(left)) if left else None
        decides = spread.cdf(jump / 2) - spread.cdf(-jump / 2) if left else 1.0
        total += delta / (1 + math.exp(epsilon)) * decides
    return total


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_price_is_the_sum_over_canaries(noise):
    how = {"canaries": 103, "epsilon": 0.7, "delta": 1e-3}
    weights = (1.0, 2.0, 0.5, 3.0)
    got = rounds_price(
        round_weights=weights, max_jump=0.2, randomness_share=noise, **how
    )
    assert got == pytest.approx(fixed_price(0.2, noise, weights, **how), rel=1e-9)
    assert rounds_price(
        round_weights=weights, max_jump=None, randomness_share=noise, **how
    ) == (coupling_failure_probability(**how))


def test_a_jump_makes_delta_cheap_where_there_are_many_guesses():
    rounds = [played((2.0,), (300,), (240,)) for _ in range(4)]
    free, limited, dear = (
        lower(
            game(
                rounds, [0.5] * 4, canaries=18_000, max_jump=jump, randomness_share=0.02
            ),
            delta=delta,
            grid=Grid(start=1.0),
        )
        for jump, delta in ((None, 0.0), (0.2, 1e-5), (None, 1e-5))
    )
    assert dear < limited - 0.02 < limited < free < limited + 0.05


JUMP = {"max_jump": 1.5, "randomness_share": 0.2}


def chance_to_refute(reading, *, epsilon, delta, alpha):
    """Average over the rounds' uniforms on a grid; bisect in that of the noise."""
    middles, found = (np.arange(8) + 0.5) / 8, []
    for uniforms in itertools.product(middles, repeat=2):
        low, high = 0.0, 1.0  # refuted below the one, not above the other
        for _ in range(10):
            noise = (low + high) / 2
            drawn = replace(reading, uniforms=uniforms, noise_uniform=noise)
            refuted = p_value(drawn, epsilon=epsilon, delta=delta) <= alpha
            low, high = (noise, high) if refuted else (low, noise)
        found.append(low)
    return float(np.mean(found))


def strategies():
    """All guessers of three coins who see coins 0 and 2 before they guess coin 1."""
    for first in itertools.product((-1, 1), repeat=2):
        for second in itertools.product((-1, 0, 1), repeat=4):
            yield first, second


def test_no_mechanism_refutes_a_true_claim_too_often_by_linear_program(largest_p_value):
    """Two rounds, of coins 0 and 2 and of coin 1; every mechanism, 324 guessers.

    Without the price of delta the same rule would be wrong too often: the program finds
    a mechanism that refutes more than the tail alone allows.
    """
    epsilon, delta, alpha, weights = 1.0, 0.08, 0.2, (1.0, 0.7)
    chances = {}
    for made in (0, 1):
        for right in itertools.product(range(3), range(made + 1)):
            rounds = [
                played((3.0,), (2,), (right[0],)),
                played((3.0,), (made,), (right[1],)),
            ]
            reading = game(
                rounds, (0.5, 0.5), round_weights=weights, canaries=3, **JUMP
            )
            chances[made, right] = chance_to_refute(
                reading, epsilon=epsilon, delta=delta, alpha=alpha
            )

    def wins(strategy, bits):
        first, second = strategy
        signs = [1 if b else -1 for b in bits]
        guess = second[2 * bits[0] + bits[2]]
        hits = (first[0] == signs[0]) + (first[1] == signs[2])
        return chances[abs(guess), (hits, int(guess == signs[1]))]

    found = largest_p_value(
        m=3, outputs=list(strategies()), wins=wins, epsilon=epsilon, delta=delta
    )
    price = rounds_price(
        canaries=3, round_weights=weights, epsilon=epsilon, delta=delta, **JUMP
    )
    assert found <= alpha
    assert found > alpha - price + 0.005


@pytest.mark.parametrize("rounds", [1, 3, 4, 5, 7])
def test_half_of_the_evidence_may_be_chance_but_no_more(rounds):
    """Rounding once made half a little more than half, and nothing was refuted."""
    perfect = [played((SURE,), (300,), (300,))] * rounds
    reading = game(perfect, [0.5] * rounds, max_jump=0.3, randomness_share=0.5)
    assert p_value(reading, epsilon=0.1) < 0.01


def test_odd_numbers_neither_fail_nor_refute(subtests):
    for epsilon, jump, stated in product(
        [0.0, 37.0, 40.0, 700.0], [None, 1e-12, 0.3, 10.0], [1e-300, 1e-9, 1.0, 1e9]
    ):
        with subtests.test(epsilon=epsilon, jump=jump, stated=stated):
            rounds = [played((stated, 2 * stated), (3, 5), (1, 2))] * 2
            reading = game(rounds, [0.5, 0.5], canaries=100, max_jump=jump)
            assert 0.05 < p_value(reading, epsilon=epsilon) <= 1.0


def test_ten_million_guesses_need_no_more_than_their_spread():
    """The score of an exact half is that of a uniform: memory once grew with it."""
    many = played((SURE,), (10**7,), (5 * 10**6,))
    reading = game([many], [0.5], max_jump=0.3)
    assert p_value(reading, epsilon=0.0) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("jump", [0.2, 0.35, 0.6])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_one_right_guess_more_adds_no_more_than_the_jump(epsilon, jump):
    """Every step of a small round beside a large one, the p-value read as evidence."""
    fixed = {
        "round_weights": (1.0, 0.7),
        "canaries": 400,
        "max_jump": jump,
        "randomness_share": 0.02,
    }

    def evidence(large, small):
        rounds = [
            played((3.0, 1.5), (60, 60), (large, 40)),
            played((2.0,), (9,), (small,)),
        ]
        reading = game(rounds, (0.3, 0.6), noise_uniform=0.4, **fixed)
        return stats.norm.isf(p_value(reading, epsilon=epsilon))

    steps = [evidence(v + 1, 7) - evidence(v, 7) for v in range(40, 60)]
    steps += [evidence(55, v + 1) - evidence(55, v) for v in range(9)]
    assert min(steps) >= -1e-9
    assert max(steps) <= jump + 1e-6
    assert max(steps) > jump / 3  # most of what is allowed is used


def test_a_round_that_counts_for_nothing_adds_nothing():
    rounds = [played((2.0,), (50,), (45,)), played((2.0,), (50,), (50,))]
    both, first = (
        game(some, u, round_weights=w, canaries=200, max_jump=0.4)
        for some, u, w in (
            (rounds, (0.3, 0.6), (1.0, 0.0)),
            (rounds[:1], (0.3,), (1.0,)),
        )
    )
    assert p_value(both, epsilon=0.5) == pytest.approx(p_value(first, epsilon=0.5))
