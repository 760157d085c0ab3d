"""Scores in order, cell by cell: how many fell into each, and how many are ones.

This is all that guesses from both ends need. Where a cut falls between two cells the
ones above it are known. Where it falls into a cell, a lot decides which of the cell's
canaries lie above: each arrangement of them is equally likely, so the number of ones
above has a hypergeometric law, and it is drawn from it. So a cell is a tie, decided as
ties are elsewhere: by chance that is independent of coins.

Lots are raw words of a generator, whose stream is the same in every version of numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.stats.hypergeometric import hypergeometric_quantile

__all__ = ["LOTS_ADVICE", "Cells", "Lots", "check_counts", "summed"]

K = TypeVar("K", np.float64, np.int64)

LOTS_ADVICE: Final = "register the design with a key, or with a tie_seed in its setting"


@final
class Lots:
    """Chance that decides between canaries that cannot be told apart."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.PCG64(seed)

    def uniform(self) -> float:
        """Return a uniform number in [0, 1)."""
        return int(self.words(1)[0] >> np.uint64(11)) * 2.0**-53

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return that many words of 64 random bits."""
        return np.asarray(self._words.random_raw(count), np.uint64)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Cells in order of score, the lowest first.

    Attributes:
        counts: How many canaries scored in each cell.
        ones: How many of them were included.

    Example:
        >>> cells = Cells(counts=np.array([2, 1, 3]), ones=np.array([0, 1, 3]))
        >>> cells.highest([3, 4], None)
        [3, 4]
    """

    counts: NDArray[np.int64]
    ones: NDArray[np.int64]

    def highest(self, cuts: Sequence[int], lots: Lots | None) -> list[int]:
        """Return how many ones are among the highest, for several numbers of those.

        Args:
            cuts: Numbers of canaries, rising.
            lots: Decide where a cut falls into a cell.
        """
        counts, ones = self.counts[::-1], self.ones[::-1]
        ends, above = np.cumsum(counts), np.cumsum(ones)
        found, last, drawn, got = [], -1, 0, 0
        for cut in cuts:
            cell = int(np.searchsorted(ends, cut))
            size, has = int(counts[cell]), int(ones[cell])
            inside = cut - int(ends[cell]) + size
            if cell != last:
                last, drawn, got = cell, 0, 0
            if 0 < inside < size:
                got += hypergeometric_quantile(
                    _known(lots).uniform(),
                    ones=has - got,
                    zeros=size - drawn - (has - got),
                    drawn=inside - drawn,
                )
                drawn = inside
            else:
                drawn, got = inside, has if inside else 0
            found.append(int(above[cell]) - has + got)
        return found

    def ends(
        self, high: int, low: int, lots: Lots | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which of the highest, from the top, and of the lowest are ones."""
        size, every = int(self.counts.sum()), int(self.ones.sum())
        above, rest = self.highest([high, size - low], lots)
        return (
            _arranged(self.counts[::-1], self.ones[::-1], high, above, lots),
            _arranged(self.counts, self.ones, low, every - rest, lots),
        )


def summed(
    keys: NDArray[K], counts: NDArray[np.int64], ones: NDArray[np.int64]
) -> tuple[NDArray[K], NDArray[np.int64], NDArray[np.int64]]:
    """Return every key once, in rising order, with its counts and ones added up.

    Example:
        >>> summed(np.array([2.0, 1.0, 2.0]), np.array([1, 5, 3]), np.array([0, 4, 3]))
        (array([1., 2.]), array([5, 4]), array([4, 3]))
    """
    order = np.argsort(keys, kind="stable")
    keys, counts, ones = keys[order], counts[order], ones[order]
    new = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    if not len(new):
        return keys, counts, ones
    return keys[new], np.add.reduceat(counts, new), np.add.reduceat(ones, new)


def check_counts(
    what: str, keys: NDArray[K], counts: NDArray[np.int64], ones: NDArray[np.int64]
) -> None:
    """Refuse counts that are not those of the keys, or ones that are not among them."""
    if not (keys.shape == counts.shape == ones.shape):
        raise InvalidInputError(f"{what} has a count and ones for every key")
    if np.any(counts < 1) or np.any((ones < 0) | (ones > counts)):
        raise InvalidInputError(
            f"{what} has counts of 1 or more, and no more ones than canaries"
        )


def _arranged(
    counts: NDArray[np.int64],
    ones: NDArray[np.int64],
    taken: int,
    among: int,
    lots: Lots | None,
) -> NDArray[np.bool_]:
    """Return which of the first so many are ones, given how many there are."""
    ends = np.cumsum(counts)
    last = int(np.searchsorted(ends, taken)) + 1
    counts, ones = counts[:last].copy(), ones[:last].copy()
    counts[-1] -= ends[last - 1] - taken
    ones[-1] = among - ones[:-1].sum()
    starts = np.cumsum(counts) - counts
    cell = np.repeat(np.arange(last), counts)
    included = np.arange(taken) - starts[cell] < ones[cell]
    mixed = np.flatnonzero((counts > 1)[cell])
    if len(mixed):
        words = _known(lots).words(len(mixed))
        # A stable order by lot within each cell; the cells stay where they are.
        included[mixed] = included[mixed[np.lexsort((words, cell[mixed]))]]
    return included


def _known(lots: Lots | None) -> Lots:
    if lots is None:
        raise VoidAuditError(
            "some scores are equal, or so close that one cell holds them, and lots "
            f"decide between them: {LOTS_ADVICE}"
        )
    return lots
