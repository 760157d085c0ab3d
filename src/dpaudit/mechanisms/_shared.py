"""What several mechanisms share: a check, and a posterior that learns nothing."""

from collections.abc import Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = [
    "FixedPosterior",
]


def one_each(data: NDArray[Any], elements: int) -> None:
    """Check that the data hold one row per element."""
    if len(data) != elements:
        raise InvalidInputError(
            f"the mechanism was built for elements={elements}, got data of "
            f"{len(data)}; give one row per element"
        )


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
