"""Counts of sets: the number of ones in each set of elements, with or without noise.

Elements are assigned to sets by their order, and each set's count is published, with or
without noise. One set of all elements is a count; sets of one element are a local
mechanism; in between, the elements of a set hide each other. With Gaussian noise it is
one full-batch step of DP-SGD with several canaries in a coordinate.

An element changes the count of its own set only, by at most one, so the noise alone
gives the guarantee. Without noise there is no guarantee. With noise there are
infinitely many outputs: ``distribution`` and ``outputs`` are then absent, as
``hasattr`` shows.

Reference: Keinan, Shenfeld and Ligett, Definition "Count-In-Sets" and appendix "Count
and Symmetric Algorithms", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import assert_never, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import one_each
from dpaudit.mechanisms.count_loss import (
    gaussian_loss,
    geometric_loss,
    laplace_loss,
    noiseless_loss,
)
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.mechanisms.loss_distribution import Loss, LossDistribution, OutputComponent
from dpaudit.mechanisms.noise import (
    GaussianNoise,
    GeometricNoise,
    LaplaceNoise,
    Noise,
    NoNoise,
    Numbers,
)
from dpaudit.mechanisms.output_likelihood import OutputLikelihood, count_likelihood
from dpaudit.mechanisms.table import digits, product_distribution
from dpaudit.privacy.guarantees import Guarantee

__all__ = ["CountInSets", "count"]

_PLAIN = NoNoise()
_DEVIATIONS, _REACH = 8.0, 30.0  # of noise; the tail beyond is 1e-13 or less
_PER_SCALE, _MOST_POINTS = 64, 4096  # of a grid of noisy counts


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountInSets:
    """Publish the number of ones in each set of elements.

    Reference: Keinan, Shenfeld and Ligett, "def:count-in-sets", "alg:dp-sgd".

    Attributes:
        elements: The number of elements of the data, each 0 or 1.
        set_size: Elements of a set; the last set may have fewer.
        noise: The noise added to each count.

    Example:
        >>> mechanism = CountInSets(elements=5, set_size=2)
        >>> mechanism.run(np.array([1, 1, 0, 1, 1]), np.random.default_rng(1))
        array([2, 1, 1])
        >>> mechanism.log_odds(np.array([2, 1, 1]))
        array([inf, inf,  0.,  0., inf])
        >>> print(mechanism.guarantee)  # nothing
        (epsilon = 0, delta = 1)-DP
    """

    elements: int
    set_size: int
    noise: Noise = field(default_factory=NoNoise)

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        _validate.whole_number("set_size", self.set_size, least=1)
        if self.set_size > self.elements:
            raise InvalidInputError(
                f"set_size={self.set_size} is more than elements={self.elements}; for "
                "one set of all, use count(elements)"
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the noise; without noise (0, 1)-DP, which is none."""
        return self.noise.guarantee

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return Pairs(x=np.int8(0), y=np.int8(1))

    def run(self, data: Records, rng: np.random.Generator) -> Numbers:
        """Return the counts, with noise."""
        one_each(data, self.elements)
        first = np.arange(0, self.elements, self.set_size)
        counts = np.add.reduceat(np.asarray(data), first, dtype=np.int64)
        return counts + self.noise.draw(len(counts), rng)

    @property
    def distribution(self) -> Callable[[Records], NDArray[np.float64]]:
        """A function from data to the outputs' probabilities; absent with noise."""
        self._finite()
        s = self.set_size

        def distribution(data: Records) -> NDArray[np.float64]:
            sets = np.split(data, range(s, len(data), s))
            return product_distribution(
                [np.eye(len(x) + 1)[np.count_nonzero(x)] for x in sets]
            )

        return distribution

    @property
    def outputs(self) -> Callable[[int], Sequence[NDArray[np.int64]]]:
        """A function from a number of elements to all outputs; absent with noise."""
        self._finite()
        s = self.set_size
        return lambda n: list(digits([min(s, n - i) + 1 for i in range(0, n, s)]))

    def log_odds(self, output: Numbers) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return self.posterior(output).log_odds(np.arange(self.elements))

    def posterior(self, output: Numbers) -> ExchangeablePosterior:
        """Return the posterior of the coins, which revealed coins can update."""
        counts = np.arange(self.set_size + 1)
        residual: Numbers = np.subtract.outer(output, counts)
        return ExchangeablePosterior(
            self.noise.log_density(residual), elements=self.elements
        )

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements in sets of this size."""
        if elements % self.set_size:
            raise InvalidInputError(
                f"the sets must be of one size: {elements=} is not a multiple of "
                f"set_size={self.set_size}"
            )
        kind = OutputComponent(
            probability=1.0,
            groups=elements // self.set_size,
            size=self.set_size,
            loss=_loss(self.set_size, self.noise),
        )
        return LossDistribution(elements=elements, kinds=(kind,))

    def output_likelihood(self, elements: int) -> list[OutputLikelihood]:
        """Return the likelihood of outputs, given each set's number of ones."""
        groups = self.loss_distribution(elements).kinds[0].groups
        counts = np.arange(self.set_size + 1)
        seen = _grid(self.set_size, self.noise)
        density = self.noise.log_density(seen[:, np.newaxis] - counts)
        return count_likelihood(groups, density)

    def _finite(self) -> None:
        if self.noise != _PLAIN:
            raise AttributeError("noisy counts have infinitely many outputs")


def count(elements: int, noise: Noise = _PLAIN) -> CountInSets:
    """Return the mechanism that publishes the number of ones among all elements.

    Reference: Keinan, Shenfeld and Ligett, "subsec:symmetric-algorithms-on-01".

    Example:
        >>> count(4).log_odds(np.array([1])).round(4)  # 1 to 3
        array([-1.0986, -1.0986, -1.0986, -1.0986])
    """
    return CountInSets(elements=elements, set_size=elements, noise=noise)


def _grid(size: int, noise: Noise) -> NDArray[np.float64]:
    """Return noisy counts: all of them, or a grid so fine that it loses nothing."""
    match noise:
        case NoNoise():
            return np.arange(size + 1.0)
        case GeometricNoise(epsilon=epsilon):
            ends = ceil(_REACH / epsilon)
            return np.arange(-ends, size + ends + 1.0)
        case LaplaceNoise(epsilon=epsilon):
            reach, scale = _REACH / epsilon, 1 / epsilon
        case GaussianNoise(sigma=sigma):
            reach, scale = _DEVIATIONS * sigma, sigma
        case _:
            assert_never(noise)
    spacing = max(scale / _PER_SCALE, (size + 2 * reach) / _MOST_POINTS)
    return np.arange(-reach, size + reach, spacing)


def _loss(size: int, noise: Noise) -> Loss:
    match noise:
        case NoNoise():
            return noiseless_loss(size)
        case GeometricNoise(epsilon=epsilon):
            return geometric_loss(size, epsilon)
        case LaplaceNoise(epsilon=epsilon):
            return laplace_loss(size, epsilon)
        case GaussianNoise(sigma=sigma):
            return gaussian_loss(size, sigma)
        case _:
            assert_never(noise)
