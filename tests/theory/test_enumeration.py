"""Enumeration against a second one in exact rationals, over a hundred mechanisms.

The chain of levels, the best guesser, efficacy and total variation are held against
such an oracle in ``tests/paper/test_efficacy.py``.
"""

from fractions import Fraction
from functools import cache
from itertools import product
from math import exp, inf, log

import numpy as np
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.theory.enumeration import Enumeration, enumerate_mechanism

HALF = Fraction(1, 2)
SEEDS = range(100)


def random_table(seed):
    """Rows of rational chances; every second table is sparse."""
    rng = np.random.default_rng(seed)
    n, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    weights = rng.integers(1, 30, size=(1 << n, outputs))
    if seed % 2:
        weights = weights * rng.integers(0, 2, size=weights.shape)
        weights[weights.sum(axis=1) == 0, rng.integers(outputs)] = 1
    return [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]


class Oracle:
    """The definitions of the paper, read aloud in loops over rationals."""

    def __init__(self, rows):
        self.rows, self.n = rows, len(rows).bit_length() - 1
        self.coins = range(len(rows))
        self.outputs = range(len(rows[0]))
        self.chance = [sum(row[o] for row in rows) / len(rows) for o in self.outputs]
        self.possible = [o for o in self.outputs if self.chance[o]]

    def given(self, o, i, bit):
        """P[O = o | S_i = bit]."""
        rows = [self.rows[s] for s in self.coins if (s >> i) & 1 == bit]
        return sum(row[o] for row in rows) / len(rows)

    def posterior(self, o, i, bit):
        """P[S_i = bit | O = o] by Bayes' rule."""
        return HALF * self.given(o, i, bit) / self.chance[o]

    def accuracies(self, o):
        """The accuracy of the best guess about each element, largest first."""
        both = [max(self.posterior(o, i, b) for b in (0, 1)) for i in range(self.n)]
        return sorted(both, reverse=True)

    def best(self, k):
        tops = {o: sum(self.accuracies(o)[:k]) / k for o in self.possible}
        return sum(self.chance[o] * tops[o] for o in self.possible)

    def neighbours(self):
        for s, i in product(self.coins, range(self.n)):
            yield self.rows[s], self.rows[s ^ (1 << i)]

    def halves(self):
        for i, bit in product(range(self.n), (0, 1)):
            yield tuple(
                [self.given(o, i, b) for o in self.outputs] for b in (bit, 1 - bit)
            )

    @staticmethod
    def level(pairs):
        """The largest log-ratio of two lists of chances."""
        most = 0.0
        for first, second in pairs:
            for p, q in zip(first, second, strict=True):
                if p > 0:
                    most = max(most, log(p / q) if q else inf)
        return most

    @staticmethod
    def excess(pairs, factor):
        """The largest sum of (p - factor q)_+."""
        return max(
            sum(max(Fraction(0), p - factor * q) for p, q in zip(a, b, strict=True))
            for a, b in pairs
        )


@cache
def both(seed):
    rows = random_table(seed)
    return Enumeration(table=[[float(p) for p in row] for row in rows]), Oracle(rows)


def test_every_level_is_that_of_the_definitions(subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            found, oracle = both(seed)
            assert found.elements == oracle.n
            assert found.worst_case() == pytest.approx(
                oracle.level(oracle.neighbours())
            )
            assert found.distributional() == pytest.approx(
                oracle.level(oracle.halves()), abs=1e-14
            )
            assert found.average_case == pytest.approx(float(oracle.best(1)))
            assert found.average_element == pytest.approx(float(oracle.best(oracle.n)))
            for k in range(1, oracle.n + 1):
                assert found.best(k) == pytest.approx(float(oracle.best(k)))


def test_the_loss_is_the_logarithm_of_the_odds(subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            found, oracle = both(seed)
            for o, i in product(oracle.possible, range(oracle.n)):
                one, zero = oracle.posterior(o, i, 1), oracle.posterior(o, i, 0)
                odds = log(one / zero) if one and zero else inf if one else -inf
                assert found.loss[o, i] == pytest.approx(odds, abs=1e-14)


def test_deltas_are_hockey_sticks_and_levels_their_inverse(subtests):
    for seed in SEEDS:
        with subtests.test(seed=seed):
            found, oracle = both(seed)
            halves, rows = list(oracle.halves()), list(oracle.neighbours())
            for factor in (Fraction(1), Fraction(3, 2), Fraction(10)):
                expected = float(oracle.excess(halves, factor))
                assert found.delta_at(log(factor)) == pytest.approx(expected, abs=1e-14)
            for delta in (0.01, 0.2):
                for level, pairs in (
                    (found.distributional(delta=delta), halves),
                    (found.worst_case(delta=delta), rows),
                ):
                    if level == inf:
                        assert oracle.excess(pairs, Fraction(10**12)) > delta
                    else:
                        above = Fraction(exp(level + 1e-8))
                        assert oracle.excess(pairs, above) <= delta
                        below = Fraction(exp(level - 1e-8))
                        assert level == 0 or oracle.excess(pairs, below) > delta


def test_a_mechanism_is_enumerated_row_by_row_in_binary_order():
    rows = np.array([[float(p) for p in row] for row in random_table(17)])
    table = FiniteTable(rows=rows)
    n = len(rows).bit_length() - 1
    found = enumerate_mechanism(table, table.pairs, elements=n)
    np.testing.assert_array_equal(found.table, rows)
    flipped = enumerate_mechanism(table, Pairs(x=1, y=0), elements=n)
    np.testing.assert_array_equal(flipped.table, rows[::-1])
    np.testing.assert_allclose(flipped.loss, -found.loss)


def test_sixteen_coins_are_enumerated():
    parity = np.array([r.bit_count() % 2 for r in range(1 << 16)])
    found = Enumeration(table=np.eye(2)[parity] * 0.5 + 0.25)
    assert found.worst_case() == pytest.approx(log(3))
    assert found.distributional() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1.0]], "2, 4, 8"),
        ([[1.0]] * 3, "2, 4, 8"),
        ([1.0, 1.0], "2, 4, 8"),
        ([[0.5, 0.6], [0.5, 0.5]], "add up to 1"),
        ([[1.5, -0.5], [0.5, 0.5]], "add up to 1"),
        (np.ones((1 << 17, 1)), "at most 16"),
    ],
)
def test_what_is_no_table_is_refused(table, message):
    with pytest.raises(InvalidInputError, match=message):
        Enumeration(table=table)


def test_guesses_that_mean_nothing_are_refused():
    found = Enumeration(table=[[0.5, 0.5, 0], [0.25, 0.75, 0]])
    with pytest.raises(InvalidInputError, match="shape"):
        found.efficacy_of([[1]])
    with pytest.raises(InvalidInputError, match="every output that can occur"):
        found.efficacy_of([[1], [0], [1]])
    assert found.efficacy_of([[-1], [1], [0]]) == pytest.approx(0.625)
    with pytest.raises(InvalidInputError, match="at most elements=1"):
        found.best(2)
    with pytest.raises(InvalidInputError, match="at most 16"):
        enumerate_mechanism(FiniteTable(rows=np.eye(2)), Pairs(x=0, y=1), elements=17)
