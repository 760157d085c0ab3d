"""The privacy curve of N(0, 1) against N(mu, 1), computed without cancellation.

With ``a = epsilon / mu - mu / 2`` and ``b = a + mu`` the smallest delta is
``Phi(-a) - e^epsilon Phi(-b)``. Because ``e^epsilon phi(b) = phi(a)`` it is also
``phi(a) (M(a) - M(b))`` with Mills' ratio ``M = Phi(-x) / phi(x)``, which leaves the
tiny factor outside. Above mu = 1 the two ratios are far enough apart to be
subtracted. Below, ``M(x)`` is the integral of ``e^(-x t - t^2 / 2)`` over ``t > 0``,
so the difference is the integral of ``e^(-a t - t^2 / 2) (1 - e^(-mu t))``, whose
terms are all positive; it is truncated where the exponent passes -45, and 64 Gauss
nodes give the rest to the last digits.

Reference: Balle and Wang, "Improving the Gaussian mechanism for differential
privacy", Theorem 8, https://arxiv.org/abs/1805.06530.
"""

from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["complement_inverse", "log_deltas"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_HALF_LOG_TWO_PI = log(2 * pi) / 2

# The arguments below are rounded, and rounding in the exponent of a normal density has
# a relative effect that grows with the exponent: up to 4e-13 at a density of 1e-300.
SLACK = 2e-12


def log_deltas(epsilons: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """Return the logarithm of the smallest delta at each epsilon; ``mu > 0``."""
    a = epsilons / mu - mu / 2
    if mu > 1:
        ratio = special.erfcx((a + mu) / sqrt(2)) / special.erfcx(a / sqrt(2))
        log_tail: NDArray[np.float64] = special.log_ndtr(-a) + np.log1p(-ratio)
        return log_tail
    end = 90 / (a + np.sqrt(a * a + 90))  # where a t + t^2 / 2 = 45
    t = end[..., np.newaxis] * (_NODES + 1) / 2
    decay = np.exp(-(a[..., np.newaxis] + t / 2) * t)
    integral = end / 2 * ((decay * -np.expm1(-mu * t)) @ _WEIGHTS)
    log_density: NDArray[np.float64] = -a * a / 2 - _HALF_LOG_TWO_PI
    return log_density + np.log(integral)


def complement_inverse(
    probabilities: NDArray[np.float64], *, mu: float
) -> NDArray[np.float64]:
    """Return ``Phi(Phi^-1(probability) - mu)`` for each probability, rounded down."""
    return np.asarray(special.ndtr(special.ndtri(probabilities) - mu) * (1 - SLACK))
