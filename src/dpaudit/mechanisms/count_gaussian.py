"""What a count with Gaussian noise says about one of its coins, as a law.

Given the noisy count ``x`` of ``s`` coins, the count ``N`` has weights ``P[N] phi((x -
N) / sigma)``, and a coin is a one with probability ``E[N | x] / s``: the odds are
``E[N | x] / E[s - N | x]``, two sums of positive terms. They rise with ``x``, and the
law of ``x`` is symmetric about ``s / 2``, so ``P[|l| >= t]`` is twice the chance that
``x`` lies above the point where the log-odds pass ``t``. That point is found by
Newton's steps, kept inside a bracket that each step narrows; the slope of the log-odds
is ``(E[N | x, one] - E[N | x, zero]) / sigma^2``.

The bracket reaches to where the tail is below 1e-30, by the sub-Gaussian bound
``exp(-y^2 / (2 (s / 4 + sigma^2)))`` or by the largest count; beyond, the tail is 0.
"""

from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.mechanisms.loss_law import SmoothLoss
from dpaudit.stats.binomial import log_mass, window

__all__ = ["gaussian_loss"]

_REACH = sqrt(2 * 30 * log(10))  # deviations to a tail of 1e-30
_SPREAD = 22.0  # counts further off have no weight for any x in reach
_CELLS = 512
_STEPS = 80
_CHUNK = 1 << 20
_PIECES = 12
_MOST_PIECES = 128

Floats: TypeAlias = NDArray[np.float64]


def gaussian_loss(size: int, sigma: float) -> SmoothLoss:
    """Return the law of the loss through a count of ``size`` coins.

    Example:
        >>> loss = gaussian_loss(1, 1.0)
        >>> round(loss.tail(0.5), 4)  # Phi(0) + Phi(-1)
        0.6587
    """
    mixture = _Mixture.of(size, sigma)
    reach = float(mixture.x[-1]) - size / 2
    # With little noise the tail turns sharply at each whole number and half-way.
    sharp = min(_MOST_PIECES, ceil(2 * reach)) if sigma < 0.5 else 0
    step = 0.5 if sharp else reach / _PIECES
    inner = size / 2 + step * np.arange(1, max(sharp, _PIECES))
    ends: Floats = np.append(inner[inner < mixture.x[-1]], mixture.x[-1])
    breaks = np.unique(mixture.log_odds(ends)[0])
    return SmoothLoss(tail_at=mixture.tail_at, breaks=(0.0, *breaks.tolist()))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Mixture:
    """The noisy count as a mixture over the counts that matter.

    Attributes:
        size: Coins in the set.
        sigma: Standard deviation of the noise.
        counts: The counts N that matter.
        log_weights: ln P[N].
        x: Outputs from s / 2 upwards.
        losses: Log-odds at ``x``.
    """

    size: int
    sigma: float
    counts: Floats
    log_weights: Floats
    x: Floats
    losses: Floats

    @classmethod
    def of(cls, size: int, sigma: float) -> Self:
        """Return the mixture, with a table of log-odds over the upper outputs."""
        low, high = window(size, 0.0, spread=_SPREAD)
        counts = np.arange(low, high + 1, dtype=np.float64)
        weights = log_mass(counts, size, 0.0)
        reach = min(_REACH * sqrt(size / 4 + sigma * sigma), size / 2 + _REACH * sigma)
        x = np.linspace(size / 2, size / 2 + reach, _CELLS + 1)
        bare = cls(
            size=size, sigma=sigma, counts=counts, log_weights=weights, x=x, losses=x
        )
        losses = np.maximum.accumulate(bare.log_odds(x)[0])
        losses[0] = 0.0
        return replace(bare, losses=losses)

    def log_odds(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the log-odds of a coin at each output, and their slopes."""
        parts = [self._log_odds(part) for part in self._chunks(x)]
        return (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
        )

    def tail_at(self, sizes: Floats) -> Floats:
        """Return P[|l| >= t]."""
        x = self._where(np.clip(sizes, 0.0, self.losses[-1]))
        weights = np.exp(self.log_weights)
        above = [
            special.ndtr((self.counts - part[:, np.newaxis]) / self.sigma) @ weights
            for part in self._chunks(x)
        ]
        tail = np.where(sizes <= 0, 1.0, np.minimum(1.0, 2 * np.concatenate(above)))
        return np.where(sizes > self.losses[-1], 0.0, tail)

    def _chunks(self, x: Floats) -> list[Floats]:
        step = max(1, _CHUNK // len(self.counts))
        return [x[i : i + step] for i in range(0, max(1, len(x)), step)]

    def _log_odds(self, x: Floats) -> tuple[Floats, Floats]:
        apart = (x[:, np.newaxis] - self.counts) / self.sigma
        terms = self.log_weights - 0.5 * np.square(apart)
        with np.errstate(divide="ignore"):  # a count of 0 speaks for no one
            ones, mean_one = self._sums(terms + np.log(self.counts))
            zeros, mean_zero = self._sums(terms + np.log(self.size - self.counts))
        return ones - zeros, (mean_one - mean_zero) / self.sigma**2

    def _sums(self, terms: Floats) -> tuple[Floats, Floats]:
        """Return the logs of the sums of weights, and the mean counts under them."""
        top = terms.max(axis=1)
        weights = np.exp(terms - top[:, np.newaxis])
        total = weights.sum(axis=1)
        return top + np.log(total), weights @ self.counts / total

    def _where(self, t: Floats) -> Floats:
        """Return the outputs at which the log-odds pass ``t``."""
        cell = np.clip(np.searchsorted(self.losses, t), 1, _CELLS)
        low, high = self.x[cell - 1], self.x[cell]
        x = np.clip(np.interp(t, self.losses, self.x), low, high)
        left = np.arange(len(t))
        for _ in range(_STEPS):
            value, slope = self.log_odds(x[left])
            gap, here = t[left] - value, x[left]
            low[left] = np.where(gap >= 0, here, low[left])
            high[left] = np.where(gap >= 0, high[left], here)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = here + gap / slope
            inside = (step >= low[left]) & (step <= high[left])
            x[left] = np.where(inside, step, (low[left] + high[left]) / 2)
            moved = np.abs(x[left] - here) > 1e-15 * self.x[-1]
            left = left[moved & (np.abs(gap) > 1e-15 * t[left])]
            if not len(left):
                break
        return x
