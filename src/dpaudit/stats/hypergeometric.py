"""How many of some are among others drawn by lot: the hypergeometric law, inverted.

``drawn`` of ``ones + zeros`` are drawn without replacement, and ``X`` is how many ones
are among them. Masses are products of ratios of neighbours, from the mode outwards, so
that they keep their relative accuracy for billions, where numpy's sampler refuses and
differences of log-gammas lose digits. Ten standard deviations and ten more are looked
at; what lies beyond is too little for a uniform number of 53 bits to tell.
"""

import numpy as np

from dpaudit.errors import InvalidInputError

__all__ = ["hypergeometric_quantile"]

_SPREAD = 10.0  # standard deviations


def hypergeometric_quantile(
    uniform: float, *, ones: int, zeros: int, drawn: int
) -> int:
    """Return the least ``x`` with ``P[X <= x] > uniform``.

    A uniform number in [0, 1) gives a draw from the law.

    Example:
        >>> hypergeometric_quantile(0.5, ones=10**9, zeros=10**9, drawn=10**9)
        500000000
        >>> hypergeometric_quantile(0.999, ones=3, zeros=2, drawn=4)
        3
    """
    if not (0 <= uniform < 1 and min(ones, zeros) >= 0 <= drawn <= ones + zeros):
        raise InvalidInputError(
            "expected a uniform number in [0, 1) and 0 <= drawn <= ones + zeros, got "
            f"{uniform=}, {ones=}, {zeros=}, {drawn=}"
        )
    least, most = max(0, drawn - zeros), min(ones, drawn)
    if least == most:
        return least
    size = ones + zeros
    mode = (drawn + 1) * (ones + 1) // (size + 2)
    variance = drawn * ones / size * (zeros / size) * ((size - drawn) / (size - 1))
    reach = int(_SPREAD * variance**0.5 + _SPREAD) + 1
    low, high = max(least, mode - reach), min(most, mode + reach)
    up = np.arange(mode, high, dtype=np.float64)
    rising = (ones - up) * (drawn - up) / ((up + 1) * (zeros - drawn + up + 1))
    down = np.arange(mode, low, -1, dtype=np.float64)
    falling = down * (zeros - drawn + down) / ((ones - down + 1) * (drawn - down + 1))
    masses = np.concatenate([np.cumprod(falling)[::-1], [1.0], np.cumprod(rising)])
    below = np.cumsum(masses)
    return low + int(np.searchsorted(below, uniform * below[-1], side="right"))
