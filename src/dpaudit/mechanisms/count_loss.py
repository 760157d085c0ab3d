"""The loss distribution of a coin given the count of a set, with or without noise.

*No noise, or geometric noise.* The loss of a coin, given the count of ``s`` coins, is
the same for all of them. Without noise the log-odds are ``ln(o / (s - o))`` at the
count ``o``, as a share ``o / s`` of the coins are ones.

With noise of probability mass ``g``, the probability of output ``z`` is ``c(z) = E g(z
- B)``, with ``B ~ Bin(s-1, 1/2)`` the count of the other coins, if the coin is zero,
and ``c(z - 1)`` if it is one. For geometric noise ``c`` splits into the part from
counts up to ``z`` and the part from above, running sums of ``e^(epsilon b)`` and
``e^(-epsilon b)``; beyond [0, s] the loss is epsilon, so infinitely many outputs give
one value. Losses rise with the distance of ``z`` from ``s / 2`` and are symmetric about
it.

Reference: Keinan, Shenfeld and Ligett, Lemma "Privacy Loss of Count",
https://arxiv.org/abs/2503.07199, for the count without noise.

*Laplace noise.* Consider one of ``s`` coins; the count of the others is ``B ~
Bin(s-1, 1/2)``. Up to a constant the density of the noisy count at ``k + v``, ``k``
whole and ``v`` in [0, 1], is

    c(k + v) = e^(-epsilon v) low_k + e^(epsilon v) high_k

if the coin is zero and ``c(k + v - 1)`` if it is one, where ``low_k`` gathers ``P[B =
b] e^(-epsilon (k - b))`` from ``b <= k`` and ``high_k`` the same from above. So inside
each cell, from ``k`` to ``k + 1``, the odds are a ratio of two linear functions of ``u
= e^(2 epsilon v)``; to find where the loss passes ``t``, find the cell and solve for
``u``. The loss rises with the output, and the output is symmetric about ``s / 2``, so
``P[|l| >= t]`` is twice the probability that the noisy count lies above that point.
Outside [0, s] the loss is epsilon: the distribution ends with a jump there.

*Gaussian noise.* Given the noisy count ``x`` of ``s`` coins, the count ``N`` has
weights ``P[N] phi((x - N) / sigma)``, and a coin is a one with probability ``E[N | x] /
s``: the odds are ``E[N | x] / E[s - N | x]``, two sums of positive terms. They rise
with ``x``, and the distribution of ``x`` is symmetric about ``s / 2``, so ``P[|l| >=
t]`` is twice the probability that ``x`` lies above the point where the log-odds pass
``t``. That point is found by Newton's method inside a bracket that each step narrows;
the slope of the log-odds is ``(E[N | x, one] - E[N | x, zero]) / sigma^2``.

The bracket reaches to where the tail is below 1e-30, by the sub-Gaussian bound
``exp(-y^2 / (2 (s / 4 + sigma^2)))`` or by the largest count; beyond, the tail is 0.
"""

from dataclasses import dataclass, replace
from math import ceil, log, sqrt, tanh
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.loss_distribution import DiscreteLoss, SmoothLoss
from dpaudit.stats.binomial import log_mass, window

__all__ = [
    "gaussian_loss",
    "geometric_loss",
    "laplace_loss",
    "mixed_sides",
    "noiseless_loss",
    "rising",
]

_SMALLEST = 5e-324  # possible values must not be rounded to probability 0
_MOST_BREAKS = 256
_REACH = sqrt(2 * 30 * log(10))  # deviations to a tail of 1e-30
_SPREAD = 22.0  # counts further away have no weight for any x in reach
_CELLS = 512
_STEPS = 80
_CHUNK = 1 << 20
_PIECES = 12
_MOST_PIECES = 128
Floats: TypeAlias = NDArray[np.float64]


def noiseless_loss(size: int) -> DiscreteLoss:
    """Return the loss distribution of a noiseless count of ``size`` coins.

    Reference: Keinan, Shenfeld and Ligett,
    "prop:ora-efficacy-for-count-approaches-half", "lemma:privacy-loss-of-count".

    Example:
        >>> loss = noiseless_loss(3)  # counts 1 or 2; 0 or 3
        >>> loss.values.round(4), loss.probabilities
        (array([0.6931,    inf]), array([0.75, 0.25]))
    """
    most = np.arange((size + 1) // 2, size + 1)  # ones, or zeros if there are more
    with np.errstate(divide="ignore"):  # all coins equal: an infinite loss
        values = np.log(most) - np.log(size - most)
    probabilities = np.where(2 * most == size, 1, 2) * np.exp(log_fair(size)[most])
    return rising(values, np.maximum(probabilities, _SMALLEST))


def geometric_loss(size: int, epsilon: float) -> DiscreteLoss:
    """Return the loss distribution of a count with two-sided geometric noise.

    Example:
        >>> loss = geometric_loss(1, 2.0)  # outputs up to 0 or from 1: a loss of 2
        >>> loss.values.round(4), loss.probabilities
        (array([2.]), array([1.]))
    """
    below, above = mixed_sides(size - 1, epsilon)
    log_mix = np.logaddexp(below, above) + log(tanh(epsilon / 2))  # ln c(-1), ..., c(s)
    z = np.arange((size + 1) // 2, size)
    values = np.append(log_mix[z] - log_mix[z + 1], epsilon)
    inner = np.exp(np.logaddexp(log_mix[z], log_mix[z + 1]) - log(2))
    inner *= np.where(2 * z == size, 1, 2)
    # P[z >= s]: the noise is at least s - N, with probability e^(-epsilon (s - N)) / (1
    # + e^-epsilon); N = B + 1 or B.
    beyond = 2 * np.exp(mixed_sides(size, epsilon)[0][-2]) / (1 + np.exp(-epsilon))
    probabilities = np.maximum(np.append(inner, beyond), _SMALLEST)
    return rising(np.clip(values, 0.0, epsilon), probabilities)


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


def rising(
    values: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> DiscreteLoss:
    """Return the distribution with values sorted and merged, normalised to 1."""
    sizes, where = np.unique(values, return_inverse=True)
    joined = np.bincount(where, weights=probabilities)
    return DiscreteLoss(values=sizes, probabilities=joined / joined.sum())


def laplace_loss(size: int, epsilon: float) -> SmoothLoss:
    """Return the loss distribution of a count with Laplace noise.

    Example:
        >>> loss = laplace_loss(1, 2.0)
        >>> loss.supremum, round(loss.tail(2.0), 4)  # outside [0, 1]: (1 + e^-2) / 2
        (2.0, 0.5677)
    """
    cells = _Cells.of(size, epsilon)
    inner = np.unique(cells.losses[(cells.losses > 0) & (cells.losses < epsilon)])
    # The tail bends at the whole numbers, less so if there are more of them.
    inner = inner[:: len(inner) // _MOST_BREAKS + 1]
    breaks = (0.0, *inner.tolist(), epsilon)
    return SmoothLoss(tail_at=cells.tail_at, breaks=breaks, supremum=epsilon)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """The upper half of the outputs, cell by cell.

    Attributes:
        epsilon: Epsilon of the noise.
        first: The cell that holds s / 2 or begins there.
        losses: Log-odds at the whole numbers from ``first`` to ``s``.
        low: ln low_k, for the other s - 1 coins and k from ``first - 1`` to ``s - 1``.
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
    """Return ln(e^larger - e^smaller), minus infinity if it rounds to 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.minimum(0.0, smaller - larger)
        return larger + np.log(-np.expm1(gap))


def gaussian_loss(size: int, sigma: float) -> SmoothLoss:
    """Return the loss distribution of a count with Gaussian noise.

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
    """The noisy count as a mixture over the counts of non-negligible weight.

    Attributes:
        size: Coins in the set.
        sigma: Standard deviation of the noise.
        counts: The counts N of non-negligible weight.
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
        with np.errstate(divide="ignore"):  # a count of 0 has weight 0
            ones, mean_one = self._sums(terms + np.log(self.counts))
            zeros, mean_zero = self._sums(terms + np.log(self.size - self.counts))
        return ones - zeros, (mean_one - mean_zero) / self.sigma**2

    def _sums(self, terms: Floats) -> tuple[Floats, Floats]:
        """Return the logs of the sums of weights, and the weighted mean counts."""
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
