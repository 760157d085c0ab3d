"""What a count says about one of its coins, as a law: no noise, or geometric noise.

The loss of a coin, given the count of ``s`` coins, is the same for all of them. Without
noise the log-odds are ``ln(o / (s - o))`` at the count ``o``, as a share ``o / s`` of
the coins are ones.

With noise the other ``s - 1`` coins make ``c(z) = E g(z - B)``, ``B ~ Bin(s-1, 1/2)``,
the chance of output ``z`` if the coin is zero and ``c(z - 1)`` if it is one. Geometric
noise splits ``c`` into the part from counts up to ``z`` and the part from above,
running sums of ``e^(epsilon b)`` and ``e^(-epsilon b)``; beyond [0, s] the loss is
epsilon, so infinitely many outputs are one value. Losses rise with the distance of
``z`` from ``s / 2`` and mirror each other there.

Reference: Keinan, Shenfeld and Ligett, Lemma "Privacy Loss of Count",
https://arxiv.org/abs/2503.07199, for the count without noise.
"""

from math import log, tanh

import numpy as np
from numpy.typing import NDArray

from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.loss_law import DiscreteLoss

__all__ = ["geometric_loss", "mixed_sides", "noiseless_loss", "rising"]

_SMALLEST = 5e-324  # what can happen must not be rounded to what cannot


def noiseless_loss(size: int) -> DiscreteLoss:
    """Return the law of the loss through the count of ``size`` coins.

    Example:
        >>> loss = noiseless_loss(3)  # counts 1 or 2; 0 or 3
        >>> loss.values.round(4), loss.chances
        (array([0.6931,    inf]), array([0.75, 0.25]))
    """
    most = np.arange((size + 1) // 2, size + 1)  # ones, or zeros if they are more
    with np.errstate(divide="ignore"):  # all alike: an infinite loss
        values = np.log(most) - np.log(size - most)
    chances = np.where(2 * most == size, 1, 2) * np.exp(log_fair(size)[most])
    return rising(values, np.maximum(chances, _SMALLEST))


def geometric_loss(size: int, epsilon: float) -> DiscreteLoss:
    """Return the law of the loss through a count with two-sided geometric noise.

    Example:
        >>> loss = geometric_loss(1, 2.0)  # outputs up to 0 or from 1: a loss of 2
        >>> loss.values.round(4), loss.chances
        (array([2.]), array([1.]))
    """
    below, above = mixed_sides(size - 1, epsilon)
    log_mix = np.logaddexp(below, above) + log(tanh(epsilon / 2))  # ln c(-1), ..., c(s)
    z = np.arange((size + 1) // 2, size)
    values = np.append(log_mix[z] - log_mix[z + 1], epsilon)
    inner = np.exp(np.logaddexp(log_mix[z], log_mix[z + 1]) - log(2))
    inner *= np.where(2 * z == size, 1, 2)
    # P[z >= s]: the noise is at least s - N, with chance e^(-epsilon (s - N)) / (1 +
    # e^-epsilon); N = B + 1 or B.
    beyond = 2 * np.exp(mixed_sides(size, epsilon)[0][-2]) / (1 + np.exp(-epsilon))
    chances = np.maximum(np.append(inner, beyond), _SMALLEST)
    return rising(np.clip(values, 0.0, epsilon), chances)


def mixed_sides(
    trials: int, epsilon: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the logs of E e^(-epsilon |z - B|) from B <= z and from B > z.

    ``B`` is Bin(trials, 1/2), and ``z`` runs from -1 to trials + 1.
    """
    b = np.arange(trials + 1)
    mass = log_fair(trials)
    z = np.arange(-1, trials + 2)
    upto = np.logaddexp.accumulate(mass + epsilon * b)
    after = np.logaddexp.accumulate((mass - epsilon * b)[::-1])[::-1]
    below = np.concatenate([[-np.inf], upto, upto[-1:]]) - epsilon * z
    above = np.concatenate([after, [-np.inf, -np.inf]]) + epsilon * z
    return below, above


def rising(values: NDArray[np.float64], chances: NDArray[np.float64]) -> DiscreteLoss:
    """Return the law with equal values joined and rounding spread over all chances."""
    sizes, where = np.unique(values, return_inverse=True)
    joined = np.bincount(where, weights=chances)
    return DiscreteLoss(values=sizes, chances=joined / joined.sum())
