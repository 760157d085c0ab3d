"""Local mechanisms: each element is randomised independently.

There is no interference, so the posterior of a coin depends on that element's part of
the output alone, and revealed coins add nothing. Randomised response keeps a value with
probability ``p(epsilon) = e^epsilon / (1 + e^epsilon)``; every output has the largest
loss, and one-run auditing detects all of it. The Laplace and Gaussian mechanisms have
the largest loss only at some outputs: a single run never shows all of it.

The losses, as log-odds of +1: ``epsilon o`` for randomised response; ``epsilon o``
clipped to [-epsilon, epsilon] for Laplace noise of scale ``2 / epsilon`` on {-1, 1};
``(2 o - 1) / (2 sigma^2)`` for Gaussian noise on {0, 1}.

Reference: Warner, "Randomized response", 1965; Keinan, Shenfeld and Ligett, Definitions
"Local Randomized Response" and "Local Laplace", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import ElementByElement
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    Loss,
    LossDistribution,
    OutputComponent,
    SmoothLoss,
)
from dpaudit.mechanisms.table import digits, product_distribution
from dpaudit.privacy.guarantees import Adjacency, GaussianDP, PureDP

__all__ = ["LocalGaussian", "LocalLaplace", "LocalRandomisedResponse"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRandomisedResponse(ElementByElement[NDArray[np.int8]]):
    """Keep each value of {-1, +1} with probability p(epsilon), else flip it.

    Reference: Keinan, Shenfeld and Ligett, "def:local-algorithms",
    "def:differential-privacy".

    Attributes:
        epsilon: The exact privacy level.

    Example:
        >>> mechanism = LocalRandomisedResponse(epsilon=1.0)
        >>> data = np.array([1, 1, -1, -1], np.int8)
        >>> mechanism.run(data, np.random.default_rng(2))
        array([ 1,  1,  1, -1], dtype=int8)
        >>> mechanism.log_odds(np.array([1, -1], np.int8))
        array([ 1., -1.])
    """

    epsilon: float

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, exactly."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    @property
    def pairs(self) -> Pairs:
        """The pair vector: -1 or 1."""
        return Pairs(x=np.int8(-1), y=np.int8(1))

    def run(self, data: Records, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return the randomised values, as 8-bit integers."""
        values = np.asarray(data, np.int8)
        keep = rng.random(len(values)) < special.expit(self.epsilon)
        kept: NDArray[np.int8] = values * (2 * keep.view(np.int8) - np.int8(1))
        return kept

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probability of each of the 2^n outputs."""
        keep = np.where(np.asarray(data)[:, None] == [-1, 1], 1, -1)
        return product_distribution(list(special.expit(keep * self.epsilon)))

    def outputs(self, elements: int) -> Sequence[NDArray[np.int8]]:
        """Return the outputs; bit i of an output's number is element i's sign."""
        return list((2 * digits([2] * elements) - 1).astype(np.int8))

    def log_odds(self, output: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return np.multiply(output, self.epsilon, dtype=np.float64)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements."""
        always = DiscreteLoss(values=np.array([self.epsilon]), probabilities=np.ones(1))
        return _each_alone(elements, always)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLaplace(ElementByElement[NDArray[np.float64]]):
    """Add Laplace noise of scale 2 / epsilon to each value of {-1, 1}.

    Reference: Keinan, Shenfeld and Ligett, "def:local-algorithms",
    "prop:local-laplace-efficacy-without-abstentions".

    Attributes:
        epsilon: The exact privacy level.

    Example:
        >>> LocalLaplace(epsilon=2.0).log_odds(np.array([-3.0, 0.25, 1.0]))
        array([-2. ,  0.5,  2. ])
    """

    epsilon: float

    def __post_init__(self) -> None:
        _validate.positive("epsilon", self.epsilon)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, exactly."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    @property
    def pairs(self) -> Pairs:
        """The pair vector: -1 or 1."""
        return Pairs(x=np.int8(-1), y=np.int8(1))

    def run(self, data: Records, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the noisy values."""
        noisy = rng.laplace(scale=2 / self.epsilon, size=len(data))
        noisy += data
        return noisy

    def log_odds(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return self.epsilon * np.clip(output, -1.0, 1.0)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements."""
        top = self.epsilon
        loss = SmoothLoss(tail_at=self._tail_at, breaks=(0.0, top), supremum=top)
        return _each_alone(elements, loss)

    def _tail_at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P[|l| >= t]: the noisy 1 lies outside (-t / epsilon, t / epsilon)."""
        half = self.epsilon / 2
        t = np.clip(sizes, 0.0, self.epsilon) / 2
        inside = 0.5 * (np.exp(t - half) - np.exp(-t - half))
        return np.where(sizes > self.epsilon, 0.0, 1.0 - inside)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGaussian(ElementByElement[NDArray[np.float64]]):
    """Add Gaussian noise to each value of {0, 1}.

    Attributes:
        sigma: Standard deviation of the noise.

    Example:
        >>> LocalGaussian(sigma=1.0).log_odds(np.array([0.0, 0.5, 3.0]))
        array([-0.5,  0. ,  2.5])
    """

    sigma: float

    def __post_init__(self) -> None:
        _validate.positive("sigma", self.sigma)

    @property
    def guarantee(self) -> GaussianDP:
        """1 / sigma-GDP, exactly."""
        return GaussianDP(mu=1 / self.sigma, adjacency=Adjacency.REPLACE_ONE)

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return Pairs(x=np.int8(0), y=np.int8(1))

    def run(self, data: Records, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the noisy values."""
        noisy = rng.normal(scale=self.sigma, size=len(data))
        noisy += data
        return noisy

    def log_odds(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return (np.asarray(output, np.float64) - 0.5) / self.sigma**2

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements."""
        mu = 1 / self.sigma
        # The loss is normal with mean mu^2 / 2 and deviation mu; beyond 12 deviations
        # its tail is below 1e-32.
        centre = mu * mu / 2
        breaks = (0.0, *sorted({min(centre, 40.0), centre}), centre + 12 * mu)
        return _each_alone(elements, SmoothLoss(tail_at=self._tail_at, breaks=breaks))

    def _tail_at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P[|l| >= t] for a coin of +1; it is the same for a coin of -1."""
        half, t = 0.5 / self.sigma, np.maximum(sizes, 0.0) * self.sigma
        tail: NDArray[np.float64] = special.ndtr(half - t) + special.ndtr(-half - t)
        return tail


def _each_alone(elements: int, loss: Loss) -> LossDistribution:
    """Return the loss distribution of elements with independent losses."""
    kind = OutputComponent(probability=1.0, groups=elements, size=1, loss=loss)
    return LossDistribution(elements=elements, kinds=(kind,))
