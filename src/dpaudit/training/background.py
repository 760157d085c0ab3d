"""How far a coordinate can be trusted, where real gradients live in it too.

Real records leave something in a canary's coordinate at every step. It varies little
from step to step, so over many steps it adds up like a canary does, and no likelihood
of single steps tells the two apart. But across coordinates it shows: the totals over
all steps, less what the likeliest number of canaries has put there, are wider than
noise can make them. What is too much is taken for a normal shift of that size in each
coordinate.

A shift ``b`` of every step moves a log-likelihood ratio by about ``b q T / v``, with
``q`` the chance to join, ``T`` steps and noise of variance ``v``. Without it the ratio
is about ``q sqrt(T (e^(1/v) - 1))`` where joins drown in the noise, and ``q T / (2 v)``
where they can be counted. If it is moved by ``r`` times its size, ``1 / (1 + r^2)`` of
it is kept: for normal sums it is what integrating over the shift leaves. A coordinate
beyond anything that noise, canaries and such shifts explain is passed over.

All of it is a function of what the guesser sees, and no coin is touched: a poor
estimate costs power, never validity.
"""

from math import expm1, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.dpsgd.joining import JoinLaw
from dpaudit.mechanisms.exchangeable import log_fair

__all__ = ["trust"]

_QUARTILES = 2 * float(special.ndtri(0.75))  # between those of a standard normal
_FAR = 6.0  # standard deviations, beyond which a coordinate is passed over
_SURE = 1.25  # noise is measured no better where coins show clearly
_UNSURE = 7.0  # three standard errors of a squared quartile distance, times sqrt(n)


def trust(
    rows: NDArray[np.float64],
    total: NDArray[np.float64],
    *,
    noise: float,
    steps: int,
    law: JoinLaw,
) -> NDArray[np.float64]:
    """Return for each coordinate how much of its log-likelihood counts, from 0 to 1.

    Args:
        rows: ``ln L(N)`` of some coordinates that are alike.
        total: The sum over steps at each of them.
        noise: Variance of the noise of a step.
        steps: How many steps.
        law: How canaries join a step.

    Example:
        >>> from dpaudit.dpsgd.joining import Poisson
        >>> rng, law = np.random.default_rng(0), Poisson(rate=0.5).law(1)
        >>> total = 10 * rng.integers(0, 2, 500) + 20 * rng.normal(size=500)
        >>> rows = np.outer(total - 5, [0.0, 0.025])  # about what such totals say
        >>> trust(rows, total, noise=20.0, steps=20, law=law).mean()
        np.float64(1.0)
        >>> loud = total + 60 * rng.normal(size=500)
        >>> trust(rows, loud, noise=20.0, steps=20, law=law)[0] < 0.2
        np.True_
    """
    chances = np.exp(law.log_chances)
    coins = np.exp(log_fair(len(chances) - 1))
    mean = chances @ law.sums
    within = coins @ (chances @ np.square(law.sums) - np.square(mean))
    known = steps * (noise + within)
    likeliest = (rows + log_fair(len(mean) - 1)).argmax(axis=1)
    left = total - steps * mean[likeliest]
    low, middle, high = np.quantile(left, (0.25, 0.5, 0.75))
    seen = ((high - low) / _QUARTILES) ** 2
    sure = known * (_SURE + _UNSURE / sqrt(len(total)))
    excess = seen - known if seen > sure else 0.0
    far = np.abs(left - middle) > _FAR * sqrt(known + excess)
    return np.where(far, 0.0, _kept(sqrt(excess), noise, steps, mean))


def _kept(shift: float, noise: float, steps: int, mean: NDArray[np.float64]) -> float:
    """Return how much of log-likelihood ratios a shift of the totals leaves."""
    rate = abs(float(mean[-1] - mean[0])) / (len(mean) - 1)
    if not rate or not shift:
        return 1.0
    drowned = rate * sqrt(steps * expm1(min(1 / noise, 500.0)))
    size = min(drowned, rate * steps / (2 * noise))
    return 1 / (1 + (rate * shift / noise / size) ** 2)
