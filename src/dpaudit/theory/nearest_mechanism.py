"""The epsilon-private mechanism that is nearest to a given one.

For a group of coins an output ``o`` has the likelihood ``M(o | c)``, where ``c`` is the
number of ones. Wanted is ``N(o | c)`` whose logarithm changes by at most epsilon from
``c`` to ``c + 1``, so that ``N`` is epsilon-private, and which is nearest to ``M``, in
that it minimises

    sum of prior(c) M(o | c) ln (M(o | c) / N(o | c)).

That divergence is additive over independent groups, and decides how well ``M`` can be
distinguished from ``N`` with many groups, each of which reveals little.

With Lagrange prices ``u(c)`` for the mass of ``N`` at ``c``, outputs separate: for each
the values of ``c`` split into runs within which ``ln N`` has slope plus or minus
epsilon, and each run has the same total cost as its mass under ``M``. The steep steps
are found by an active-set search: a step that exceeds epsilon becomes steep, a steep
step whose constraint is not active is released. The prices are such that ``N`` sums to
one for every ``c``.

Any remaining error of the search is repaired: steps are clipped to epsilon, and ``N``
is normalised. Its epsilon is then not assumed but computed: the largest step is
returned.
"""

from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Nearest"]

Floats: TypeAlias = NDArray[np.float64]

_ROUNDS = 200
_SUM_TOLERANCE: Final = 1e-6  # tolerated error of the log of a sum
_LEAST_PROBABILITY = 1e-300  # replaces smaller probabilities
_PRICES = (1e-250, 1e250)  # limits for a search that does not converge
_SLACK = 1e-12


@final
class Nearest:
    """Private mechanisms nearest to a given one; each search starts at the last prices.

    Args:
        joint: Joint probabilities, a row per output, a column per number of ones.

    Example:
        >>> sure = np.array([[0.4, 0.1], [0.1, 0.4]])  # right four times of five
        >>> joint, epsilon = Nearest(sure).at(0.6931)
        >>> joint.round(3), round(epsilon, 4)
        (array([[0.333, 0.167],
               [0.167, 0.333]]), 0.6931)
    """

    def __init__(self, joint: Floats) -> None:
        self._joint = np.maximum(joint, _LEAST_PROBABILITY)
        self._prior = joint.sum(axis=0)
        self._prices = self._prior.copy()

    def at(self, epsilon: float) -> tuple[Floats, float]:
        """Return the joint probabilities of the nearest one, and its epsilon."""
        nearest, least = self._joint, np.inf
        self._start()
        for _ in range(_ROUNDS):
            null, changed = self._null(epsilon)
            sums = null.sum(axis=0)
            error = float(np.abs(np.diff(np.log(sums))).max())
            if error < least:
                nearest, least = null / sums, error
            if changed:
                least = np.inf  # the next iterate will be nearer
            elif error < _SUM_TOLERANCE:
                break
            self._prices = np.clip(self._prices * sums, *_PRICES)
        return self._measured(nearest)

    @property
    def prices(self) -> Floats:
        """The current price of each number of ones."""
        return np.array(self._prices)

    def priced(self, epsilon: float, prices: Floats) -> tuple[Floats, float]:
        """Return the joint probabilities at given prices, and their epsilon.

        The result is private, and near to this mechanism if the prices are close to
        those of the nearest; it is not fitted to any of this mechanism's outputs.
        """
        self._prices = prices.copy()
        self._start()
        null, changed = self._null(epsilon)
        for _ in range(_ROUNDS):
            if not changed:
                break
            null, changed = self._null(epsilon)
        return self._measured(null / null.sum(axis=0))

    def _start(self) -> None:
        self._steep = np.zeros(np.diff(self._joint, axis=1).shape, np.int8)

    def _null(self, epsilon: float) -> tuple[Floats, bool]:
        """Return probabilities at the current prices, and whether runs changed."""
        logs = self._runs(epsilon)
        steps = np.diff(logs, axis=1)
        changed = self._regroup(logs, steps, epsilon)
        cut = np.zeros(logs.shape)
        np.cumsum(np.clip(steps, -epsilon, epsilon), axis=1, out=cut[:, 1:])
        cut -= cut.max(axis=1, keepdims=True)
        spent = np.exp(cut) @ self._prices
        return np.exp(cut) * (self._joint.sum(axis=1) / spent)[:, None], changed

    def _measured(self, probabilities: Floats) -> tuple[Floats, float]:
        steps = np.diff(np.log(probabilities), axis=1)
        return self._prior * probabilities, float(np.abs(steps).max())

    def _runs(self, epsilon: float) -> Floats:
        """Return ln N: steps of epsilon within each run, whose cost equals its mass."""
        shape = self._joint.shape
        begins = np.ones(shape, bool)
        begins[:, 1:] = self._steep == 0
        first = np.flatnonzero(begins)
        run = np.cumsum(begins) - 1
        slope = np.zeros(shape)
        np.cumsum(epsilon * self._steep, axis=1, out=slope[:, 1:])
        rise = slope.ravel() - np.maximum.reduceat(slope.ravel(), first)[run]
        cost = np.exp(rise) * np.broadcast_to(self._prices, shape).ravel()
        mass = np.add.reduceat(self._joint.ravel(), first)
        level = np.log(mass / np.add.reduceat(cost, first))
        return np.asarray((rise + level[run]).reshape(shape))

    def _regroup(self, logs: Floats, steps: Floats, epsilon: float) -> bool:
        """Update which steps are steep; return whether any changed."""
        missing = np.cumsum(self._joint - self._prices * np.exp(logs), axis=1)[:, :-1]
        slack = _SLACK * self._joint.sum(axis=1, keepdims=True)
        kept = np.where(self._steep * missing <= slack, self._steep, 0)
        over = np.sign(steps) * (np.abs(steps) > epsilon * (1 + _SLACK))
        steep = np.where(self._steep == 0, over, kept).astype(np.int8)
        changed = bool(np.any(steep != self._steep))
        self._steep = steep
        return changed
