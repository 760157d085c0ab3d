"""The posterior of coins when an output depends on them only through counts.

A set of ``s`` fair coins with ``N`` ones produced an output of likelihood ``L(N)``:
noisy counts are of this kind, and so is DP-SGD with several canaries in a coordinate.
The coins of a set are exchangeable, so the revealed ones matter only through their
number ``a`` and the number ``h`` of ones among them. With ``W_a(h)`` the sum of the
likelihoods of all values of the hidden coins,

    W_s(h) = L(h),   W_a(h) = W_{a+1}(h) + W_{a+1}(h+1),

which is Pascal's triangle, so ``W_a(h) = sum_n C(s-a, n) L(h+n)``, and the log-odds
that the next coin is a one are ``ln W_{a+1}(h+1) - ln W_{a+1}(h)``. The sum is computed
directly, at once for all sets with the same number of hidden coins: a million sets need
only their likelihoods and two numbers each. If a sum is so small that underflow could
matter, it is computed in log space.

An output that determines a coin gives plus or minus infinity. If the output and the
revealed coins cannot occur together, the log-odds are 0.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section
"Adaptive ORA improves ORA", for the game with revealed coins.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import log_mass

__all__ = ["SAFE", "ExchangeablePosterior", "log_fair", "log_sum"]

_CHUNK = 1 << 21  # likelihoods processed together
SAFE = 1e-280  # sums above it have lost nothing relevant to underflow
_MOST_CACHED = 1024  # coins up to which distributions are cached, 8 MB in all


@final
class ExchangeablePosterior:
    """The posterior of coins in sets, given the likelihoods of the sets' counts.

    Element ``i`` belongs to set ``i // s``.

    Args:
        log_likelihood: A row for each set: ``ln L(N)`` for ``N`` from 0 to ``s``, up
            to a constant for each row; minus infinity where ``N`` is impossible.
        elements: The number of coins, if the last set has fewer than ``s``; entries of
            its row beyond its size are not read.

    Example:
        >>> counts = np.array([1, 3])  # of two sets of three, without noise
        >>> exact = np.where(counts[:, None] == np.arange(4), 0.0, -np.inf)
        >>> posterior = ExchangeablePosterior(exact)
        >>> posterior.log_odds(np.array([0, 3])).round(4)  # 1 to 2, and certain
        array([-0.6931,     inf])
        >>> posterior.reveal(np.array([1]), np.array([1], np.int8))
        >>> posterior.log_odds(np.array([0, 2]))
        array([-inf, -inf])
    """

    def __init__(
        self, log_likelihood: NDArray[np.float64], *, elements: int | None = None
    ) -> None:
        rows = np.ascontiguousarray(log_likelihood, np.float64)
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise InvalidInputError(
                "log_likelihood must have a row for each set and a column for each "
                f"count from 0 to its size, got shape {rows.shape}"
            )
        if np.any(np.isnan(rows)) or np.any(rows == np.inf):
            raise InvalidInputError("log_likelihood must not hold NaN or +infinity")
        sets, s = rows.shape[0], rows.shape[1] - 1
        n = sets * s if elements is None else elements
        if not (sets - 1) * s < n <= sets * s:
            raise InvalidInputError(
                f"{sets} sets of at most {s} cannot hold elements={elements}"
            )
        self._log_likelihood, self._size, self._elements = rows, s, n
        self._hidden = np.full(sets, s)
        # Elements missing from the last set count as zeros revealed beforehand.
        self._hidden[-1] -= sets * s - n
        self._ones = np.zeros(sets, np.int64)

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the first element of every set, then the second, and so on."""
        first = np.arange(0, self._elements, self._size)
        for j in range(self._size):
            batch = first + j
            yield batch if batch[-1] < self._elements else batch[:-1]

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of elements whose coins are not yet revealed."""
        sets, where = _distinct(np.asarray(index) // self._size)
        others = self._hidden[sets] - 1
        if np.any(others < 0):
            raise InvalidInputError("index names elements of a set revealed altogether")
        log_odds = np.empty(len(sets))
        for m in _distinct(others)[0]:
            step = max(1, _CHUNK // (m + 2))
            alike = np.flatnonzero(others == m)
            for start in range(0, len(alike), step):
                part = alike[start : start + step]
                log_odds[part] = self._next_coin(sets[part], int(m))
        return log_odds[where]

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Record revealed coins, each -1 or +1."""
        sets, ones = np.asarray(index) // self._size, np.asarray(truth) > 0
        if _rising(sets):  # one coin of each set
            self._hidden[sets] -= 1
            self._ones[sets] += ones
        else:
            np.subtract.at(self._hidden, sets, 1)
            np.add.at(self._ones, sets, ones)
        if np.any(self._hidden[sets] < 0):
            raise InvalidInputError("a coin was revealed twice")

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return log-odds of +1, given all other coins; call before any reveal."""
        ones = np.asarray(truth) > 0
        sets = np.arange(self._elements) // self._size
        others = np.bincount(sets, weights=ones).astype(np.int64)[sets] - ones
        above, below = self._log_likelihood[sets, [others + 1, others]]
        possible = np.maximum(above, below) > -np.inf
        return np.where(possible, above, 0.0) - np.where(possible, below, 0.0)

    def _next_coin(self, sets: NDArray[np.int64], others: int) -> NDArray[np.float64]:
        """Return the log-odds of a coin in sets with ``others`` more hidden coins."""
        first = sets * (self._size + 1) + self._ones[sets]
        place = first[:, np.newaxis] + np.arange(others + 2)
        terms = self._log_likelihood.ravel()[place]
        # Binomial probabilities instead of coefficients: the power of two cancels.
        ways = log_fair(others)
        top = terms.max(axis=1, keepdims=True)
        top[top == -np.inf] = 0.0
        scaled, probabilities = np.exp(terms - top), np.exp(ways)
        with_one, with_zero = (
            scaled[:, 1:] @ probabilities,
            scaled[:, :-1] @ probabilities,
        )
        if min(with_one.min(), with_zero.min()) > SAFE:
            return np.asarray(np.log(with_one / with_zero))
        return _log_ratio(ways + terms[:, 1:], ways + terms[:, :-1])


def _log_ratio(
    above: NDArray[np.float64], below: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log of a ratio of sums of exponentials; 0 where both are empty."""
    over, under = log_sum(above), log_sum(below)
    possible = np.maximum(over, under) > -np.inf
    return np.where(possible, over, 0.0) - np.where(possible, under, 0.0)


def _distinct(
    values: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values and the index of each; fast in simple cases."""
    if _rising(values):
        return values, np.arange(len(values))
    if (values == values[0]).all():
        return values[:1], np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)


def _rising(values: NDArray[np.int64]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def log_fair(coins: int) -> NDArray[np.float64]:
    """Return ln P[N] for the number N of ones among fair coins, from 0 to all.

    Example:
        >>> np.exp(log_fair(2))
        array([0.25, 0.5 , 0.25])
    """
    return _log_fair(coins) if coins <= _MOST_CACHED else _log_fair.__wrapped__(coins)


@lru_cache(maxsize=_MOST_CACHED + 1)
def _log_fair(coins: int) -> NDArray[np.float64]:
    distribution = log_mass(np.arange(coins + 1), coins, 0.0) if coins else np.zeros(1)
    distribution.setflags(write=False)  # it is cached
    return distribution


def log_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the sum of exponentials of each row; all may be -infinity.

    Example:
        >>> log_sum(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).round(4)
        array([0.6931,   -inf])
    """
    top = terms.max(axis=-1, keepdims=True)
    top[top == -np.inf] = 0.0
    with np.errstate(divide="ignore"):  # log 0 = -inf is intended
        total: NDArray[np.float64] = np.log(np.exp(terms - top).sum(axis=-1))
    total += top[..., 0]
    return total
