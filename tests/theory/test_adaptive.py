"""What revealing coins is worth, against a walk through every sequence of coins."""

from fractions import Fraction
from itertools import product
from math import comb, inf, log

import numpy as np
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.theory.adaptive import (
    adaptive_guesses,
    one_run_guesses,
    stopping_probability,
)


def played(size, threshold, *, reveals):
    """The exact laws of guesses and right guesses, one sequence of coins at a time."""
    laws = [[Fraction(0)] * (size + 1) for _ in range(2)]
    for bits in product((0, 1), repeat=size):
        made = right = 0
        for place, bit in enumerate(bits):
            known = bits[place:] if reveals else bits
            ones, zeros = sum(known), len(known) - sum(known)
            odds = max(ones, zeros) / min(ones, zeros) if min(ones, zeros) else inf
            if log(odds) >= threshold:
                made += 1
                right += bit == (ones >= zeros)
        for law, number in zip(laws, (made, right), strict=True):
            law[number] += Fraction(1, 1 << size)
    return [[float(p) for p in law] for law in laws]


def test_the_laws_are_those_of_all_sequences(subtests):
    for size, threshold, (law, reveals) in product(
        range(1, 9),
        [0.0, 0.5, log(3), 2.0, inf],
        [(one_run_guesses, False), (adaptive_guesses, True)],
    ):
        with subtests.test(size=size, threshold=threshold, law=law, reveals=reveals):
            found = law(size, threshold)
            made, right = played(size, threshold, reveals=reveals)
            np.testing.assert_allclose(found.guesses, made, atol=1e-13)
            np.testing.assert_allclose(found.right, right, atol=1e-13)
            assert found.expected_guesses == pytest.approx(
                np.dot(made, range(size + 1))
            )
            assert found.expected_right == pytest.approx(np.dot(right, range(size + 1)))


@pytest.mark.parametrize("size", [1, 2, 10, 40])
def test_certain_guesses_have_the_closed_forms(size):
    once, adaptive = one_run_guesses(size, inf), adaptive_guesses(size, inf)
    assert once.expected_guesses == pytest.approx(size * 2.0 ** -(size - 1))
    assert adaptive.expected_guesses == pytest.approx(2 - 2.0 ** -(size - 1))
    # R ~ min(geometric, size), and all guesses are right
    geometric = [0.5**r for r in range(1, size)] + [0.5 ** (size - 1)]
    np.testing.assert_allclose(adaptive.guesses[1:], geometric, atol=1e-13)
    np.testing.assert_allclose(adaptive.right, adaptive.guesses, atol=1e-13)


def exact_stopping(canaries, alpha):
    """The chance of ever crossing, over all sequences of fair coins."""
    crossed = 0
    for coins in product((0, 1), repeat=canaries):
        right = 0
        for made, coin in enumerate(coins, start=1):
            right += coin
            tail = sum(comb(made, v) for v in range(right, made + 1))
            if Fraction(tail, 1 << made) <= alpha:
                crossed += 1
                break
    return crossed / 2**canaries


def test_the_stopping_chance_is_that_of_all_sequences(subtests):
    for alpha, canaries in product(
        [Fraction(1, 20), Fraction(1, 16), Fraction(3, 10)], [1, 4, 5, 9, 12]
    ):
        with subtests.test(alpha=alpha, canaries=canaries):
            found = stopping_probability(canaries, float(alpha))
            assert found == pytest.approx(exact_stopping(canaries, alpha), abs=1e-14)


def test_a_simulated_walk_crosses_as_often():
    # 4000 walks of 300 steps; five standard deviations, false alarm 6e-7
    rng = np.random.default_rng(11)
    right = rng.integers(0, 2, size=(4000, 300)).cumsum(axis=1)
    tails = [
        np.cumsum([comb(r, v) / 2**r for v in range(r, -1, -1)])[::-1]
        for r in range(1, 301)
    ]
    limits = [int(np.argmax(np.append(t, 0) <= 0.05)) for t in tails]
    share = np.mean((right >= limits).any(axis=1))
    chance = stopping_probability(300, 0.05)
    assert abs(share - chance) < 5 * (chance * (1 - chance) / 4000) ** 0.5


def test_arguments_without_meaning_are_refused():
    with pytest.raises(InvalidInputError, match="threshold"):
        one_run_guesses(3, -1.0)
    with pytest.raises(InvalidInputError, match="size"):
        adaptive_guesses(0, 1.0)
    with pytest.raises(InvalidInputError, match="alpha"):
        stopping_probability(10, 0.95)
