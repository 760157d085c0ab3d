"""How included canaries join a step, as a law of the noiseless sum.

A coordinate holds ``s`` Dirac canaries, each a gradient of one clipping norm in that
coordinate and nothing else. Which of them join a step is secret; all that the step's
noisy sum shows of it is the sum ``j`` of those that do. Its law depends on the coins
only through the number ``N`` of ones, so a way of joining is the matrix ``P[j | N]``:

* Poisson sampling: an included canary joins with chance ``q``, ``j ~ Bin(N, q)``; the
  full batch is ``q = 1``.
* Canaries plus and minus g: coin +1 puts in g, coin -1 puts in -g, each joins with
  chance ``q``, so ``j`` is ``Bin(N, q)`` less an independent ``Bin(s - N, q)``.
* The difference of two steps that were sampled independently.

Chances are kept as logs: with little noise a sum can show what had next to no chance.

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
    """The law of a step's noiseless sum for each number of ones.

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
    """A way of joining steps that are independent of each other, given the coins."""

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the law of a step's sum at a coordinate of so many canaries."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Each included canary joins each step by a draw of its own.

    Attributes:
        rate: Chance to join a step; 1 for the full batch.

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
        """Return the binomial laws of up to so many included canaries."""
        return SumDistribution(
            first=0, log_probabilities=log_binomial(per_coordinate, self.rate)
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlusMinus:
    """Coin +1 puts in a gradient and coin -1 its negative, each by a draw of its own.

    Attributes:
        rate: Chance to join a step; 1 for the full batch.

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
        """Return the law of the ones that join less the others that join."""
        s = per_coordinate
        plus = log_binomial(s, self.rate)
        rows = [_log_less(plus[n], plus[s - n]) for n in range(s + 1)]
        return SumDistribution(first=-s, log_probabilities=np.array(rows))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The difference of two steps, each joined independently of the other.

    Noise that is used again cancels in it; canaries do not. The differences of steps
    2 and 1, 4 and 3, and so on are independent given the coins, so their likelihoods
    multiply. Differences that share a step do not: a guesser may multiply all the
    same, as it may do anything with an output, but will be surer than it should be.

    Attributes:
        of: How canaries join each of the two steps.

    Example:
        >>> distribution = Differences(of=Poisson(rate=0.5)).distribution(1)
        >>> np.exp(distribution.log_probabilities)
        array([[0.  , 1.  , 0.  ],
               [0.25, 0.5 , 0.25]])
    """

    of: IndependentSampling

    def distribution(self, per_coordinate: int) -> SumDistribution:
        """Return the law of a step's sum less another's."""
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
    found = np.full((most + 1, most + 1), -np.inf)
    for n in range(most + 1):
        # Logs of exact whole numbers: over a million steps, log-gammas would show.
        found[n, : n + 1] = [log(comb(n, j)) for j in range(n + 1)]
    found.setflags(write=False)  # it is kept for the next who asks
    return found


def _log_less(
    plus: NDArray[np.float64], minus: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log law of a whole number from 0 up less an independent one."""
    terms = np.full((len(plus) + len(minus) - 1, len(minus)), -np.inf)
    for i, probability in enumerate(minus[::-1]):
        terms[i : i + len(plus), i] = plus + probability
    return log_sum(terms)
