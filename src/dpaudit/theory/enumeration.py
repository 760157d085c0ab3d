"""All privacy levels of a small mechanism, by summing over all coins and outputs.

With ``n`` coins and ``K`` outputs a mechanism on the pairs Z is a table ``P[o | S]`` of
``2^n`` rows and ``K`` columns. The distribution of the output given one coin is the
mean of half the rows, and all levels of the paper are sums:

- the DP level compares rows that differ in one coin: the adversary knows all others;
- the distributional level compares the means over those rows: it knows none;
- the average case is the mean over outputs of the most exposed element's accuracy
  ``p(|l|)``; the average element, or the ``k`` best, average over elements too;
- the ``k`` best with full knowledge are the same average over rows that differ in one
  coin; in turn, it is the accuracy of the best guesser that goes through the elements
  in order and learns each coin afterwards, by backward induction.

Row ``r`` of the table belongs to the coins whose bits are those of ``r``: element ``i``
has bit ``(r >> i) & 1``.

Reference: Keinan, Shenfeld and Ligett, section "Efficacy and asymptotic tightness of
ORA", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.table import HasDistribution
from dpaudit.stats.search import largest_yes

__all__ = ["Enumeration", "enumerate_mechanism"]

_MOST_COINS = 16
_CHUNK = 1 << 22  # numbers held in memory at once


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumeration:
    """The output distributions given all coins, and the resulting privacy levels.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy".

    Attributes:
        table: ``P[o | S]``, one row per setting of the coins, one column per output.
        elements: ``n``.
        probability: ``P[o]`` over uniform coins.
        loss: Log-odds of +1 given the output, a row per output and a column per
            element; 0 where the output cannot occur.

    Example:
        >>> xor = Enumeration(table=[[1, 0], [0, 1], [0, 1], [1, 0]])
        >>> xor.worst_case(), xor.distributional(), xor.average_element
        (inf, 0.0, 0.5)
    """

    table: NDArray[np.float64]
    elements: int = field(init=False)
    probability: NDArray[np.float64] = field(init=False, repr=False)
    loss: NDArray[np.float64] = field(init=False, repr=False)

    def __init__(self, *, table: ArrayLike) -> None:
        rows = np.asarray(table, np.float64)
        elements = _check(rows)
        object.__setattr__(self, "table", rows)
        object.__setattr__(self, "elements", elements)
        object.__setattr__(self, "probability", rows.mean(axis=0))
        one, zero = self.given(1), self.given(0)
        object.__setattr__(self, "loss", _log_ratio(one, zero).T)

    def given(self, bit: int) -> NDArray[np.float64]:
        """Return ``P[o | S_i = bit]``, a row per element and a column per output."""
        halves = [
            self._split(i)[:, bit].mean(axis=(0, 1)) for i in range(self.elements)
        ]
        return np.array(halves)

    @property
    def total_variation(self) -> NDArray[np.float64]:
        """The total variation distance of outputs given either coin, by element.

        Reference: Keinan, Shenfeld and Ligett,
        "def:max-divergence-total-variation-distance",
        "prop:optimal-efficacy-and-total-variation-distance".
        """
        distance: NDArray[np.float64] = np.abs(self.given(1) - self.given(0)).sum(1) / 2
        return distance

    @property
    def posterior(self) -> NDArray[np.float64]:
        """The probability that a coin is +1 given the output, by output and element."""
        return _share(self.given(1).T, self.given(0).T)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """The accuracy ``p(|l|)`` of the best guess, by output and element.

        Reference: Keinan, Shenfeld and Ligett,
        "lem:log-likelihood-ratio-and-total-variation-distance".
        """
        return np.maximum(self.posterior, 1 - self.posterior)

    @property
    def average_case(self) -> float:
        """The mean accuracy about the most exposed element (AC-DDP)."""
        return float(self.probability @ self.accuracy.max(axis=1))

    @property
    def average_element(self) -> float:
        """The mean accuracy about all elements (AE-AC-DDP)."""
        return float(self.probability @ self.accuracy.mean(axis=1))

    def best(self, guesses: int) -> float:
        """Return the mean accuracy about the ``guesses`` best (k-AE-AC-DDP).

        Example:
            >>> count = Enumeration(table=[[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
            >>> count.best(1)
            0.75
        """
        self._check_guesses(guesses)
        most = np.sort(self.accuracy, axis=1)[:, self.elements - guesses :]
        return float(self.probability @ most.mean(axis=1))

    def full_knowledge(self, guesses: int) -> float:
        """Return the mean accuracy about the ``guesses`` best, all others known.

        Example:
            >>> xor = Enumeration(table=[[1, 0], [0, 1], [0, 1], [1, 0]])
            >>> xor.full_knowledge(2), xor.in_turn(2), xor.best(2)
            (1.0, 0.75, 0.5)
        """
        self._check_guesses(guesses)
        n, total = self.elements, 0.0
        row = np.arange(len(self.table))
        for part in self._outputs(n):
            known = np.stack([_share(part, part[row ^ (1 << i)]) for i in range(n)])
            most = np.sort(np.maximum(known, 1 - known), axis=0)[n - guesses :]
            total += float((part * most.mean(axis=0)).sum())
        return total / len(self.table)

    def in_turn(self, guesses: int) -> float:
        """Return the best accuracy of so many guesses, coins revealed in order.

        A guess that is not made counts as wrong. Making a guess gains the probability
        of the likelier value and uses up one of the guesses left.
        """
        self._check_guesses(guesses)
        parts = self._outputs(guesses + 1)
        return sum(self._right_in_turn(part, guesses) for part in parts)

    def _right_in_turn(self, part: NDArray[np.float64], guesses: int) -> float:
        # For each setting of revealed coins, output and number of guesses left: the
        # expected number of correct guesses ahead, weighted by probability.
        ahead = np.zeros((*part.shape, guesses + 1))
        for i in reversed(range(self.elements)):
            seen = part.reshape(-1, 2, 1 << i, part.shape[1]).sum(axis=0)
            abstained = ahead.reshape(2, 1 << i, *ahead.shape[1:]).sum(axis=0)
            ahead = abstained.copy()
            guessed = seen.max(axis=0)[..., np.newaxis] + abstained[..., :-1]
            np.maximum(ahead[..., 1:], guessed, out=ahead[..., 1:])
        return float(ahead[..., -1].sum()) / len(self.table) / guesses

    def _outputs(self, per_cell: int) -> Iterator[NDArray[np.float64]]:
        """Yield the table in blocks of outputs that fit into memory."""
        step = max(1, _CHUNK // (len(self.table) * per_cell))
        for start in range(0, self.table.shape[1], step):
            yield self.table[:, start : start + step]

    def _check_guesses(self, guesses: int) -> None:
        _validate.whole_number("guesses", guesses, least=1)
        if guesses > self.elements:
            raise InvalidInputError(
                f"guesses must be at most elements={self.elements}, got {guesses=}"
            )

    def efficacy_of(self, guesses: ArrayLike) -> float:
        """Return E[V / R] of a guesser.

        Reference: Keinan, Shenfeld and Ligett, "def:ora-efficacy",
        "lem:efficacy-is-mean-of-success-probabilities".

        Args:
            guesses: For each output a row of -1, 0 (abstain) or +1 per element, with
                at least one guess for every output that can occur.

        Example:
            >>> table = Enumeration(table=[[1, 0], [0, 1]])
            >>> table.efficacy_of([[-1], [1]])
            1.0
        """
        made = np.asarray(guesses, np.int64)
        if made.shape != self.loss.shape or not np.isin(made, (-1, 0, 1)).all():
            raise InvalidInputError(
                f"guesses must be -1, 0 or 1 in a table of shape {self.loss.shape}, "
                f"got shape {made.shape}"
            )
        number, possible = np.abs(made).sum(axis=1), self.probability > 0
        if np.any(number[possible] == 0):
            raise InvalidInputError(
                "guesses must hold a guess for every output that can occur: V / R "
                "means nothing without"
            )
        one = self.posterior
        right = np.select([made > 0, made < 0], [one, 1 - one]).sum(axis=1)
        return float(self.probability[possible] @ (right[possible] / number[possible]))

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the distributional level is ``epsilon``.

        It is the largest over elements and both orders of the two distributions.

        Example:
            >>> table = Enumeration(table=[[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
            >>> table.delta_at(3.0)
            0.5
        """
        _validate.nonnegative("epsilon", epsilon)
        return _largest_excess(self.given(0), self.given(1), epsilon)

    def distributional(self, *, delta: float = 0.0) -> float:
        """Return the distributional level at delta: at 0, the largest ``|l|``."""
        _validate.probability("delta", delta)
        if delta == 0:
            return float(np.abs(self.loss[self.probability > 0]).max())
        return _smallest_epsilon([(self.given(0), self.given(1))], delta)

    def worst_case(self, *, delta: float = 0.0) -> float:
        """Return the DP level at delta of the mechanism on these pairs.

        Reference: Keinan, Shenfeld and Ligett, "def:differential-privacy",
        "def:max-divergence-total-variation-distance".
        """
        _validate.probability("delta", delta)
        splits = [self._split(i) for i in range(self.elements)]
        rows = [(split[:, 0], split[:, 1]) for split in splits]
        if delta == 0:
            return max(float(np.abs(_log_ratio(a, b)).max()) for a, b in rows)
        return _smallest_epsilon(rows, delta)

    def _split(self, element: int) -> NDArray[np.float64]:
        """Return the table with its second axis for the bit of one element."""
        return self.table.reshape(-1, 2, 1 << element, self.table.shape[1])


def enumerate_mechanism(
    mechanism: HasDistribution[object], pairs: Pairs, *, elements: int
) -> Enumeration:
    """Return the enumeration of a mechanism with finitely many outputs.

    Args:
        mechanism: Gives the probability of each output for any data.
        pairs: The two records of each element.
        elements: Number of elements, at most 16.

    Example:
        >>> from dpaudit.mechanisms.table import FiniteTable
        >>> table = FiniteTable(rows=np.array([[0.75, 0.25], [0.25, 0.75]]))
        >>> enumerate_mechanism(table, table.pairs, elements=1).average_element
        0.75
    """
    _validate.whole_number("elements", elements, least=1)
    if elements > _MOST_COINS:
        _refuse(elements)
    pairs.check(elements)
    numbers = np.arange(1 << elements)[:, np.newaxis]
    coins = (numbers >> np.arange(elements)) & 1
    return Enumeration(
        table=[mechanism.distribution(pairs.choose(bits)) for bits in coins]
    )


def _check(table: NDArray[np.float64]) -> int:
    """Return the number of coins of a table after checking that it is valid."""
    rows = table.shape[0] if table.ndim == 2 else 0
    elements = rows.bit_length() - 1
    if rows < 2 or rows != 1 << elements or not table.shape[1]:
        raise InvalidInputError(
            "table must have 2, 4, 8, ... rows, one for each setting of the coins, "
            f"and a column per output, got shape {table.shape}"
        )
    if elements > _MOST_COINS:
        _refuse(elements)
    if not (np.all(table >= 0) and np.allclose(table.sum(axis=1), 1, atol=1e-9)):
        raise InvalidInputError(
            "every row of table must be probabilities that add up to 1; the sums lie "
            f"between {table.sum(axis=1).min():.9g} and {table.sum(axis=1).max():.9g}"
        )
    return elements


def _refuse(elements: int) -> None:
    raise InvalidInputError(
        f"enumeration is for at most {_MOST_COINS} elements, got {elements}; for more "
        "give the mechanism a loss_distribution, or log_odds to simulate with"
    )


def _share(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``one / (one + other)``, and 1/2 where both are 0."""
    both = one + other
    return np.where(both > 0, one, 0.5) / np.where(both > 0, both, 1.0)


def _log_ratio(
    above: NDArray[np.float64], below: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ln(above / below), and 0 where both are 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.where((above == 0) & (below == 0), 1.0, [above, below]))
    ratio: NDArray[np.float64] = logs[0] - logs[1]
    return ratio


def _largest_excess(
    first: NDArray[np.float64], second: NDArray[np.float64], epsilon: float
) -> float:
    """Return the largest hockey-stick divergence of paired rows, in either order."""
    factor = np.exp(min(epsilon, 700.0))
    one = np.maximum(0.0, first - factor * second).sum(axis=-1).max()
    other = np.maximum(0.0, second - factor * first).sum(axis=-1).max()
    return float(max(one, other))


def _smallest_epsilon(
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], delta: float
) -> float:
    """Return the smallest epsilon at which no pair of rows exceeds delta, to 1e-10."""

    def excess(epsilon: float) -> float:
        return max(_largest_excess(a, b, epsilon) for a, b in pairs)

    for a, b in pairs:
        certain = [np.where(b == 0, a, 0.0), np.where(a == 0, b, 0.0)]
        if max(float(mass.sum(axis=-1).max()) for mass in certain) > delta:
            return inf
    return largest_yes(lambda epsilon: excess(epsilon) > delta)
