"""Combination of p-values that are valid conditionally on the past.

A p-value is valid given the past if, whatever happened before, it is at most ``u`` with
probability at most ``u``. A sequence of such p-values may be combined as if they were
independent and uniform (each is stochastically larger, whatever the others were).
Fisher's method uses the product, in which a p-value of one has no effect.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

__all__ = ["fisher"]


def fisher(log_p_values: Sequence[float]) -> float:
    """Return the log of the combined p-value of independent log p-values.

    Example:
        >>> round(float(np.exp(fisher([np.log(0.05)] * 2))), 4)
        0.0175
    """
    x, k = -float(np.sum(log_p_values)), len(log_p_values)
    if x == np.inf:
        return -np.inf
    # The product of k uniforms is below e^-x with probability e^-x sum of x^i / i!.
    i = np.arange(k)
    terms = special.xlogy(i, x) - special.gammaln(i + 1)
    return min(0.0, float(special.logsumexp(terms)) - x)
