"""The whole privacy curve of an accountant, as a claim that can be tested.

An accountant is usually queried for one epsilon at one delta, but its model of the run
gives a delta for every epsilon. That curve is the stronger claim and costs the test
nothing, since all its points bound the same tail. It is computed from dp-accounting's
pessimistic privacy loss distribution, on the grid where that distribution has its
corners; between them it is linear in ``e^epsilon``, so the grid loses nothing, and if
it is thinned each remaining point still holds.

Valid for Poisson sampling and Gaussian noise of ``noise multiplier`` times the clipping
norm, adding or removing a record. The curve ends where delta is about 1e-12, the
rounding error of the computation.
"""

from functools import lru_cache
from math import ceil, inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpaudit.accounting.distribution import (
    GRID,
    ROUNDING,
    Distribution,
    composed,
    deltas_at,
)
from dpaudit.accounting.history import History, steps_by_kind
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency, PrivacyCurve, rounded_up

__all__ = ["HasHistory", "accountant_curve", "claim_of"]

_MOST_POINTS = 2000


class HasHistory(Protocol):
    """An accountant that records its steps, as those of Opacus do."""

    @property
    def history(self) -> History:
        """Triples of noise multiplier, sample rate and number of steps."""
        ...


def accountant_curve(history: History) -> PrivacyCurve:
    """Return the privacy curve of Gaussian steps with Poisson sampling.

    Args:
        history: Triples of noise multiplier, sample rate and number of steps.

    Raises:
        InvalidInputError: The history is empty or holds anything else.

    Example:
        >>> curve = accountant_curve([(1.9938, 1.0, 1)])
        >>> round(curve.epsilon_at(1e-5), 3)
        2.0
    """
    return _curve(tuple(sorted(steps_by_kind(history).items())))


@lru_cache(maxsize=64)  # many audits of similar runs use the same curve
def _curve(steps: tuple[tuple[tuple[float, float], int], ...]) -> PrivacyCurve:
    distribution = composed(dict(steps))
    epsilons = _breakpoints(distribution)
    return PrivacyCurve(
        epsilons=epsilons,
        deltas=rounded_up(deltas_at(distribution, epsilons) + ROUNDING),
        adjacency=Adjacency.ADD_REMOVE,
    )


def claim_of(accountant: HasHistory) -> PrivacyCurve:
    """Return the privacy curve of the run that an accountant has recorded.

    Args:
        accountant: Anything with a ``history``, such as ``PrivacyEngine().accountant``
            of Opacus; its steps are composed here, whatever its own method.

    Raises:
        InvalidInputError: It has no history, or one of another shape.

    Example:
        >>> from types import SimpleNamespace
        >>> accountant = SimpleNamespace(history=[(1.0, 0.01, 60), (0.8, 0.01, 40)])
        >>> round(claim_of(accountant).epsilon_at(1e-5), 2)
        1.27
    """
    history = getattr(accountant, "history", None)
    if not isinstance(history, list | tuple):
        raise InvalidInputError(
            "accountant must have a history of (noise multiplier, sample rate, steps), "
            f"got {type(accountant).__name__} with history={history!r}"
        )
    return accountant_curve(history)


def _breakpoints(distribution: Distribution) -> NDArray[np.float64]:
    """Return grid points from 0 to where delta is no larger than rounding errors.

    Rounding can move that end by a few grid points. So the points are spaced by a
    multiple of the grid, the last of them beyond the end, and do not depend on the
    implementation of the transforms.
    """
    never = np.max(distribution.get_delta_for_epsilon(inf))
    least = max(ROUNDING, 2 * float(never))
    end = distribution.get_epsilon_for_delta(least) / GRID
    apart = max(1, ceil(end / (_MOST_POINTS - 1)))
    kept = np.arange(ceil(end / apart) + 1) * apart
    return np.asarray(kept * GRID, np.float64)
