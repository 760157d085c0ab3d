"""Bound the rounding error of the recorded noise, from the sums alone.

A floating-point type with ``p`` significant bits rounds a result by a relative error of
at most ``u = 2^-p``. Two different numbers ``a < b`` of that type are at least one unit
in the last place of ``a`` apart, and this unit is more than ``u a``, so that
``(b - a) / a > u``. The smallest such *gap* among a program's numbers is therefore an
upper bound on its ``u``, whatever its type and its sums, and dividing all of them by
the clipping norm preserves it. So the type need not be declared, and cannot be declared
wrongly. In 32 bits, 240 numbers per step have gaps below 1e-5 within a few steps; in
bfloat16 no gap is ever below 2^-8.

Noise is read as the sum after noise less the sum before. Between the two a program may
round the sum before, a canary and the sum with it, each in the type of the sum before;
the noise when it is drawn and when it is scaled; the sum after, and once more if it
divides. With a unit for each of the three the error is less than
``4 u (|before| + |with canaries|) + 4 u' |after| + 4 u'' |noise|``. Noise itself is
read with the errors of the sums, so only numbers with a gap four times as large as
these count for ``u''``, and a quarter is added. Near zero the numbers of a type are
evenly spaced, and each rounding may be half of the spacing, which is stated where it
matters, as in float16. The bound does not cover types with fewer than eight significant
bits, sums that underflow where the spacing is not stated, and noise composed of many
rounded parts.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rounding"]

Floats: TypeAlias = NDArray[np.float64]

_ROUNDINGS: Final = 4.0
_COARSEST: Final = 2.0**-8  # bfloat16
_HALF: Final = 2.0**-12  # float16 has 2^-11, float32 2^-24
_FINEST: Final = 2.0**-21  # closer numbers count as equal: division may separate them
_ENOUGH: Final = (2.0**-18, 2.0**-18, 2.0**-12)  # units at which measuring stops


@final
class Rounding:
    """Measures the precision of sums, and bounds the rounding error of noise.

    Args:
        types: A number for each coordinate; sums with the same number are kept in the
            same floating-point type.

    Attributes:
        unit: The smallest gap so far for each type: of sums before noise, of those
            after, and of noise.

    Example:
        >>> rounding = Rounding(np.zeros(3, int))
        >>> noise = np.array([1.0, 1.0 + 2**-7, 3.0])  # as in bfloat16
        >>> rounding.bound(noise) / noise
        array([0.015625, 0.015625, 0.015625])
    """

    def __init__(self, types: NDArray[np.int64]) -> None:
        self._types = types
        kinds = range(int(types.max(initial=0)) + 1)
        self._places = [np.flatnonzero(types == each) for each in kinds]
        self.unit = np.full((3, len(kinds)), _COARSEST)

    @property
    def half(self) -> NDArray[np.bool_]:
        """Which sums have fewer than twelve significant bits, as far as is known."""
        return np.asarray(self.unit[:2].max(axis=0)[self._types] > _HALF)

    def bound(
        self, noise: Floats, sums: Sequence[Floats] = (), spacing: Floats | float = 0.0
    ) -> Floats:
        """Return a bound on the error of each recorded noise value.

        Args:
            noise: The recorded values.
            sums: The sums before and after noise that it was read from, as the program
                kept them; empty if noise was read directly.
            spacing: How far apart the numbers of each coordinate's type are at zero.
        """
        error = np.zeros(len(noise))
        if sums:
            before, after = sums
            self._measure(0, before, error)
            self._measure(1, after, error)
            size = np.abs(before) + np.abs(after - noise)
            error = self._rounded(0, size) + self._rounded(1, np.abs(after))
        error = error + _ROUNDINGS * spacing
        self._measure(2, noise, error)
        return error + self._rounded(2, np.abs(noise))

    def _rounded(self, which: int, size: Floats) -> Floats:
        return np.asarray(_ROUNDINGS * self.unit[which][self._types] * size)

    def _measure(self, which: int, values: Floats, error: Floats) -> None:
        unit = self.unit[which]
        for number, places in enumerate(self._places):
            if unit[number] > _ENOUGH[which]:
                gap = _gap(np.abs(values[places]), error[places])
                unit[number] = min(unit[number], gap)


def _gap(size: Floats, error: Floats) -> float:
    """Return an upper bound on the unit, from absolute values read with errors."""
    order = np.argsort(size)
    order = order[(size[order] > 0) & np.isfinite(size[order])]
    size, error = size[order], error[order]
    gaps, less, off = np.diff(size), size[:-1], error[1:] + error[:-1]
    apart = gaps > np.maximum(4 * off, _FINEST * less)
    return float((1.25 * gaps[apart] / less[apart]).min(initial=_COARSEST))
