"""What a count with Laplace noise says about one of its coins, as a law.

Of ``s`` coins one is looked at; the others count ``B ~ Bin(s-1, 1/2)``. Up to a
constant the density of the noisy count at ``k + v``, ``k`` whole and ``v`` in [0, 1],
is

    c(k + v) = e^(-epsilon v) low_k + e^(epsilon v) high_k

if the coin is zero and ``c(k + v - 1)`` if it is one, where ``low_k`` gathers ``P[B =
b] e^(-epsilon (k - b))`` from ``b <= k`` and ``high_k`` the same from above. So inside
each cell the odds are a ratio of two linear functions of ``u = e^(2 epsilon v)``; to
find where the loss passes ``t``, find the cell and solve for ``u``. Loss and output
rise together, and the output is symmetric about ``s / 2``, so ``P[|l| >= t]`` is twice
the chance that the noisy count lies above. Outside [0, s] the loss is epsilon: the law
ends with a jump there.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.mechanisms.count_loss import mixed_sides
from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.loss_law import SmoothLoss

__all__ = ["laplace_loss"]

_MOST_BREAKS = 256


def laplace_loss(size: int, epsilon: float) -> SmoothLoss:
    """Return the law of the loss through a count of ``size`` coins.

    Example:
        >>> loss = laplace_loss(1, 2.0)
        >>> loss.supremum, round(loss.tail(2.0), 4)  # outside [0, 1]: (1 + e^-2) / 2
        (2.0, 0.5677)
    """
    cells = _Cells.of(size, epsilon)
    inner = np.unique(cells.losses[(cells.losses > 0) & (cells.losses < epsilon)])
    # The tail bends at the whole numbers, the less the more of them there are.
    inner = inner[:: len(inner) // _MOST_BREAKS + 1]
    breaks = (0.0, *inner.tolist(), epsilon)
    return SmoothLoss(tail_at=cells.tail_at, breaks=breaks, supremum=epsilon)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """The upper half of the outputs, cell by cell.

    Attributes:
        epsilon: Of the noise.
        first: The cell that holds s / 2 or begins there.
        losses: Log-odds at the whole numbers from ``first`` to ``s``.
        low: ln low_k, of the other s - 1 coins, for k from ``first - 1`` to ``s - 1``.
        high: ln high_k.
        beyond: P[N > k] for the count of all coins, for k from ``first`` to s - 1.
        half_low: Half of low_k of all coins.
        half_high: Half of high_k of all coins.
    """

    epsilon: float
    first: int
    losses: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    beyond: NDArray[np.float64]
    half_low: NDArray[np.float64]
    half_high: NDArray[np.float64]

    @classmethod
    def of(cls, size: int, epsilon: float) -> Self:
        """Return the cells of a count of ``size`` coins."""
        first = size // 2
        cells = slice(first + 1, size + 1)  # index k + 1 stands for k
        low, high = mixed_sides(size - 1, epsilon)
        mix = np.logaddexp(low, high)
        low_all, high_all = mixed_sides(size, epsilon)
        masses = np.exp(log_fair(size)[first + 1 :])
        return cls(
            epsilon=epsilon,
            first=first,
            losses=np.maximum.accumulate(mix[first:-1] - mix[first + 1 :]),
            low=low[first : size + 1],
            high=high[first : size + 1],
            beyond=np.cumsum(masses[::-1])[::-1],
            half_low=np.exp(low_all[cells]) / 2,
            half_high=np.exp(high_all[cells]) / 2,
        )

    def tail_at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P[|l| >= t]."""
        t = np.clip(sizes, 0.0, self.epsilon)
        cell = np.searchsorted(self.losses, t) - 1
        cell = np.clip(cell, 0, len(self.beyond) - 1)
        v = np.where(t >= self.losses[-1], 1.0, self._inside(cell, t))
        grown, shrunk = np.exp(self.epsilon * v), np.exp(-self.epsilon * v)
        above = (
            self.beyond[cell]
            - self.half_high[cell] * grown
            + self.half_low[cell] * shrunk
        )
        tail = np.where(sizes <= 0, 1.0, np.minimum(1.0, 2 * above))
        return np.where(sizes > self.epsilon, 0.0, tail)

    def _inside(
        self, cell: NDArray[np.int64], t: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return where in its cell, from 0 to 1, the loss passes ``t``."""
        falling = _log_difference(t + self.low[cell + 1], self.low[cell])
        growing = _log_difference(self.high[cell], t + self.high[cell + 1])
        v: NDArray[np.float64] = (falling - growing) / (2 * self.epsilon)
        return np.clip(np.nan_to_num(v), 0.0, 1.0)


def _log_difference(
    larger: NDArray[np.float64], smaller: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ln(e^larger - e^smaller), minus infinity if rounding left nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.minimum(0.0, smaller - larger)
        return larger + np.log(-np.expm1(gap))
