"""Bayes' rule by enumeration: what every formula about coins is held against."""

import itertools
import math

import numpy as np
import pytest


def log_ratio(above, below):
    """ln(above / below), with 0 if both are impossible."""
    if above == below == 0:
        return 0.0
    if below == 0:
        return math.inf
    return math.log(above / below) if above else -math.inf


@pytest.fixture(scope="session")
def bayes():
    """The log-odds of each hidden coin, by summing over all coins.

    ``likelihood(bits)`` is the chance or density of the output for a tuple of bits;
    ``revealed`` maps elements to bits.
    """

    def solve(likelihood, n, revealed=()):
        known = dict(revealed)
        weights = {
            bits: likelihood(bits)
            for bits in itertools.product((0, 1), repeat=n)
            if all(bits[i] == known[i] for i in known)
        }
        return {
            i: log_ratio(
                math.fsum(w for bits, w in weights.items() if bits[i]),
                math.fsum(w for bits, w in weights.items() if not bits[i]),
            )
            for i in range(n)
            if i not in known
        }

    return solve


@pytest.fixture(scope="session")
def play(bayes):
    """Reveal coins in random order, and compare the posterior at every step."""

    def check(posterior, likelihood, bits, order, *, rtol=1e-10):
        n, revealed = len(bits), {}
        for step in order:
            want = bayes(likelihood, n, revealed)
            found = posterior.log_odds(np.array(list(want), np.int64))
            np.testing.assert_allclose(found, list(want.values()), rtol=rtol, atol=1e-9)
            index = np.array([step], np.int64)
            posterior.reveal(index, np.array([2 * bits[step] - 1], np.int8))
            revealed[step] = bits[step]

    return check
