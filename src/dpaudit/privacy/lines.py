"""What the (epsilon, delta) pairs of a guarantee imply for other epsilons and deltas.

(epsilon, delta)-DP limits by a trade-off function how well the outputs on neighbours
can be distinguished: a test with false-positive rate ``x`` has a false-negative rate of
at least ``f(x) = max(0, 1 - delta - e^epsilon x, e^-epsilon (1 - delta - x))``. The two
lines mirror each other because the claim holds for both orders of the neighbours. All
functions here compute with such lines.

The smallest delta at another epsilon is the hockey-stick divergence ``sup_x 1 - f(x) -
e^epsilon x`` there. It is convex in ``e^epsilon``, so a chord between two valid pairs
lies above it. Left of the first pair the supremum is at the corner ``f(x) = x`` of the
first line and its mirror image, which makes it another line in ``e^epsilon``, reaching
delta = 1 at ``e^epsilon = -1``. Right of the last pair delta need not decrease.

Reference: Dong, Roth and Su, "Gaussian differential privacy", Propositions 2.5 and
2.12, https://arxiv.org/abs/1905.02383.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, expm1, inf

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate

__all__ = [
    "complement_inverse",
    "complement_inverses",
    "delta_at",
    "delta_between",
    "delta_of",
    "epsilon_at",
    "event_lines",
    "smallest_epsilon",
]

Pair = tuple[float, float]
Rates = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_RELATIVE = 1e-12  # more than the rounding of an exponential and a product
_ABSOLUTE = 1e-15  # rounding of a difference of numbers below one


def delta_of(pair: Pair, epsilon: float) -> float:
    """Return the smallest delta that one pair implies at an epsilon.

    Below the pair it is ``1 - (1 - delta) (1 + e^epsilon) / (1 + e^claimed)``, written
    as a sum of positive terms so that nothing cancels.
    """
    claimed, delta = pair
    if epsilon >= claimed:
        return delta
    gap = epsilon - claimed
    rest = delta * (exp(-claimed) + exp(gap))
    return min(1.0, (rest - expm1(gap)) / (1 + exp(-claimed)))


def delta_between(left: Pair, right: Pair, epsilon: float) -> float:
    """Return the delta on the chord, linear in e^epsilon, between two pairs."""
    weight = expm1(epsilon - right[0]) / expm1(left[0] - right[0])
    return right[1] + (left[1] - right[1]) * weight


def delta_at(
    epsilons: Sequence[float], deltas: Sequence[float], epsilon: float
) -> float:
    """Return the delta at an epsilon implied by pairs with increasing epsilons."""
    after = bisect_left(epsilons, epsilon)
    if after == len(epsilons):
        return deltas[-1]
    right = epsilons[after], deltas[after]
    if after == 0:
        return delta_of(right, epsilon)
    return delta_between((epsilons[after - 1], deltas[after - 1]), right, epsilon)


def epsilon_at(
    epsilons: Sequence[float], deltas: Sequence[float], delta: float
) -> float:
    """Return the smallest epsilon at a delta implied by pairs."""
    return smallest_epsilon(
        lambda epsilon: delta_at(epsilons, deltas, epsilon), delta, largest=epsilons[-1]
    )


def complement_inverse(
    epsilons: NDArray[np.float64], deltas: NDArray[np.float64], probability: float
) -> float:
    """Return the smallest ``x`` with ``1 - f(x) >= probability``, rounded down."""
    _validate.probability("probability", probability)
    return float(complement_inverses(epsilons, deltas)(np.array(probability)))


def complement_inverses(
    epsilons: NDArray[np.float64], deltas: NDArray[np.float64]
) -> Rates:
    """Return a vectorised ``complement_inverse``, prepared once for repeated use.

    Each pair requires ``x >= (probability - delta) e^-epsilon`` and
    ``x >= 1 - delta - e^epsilon (1 - probability)``; the largest bound counts.
    """
    rest, shallow = 1 - deltas, np.exp(-epsilons)
    # Capped so that infinity times zero does not arise; e^700 times the smallest
    # positive 1 - probability is still far above one, where this bound is negative.
    steep = np.exp(np.minimum(epsilons, 700.0))

    def rates(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        probability = probabilities[..., np.newaxis]
        low = ((probability - deltas) * shallow).max(axis=-1) * (1 - _RELATIVE)
        high = (rest - steep * (1 - probability)).max(axis=-1) - _ABSOLUTE
        return np.asarray(np.maximum(np.maximum(low, high), 0.0) + 0.0)  # not -0.0

    return rates


def event_lines(
    epsilons: NDArray[np.float64], deltas: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slopes and intercepts of lines ``1 - f`` lies below, two for each pair.

    An event with probability ``x`` on one of two neighbours has at most ``1 - f(x)`` on
    the other.
    """
    shallow = np.exp(-epsilons)
    slopes = np.concatenate([np.exp(np.minimum(epsilons, 700.0)), shallow])
    return slopes, np.concatenate([deltas, 1 - shallow * (1 - deltas)])


def smallest_epsilon(
    delta_at: Callable[[float], float], delta: float, *, largest: float
) -> float:
    """Return the smallest epsilon with ``delta_at`` at most ``delta``, rounded up.

    Within one part in 10^12; infinity if even ``largest`` does not suffice.
    """
    _validate.probability("delta", delta)
    if delta_at(0.0) <= delta:
        return 0.0
    if delta_at(largest) > delta:
        return inf
    low, high = 0.0, largest
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):  # adjacent floats: as close as floats go
            break
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high
