"""Parities: an output that reveals nothing about any element without the others.

The exclusive or of two or more fair coins is independent of any proper subset of them,
so a guesser who knows none of the others learns nothing, although the mechanism is not
private at all. This is the extreme case of the gap of interference. Once all coins of a
parity but one are revealed, the last is known as well as the parity: adaptive guessing
closes the gap for parities of pairs, where every second guess is correct.

Reference: Keinan, Shenfeld and Ligett, Definitions "XOR", "XOR + Randomized Response"
and "Xor-in-Pairs", https://arxiv.org/abs/2503.07199.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import NOTHING, one_each
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
)
from dpaudit.mechanisms.output_likelihood import OutputLikelihood, parity_likelihood
from dpaudit.mechanisms.table import digits, product_distribution
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, PureDP

__all__ = [
    "ParityPosterior",
    "Xor",
    "XorInPairs",
    "XorRandomisedResponse",
]


@final
class ParityPosterior:
    """The posterior of coins, given noisy parities of groups of them.

    Element ``i`` belongs to group ``i // size``. A coin has its group's confidence once
    all other coins of the group are revealed, and is unknown until then.

    Args:
        parity: For each group, the log-odds that the number of its ones is odd.
        size: Elements of a group.

    Example:
        >>> pairs = ParityPosterior(np.array([np.inf, -np.inf]), size=2)
        >>> [batch.tolist() for batch in pairs.batches()]
        [[0, 2], [1, 3]]
        >>> pairs.reveal(np.array([0, 2]), np.array([1, 1], np.int8))
        >>> pairs.log_odds(np.array([1, 3]))
        array([-inf,  inf])
    """

    def __init__(self, parity: NDArray[np.float64], *, size: int) -> None:
        self._parity = np.array(parity, np.float64)
        self._size = size
        self._hidden = np.full(len(self._parity), size)

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield all but the last element of each group, then the last of each."""
        element = np.arange(len(self._parity) * self._size)
        last = element % self._size == self._size - 1
        if self._size > 1:
            yield element[~last]
        yield element[last]

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of elements whose coins are not yet revealed."""
        group = np.asarray(index) // self._size
        return np.where(self._hidden[group] == 1, self._parity[group], 0.0)

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Record revealed coins, each -1 or +1."""
        group = np.asarray(index) // self._size
        np.subtract.at(self._hidden, group, 1)
        # A revealed one flips the parity of the remaining coins.
        np.negative.at(self._parity, group[np.asarray(truth) > 0])

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return log-odds of +1, given all other coins; call before any reveal."""
        ones = (np.asarray(truth) > 0).reshape(-1, self._size)
        odd = (ones.sum(axis=1, keepdims=True) - ones) % 2  # among the others
        return (np.where(odd, -1, 1) * self._parity[:, np.newaxis]).ravel()


class OneParity(ABC):
    """A mechanism that publishes the parity of all elements, exactly or randomised.

    Reference: Keinan, Shenfeld and Ligett, "prop:ora-efficacy-for-xor".
    """

    __slots__ = ()

    elements: int

    @property
    @abstractmethod
    def _size(self) -> float:
        """The log-odds that the output is the parity."""

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return _bits()

    def outputs(self, elements: int) -> Sequence[int]:
        """Return 0 and 1, whatever the number of elements."""
        del elements
        return (0, 1)

    def log_odds(self, output: int) -> NDArray[np.float64]:
        """Return zeros, unless there is only one element."""
        return self.posterior(output).log_odds(np.arange(self.elements))

    def posterior(self, output: int) -> ParityPosterior:
        """Return the posterior: the last coin is known once all others are revealed."""
        parity = np.array([self._size if output else -self._size])
        return ParityPosterior(parity, size=self.elements)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution: all losses are 0 for two elements or more."""
        if elements > 1:
            return LossDistribution(elements=elements, kinds=())
        loss = DiscreteLoss(values=np.array([self._size]), probabilities=np.ones(1))
        kind = OutputComponent(probability=1.0, groups=1, size=1, loss=loss)
        return LossDistribution(elements=1, kinds=(kind,))

    def output_likelihood(self, elements: int) -> list[OutputLikelihood]:
        """Return the likelihood of outputs, given whether the number of ones is odd."""
        return parity_likelihood(1, elements, self._size)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Xor(OneParity):
    """Publish the exclusive or of all elements; not private at all.

    Attributes:
        elements: The number of elements of the data, each 0 or 1.

    Example:
        >>> Xor(elements=3).run(np.array([1, 0, 1]), np.random.default_rng(1))
        0
        >>> Xor(elements=3).log_odds(0)
        array([0., 0., 0.])
    """

    elements: int

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)

    @property
    def guarantee(self) -> ApproxDP:
        """(0, 1)-DP, which is no privacy."""
        return NOTHING

    @property
    def _size(self) -> float:
        return np.inf

    def run(self, data: Records, rng: np.random.Generator) -> int:
        """Return 1 if the number of ones is odd, else 0."""
        del rng
        one_each(data, self.elements)
        return _parity(data)

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probabilities of 0 and of 1."""
        return _point(_parity(data))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class XorRandomisedResponse(OneParity):
    """Publish the exclusive or of all elements by randomised response.

    Attributes:
        elements: The number of elements of the data, each 0 or 1.
        epsilon: The exact privacy level.

    Example:
        >>> posterior = XorRandomisedResponse(elements=2, epsilon=1.0).posterior(0)
        >>> posterior.reveal(np.array([1]), np.array([1], np.int8))
        >>> posterior.log_odds(np.array([0]))
        array([1.])
    """

    elements: int
    epsilon: float

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        _validate.nonnegative("epsilon", self.epsilon)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, exactly: one element flips the parity."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    @property
    def _size(self) -> float:
        return self.epsilon

    def run(self, data: Records, rng: np.random.Generator) -> int:
        """Return the parity with probability p(epsilon), else its opposite."""
        one_each(data, self.elements)
        flip = rng.random() >= special.expit(self.epsilon)
        return _parity(data) ^ int(flip)

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probabilities of 0 and of 1."""
        sign = 1 if _parity(data) else -1
        odds = np.array([-sign, sign]) * self.epsilon
        probabilities: NDArray[np.float64] = special.expit(odds)
        return probabilities


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class XorInPairs:
    """Publish the exclusive or of each pair of elements; not private at all.

    Attributes:
        elements: The number of elements of the data, each 0 or 1; even.

    Example:
        >>> mechanism = XorInPairs(elements=4)
        >>> mechanism.run(np.array([1, 0, 1, 1]), np.random.default_rng(1))
        array([1, 0])
    """

    elements: int

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=2)
        _even(self.elements)

    @property
    def guarantee(self) -> ApproxDP:
        """(0, 1)-DP, which is no privacy."""
        return NOTHING

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return _bits()

    def run(self, data: Records, rng: np.random.Generator) -> NDArray[np.integer]:
        """Return the parity of each pair."""
        del rng
        one_each(data, self.elements)
        parities: NDArray[np.integer] = np.bitwise_xor(data[::2], data[1::2])
        return parities

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probability of each of the 2^(n / 2) outputs, which is 0 or 1."""
        _even(len(data))
        return product_distribution(
            [_point(_parity(pair)) for pair in data.reshape(-1, 2)]
        )

    def outputs(self, elements: int) -> Sequence[NDArray[np.integer]]:
        """Return the outputs; bit j of an output's number is the parity of pair j."""
        _even(elements)
        return list(digits([2] * (elements // 2)))

    def log_odds(self, output: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return zeros."""
        return self.posterior(output).log_odds(np.arange(self.elements))

    def posterior(self, output: NDArray[np.integer]) -> ParityPosterior:
        """Return the posterior: each coin is known once its partner is revealed."""
        parity = np.where(np.asarray(output) > 0, np.inf, -np.inf)
        return ParityPosterior(parity, size=2)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution: all losses are 0."""
        _even(elements)
        return LossDistribution(elements=elements, kinds=())

    def output_likelihood(self, elements: int) -> list[OutputLikelihood]:
        """Return the likelihood of outputs: the exact parity of each pair."""
        _even(elements)
        return parity_likelihood(elements // 2, 2, np.inf)


def _bits() -> Pairs:
    return Pairs(x=np.int8(0), y=np.int8(1))


def _parity(data: Records) -> int:
    return int(np.count_nonzero(data) & 1)


def _point(output: int) -> NDArray[np.float64]:
    return np.array([1.0 - output, output])


def _even(elements: int) -> None:
    if elements % 2:
        raise InvalidInputError(
            f"elements go in pairs, so elements must be even, got {elements=}"
        )
