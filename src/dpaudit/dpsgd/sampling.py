"""How canaries are sampled for a step, as the distribution of the noiseless sum.

A coordinate holds ``s`` Dirac canaries, each a gradient of one clipping norm in that
coordinate and 0 elsewhere. Which of them are sampled in a step is secret; the step's
noisy sum depends on it only through the sum ``j`` of those that are. The distribution
of ``j`` depends on the coins only through the number ``N`` of ones, so a sampling
scheme is the matrix ``P[j | N]``:

* Poisson sampling: an included canary is sampled with probability ``q``,
  ``j ~ Bin(N, q)``; the full batch is ``q = 1``.
* Canaries plus and minus g: coin +1 inserts g, coin -1 inserts -g, each is sampled with
  probability ``q``, so ``j`` is ``Bin(N, q)`` minus an independent ``Bin(s - N, q)``.
* The difference of two steps that were sampled independently.

Probabilities are stored as logs: with little noise a sum can be evidence for extremely
improbable events.

Reference: docs/developer/decisions/0003-posterior.md; for the sampling, Keinan,
Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section 6.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb, log
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.mechanisms.exchangeable import log_sum

__all__ = [
    "Differences",
    "IndependentSampling",
    "PlusMinus",
    "Poisson",
    "SumDistribution",
    "log_binomial",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumDistribution:
    """The distribution of a step's noiseless sum for each number of ones.

    Attributes:
        first: The smallest sum; the others follow by ones.
        log_probabilities: ``ln P[first + i | N]`` in row ``N``, column ``i``.
    """

    first: int
    log_probabilities: NDArray[np.float64]

    @property
    def sums(self) -> NDArray[np.float64]:
        """The sums that the columns stand for."""
        return self.first + np.arange(self.log_probabilities.shape[1], dtype=np.float64)


class IndependentSampling(Protocol):
    """A sampling scheme whose steps are independent of each other, given the coins."""

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the distribution of a step's sum, for so many canaries."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Each included canary is sampled independently in each step.

    Attributes:
        rate: The sampling rate; 1 for the full batch.

    Example:
        >>> np.exp(Poisson(rate=0.5).distribution(2).log_probabilities)
        array([[1.  , 0.  , 0.  ],
               [0.5 , 0.5 , 0.  ],
               [0.25, 0.5 , 0.25]])
    """

    rate: float

    def __post_init__(self) -> None:
        _validate.probability("rate", self.rate)

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the binomial distributions for up to so many included canaries."""
        return SumDistribution(
            first=0, log_probabilities=log_binomial(per_coordinate, self.rate)
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlusMinus:
    """Coin +1 inserts a gradient and coin -1 its negative, sampled independently.

    Attributes:
        rate: The sampling rate; 1 for the full batch.

    Example:
        >>> distribution = PlusMinus(rate=0.5).distribution(1)
        >>> distribution.sums
        array([-1.,  0.,  1.])
        >>> np.exp(distribution.log_probabilities)
        array([[0.5, 0.5, 0. ],
               [0. , 0.5, 0.5]])
    """

    rate: float

    def __post_init__(self) -> None:
        _validate.probability("rate", self.rate)

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the distribution of the sampled ones minus the sampled others."""
        s = per_coordinate
        plus = log_binomial(s, self.rate)
        rows = [_log_less(plus[n], plus[s - n]) for n in range(s + 1)]
        return SumDistribution(first=-s, log_probabilities=np.array(rows))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The difference of two steps, sampled independently of each other.

    Reused noise cancels in it; canaries do not. The differences of steps 2 and 1, 4 and
    3, and so on are independent given the coins, so their likelihoods multiply.
    Differences that share a step are dependent: a guesser may still multiply their
    likelihoods, as any function of an output is valid, but will be overconfident.

    Attributes:
        of: How canaries are sampled in each of the two steps.

    Example:
        >>> distribution = Differences(of=Poisson(rate=0.5)).distribution(1)
        >>> np.exp(distribution.log_probabilities)
        array([[0.  , 1.  , 0.  ],
               [0.25, 0.5 , 0.25]])
    """

    of: IndependentSampling

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the distribution of a step's sum minus another's."""
        rows = self.of.distribution(per_coordinate).log_probabilities
        return SumDistribution(
            first=1 - rows.shape[1],
            log_probabilities=np.array([_log_less(row, row) for row in rows]),
        )


def log_binomial(most: int, rate: float) -> NDArray[np.float64]:
    """Return ln P[Bin(n, rate) = j] in row n, column j, both from 0 to ``most``.

    Example:
        >>> np.exp(log_binomial(1, 0.25)).round(2)
        array([[1.  , 0.  ],
               [0.75, 0.25]])
    """
    j = np.arange(most + 1)
    others = np.maximum(j[:, np.newaxis] - j, 0)
    probabilities = special.xlogy(j, rate) + special.xlog1py(others, -rate)
    return np.asarray(_log_choose(most) + probabilities)


@lru_cache(maxsize=16)
def _log_choose(most: int) -> NDArray[np.float64]:
    """Return ln of n choose j in row n, column j; minus infinity for j above n."""
    log_choose = np.full((most + 1, most + 1), -np.inf)
    for n in range(most + 1):
        # Logs of exact integers: over a million steps, errors of log-gamma add up.
        log_choose[n, : n + 1] = [log(comb(n, j)) for j in range(n + 1)]
    log_choose.setflags(write=False)  # it is cached
    return log_choose


def _log_less(
    plus: NDArray[np.float64], minus: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log distribution of a count minus an independent one."""
    terms = np.full((len(plus) + len(minus) - 1, len(minus)), -np.inf)
    for i, probability in enumerate(minus[::-1]):
        terms[i : i + len(plus), i] = plus + probability
    return log_sum(terms)
