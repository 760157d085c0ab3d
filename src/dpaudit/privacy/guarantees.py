"""Privacy guarantees: pure, approximate and Gaussian DP, privacy curves, adjacency.

A guarantee limits the effect of changing one record, and there are three kinds of
change (``Adjacency``). The epsilon of a mechanism differs between them, so a guarantee
carries its adjacency and an audit must play the corresponding game.

Every guarantee has the same methods: the delta it implies at an epsilon (``delta_at``),
the epsilon at a delta (``epsilon_at``), the smallest possible false-positive rate at a
given power (``complement_inverse``, and ``complement_inverses`` for many), and the
(epsilon, delta) pairs at which to test it (``points``). Results are rounded so that the
claim gets weaker: deltas and epsilons up, false-positive rates down. A test built on
them rejects slightly less.

``PrivacyCurve`` is a whole curve, given by finitely many known pairs: "the mechanism is
(epsilons[j], deltas[j])-DP for every j". The pairs may come from an accountant or from
a conversion; between them only what they imply is assumed. That is the chord, because
the smallest delta of any mechanism is convex in ``e^epsilon``, so every subset of a
valid curve is a valid curve, only weaker.

Reference: the geometry is in ``lines``; Doroshenko et al., "Connect the dots",
https://arxiv.org/abs/2207.04380, show that the chords are attained.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from typing import ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.privacy import gaussian, lines

__all__ = [
    "Adjacency",
    "ApproxDP",
    "GaussianDP",
    "Guarantee",
    "PrivacyCurve",
    "PureDP",
    "rounded_up",
]

_SMALLEST_POSITIVE = 5e-324  # a positive delta must not be rounded to zero


class Adjacency(StrEnum):
    """The change of one record that makes two data sets neighbours.

    Attributes:
        ADD_REMOVE: The record is added or removed.
        REPLACE_ONE: The record is replaced by any other.
        ZERO_OUT: The record is replaced by a null record that contributes nothing, so
            the size of the data does not change.

    Example:
        >>> Adjacency("add-remove") is Adjacency.ADD_REMOVE
        True
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    @property
    def plain(self) -> str:
        """The adjacency in plain words, if the protected unit is a record."""
        return self.described("record")

    def described(self, record: str) -> str:
        """Return the adjacency in plain words.

        Args:
            record: The protected unit.
        """
        return _PLAIN_WORDS[self].format(record=record)


_PLAIN_WORDS = {
    Adjacency.ADD_REMOVE: "add or remove one {record}",
    Adjacency.REPLACE_ONE: "replace one {record}",
    Adjacency.ZERO_OUT: "replace one {record} by one that contributes nothing",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy; ``delta = 0`` is pure privacy.

    Attributes:
        epsilon: Largest log-ratio of probabilities that one record may cause.
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
        _validate.kind("adjacency", self.adjacency, Adjacency)

    def __str__(self) -> str:
        return f"(epsilon = {self.epsilon:g}, delta = {self.delta:g})-DP"

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the claim implies this epsilon."""
        _validate.nonnegative("epsilon", epsilon)
        return lines.delta_of((self.epsilon, self.delta), epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        return lines.epsilon_at([self.epsilon], [self.delta], delta)

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        return lines.complement_inverse(*self.points(), probability)

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return lines.complement_inverses(*self.points())

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return np.array([self.epsilon]), np.array([self.delta])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PureDP:
    """epsilon-differential privacy.

    Attributes:
        epsilon: Largest log-ratio of probabilities that one record may cause.
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
        _validate.kind("adjacency", self.adjacency, Adjacency)

    def __str__(self) -> str:
        return f"(epsilon = {self.epsilon:g})-DP"

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at which the claim implies this epsilon."""
        return self._approx().delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up."""
        return self._approx().epsilon_at(delta)

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        return self._approx().complement_inverse(probability)

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return lines.complement_inverses(*self.points())

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return np.array([self.epsilon]), np.zeros(1)

    def _approx(self) -> ApproxDP:
        return ApproxDP(epsilon=self.epsilon, delta=0.0, adjacency=self.adjacency)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianDP:
    """mu-Gaussian DP: neighbours as hard to distinguish as N(0, 1) and N(mu, 1).

    Attributes:
        mu: Distance between the means of the two normal distributions.
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
        _validate.kind("adjacency", self.adjacency, Adjacency)

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
        # The delta there is below Phi(-39), less than the smallest positive float.
        largest = self.mu * (39 + self.mu / 2)
        return lines.smallest_epsilon(self.delta_at, delta, largest=largest)

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        _validate.probability("probability", probability)
        return float(gaussian.complement_inverse(np.array(probability), mu=self.mu))

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return partial(gaussian.complement_inverse, mu=self.mu)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim.

        400 epsilons, evenly spaced from 0 to where delta is 1e-100: a smaller delta
        affects no p-value of practical size.
        """
        if self.mu == 0:
            return np.zeros(1), np.zeros(1)
        epsilons = np.linspace(0.0, self.epsilon_at(1e-100), 400)
        return epsilons, self._deltas(epsilons)

    def _deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.mu == 0:
            return np.zeros_like(epsilons)
        deltas = np.exp(gaussian.log_deltas(epsilons, self.mu)) * (1 + gaussian.SLACK)
        return np.clip(deltas, _SMALLEST_POSITIVE, 1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivacyCurve:
    """A mechanism that is (epsilons[j], deltas[j])-DP for every j.

    Attributes:
        epsilons: Strictly increasing, finite, zero or more; read-only.
        deltas: One for each epsilon, never increasing; read-only.
        adjacency: Which data sets are neighbours.

    Example:
        >>> curve = PrivacyCurve(
        ...     epsilons=np.array([0.0, 1.0, 3.0]), deltas=np.array([0.4, 0.1, 1e-6])
        ... )
        >>> print(curve)
        a privacy curve of 3 points, from (0, 0.4) to (3, 1e-06)
        >>> round(curve.delta_at(2.0), 6)
        0.073106
        >>> round(curve.epsilon_at(1e-5), 4)
        2.9999
    """

    epsilons: NDArray[np.float64]
    deltas: NDArray[np.float64]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "curve"

    def __post_init__(self) -> None:
        _validate.kind("adjacency", self.adjacency, Adjacency)
        for name in ("epsilons", "deltas"):
            object.__setattr__(self, name, _vector(name, getattr(self, name)))
        if len(self.epsilons) != len(self.deltas):
            raise InvalidInputError(
                "deltas must be as many as epsilons, got "
                f"{len(self.deltas)} deltas for {len(self.epsilons)} epsilons"
            )
        _validate.nonnegative("epsilons[0]", float(self.epsilons[0]))
        if not (np.isfinite(self.epsilons[-1]) and (np.diff(self.epsilons) > 0).all()):
            raise InvalidInputError(
                "epsilons must be finite and strictly increasing, "
                f"got epsilons={self.epsilons!r}"
            )
        _validate.probability("deltas[0]", float(self.deltas[0]))
        if not (self.deltas[-1] >= 0 and (np.diff(self.deltas) <= 0).all()):
            raise InvalidInputError(
                "deltas must be >= 0 and never increase from one to the next, "
                f"got deltas={self.deltas!r}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrivacyCurve):
            return NotImplemented
        return (
            np.array_equal(self.epsilons, other.epsilons)
            and np.array_equal(self.deltas, other.deltas)
            and self.adjacency == other.adjacency
        )

    def __hash__(self) -> int:
        # Adding zero turns -0.0, which equals 0.0, into the same bytes.
        epsilons, deltas = self.epsilons + 0.0, self.deltas + 0.0
        return hash((epsilons.tobytes(), deltas.tobytes(), self.adjacency))

    def __str__(self) -> str:
        (first, last), (most, least) = self.epsilons[[0, -1]], self.deltas[[0, -1]]
        return (
            f"a privacy curve of {len(self.epsilons)} points, "
            f"from ({first:g}, {most:g}) to ({last:g}, {least:g})"
        )

    def delta_at(self, epsilon: float) -> float:
        """Return a delta at which the pairs imply this epsilon.

        It is the smallest one if the pairs are convex in ``e^epsilon``, as those of
        an accountant are, and otherwise an upper bound on it.
        """
        _validate.nonnegative("epsilon", epsilon)
        return lines.delta_at(*self._pairs(), epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        return lines.epsilon_at(*self._pairs(), delta)

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        return lines.complement_inverse(self.epsilons, self.deltas, probability)

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return lines.complement_inverses(self.epsilons, self.deltas)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return self.epsilons, self.deltas

    def _pairs(self) -> tuple[list[float], list[float]]:
        return self.epsilons.tolist(), self.deltas.tolist()


def rounded_up(deltas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return deltas rounded up to be positive and nonincreasing, and at most one."""
    lifted = np.clip(deltas, np.finfo(np.float64).tiny, 1.0)
    return np.maximum.accumulate(lifted[::-1])[::-1]


def _vector(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    vector = np.array(values, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0:
        raise InvalidInputError(
            f"{name} must be one row of at least one number, got shape {vector.shape}"
        )
    vector.setflags(write=False)
    return vector


Guarantee: TypeAlias = PureDP | ApproxDP | GaussianDP | PrivacyCurve
