"""Shuffled epochs: each included canary is in exactly one of an epoch's batches.

The batches of an epoch are not independent, as a canary in one is in no other. But they
can be processed one after the other. Let ``E_t(N)`` be the likelihood of the first
``t`` batches if these hold ``N`` canaries in total. The ``t``-th holds ``j`` of them
with a probability ``P_t[j | N]`` that only depends on the shuffle, and the others are
in earlier batches, so

    E_t(N) = sum_j P_t[j | N] exp(-(x_t - j)^2 / (2 s^2)) E_{t-1}(N - j).

After all ``K`` batches ``E_K`` is the likelihood. Within an epoch canaries may also be
in later batches, and the likelihood is an average of ``E_t`` over how many are. Every
step is an average, so logs can be stored without drift. The likelihood equals
``N! [z^N] prod_t sum_j exp(...) (z/K)^j / j!`` if canaries choose their batches
independently. Epochs are shuffled independently: their likelihoods multiply.

A batch of ``b`` records has ``b - 1`` places left for a canary if it already holds
another: ``j`` is hypergeometric. Without a batch size it is binomial; the two differ by
about one part in ``b``.
"""

from dataclasses import dataclass
from math import inf
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import (
    STRETCH,
    State,
    checked_step,
    log_kernel,
    saved_counts,
    saved_rows,
)
from dpaudit.dpsgd.sampling import log_binomial
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import SAFE, log_sum

__all__ = ["ShuffledLikelihood", "Shuffling"]

Floats: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffling:
    """Each included canary is in one batch of every epoch.

    Attributes:
        batches: Batches per epoch.
        records_per_batch: Size of each; infinity if canaries choose independently.

    Example:
        >>> split = np.exp(Shuffling(batches=2).log_split(2, part=1, rest=1))
        >>> split.round(2)
        array([[1.  , 0.  , 0.  ],
               [0.5 , 0.5 , 0.  ],
               [0.25, 0.5 , 0.25]])
        >>> one_each = Shuffling(batches=2, records_per_batch=1)
        >>> np.exp(one_each.log_split(2, part=1, rest=1))[2].round(2)
        array([0., 1., 0.])
    """

    batches: int
    records_per_batch: float = inf

    def __post_init__(self) -> None:
        _validate.whole_number("batches", self.batches, least=1)
        b = self.records_per_batch
        if not (b == inf or (b >= 1 and b == int(b))):
            raise InvalidInputError(
                "records_per_batch must be a whole number >= 1, or infinity for "
                f"canaries that choose independently, got records_per_batch={b!r}"
            )

    def log_split(self, most: int, *, part: int, rest: int) -> Floats:
        """Return how many canaries of ``part + rest`` batches are in the first part.

        Args:
            most: The largest number of canaries.
            part: The first batches.
            rest: The other batches.

        Returns:
            ``ln P[j | N]`` in row ``N``, column ``j``; all minus infinity for an ``N``
            that the batches cannot hold.
        """
        n = np.arange(most + 1)[:, np.newaxis]
        j = np.arange(most + 1)
        here = self._log_places(part, most)[np.newaxis]
        there = self._log_places(rest, most)[np.maximum(n - j, 0)]
        every = self._log_places(part + rest, most)[:, np.newaxis]
        probabilities = log_binomial(most, part / (part + rest)) + here + there
        return np.where(every == -inf, -inf, probabilities - np.maximum(every, -1e300))

    def _log_places(self, batches: int, most: int) -> Floats:
        """Return the log of the factor by which batch sizes limit canaries together.

        The factor is ``(1 - 1/m) (1 - 2/m) ...`` over all canaries but the first, with
        ``m`` the records of the batches: 1 if there is no limit.
        """
        records = batches * self.records_per_batch if batches else inf
        free = np.maximum(0.0, 1 - np.arange(most) / records)
        with np.errstate(divide="ignore"):  # log 0 is intended: no place is left
            return np.concatenate([[0.0], np.cumsum(np.log(free))])


@final
class ShuffledLikelihood:
    """Log-likelihoods of the number of ones at each coordinate, batch by batch.

    Args:
        coordinates: The number of coordinates.
        per_coordinate: Canaries at each.
        shuffling: How an epoch is divided into batches.

    Example:
        >>> seen = ShuffledLikelihood(
        ...     coordinates=1, per_coordinate=3, shuffling=Shuffling(batches=2)
        ... )
        >>> seen.observe(np.array([1.1]), scale=0.1)
        >>> seen.log_likelihood.argmax()  # one is here, the others may follow
        np.int64(1)
        >>> seen.observe(np.array([1.9]), scale=0.1)
        >>> seen.log_likelihood.argmax()
        np.int64(3)
    """

    def __init__(
        self, *, coordinates: int, per_coordinate: int, shuffling: Shuffling
    ) -> None:
        _validate.whole_number("coordinates", coordinates, least=1)
        _validate.whole_number("per_coordinate", per_coordinate, least=1)
        if shuffling.batches * shuffling.records_per_batch < per_coordinate:
            raise InvalidInputError(
                f"{shuffling} has no room for per_coordinate={per_coordinate} canaries"
            )
        self._shuffling, self._most = shuffling, per_coordinate
        self._past = np.zeros((per_coordinate + 1, coordinates))
        self._epoch = np.zeros_like(self._past)
        self._seen = 0

    def observe(self, sums: NDArray[np.floating], scale: ArrayLike) -> None:
        """Add one batch.

        Args:
            sums: The noisy sum at each coordinate, over the clipping norm.
            scale: Standard deviation of everything but canaries, over the clipping
                norm: one for all coordinates or one for each.
        """
        scales = checked_step(sums, scale, self._past.shape[1])
        split = self._shuffling.log_split(self._most, part=1, rest=self._seen)
        j = np.arange(self._most + 1, dtype=np.float64)
        for start in range(0, len(sums), STRETCH):
            part = slice(start, start + STRETCH)
            x = np.asarray(sums[part], np.float64)
            kernel = log_kernel(x, j, scales[part] if scales.ndim else scales)
            self._epoch[:, part] = _joined(split, kernel, self._epoch[:, part])
        self._seen += 1
        if self._seen == self._shuffling.batches:
            self._past += self._epoch
            self._past -= self._past.max(axis=0)
            self._epoch.fill(0.0)  # zero batches hold 0 canaries with probability 1
            self._seen = 0

    @property
    def log_likelihood(self) -> Floats:
        """``ln L(N)``: a row for each coordinate, up to a constant of the row."""
        unseen = self._shuffling.batches - self._seen
        if not self._seen:
            return np.ascontiguousarray(self._past.T)
        split = self._shuffling.log_split(self._most, part=self._seen, rest=unseen)
        rows = [log_sum(self._epoch.T + probabilities) for probabilities in split]
        return np.ascontiguousarray(self._past.T + np.transpose(rows))

    def saved(self) -> State:
        """Return the state, as arrays that ``restore`` takes."""
        return {
            "past": self._past.copy(),
            "epoch": self._epoch.copy(),
            "batches_seen": np.array([self._seen]),
        }

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned; call before any step is observed."""
        self._past = saved_rows(saved, "past", self._past.shape)
        self._epoch = saved_rows(saved, "epoch", self._epoch.shape)
        (self._seen,) = saved_counts(saved, "batches_seen", 1)
        if self._seen >= self._shuffling.batches:
            raise InvalidInputError(
                f"{self._seen} of {self._shuffling.batches} batches of an epoch were "
                "seen, as was saved; that belongs to another audit"
            )


def _joined(split: Floats, kernel: Floats, before: Floats) -> Floats:
    """Return the log of sum_j split[N, j] kernel[j] before[N - j], scaled by column."""
    kernel = kernel - kernel.max(axis=0)
    before = before - before.max(axis=0)
    probabilities, here, there = np.exp(split), np.exp(kernel), np.exp(before)
    joined = np.empty_like(before)
    for n in range(len(joined)):
        now = slice(0, n + 1)
        total = np.einsum("j,jc,jc->c", probabilities[n, now], here[now], there[n::-1])
        low = np.flatnonzero(total <= SAFE)
        total[low] = 1.0
        joined[n] = np.log(total)
        if len(low):
            terms = kernel[now, low] + before[n::-1][:, low] + split[n, now, np.newaxis]
            joined[n, low] = log_sum(terms.T)
    return joined
