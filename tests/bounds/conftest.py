"""The largest chance that any mechanism can give an event, by linear program."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, sparse


@pytest.fixture(scope="session")
def largest_p_value():
    """Maximise the chance of an event over all (epsilon, delta)-DP mechanisms.

    A mechanism is its chances ``P(output | coins)``. The claim holds if for every coin
    and every value of all coins the excess over ``e^epsilon`` times the chance after
    the flip adds up to at most delta. ``wins(output, coins)`` is 1 where the event
    happens, ``coins`` being a tuple of booleans, each true with chance ``inclusion``.
    """

    def solve(*, m, outputs, wins, epsilon, delta, inclusion=0.5):
        coins = list(itertools.product([False, True], repeat=m))
        place = {s: a for a, s in enumerate(coins)}
        size, many = len(outputs), len(outputs) * len(coins)
        prior = [
            math.prod(inclusion if b else 1 - inclusion for b in bits) for bits in coins
        ]
        gain = np.array(
            [
                [prior[a] * wins(o, s) for o in outputs]
                for s, a in zip(coins, range(len(coins)), strict=True)
            ]
        ).ravel()
        flips = [
            place[tuple(b != (i == j) for j, b in enumerate(bits))]
            for i in range(m)
            for bits in coins
        ]
        # Columns: the chances, then one excess for every coin, coins and output.
        one, by_coins = sparse.eye_array(size), sparse.eye_array(len(coins))
        flipped = (
            sparse.vstack([by_coins] * m) - math.exp(epsilon) * by_coins.tocsr()[flips]
        )
        above = sparse.hstack(
            [sparse.kron(flipped, one), -sparse.eye_array(m * many)], format="csr"
        )
        total = sparse.kron(sparse.eye_array(m * len(coins)), np.ones((1, size)))
        within = sparse.hstack(
            [sparse.csr_array((m * len(coins), many)), total], format="csr"
        )
        whole = sparse.hstack(
            [
                sparse.kron(by_coins, np.ones((1, size))),
                sparse.csr_array((len(coins), m * many)),
            ],
            format="csr",
        )
        found = optimize.linprog(
            -np.append(gain, np.zeros(m * many)),
            A_ub=sparse.vstack([above, within], format="csr"),
            b_ub=np.append(np.zeros(m * many), np.full(m * len(coins), delta)),
            A_eq=whole,
            b_eq=np.ones(len(coins)),
        )
        assert found.status == 0
        return -found.fun

    return solve
