"""What an auditor asks of a mechanism, and what it may offer beside.

A mechanism runs on data and returns an output: that is all that an audit needs. Three
lines are enough::

    class Noisy:
        def run(self, data, rng):
            return data + rng.laplace(scale=2.0, size=len(data))

What else is known about it makes audits stronger and theory computable: its guarantee,
what an output says about each coin, and what it says once some coins are revealed.
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
        """Return the output for the data."""
        ...


class HasLogOdds(Protocol[O_contra]):
    """A mechanism of which one knows what an output says about each coin."""

    def log_odds(self, output: O_contra) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element.

        All coins are fair, independent and unknown; it is the distributional privacy
        loss of the paper with the opposite sign.
        """
        ...


class Posterior(Protocol):
    """What is known about the coins given an output and the coins revealed so far."""

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield every element once, in batches that are worth guessing together."""
        ...

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of elements whose coins are not yet revealed."""
        ...

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Take note of coins, each -1 or +1."""
        ...


@runtime_checkable
class KnowsOthers(Protocol):
    """A posterior that says at once what each coin is worth if all others are known."""

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return each element's log-odds of +1, given all other coins, before any."""
        ...


class HasPosterior(Protocol[O_contra]):
    """A mechanism of which one knows what revealed coins add to an output."""

    def posterior(self, output: O_contra) -> Posterior:
        """Return what an output says, ready to learn coins."""
        ...


@final
class FixedPosterior:
    """What an output says when revealed coins add nothing to it.

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
        """Take note of coins; they change nothing."""

    def knowing_others(self, truth: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of all elements; other coins do not change them."""
        del truth
        return self._log_odds
