"""What the parities of groups of coins say about the coins.

The parity of fair coins is independent of any of them that leaves one out. So nothing
is known about a group's coins until all but one are revealed; then the last is as sure
as the parity.
"""

from collections.abc import Iterator
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ParityPosterior"]


@final
class ParityPosterior:
    """What is known of coins through the parities of groups of them.

    Element ``i`` belongs to group ``i // size``. A coin is as sure as its group's
    parity once all other coins of the group are revealed, and unknown until then.

    Args:
        parity: For each group, the log-odds that the number of its ones is odd.
        size: Elements of a group.

    Example:
        >>> pairs = ParityPosterior(np.array([np.inf, -np.inf]), size=2)
        >>> [batch.tolist() for batch in pairs.batches()]
        [[0, 2], [1, 3]]
        >>> pairs.reveal(np.array([0, 2]), np.array([1, 1], np.int8))
        >>> pairs.log_odds(np.array([1, 3]))
        array([-inf,  inf])
    """

    def __init__(self, parity: NDArray[np.float64], *, size: int) -> None:
        self._parity = np.array(parity, np.float64)
        self._size = size
        self._hidden = np.full(len(self._parity), size)

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield all but the last element of each group, then the last of each."""
        element = np.arange(len(self._parity) * self._size)
        last = element % self._size == self._size - 1
        if self._size > 1:
            yield element[~last]
        yield element[last]

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of elements whose coins are not yet revealed."""
        group = np.asarray(index) // self._size
        return np.where(self._hidden[group] == 1, self._parity[group], 0.0)

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Take note of coins, each -1 or +1."""
        group = np.asarray(index) // self._size
        np.subtract.at(self._hidden, group, 1)
        # A revealed one turns the parity of the coins that are left.
        np.negative.at(self._parity, group[np.asarray(truth) > 0])
