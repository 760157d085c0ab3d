"""Bayes' rule by enumeration over all coins and all batches, in plain Python.

Nothing here is shared with the package: a coordinate's canaries are looked at one by
one, and every way in which they may have joined the steps is written out.
"""

import math
from itertools import product
from types import SimpleNamespace

import pytest


def density(x, mean, scale):
    return math.exp(-0.5 * ((x - mean) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))


def poisson(coins, sums, scales, rate, *, absent=0):
    """Chance density of the sums given coins; bit 0 puts in ``absent``."""
    values = [1 if coin else absent for coin in coins]
    total = 1.0
    for x, scale in zip(sums, scales, strict=True):
        step = 0.0
        for joined in product((0, 1), repeat=len(coins)):
            probability = math.prod(rate if join else 1 - rate for join in joined)
            mean = sum(v for v, join in zip(values, joined, strict=True) if join)
            step += probability * density(x, mean, scale)
        total *= step
    return total


def differences(coins, sums, scales, rate):
    """Density of differences of two steps each, every step's batch written out."""
    total = 1.0
    for x, scale in zip(sums, scales, strict=True):
        pair = 0.0
        for joined in product((0, 1), repeat=2 * len(coins)):
            probability = math.prod(rate if join else 1 - rate for join in joined)
            late, early = joined[: len(coins)], joined[len(coins) :]
            mean = sum(c * (a - b) for c, a, b in zip(coins, late, early, strict=True))
            pair += probability * density(x, mean, scale)
        total *= pair
    return total


def shuffled(coins, sums, scales, batches, places=None):
    """Density of the first sums of an epoch, every assignment of canaries written out.

    Every canary has a place in a batch, included or not. ``places`` is how many places
    a batch has; None if canaries choose independently.
    """
    total = ways = 0.0
    for where in product(range(batches), repeat=len(coins)):
        held = [where.count(batch) for batch in range(batches)]
        if places is not None:
            # How many ways there are to put distinct canaries into distinct places.
            weight = math.prod(math.perm(places, h) for h in held)
        else:
            weight = 1
        ways += weight
        likelihood = 1.0
        for t, (x, scale) in enumerate(zip(sums, scales, strict=True)):
            mean = sum(c for c, batch in zip(coins, where, strict=True) if batch == t)
            likelihood *= density(x, mean, scale)
        total += weight * likelihood
    return total / ways


def log_odds(likelihood, size, known):
    """ln P[S = 1] / P[S = 0] of the coin after ``known``, the others unknown."""
    odds = [0.0, 0.0]
    free = size - len(known) - 1
    for coin, rest in product((0, 1), product((0, 1), repeat=free)):
        odds[coin] += likelihood((*known, coin, *rest))
    return math.log(odds[1] / odds[0])


@pytest.fixture(scope="session")
def brute():
    """Return the functions of this file."""
    return SimpleNamespace(
        density=density,
        poisson=poisson,
        differences=differences,
        shuffled=shuffled,
        log_odds=log_odds,
    )
