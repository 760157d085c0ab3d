"""Adaptive ORA that counts the guesses made is wrong more often than it says."""

from fractions import Fraction
from itertools import product
from math import comb, log

import numpy as np
import pytest
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.parity import XorInPairs
from dpaudit_lab.paper.realised_number import SilentOnceAhead, adaptive_as_made


def tail(v, r, p):
    """P[Bin(r, p) >= v], exactly."""
    return sum(comb(r, k) * p**k * (1 - p) ** (r - k) for k in range(v, r + 1))


def test_adaptive_guesses_are_counted_as_they_were_made():
    mechanism = XorInPairs(elements=60)
    game = {"pairs": mechanism.pairs, "canaries": 60, "rng": np.random.default_rng(0)}
    found = adaptive_as_made(mechanism, threshold=1.0, **game)
    assert (found.guesses, found.correct) == (30, 30)
    early = adaptive_as_made(
        mechanism, threshold=1.0, stop=lambda made, right: made == 7, **game
    )
    assert (early.guesses, early.correct) == (7, 7)
    every = adaptive_as_made(mechanism, threshold=0.0, **game)
    assert every.guesses == 60
    assert 30 <= every.correct < 60
    with pytest.raises(InvalidInputError, match=r"^threshold must be 0 or more"):
        adaptive_as_made(mechanism, threshold=-1.0, **game)
    with pytest.raises(InvalidInputError, match=r"^canaries must be a whole number"):
        adaptive_as_made(mechanism, threshold=1.0, **(game | {"canaries": 0}))


def test_who_is_silent_once_ahead_says_nothing_more():
    mechanism = SilentOnceAhead(hint=2.0, ahead=lambda made, right: right == 3)
    posterior = mechanism.posterior(np.ones(6, np.int8))
    seen = []
    for index, truth in zip(posterior.batches(), (1, -1, 1, 1, 1, 1), strict=True):
        seen.append(posterior.log_odds(index).tolist())
        posterior.reveal(index, np.array([truth], np.int8))
    assert seen == [[2.0]] * 4 + [[0.0]] * 2
    with pytest.raises(InvalidInputError, match="hint"):
        SilentOnceAhead(hint=-1.0, ahead=lambda made, right: False)


def test_adaptive_ora_is_not_valid_for_its_own_threshold_guesser():
    # Nobody needs to stop: a mechanism can. Eight coins; each is hinted at with log-
    # odds h as long as hints are not yet right too often, then nothing more is said.
    # The law of right and wrong hints (1, 0), and the level, by enumeration. Who
    # guesses what reaches the threshold h is above that level more often than 5 %.
    half = Fraction(1, 2)
    n, h, beta = 8, Fraction(1, 10**4), Fraction(1, 20)
    keep = half + h / 4  # log-odds of nearly h
    edge = {5: 5, 8: 7}  # hints that end it: 5 of 5 right, 7 of 8 are the last

    def path(hints):
        """The chance of a row of right and wrong hints, and how many were made."""
        chance, right = Fraction(1), 0
        for made, hit in enumerate(hints, start=1):
            chance *= keep if hit else 1 - keep
            right += hit
            if edge.get(made, made + 1) <= right:
                return chance * half ** (n - made), made
        return chance, n

    law = {hints: path(hints) for hints in product((0, 1), repeat=n)}
    assert sum(chance for chance, _ in law.values()) == 1
    ratio = max(
        chance / law[(*hints[:i], 1 - hints[i], *hints[i + 1 :])][0]
        for hints, (chance, _) in law.items()
        for i in range(n)
    )
    mechanism = SilentOnceAhead(
        hint=log(keep / (1 - keep)), ahead=lambda made, right: edge.get(made) == right
    )
    assert log(ratio) <= mechanism.level(n) < 0.001
    top = ratio / (1 + ratio)  # p(epsilon), exactly
    wrong = sum(
        chance
        for hints, (chance, made) in law.items()
        if tail(sum(hints[:made]), made, top) <= beta
    )
    assert beta < Fraction(13, 256) < wrong < Fraction(13, 256) + h
    # As played: the same mean number of guesses, and of right ones, in 4,000 games.
    rng = np.random.default_rng(5)
    games = [
        adaptive_as_made(
            mechanism, pairs=mechanism.pairs, canaries=n, threshold=1e-5, rng=rng
        )
        for _ in range(4000)
    ]
    mean = sum(chance * made for chance, made in law.values())
    spread = sum(chance * (made - mean) ** 2 for chance, made in law.values())
    apart = np.mean([each.guesses for each in games]) - float(mean)
    assert abs(apart) < 4 * float(spread / 4000) ** 0.5
    above = np.mean([edge.get(each.guesses) == each.correct for each in games])
    assert abs(above - float(wrong)) < 4 * float(wrong / 4000) ** 0.5


def test_adaptive_ora_is_not_valid_for_its_own_threshold_guesser_of_many():
    # 300 games with 100 coins, as for the guesser that stops by itself: 61 expected.
    def ahead(made, right):
        return special.bdtrc(right - 1, made, 0.5) <= 0.05

    mechanism = SilentOnceAhead(hint=1e-9, ahead=ahead)
    assert mechanism.level(100) < 1e-7
    rng = np.random.default_rng(6)
    played = [
        adaptive_as_made(
            mechanism, pairs=mechanism.pairs, canaries=100, threshold=1e-9, rng=rng
        )
        for _ in range(300)
    ]
    assert 35 <= sum(ahead(each.guesses, each.correct) for each in played) <= 90
