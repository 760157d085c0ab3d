"""The interface of a mechanism, required and optional.

A mechanism runs on data and returns an output: that is all that an audit needs. Three
lines are enough::

    class Noisy:
        def run(self, data, rng):
            return data + rng.laplace(scale=2.0, size=len(data))

Further knowledge gives audits more power and makes the theory computable: the
guarantee, the log-odds of each coin given an output, and these log-odds once some coins
are revealed.
"""

from collections.abc import Iterator
from typing import Protocol, TypeVar, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.pairs import Records

__all__ = [
    "FixedPosterior",
    "HasLogOdds",
    "HasPosterior",
    "KnowsOthers",
    "Mechanism",
    "Posterior",
]

O_co = TypeVar("O_co", covariant=True)
O_contra = TypeVar("O_contra", contravariant=True)


class Mechanism(Protocol[O_co]):
    """A randomised program on data with one row per element."""

    def run(self, data: Records, rng: np.random.Generator) -> O_co:
        """Return the output on the data."""
        ...


class HasLogOdds(Protocol[O_contra]):
    """A mechanism with known log-odds of each coin given an output."""

    def log_odds(self, output: O_contra) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element.

        All coins are fair, independent and unknown; this is the paper's distributional
        privacy loss with the opposite sign.
        """
        ...


class Posterior(Protocol):
    """The posterior of the coins given an output and the coins revealed so far."""

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield every element once, in batches suited to be guessed together."""
        ...

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 for elements whose coins are not yet revealed."""
        ...

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Condition on revealed coins, each -1 or +1."""
        ...


@runtime_checkable
class KnowsOthers(Protocol):
    """A posterior that gives the log-odds of each coin if all others are known."""

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return each element's log-odds of +1 given all other coins, none revealed."""
        ...


class HasPosterior(Protocol[O_contra]):
    """A mechanism with a known posterior of coins given an output and other coins."""

    def posterior(self, output: O_contra) -> Posterior:
        """Return the posterior given an output, before any coin is revealed."""
        ...


@final
class FixedPosterior:
    """A posterior that revealed coins do not change.

    Example:
        >>> posterior = FixedPosterior(np.array([1.5, -0.5]))
        >>> posterior.reveal(np.array([1]), np.array([-1], np.int8))
        >>> posterior.log_odds(np.array([0]))
        array([1.5])
    """

    def __init__(self, log_odds: NDArray[np.float64]) -> None:
        self._log_odds = log_odds

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield all elements at once."""
        yield np.arange(len(self._log_odds))

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of these elements."""
        return self._log_odds[index]

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Do nothing: revealed coins do not change the posterior."""

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of all elements; other coins do not change them."""
        del truth
        return self._log_odds
