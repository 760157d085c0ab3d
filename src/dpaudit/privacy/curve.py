"""A whole privacy curve, as the finitely many pairs at which it is known to hold.

"The mechanism is (epsilons[j], deltas[j])-DP for every j." The pairs may come from an
accountant or from a conversion; nothing is assumed between them but what they imply.
That is the chord, because the smallest delta of any mechanism is convex in
``e^epsilon``, so every subset of a valid curve is a valid curve, only weaker.

Reference: the geometry is in ``lines``; Doroshenko et al., "Connect the dots",
https://arxiv.org/abs/2207.04380, show that the chords are attained.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.privacy import lines
from dpaudit.privacy.adjacency import Adjacency

__all__ = ["PrivacyCurve", "rounded_up"]


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
        an accountant are, and otherwise an upper value.
        """
        _validate.nonnegative("epsilon", epsilon)
        return lines.delta_at(*self._pairs(), epsilon)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, rounded up; infinity if none."""
        return lines.epsilon_at(*self._pairs(), delta)

    def complement_inverse(self, chance: float) -> float:
        """Return the least false alarm rate of a test with this chance to detect."""
        return lines.complement_inverse(self.epsilons, self.deltas, chance)

    def complement_inverses(self) -> lines.Rates:
        """Return ``complement_inverse`` of many chances, made ready once."""
        return lines.complement_inverses(self.epsilons, self.deltas)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the epsilons and deltas at which to test the claim."""
        return self.epsilons, self.deltas

    def _pairs(self) -> tuple[list[float], list[float]]:
        return self.epsilons.tolist(), self.deltas.tolist()


def rounded_up(deltas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lift computed deltas until they are positive, at most one and never increase."""
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
