"""Finite mechanisms as tables of probabilities, against which formulas are tested.

A mechanism with finitely many outputs is determined by its distribution: for each data
set, the probability of each output. Theory enumerates such distributions, and tests
compare every other formula with them. ``FiniteTable`` is a mechanism on {0, 1}^n
defined by its table; the posterior of each coin, also after some are revealed, is
Bayes' rule over its 2^n rows.

Element 0 is always the lowest digit: row ``5 = 0b101`` is the data 1, 0, 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import one_each

__all__ = [
    "FiniteTable",
    "HasDistribution",
    "TablePosterior",
    "digits",
    "product_distribution",
]

O_co = TypeVar("O_co", covariant=True)


class HasDistribution(Protocol[O_co]):
    """A mechanism with finitely many outputs, with the same numbers for all data."""

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probability of each output."""
        ...

    def outputs(self, elements: int) -> Sequence[O_co]:
        """Return the outputs for data of this size, in the distribution's order."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FiniteTable:
    """Any mechanism on {0, 1}^n with finitely many outputs.

    Attributes:
        rows: The probabilities of the outputs, one row for each of the 2^n data sets:
            row ``r`` is for the data whose element ``i`` is bit ``i`` of ``r``.

    Example:
        >>> rows = np.array([[1, 0], [0.5, 0.5], [0.5, 0.5], [0, 1]])
        >>> either = FiniteTable(rows=rows)
        >>> either.distribution(np.array([1, 0]))
        array([0.5, 0.5])
        >>> either.log_odds(1).round(4)  # 1.5 to 0.5
        array([1.0986, 1.0986])
    """

    rows: NDArray[np.float64]

    def __post_init__(self) -> None:
        rows = np.array(self.rows, np.float64)
        if rows.ndim != 2 or len(rows) < 2 or len(rows) & (len(rows) - 1):
            raise InvalidInputError(
                "rows must be an array with one row for each of the 2^n data sets, "
                f"got shape {rows.shape}"
            )
        if not (np.all(rows >= 0) and np.all(np.abs(rows.sum(axis=1) - 1) < 1e-9)):
            raise InvalidInputError(
                "each of rows must hold probabilities, at least 0 and adding up to 1"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "rows", rows)

    @property
    def elements(self) -> int:
        """The number of elements of the data."""
        return len(self.rows).bit_length() - 1

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return Pairs(x=0, y=1)

    def run(self, data: Records, rng: np.random.Generator) -> int:
        """Return the number of a random output."""
        return int(rng.choice(self.rows.shape[1], p=self.distribution(data)))

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probability of each output."""
        one_each(data, self.elements)
        bits = [1 << i for i, value in enumerate(data) if value]
        probabilities: NDArray[np.float64] = self.rows[sum(bits)]
        return probabilities

    def outputs(self, elements: int) -> Sequence[int]:
        """Return the outputs, which are their own numbers."""
        if elements != self.elements:
            raise InvalidInputError(
                f"the table is for {self.elements} elements, got {elements=}"
            )
        return range(self.rows.shape[1])

    def log_odds(self, output: int) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return self.posterior(output).log_odds(np.arange(self.elements))

    def posterior(self, output: int) -> "TablePosterior":
        """Return the posterior of the coins, which revealed coins can update."""
        return TablePosterior(self.rows[:, output])


@final
class TablePosterior:
    """The posterior of the coins, by Bayes' rule over all their 2^n values.

    If the output and the revealed coins cannot occur together, the log-odds are 0.

    Example:
        >>> parity = TablePosterior(np.array([1.0, 0.0, 0.0, 1.0]))
        >>> parity.reveal(np.array([0]), np.array([1], np.int8))
        >>> parity.log_odds(np.array([1]))
        array([inf])
    """

    def __init__(self, likelihood: NDArray[np.float64]) -> None:
        n = len(likelihood).bit_length() - 1
        self._weights = np.array(likelihood, np.float64)
        self._bits = digits([2] * n).astype(bool)

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the elements one at a time: each may be evidence about the next."""
        for i in range(self._bits.shape[1]):
            yield np.array([i])

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of elements whose coins are not yet revealed."""
        ones = self._weights @ self._bits[:, index]
        zeros = self._weights @ ~self._bits[:, index]
        possible = (ones > 0) | (zeros > 0)
        with np.errstate(divide="ignore"):  # log 0 = -inf is intended
            return np.log(np.where(possible, ones, 1.0)) - np.log(
                np.where(possible, zeros, 1.0)
            )

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Record revealed coins, each -1 or +1."""
        agree = (self._bits[:, index] == (np.asarray(truth) > 0)).all(axis=1)
        self._weights[~agree] = 0.0

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return log-odds of +1, given all other coins; call before any reveal."""
        bit = 1 << np.arange(self._bits.shape[1])
        row = int(bit @ (np.asarray(truth) > 0))
        with np.errstate(divide="ignore"):  # log 0 = -inf is intended
            one, zero = np.log(self._weights[[row | bit, row & ~bit]])
        possible = np.maximum(one, zero) > -np.inf
        return np.where(possible, one, 0.0) - np.where(possible, zero, 0.0)


def product_distribution(
    distributions: Sequence[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the distribution of independent parts; the first part is the lowest digit.

    Example:
        >>> product_distribution([np.array([0.25, 0.75]), np.array([0.5, 0.5])])
        array([0.125, 0.375, 0.125, 0.375])
    """
    distribution = np.ones(1)
    for part in distributions:
        distribution = np.outer(part, distribution).ravel()
    return distribution


def digits(radices: Sequence[int]) -> NDArray[np.int64]:
    """Return the digits of each number in a mixed radix system, a row for each.

    Example:
        >>> digits([2, 3])[4]  # 4 = 0 + 2 * 2
        array([0, 2])
    """
    number = np.arange(prod(radices))
    columns = []
    for radix in radices:
        columns.append(number % radix)
        number //= radix
    return np.stack(columns, axis=1)
