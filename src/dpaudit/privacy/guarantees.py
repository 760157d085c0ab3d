"""What a mechanism is claimed to satisfy.

Each guarantee is a value that answers the same four questions: which delta it implies
at an epsilon, which epsilon at a delta, how small a false alarm rate can be that goes
with a given chance of detection, and at which pairs (epsilon, delta) to test it. Where
an answer must be rounded it is rounded so that the claim gets weaker: deltas and
epsilons up, false alarm rates down. A test built on them rejects a little less.
"""

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.privacy import gaussian, lines
from dpaudit.privacy.adjacency import Adjacency

__all__ = ["ApproxDP", "GaussianDP", "PureDP"]

_SMALLEST = 5e-324  # what is positive must not be rounded to zero


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy; ``delta = 0`` is pure privacy.

    Attributes:
        epsilon: Largest log-ratio of chances that one record may cause.
        delta: Probability mass exempt from that limit.
        adjacency: Which data sets are neighbours.

    Example:
        >>> print(ApproxDP(epsilon=2.0, delta=1e-5))
        (epsilon = 2, delta = 1e-05)-DP
        >>> round(ApproxDP(epsilon=2.0, delta=1e-5).delta_at(1.0), 6)
        0.556774
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "approx"

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)
        _validate.probability("delta", self.delta)

    def __str__(self) -> str:
        return f"(epsilon = {self.epsilon:g}, delta = {self.delta:g})-DP"

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the claim implies this epsilon."""
        _validate.nonnegative("epsilon", epsilon)
        return lines.delta_of((self.epsilon, self.delta), epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        return lines.epsilon_at([self.epsilon], [self.delta], delta)

    def complement_inverse(self, chance: float) -> float:
        """Return the least false alarm rate of a test with this chance to detect."""
        return lines.complement_inverse(*self.points(), chance)

    def complement_inverses(self) -> lines.Rates:
        """Return ``complement_inverse`` of many chances, made ready once."""
        return lines.complement_inverses(*self.points())

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return np.array([self.epsilon]), np.array([self.delta])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PureDP:
    """epsilon-differential privacy.

    Attributes:
        epsilon: Largest log-ratio of chances that one record may cause.
        adjacency: Which data sets are neighbours.

    Example:
        >>> print(PureDP(epsilon=1.0))
        (epsilon = 1)-DP
        >>> round(PureDP(epsilon=1.0).delta_at(0.0), 6)
        0.462117
    """

    epsilon: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "pure"

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)

    def __str__(self) -> str:
        return f"(epsilon = {self.epsilon:g})-DP"

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the claim implies this epsilon."""
        return self._approx().delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up."""
        return self._approx().epsilon_at(delta)

    def complement_inverse(self, chance: float) -> float:
        """Return the least false alarm rate of a test with this chance to detect."""
        return self._approx().complement_inverse(chance)

    def complement_inverses(self) -> lines.Rates:
        """Return ``complement_inverse`` of many chances, made ready once."""
        return lines.complement_inverses(*self.points())

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return np.array([self.epsilon]), np.zeros(1)

    def _approx(self) -> ApproxDP:
        return ApproxDP(epsilon=self.epsilon, delta=0.0, adjacency=self.adjacency)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianDP:
    """mu-Gaussian privacy: no better told apart than N(0, 1) from N(mu, 1).

    Attributes:
        mu: Distance of the two normal distributions.
        adjacency: Which data sets are neighbours.

    Example:
        >>> print(GaussianDP(mu=1.0))
        (mu = 1)-GDP
        >>> round(GaussianDP(mu=1.0).epsilon_at(1e-5), 4)
        4.3772
        >>> round(GaussianDP(mu=1.0).complement_inverse(0.5), 4)
        0.1587
    """

    mu: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "gaussian"

    def __post_init__(self) -> None:
        _validate.nonnegative("mu", self.mu)

    def __str__(self) -> str:
        return f"(mu = {self.mu:g})-GDP"

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the claim implies this epsilon."""
        _validate.nonnegative("epsilon", epsilon)
        return float(self._deltas(np.array([epsilon]))[0])

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        _validate.probability("delta", delta)
        if delta == 0 and self.mu > 0:
            return inf
        # The delta there is below Phi(-39), less than the least positive float.
        largest = self.mu * (39 + self.mu / 2)
        return lines.smallest_epsilon(self.delta_at, delta, largest=largest)

    def complement_inverse(self, chance: float) -> float:
        """Return the least false alarm rate of a test with this chance to detect."""
        _validate.probability("chance", chance)
        return float(gaussian.complement_inverse(np.array(chance), mu=self.mu))

    def complement_inverses(self) -> lines.Rates:
        """Return ``complement_inverse`` of many chances, made ready once."""
        return partial(gaussian.complement_inverse, mu=self.mu)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim.

        400 epsilons, evenly spaced from 0 to where delta is 1e-100: no p-value that
        anyone reads can turn on a smaller one.
        """
        if self.mu == 0:
            return np.zeros(1), np.zeros(1)
        epsilons = np.linspace(0.0, self.epsilon_at(1e-100), 400)
        return epsilons, self._deltas(epsilons)

    def _deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.mu == 0:
            return np.zeros_like(epsilons)
        deltas = np.exp(gaussian.log_deltas(epsilons, self.mu)) * (1 + gaussian.SLACK)
        return np.clip(deltas, _SMALLEST, 1.0)
