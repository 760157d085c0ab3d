"""What the tests of the paper share: exact oracles that use nothing of the package.

One fixture, ``fewest_right``, asks the package and holds it to such an oracle.
All chances are fractions. As ``p(|ln(a / b)|) = max(a, b) / (a + b)``, every level of
the paper is a fraction too once ``p`` is applied, also where epsilon is infinite, so
that equalities and inequalities are checked without any tolerance.
"""

from bisect import bisect_left
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import special

from dpaudit.bounds import Counts
from dpaudit.bounds.exact import PureBound
from dpaudit.mechanisms.table import FiniteTable

HALF = Fraction(1, 2)


class Exact:
    """A mechanism on {-1, 1}^n as a table of fractions, and its levels by definition.

    Row ``r`` is for the coins whose bits are those of ``r``; bit 1 is S = +1.
    """

    def __init__(self, rows):
        self.rows = [[Fraction(chance) for chance in row] for row in rows]
        self.n = len(rows).bit_length() - 1
        self.outputs = range(len(rows[0]))
        self.indexes = range(self.n)
        self.posterior = cache(self._posterior)  # many tests ask for the same

    @property
    def table(self):
        return FiniteTable(rows=np.array(self.rows, float))

    @property
    def is_private(self):
        return all(chance > 0 for row in self.rows for chance in row)

    def sign(self, row, i):
        return 1 if row >> i & 1 else -1

    def chance(self, o):
        return sum(row[o] for row in self.rows) / len(self.rows)

    def given(self, i, sign, o):
        """P[O = o | S_i = sign]."""
        rows = [row[o] for r, row in enumerate(self.rows) if self.sign(r, i) == sign]
        return sum(rows) / len(rows)

    def _posterior(self, i, sign, o):
        """P[S_i = sign | O = o], one half if the output cannot occur."""
        both = self.given(i, -1, o) + self.given(i, 1, o)
        return self.given(i, sign, o) / both if both else HALF

    def accuracy(self, i, o):
        """p(|l_i(o)|)."""
        return max(self.posterior(i, -1, o), self.posterior(i, 1, o))

    def efficacy(self, guesser):
        """E[V / R], by summing over all coins and outputs."""
        total = Fraction(0)
        for r, row in enumerate(self.rows):
            for o, chance in enumerate(row):
                made = sum(guess != 0 for guess in guesser[o])
                hits = sum(guesser[o][i] == self.sign(r, i) for i in self.indexes)
                total += chance * Fraction(hits, made)
        return total / len(self.rows)

    def most_likely(self, k):
        """The guesser of the k coins that are known best."""
        return [self._most_likely(k, o) for o in self.outputs]

    def _most_likely(self, k, o):
        best = sorted(self.indexes, key=lambda i: -self.accuracy(i, o))[:k]
        sign = {i: 1 if self.posterior(i, 1, o) >= HALF else -1 for i in best}
        return [sign.get(i, 0) for i in self.indexes]

    @property
    def average_element(self):
        return self.best(self.n)

    def best(self, k):
        """k-AE-AC-DDP."""
        return sum(
            self.chance(o)
            * sum(sorted(self.accuracy(i, o) for i in self.indexes)[-k:])
            / k
            for o in self.outputs
        )

    @property
    def average_case(self):
        return sum(
            self.chance(o) * max(self.accuracy(i, o) for i in self.indexes)
            for o in self.outputs
        )

    @property
    def p_distributional(self):
        return max(self.accuracy(i, o) for i in self.indexes for o in self.outputs)

    @property
    def p_worst_case(self):
        found = [HALF]
        for r, i, o in product(range(len(self.rows)), self.indexes, self.outputs):
            a, b = self.rows[r][o], self.rows[r ^ (1 << i)][o]
            if a + b:
                found.append(max(a, b) / (a + b))
        return max(found)


class Binomial:
    """Laws and tails of right guesses from scratch, and the paper's lower bounds."""

    @staticmethod
    def law(r, p):
        return [comb(r, v) * p**v * (1 - p) ** (r - v) for v in range(r + 1)]

    @classmethod
    def tail(cls, v, r, p):
        """P[Bin(r, p) >= v]."""
        return sum(cls.law(r, p)[max(0, v) :])

    @classmethod
    def cpl(cls, r, v, beta):
        """The paper's CPL(r, v, beta): sup {p : P[Bin(r, p) >= v] <= beta}."""
        low, high = 0.0, 1.0
        if v == 0:
            return 0.0  # the set is empty
        for _ in range(60):
            middle = (low + high) / 2
            inside = cls.tail(v, r, middle) <= beta
            low, high = (middle, high) if inside else (low, middle)
        return low

    @staticmethod
    def fast_cpl(r, v, beta):
        """The same as a beta quantile, for arrays and large numbers."""
        r, v = np.broadcast_arrays(np.asarray(r, float), np.asarray(v, float))
        inner = special.betaincinv(np.maximum(v, 1), r - np.maximum(v, 1) + 1, beta)
        return np.where(v > 0, inner, 0.0)

    @classmethod
    def bound(cls, r, v, beta):
        """The paper's epsilon'_beta(v, r), 0 where the set is empty."""
        return np.maximum(0.0, special.logit(cls.fast_cpl(r, v, beta)))

    @staticmethod
    def reaches(r, v, level, beta):
        """Whether epsilon'_beta(v, r) >= level: P[Bin(r, p(level)) >= v] <= beta."""
        v = np.asarray(v, float)
        tail = special.betainc(np.maximum(v, 1), r - v + 1, special.expit(level))
        return (v > 0) & (tail <= beta)

    @staticmethod
    def float_law(r, p):
        """Masses for large r, as floats."""
        v = np.arange(r + 1)
        logs = special.gammaln(r + 1) - special.gammaln(v + 1)
        logs = logs - special.gammaln(r - v + 1)
        return np.exp(logs + special.xlogy(v, p) + special.xlog1py(r - v, -p))


@pytest.fixture(scope="session")
def binomial():
    return Binomial


@pytest.fixture(scope="session")
def fewest_right():
    """The fewest right guesses of r whose bound reaches a level, by the package."""

    def fewest(r, level, beta):
        def reaches(v):
            counts = Counts(canaries=r, guesses=r, correct=v)
            bound = PureBound().epsilon_lower(counts, delta=0.0, alpha=beta)
            return bound.epsilon_lower >= level

        found = bisect_left(range(r + 1), True, key=reaches)
        printed = Binomial.reaches(r, np.arange(r + 1), level, beta)
        assert found == r + 1 - np.count_nonzero(printed)
        return found

    return fewest


@pytest.fixture(scope="session")
def check_runs():
    """Two thousand runs of a mechanism have each output as often as is its chance.

    Four deviations, at most: a false alarm has chance below 1e-4 for each output.
    """

    def check(mechanism, data, chances, runs=2000):
        rng = np.random.default_rng(1)
        outputs = (mechanism.run(np.array(data), rng) for _ in range(runs))
        seen = Counter(None if o is None else tuple(np.ravel(o)) for o in outputs)
        assert seen.keys() <= chances.keys()
        for output, chance in chances.items():
            spread = (runs * chance * (1 - chance)) ** 0.5
            assert abs(seen[output] - runs * chance) <= 4 * spread

    return check


@pytest.fixture(scope="session")
def exact():
    return Exact


@pytest.fixture(scope="session")
def mechanisms():
    """A hundred random finite mechanisms; every second one is private."""
    rng = np.random.default_rng(2503)
    found = []
    for number in range(100):
        n, outputs = 1 + number % 3, int(rng.integers(2, 5))
        least, most = (1, 9) if number % 2 else (0, 3)
        weights = rng.integers(least, most + 1, (1 << n, outputs))
        weights[weights.sum(axis=1) == 0] = 1
        rows = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
        found.append(Exact(rows))
    return found
