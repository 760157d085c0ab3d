"""Averages of functions of a loss's tail: the only integrals that the theory needs.

The accuracy of the best guess about an element with loss ``l`` is ``p(|l|) = 1/2 +
int_0^|l| dp(t)`` with ``p(t) = e^t / (1 + e^t)``. Exchanging sum and integral turns
every quantity of the theory into an integral over ``dp(t)`` of a function of the tail
``P[|l| >= t]``. ``tail_average`` is that integral from ``low`` up, divided by ``1 -
p(low)``, the mass of ``dp`` there, so that it is an average: the mean of ``f(tail)``
over ``t`` drawn from the standard logistic distribution given ``t > low``. The quotient
is formed in log space and stays accurate however large ``low`` is.

For a discrete loss the tail is a step function and the average is a finite sum. For a
smooth one, Gauss-Legendre sums are computed on pieces that are halved until halving no
longer changes them; a function that changes sharply, such as the probability that one
of 1e8 elements is exposed, is resolved where it changes.
"""

from collections.abc import Callable
from typing import TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.errors import UncertifiedError
from dpaudit.mechanisms.loss_distribution import DiscreteLoss, SmoothLoss

__all__ = ["tail_average"]

Floats: TypeAlias = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_TOLERANCE = 1e-11  # relative to a piece, and to its share of the whole
_ROUNDS = 60


def tail_average(
    loss: DiscreteLoss | SmoothLoss,
    function: Callable[[Floats], Floats],
    *,
    low: float = 0.0,
) -> float:
    """Return the mean of ``function(P[|l| >= t])`` over dp(t) given ``t > low``.

    Args:
        loss: The distribution of the size of the loss.
        function: Maps an array of tails in [0, 1] to numbers; 0 at 0.
        low: Where the integral starts.

    Example:
        >>> sure = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))
        >>> tail_average(sure, lambda tail: tail)
        1.0
    """
    match loss:
        case DiscreteLoss():
            return _discrete(loss, function, low)
        case SmoothLoss():
            return _smooth(loss, function, low)
        case _:
            assert_never(loss)


def _discrete(
    loss: DiscreteLoss, function: Callable[[Floats], Floats], low: float
) -> float:
    above = loss.values > low
    tails = np.minimum(1.0, np.cumsum(loss.probabilities[::-1])[::-1][above])
    ends = np.concatenate([[low], loss.values[above]])
    log_misses = special.log_expit(-ends)
    misses = np.exp(log_misses - log_misses[0])
    return float((misses[:-1] - misses[1:]) @ function(tails))


def _smooth(
    loss: SmoothLoss, function: Callable[[Floats], Floats], low: float
) -> float:
    ends = np.array([low, *(b for b in loss.breaks if b > low)])

    def sums(left: Floats, right: Floats) -> Floats:
        half = (right - left) / 2
        t = (left + right)[:, np.newaxis] / 2 + half[:, np.newaxis] * _NODES
        # dp(t) / (1 - p(low)), which is about e^(low - t) dt
        log_slope = special.log_expit(t) + special.log_expit(-t)
        slope = np.exp(log_slope - special.log_expit(-low))
        values = function(loss.tail_at(t.ravel())).reshape(t.shape)
        integrals: Floats = half * ((values * slope) @ _WEIGHTS)
        return integrals

    return _refined(sums, ends[:-1], ends[1:])


def _refined(
    sums: Callable[[Floats, Floats], Floats], left: Floats, right: Floats
) -> float:
    """Return the integral, halving pieces until both halves sum to the whole."""
    whole, settled = sums(left, right), 0.0
    for _ in range(_ROUNDS):
        if not len(left):
            return settled
        middle = (left + right) / 2
        first, second = sums(left, middle), sums(middle, right)
        both = first + second
        total = settled + float(both.sum())
        allowed = _TOLERANCE * (total / len(left) + np.abs(both))
        done = np.abs(both - whole) <= allowed
        settled += float(both[done].sum())
        more = ~done
        left, right = (
            np.concatenate([left[more], middle[more]]),
            np.concatenate([middle[more], right[more]]),
        )
        whole = np.concatenate([first[more], second[more]])
    raise UncertifiedError(
        "the integral over the tail of the loss did not settle; does tail_at jump "
        "somewhere that is not among the breaks?"
    )
