"""Counts of canaries in bins by score, and how many of each are ones (included).

Guesses from both ends need no more. If a cut falls between two bins, the number of ones
above it is known. If it falls inside a bin, ties are broken in one of two ways. With
random tie-breaking each arrangement of the bin's canaries is equally likely, so the
number of ones above the cut has a hypergeometric distribution, and is drawn from it.
Without it the cut is counted against the guesser: the bin's zeros lie above its ones,
so that guesses "included" from above and "excluded" from below are as wrong as any
arrangement of the bin makes them (``dpaudit.game.tie_breaking`` has the proof).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.stats.hypergeometric import hypergeometric_quantile

__all__ = ["ScoreBins", "check_counts", "summed"]

_TOP: Final = 1 << 40  # first index of the tie-breaks of guesses from above
_BOTTOM: Final = 1 << 41  # and of those from below; cuts use the indices from 0


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreBins:
    """Bins in order of score, the lowest first.

    Attributes:
        counts: The number of canaries in each bin.
        ones: The number of them that were included.

    Example:
        >>> cells = ScoreBins(counts=np.array([2, 1, 3]), ones=np.array([0, 1, 2]))
        >>> cells.highest([3, 4], None)
        [2, 3]
        >>> cells.highest([2], None)
        [1]
    """

    counts: NDArray[np.int64]
    ones: NDArray[np.int64]

    def highest(self, cuts: Sequence[int], tie_breaks: TieBreaking | None) -> list[int]:
        """Return how many of the highest canaries are ones, for each cut.

        Args:
            cuts: Numbers of canaries counted from the top, rising.
            tie_breaks: Used if a cut falls inside a bin; if None, such a cut is counted
                against the guesser.
        """
        counts, ones = self.counts[::-1], self.ones[::-1]
        ends, above = np.cumsum(counts), np.cumsum(ones)
        found, last, drawn, got = [], -1, 0, 0
        for number, cut in enumerate(cuts):
            cell = int(np.searchsorted(ends, cut))
            size, has = int(counts[cell]), int(ones[cell])
            inside = cut - int(ends[cell]) + size
            if cell != last:
                last, drawn, got = cell, 0, 0
            if 0 < inside < size:
                zeros, more = size - drawn - (has - got), inside - drawn
                got += (
                    max(0, more - zeros)
                    if tie_breaks is None
                    else hypergeometric_quantile(
                        tie_breaks.uniform(number),
                        ones=has - got,
                        zeros=zeros,
                        drawn=more,
                    )
                )
                drawn = inside
            else:
                drawn, got = inside, has if inside else 0
            found.append(int(above[cell]) - has + got)
        return found

    def ends(
        self, high: int, low: int, tie_breaks: TieBreaking | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which of the highest (from the top) and of the lowest are ones."""
        size, every = int(self.counts.sum()), int(self.ones.sum())
        above, rest = self.highest([high, size - low], tie_breaks)
        zeros = self.counts - self.ones
        top = _arranged(
            self.counts[::-1], zeros[::-1], high, high - above, tie_breaks, first=_TOP
        )
        bottom = _arranged(
            self.counts, self.ones, low, every - rest, tie_breaks, _BOTTOM
        )
        return ~top, bottom


def summed(
    keys: Sequence[NDArray[np.generic]],
    counts: NDArray[np.int64],
    ones: NDArray[np.int64],
) -> tuple[list[NDArray[Any]], NDArray[np.int64], NDArray[np.int64]]:
    """Return every key once, in rising order, with its counts and ones added up.

    Args:
        keys: The parts of a key, the most significant first; an array for each part.
        counts: The number of canaries of each key.
        ones: The number of them that were included.

    Example:
        >>> keys = [np.array([2.0, 1.0, 2.0]), np.array([0, 0, 0])]
        >>> summed(keys, np.array([1, 5, 3]), np.array([0, 4, 3]))
        ([array([1., 2.]), array([0, 0])], array([5, 4]), array([4, 3]))
    """
    order = np.lexsort(keys[::-1])
    keys, counts, ones = [key[order] for key in keys], counts[order], ones[order]
    if not len(order):
        return keys, counts, ones
    differ = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    new = np.flatnonzero(np.append(True, differ))
    distinct = [key[new] for key in keys]
    return distinct, np.add.reduceat(counts, new), np.add.reduceat(ones, new)


def check_counts(
    what: str,
    keys: NDArray[np.generic],
    counts: NDArray[np.int64],
    ones: NDArray[np.int64],
) -> None:
    """Refuse counts that do not match the keys, and ones that exceed the counts."""
    if not (keys.shape == counts.shape == ones.shape):
        raise InvalidInputError(f"{what} has a count and ones for every key")
    if np.any(counts < 1) or np.any((ones < 0) | (ones > counts)):
        raise InvalidInputError(
            f"{what} has counts of 1 or more, and no more ones than canaries"
        )


def _arranged(
    counts: NDArray[np.int64],
    wrong: NDArray[np.int64],
    taken: int,
    among: int,
    tie_breaks: TieBreaking | None,
    first: int,
) -> NDArray[np.bool_]:
    """Return which of the first ``taken`` guesses are wrong, ``among`` of them."""
    ends = np.cumsum(counts)
    last = int(np.searchsorted(ends, taken)) + 1
    counts, wrong = counts[:last].copy(), wrong[:last].copy()
    counts[-1] -= ends[last - 1] - taken
    wrong[-1] = among - wrong[:-1].sum()
    starts = np.cumsum(counts) - counts
    cell = np.repeat(np.arange(last), counts)
    found = np.arange(taken) - starts[cell] < wrong[cell]
    mixed = np.flatnonzero((counts > 1)[cell])
    if tie_breaks is not None and len(mixed):
        words = tie_breaks.at(first + np.arange(len(mixed)))
        # Order by tie-break within each bin; the bins keep their positions.
        found[mixed] = found[mixed[np.lexsort((words, cell[mixed]))]]
    return found
