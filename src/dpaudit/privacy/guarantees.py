"""Privacy guarantees: pure, approximate, Gaussian, Renyi and zero-concentrated DP.

A guarantee limits the effect of changing one record, and there are three kinds of
change (``Adjacency``). The epsilon of a mechanism differs between them, so a guarantee
carries its adjacency and an audit must play the corresponding game.

Every guarantee has the same methods: the delta it implies at an epsilon (``delta_at``),
the epsilon at a delta (``epsilon_at``), the smallest possible false-positive rate at a
given power (``complement_inverse``, and ``complement_inverses`` for many), the pairs
(epsilon, delta) at which to test it (``points``), and lines above the probability of an
event (``event_lines``). Results are rounded so that the claim gets weaker: deltas and
epsilons up, false-positive rates down. A test built on them rejects slightly less.

``PrivacyCurve`` is a whole curve, given by finitely many known pairs: "the mechanism is
(epsilons[j], deltas[j])-DP for every j". The pairs may come from an accountant or from
a conversion; between them only what they imply is assumed. That is the chord, because
the smallest delta of any mechanism is convex in ``e^epsilon``, so every subset of a
valid curve is a valid curve, only weaker.

Reference: the geometry is in ``lines``; Doroshenko et al., "Connect the dots",
https://arxiv.org/abs/2207.04380, show that the chords are attained. What Renyi
divergences imply is in ``renyi``.
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
from dpaudit.privacy import gaussian, lines, renyi

__all__ = [
    "Adjacency",
    "ApproxDP",
    "GaussianDP",
    "Guarantee",
    "PrivacyCurve",
    "PureDP",
    "RenyiDP",
    "ZeroConcentratedDP",
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

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event."""
        return lines.event_lines(*self.points())


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

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event."""
        return lines.event_lines(*self.points())

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

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event."""
        return lines.event_lines(*self.points())

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

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event."""
        return lines.event_lines(*self.points())

    def _pairs(self) -> tuple[list[float], list[float]]:
        return self.epsilons.tolist(), self.deltas.tolist()


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenyiDP:
    """Renyi divergences of order orders[j] are at most epsilons[j], both ways.

    Attributes:
        orders: Strictly increasing, finite, above 1; read-only.
        epsilons: One for each order, zero or more; read-only.
        adjacency: Which data sets are neighbours.

    Example:
        >>> claim = RenyiDP(orders=np.array([2.0, 8.0]), epsilons=np.array([1.0, 4.0]))
        >>> print(claim)
        Renyi DP at 2 orders, from (order 2, epsilon 1) to (order 8, epsilon 4)
        >>> round(claim.epsilon_at(1e-5), 3)
        5.214
    """

    orders: NDArray[np.float64]
    epsilons: NDArray[np.float64]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "renyi"

    def __post_init__(self) -> None:
        _validate.kind("adjacency", self.adjacency, Adjacency)
        for name in ("orders", "epsilons"):
            object.__setattr__(self, name, _vector(name, getattr(self, name)))
        if len(self.orders) != len(self.epsilons):
            raise InvalidInputError(
                "epsilons must be as many as orders, got "
                f"{len(self.epsilons)} epsilons for {len(self.orders)} orders"
            )
        if not (
            self.orders[0] > 1
            and np.isfinite(self.orders[-1])
            and (np.diff(self.orders) > 0).all()
        ):
            raise InvalidInputError(
                "orders must be finite, above 1 and strictly increasing, "
                f"got orders={self.orders!r}"
            )
        if not (np.isfinite(self.epsilons).all() and (self.epsilons >= 0).all()):
            raise InvalidInputError(
                f"epsilons must be finite and >= 0, got epsilons={self.epsilons!r}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RenyiDP):
            return NotImplemented
        return (
            np.array_equal(self.orders, other.orders)
            and np.array_equal(self.epsilons, other.epsilons)
            and self.adjacency == other.adjacency
        )

    def __hash__(self) -> int:
        epsilons = self.epsilons + 0.0
        return hash((self.orders.tobytes(), epsilons.tobytes(), self.adjacency))

    def __str__(self) -> str:
        (first, last), (one, other) = self.orders[[0, -1]], self.epsilons[[0, -1]]
        return (
            f"Renyi DP at {len(self.orders)} orders, from (order {first:g}, epsilon "
            f"{one:g}) to (order {last:g}, epsilon {other:g})"
        )

    def delta_at(self, epsilon: float) -> float:
        """Return a delta at which the claim implies this epsilon."""
        _validate.nonnegative("epsilon", epsilon)
        return float(renyi.deltas(self.orders, self.epsilons, np.array([epsilon]))[0])

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        _validate.probability("delta", delta)
        if delta == 0:
            return inf if self.epsilons.any() else 0.0
        return lines.smallest_epsilon(self.delta_at, delta, largest=self._end(delta))

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        return lines.complement_inverse(*self.points(), probability)

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return lines.complement_inverses(*self.points())

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim.

        400 epsilons, evenly spaced from 0 to where delta is 1e-100.
        """
        if not self.epsilons.any():
            return np.zeros(1), np.zeros(1)
        epsilons = np.linspace(0.0, self._end(1e-100), 400)
        return epsilons, rounded_up(renyi.deltas(self.orders, self.epsilons, epsilons))

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event.

        They are those of single events, below the ones that the deltas imply.
        """
        if not self.epsilons.any():
            return lines.event_lines(*self.points())
        return renyi.event_lines(self.orders, self.epsilons)

    def _end(self, delta: float) -> float:
        """Return an epsilon at which delta is at most this."""
        ends = self.epsilons - np.log(delta) / (self.orders - 1)
        return float(ends.min()) * (1 + 1e-9) + 1e-9


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroConcentratedDP:
    """rho-zero-concentrated DP: all Renyi divergences are at most rho times the order.

    Attributes:
        rho: Largest ratio of divergence and order.
        adjacency: Which data sets are neighbours.

    Example:
        >>> print(ZeroConcentratedDP(rho=0.5))
        (rho = 0.5)-zCDP
        >>> round(ZeroConcentratedDP(rho=0.5).epsilon_at(1e-5), 3)
        4.729
    """

    rho: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    kind: ClassVar = "zcdp"

    def __post_init__(self) -> None:
        _validate.nonnegative("rho", self.rho)
        _validate.kind("adjacency", self.adjacency, Adjacency)

    def __str__(self) -> str:
        return f"(rho = {self.rho:g})-zCDP"

    def delta_at(self, epsilon: float) -> float:
        """Return a delta at which the claim implies this epsilon."""
        return self._renyi().delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        return self._renyi().epsilon_at(delta)

    def complement_inverse(self, probability: float) -> float:
        """Return the smallest false-positive rate of a test with this power."""
        return self._renyi().complement_inverse(probability)

    def complement_inverses(self) -> lines.Rates:
        """Return a vectorised ``complement_inverse``, prepared once."""
        return self._renyi().complement_inverses()

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return self._renyi().points()

    def event_lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return slopes and intercepts of lines above the probability of an event."""
        return self._renyi().event_lines()

    def _renyi(self) -> RenyiDP:
        return RenyiDP(
            orders=renyi.ORDERS,
            epsilons=self.rho * renyi.ORDERS,
            adjacency=self.adjacency,
        )


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


Guarantee: TypeAlias = (
    PureDP | ApproxDP | GaussianDP | PrivacyCurve | RenyiDP | ZeroConcentratedDP
)
