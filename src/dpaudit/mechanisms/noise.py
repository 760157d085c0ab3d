"""Noise for counts: none, two-sided geometric, Laplace and Gaussian.

One element changes a count by at most one, so each kind states its guarantee for a
number of sensitivity one. Two-sided geometric noise, ``P[z]`` proportional to
``e^(-epsilon |z|)`` on the whole numbers, is the discrete Laplace distribution and
keeps a count a whole number. All are symmetric and log-concave: a larger noisy count is
evidence for a larger count.

Reference: Dwork, McSherry, Nissim and Smith, "Calibrating noise to sensitivity in
private data analysis", 2006; Ghosh, Roughgarden and Sundararajan, "Universally
utility-maximizing privacy mechanisms", https://arxiv.org/abs/0811.2841; Dong, Roth and
Su, "Gaussian differential privacy", https://arxiv.org/abs/1905.02383.
"""

from dataclasses import dataclass
from math import log, pi, tanh
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.mechanisms._shared import NOTHING
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, GaussianDP, PureDP

__all__ = [
    "GaussianNoise",
    "GeometricNoise",
    "LaplaceNoise",
    "NoNoise",
    "Noise",
    "Numbers",
]

Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoNoise:
    """No noise, and so no guarantee.

    Example:
        >>> NoNoise().log_density(np.array([0, 1]))
        array([  0., -inf])
    """

    @property
    def guarantee(self) -> ApproxDP:
        """(0, 1)-DP, which is no privacy."""
        return NOTHING

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return zeros."""
        del rng
        return np.zeros(size, np.int64)

    def log_density(self, residual: Numbers) -> NDArray[np.float64]:
        """Return 0 where output and count agree, minus infinity elsewhere."""
        return np.where(residual == 0, 0.0, -np.inf)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricNoise:
    """Two-sided geometric noise.

    Attributes:
        epsilon: Its guarantee for a number of sensitivity one.

    Example:
        >>> GeometricNoise(epsilon=1.0).draw(5, np.random.default_rng(1))
        array([0, 2, 0, 2, 0])
    """

    epsilon: float

    def __post_init__(self) -> None:
        _validate.positive("epsilon", self.epsilon)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, exactly."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return independent draws: differences of two geometric variables."""
        stop = -np.expm1(-self.epsilon)
        return rng.geometric(stop, size) - rng.geometric(stop, size)

    def log_density(self, residual: Numbers) -> NDArray[np.float64]:
        """Return the log of the probability of each whole number."""
        exponent: NDArray[np.float64] = -self.epsilon * np.abs(residual)
        return exponent + log(tanh(self.epsilon / 2))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceNoise:
    """Laplace noise of scale 1 / epsilon.

    Attributes:
        epsilon: Its guarantee for a number of sensitivity one.

    Example:
        >>> LaplaceNoise(epsilon=2.0).log_density(np.array([0.0, 1.0]))
        array([ 0., -2.])
    """

    epsilon: float

    def __post_init__(self) -> None:
        _validate.positive("epsilon", self.epsilon)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, exactly."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return independent draws."""
        return rng.laplace(scale=1 / self.epsilon, size=size)

    def log_density(self, residual: Numbers) -> NDArray[np.float64]:
        """Return the log of the density."""
        exponent: NDArray[np.float64] = -self.epsilon * np.abs(residual)
        return exponent + log(self.epsilon / 2)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianNoise:
    """Gaussian noise.

    Attributes:
        sigma: Its standard deviation.

    Example:
        >>> print(GaussianNoise(sigma=2.0).guarantee)
        (mu = 0.5)-GDP
    """

    sigma: float

    def __post_init__(self) -> None:
        _validate.positive("sigma", self.sigma)

    @property
    def guarantee(self) -> GaussianDP:
        """1 / sigma-GDP, exactly."""
        return GaussianDP(mu=1 / self.sigma, adjacency=Adjacency.REPLACE_ONE)

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return independent draws."""
        return rng.normal(scale=self.sigma, size=size)

    def log_density(self, residual: Numbers) -> NDArray[np.float64]:
        """Return the log of the density."""
        exponent: NDArray[np.float64] = -0.5 * np.square(residual / self.sigma)
        return exponent - log(self.sigma) - log(2 * pi) / 2


Noise: TypeAlias = NoNoise | GeometricNoise | LaplaceNoise | GaussianNoise
