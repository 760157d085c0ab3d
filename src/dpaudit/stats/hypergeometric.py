"""Quantiles of the hypergeometric distribution, and tails of the noncentral one.

``drawn`` of ``ones + zeros`` are drawn without replacement, and ``X`` is the number of
ones among them. Masses are products of ratios of neighbours, from the mode outwards, so
that they keep their relative accuracy for billions, where numpy's sampler refuses and
differences of log-gammas lose digits. The window is ten standard deviations plus ten;
the mass beyond is too small for a uniform number of 53 bits to resolve.

Fisher's noncentral distribution weights ``P[X = x]`` by ``odds^x``. Its tails are sums
of the same products, from the requested value outwards and in logarithms, so that a
tail that would underflow keeps its relative accuracy.
"""

from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.errors import InvalidInputError

__all__ = ["NoncentralTail", "NoncentralTails", "hypergeometric_quantile"]

_SPREAD = 10.0  # standard deviations
_ROUNDED_UP = 1e-9  # more than the error of a log tail, up to a million canaries


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoncentralTail:
    """Log probabilities of one value and of the tails on both sides.

    Attributes:
        log_upper: Of ``P[X >= x]``, rounded up.
        log_lower: Of ``P[X < x]``, rounded up.
        log_mass: Of ``P[X = x]``.
    """

    log_upper: float
    log_lower: float
    log_mass: float


@final
class NoncentralTails:
    """The tails of Fisher's noncentral hypergeometric distribution at one value.

    ``drawn`` of ``ones + zeros`` are drawn, and ``X`` is the number of ones among them.

    Example:
        >>> tail = NoncentralTails(2, ones=2, zeros=2, drawn=2).at(np.log(3.0))
        >>> round(float(np.exp(tail.log_upper)), 6)  # 9 of 1 + 4 * 3 + 9
        0.409091
    """

    def __init__(self, value: int, *, ones: int, zeros: int, drawn: int) -> None:
        least, most = max(0, drawn - zeros), min(ones, drawn)
        if not (min(ones, zeros) >= 0 <= drawn and least <= value <= most):
            raise InvalidInputError(
                "expected a value that can be drawn, got "
                f"{value=}, {ones=}, {zeros=}, {drawn=}"
            )
        x = np.arange(least, most, dtype=np.float64)
        ratios = (
            np.log(ones - x)
            + np.log(drawn - x)
            - np.log(x + 1)
            - np.log(zeros - drawn + x + 1)
        )
        place = value - least
        self._up = np.append(0.0, np.cumsum(ratios[place:]))
        self._down = -np.cumsum(ratios[:place][::-1])

    def at(self, log_odds: float) -> NoncentralTail:
        """Return the tails at the given log-odds."""
        up = _log_sum(self._up + log_odds * np.arange(len(self._up)))
        down = _log_sum(self._down - log_odds * np.arange(1, len(self._down) + 1))
        whole = float(np.logaddexp(up, down))
        return NoncentralTail(
            log_upper=up - whole + _ROUNDED_UP,
            log_lower=down - whole + _ROUNDED_UP,
            log_mass=-whole,
        )


def _log_sum(logs: NDArray[np.float64]) -> float:
    return float(special.logsumexp(logs)) if len(logs) else -inf


def hypergeometric_quantile(
    uniform: float, *, ones: int, zeros: int, drawn: int
) -> int:
    """Return the least ``x`` with ``P[X <= x] > uniform``.

    For a uniform number in [0, 1) the result is a draw from the distribution.

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
