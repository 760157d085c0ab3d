"""The highest and the lowest scores of a stream, exactly, with their coins.

Kept are distinct scores with how often each was seen and how many of those were ones,
from the top until as many canaries as needed are covered, and from the bottom likewise.
The last score kept is kept whole, ties and all. A score that some shard dropped lies
below enough others of that shard alone, so it is not among the highest of all shards
either: merging shards gives what one pass over all of them gives.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.tables.cells import Cells, check_counts, summed

__all__ = ["Ends", "EndsSoFar", "Tail"]

_PENDING = 1 << 17  # scores that wait until they are sorted in


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """Distinct scores from one end, lowest first.

    Attributes:
        scores: The scores.
        counts: How many canaries have each.
        ones: How many of these were included.
    """

    scores: NDArray[np.float64]
    counts: NDArray[np.int64]
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        rising = bool(np.all(self.scores[1:] > self.scores[:-1]))
        if np.isnan(self.scores).any() or not rising:
            raise InvalidInputError("the scores of a tail must rise")
        check_counts("a tail", self.scores, self.counts, self.ones)

    @classmethod
    def of(cls, parts: Iterable[Self]) -> Self:
        """Return the tail with all scores of some."""
        parts = list(parts)
        scores, counts, ones = summed(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.ones for part in parts]),
        )
        return cls(scores=scores, counts=counts, ones=ones)

    @classmethod
    def of_rows(cls, scores: NDArray[np.float64], bits: NDArray[np.uint8]) -> Self:
        """Return the tail of a canary after the other."""
        single = np.ones(len(scores), np.int64)
        distinct, counts, ones = summed(scores, single, bits.astype(np.int64))
        return cls(scores=distinct + 0.0, counts=counts, ones=ones)  # not -0.0

    def highest(self, canaries: int) -> Self:
        """Return no more scores than cover so many canaries from the top."""
        covered = np.cumsum(self.counts[::-1])
        last = int(np.searchsorted(covered, canaries)) + 1 if canaries else 0
        return self._slice(max(0, len(self.counts) - last), len(self.counts))

    def lowest(self, canaries: int) -> Self:
        """Return no more scores than cover so many canaries from the bottom."""
        covered = np.cumsum(self.counts)
        last = int(np.searchsorted(covered, canaries)) + 1 if canaries else 0
        return self._slice(0, last)

    def _slice(self, first: int, last: int) -> Self:
        return type(self)(
            scores=self.scores[first:last],
            counts=self.counts[first:last],
            ones=self.ones[first:last],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ends:
    """The highest and the lowest scores of some canaries.

    Attributes:
        high: From the top, for ``most_high`` canaries or all there are.
        low: From the bottom, for ``most_low``.
        most_high: How many canaries the highest scores are needed of.
        most_low: How many the lowest are needed of.
    """

    high: Tail
    low: Tail
    most_high: int
    most_low: int

    def merged(self, other: Self) -> Self:
        """Return the ends of all canaries of two shards."""
        return type(self)(
            high=Tail.of([self.high, other.high]).highest(self.most_high),
            low=Tail.of([self.low, other.low]).lowest(self.most_low),
            most_high=self.most_high,
            most_low=self.most_low,
        )

    def covers(self, rows: int) -> bool:
        """Return whether the ends are those of so many canaries, not fewer."""
        return int(self.high.counts.sum()) >= min(self.most_high, rows) and (
            int(self.low.counts.sum()) >= min(self.most_low, rows)
        )

    def cells(self, rows: int, ones: int) -> Cells:
        """Return all canaries in cells: what lies between the ends is one cell."""
        low, high = self.low, self.high
        if len(low.scores) and len(high.scores):
            # A score that both ends reached is there twice, whole.
            high = high._slice(
                int(np.searchsorted(high.scores, low.scores[-1], side="right")),
                len(high.scores),
            )
        middle = rows - int(low.counts.sum() + high.counts.sum())
        between = ones - int(low.ones.sum() + high.ones.sum())
        if middle < 0 or not 0 <= between <= middle:
            raise InvalidInputError(
                "the ends hold more canaries or coins than there are rows"
            )
        return Cells(
            counts=np.concatenate([low.counts, [middle], high.counts]),
            ones=np.concatenate([low.ones, [between], high.ones]),
        )


@final
class EndsSoFar:
    """The ends of a stream of scores."""

    def __init__(self, *, most_high: int, most_low: int) -> None:
        self._most = most_high, most_low
        nothing = Tail.of_rows(np.empty(0), np.empty(0, np.uint8))
        self._ends = Ends(
            high=nothing, low=nothing, most_high=most_high, most_low=most_low
        )
        # Only what lies beyond these can be among the ends any more.
        self._floor, self._roof = -np.inf, np.inf
        self._waiting: list[tuple[NDArray[np.float64], NDArray[np.uint8]]] = []
        self._rows = 0

    def add(self, scores: NDArray[np.float64], bits: NDArray[np.uint8]) -> None:
        """Take in some canaries; no score may be NaN."""
        beyond = (scores >= self._floor) | (scores <= self._roof)
        self._waiting.append((scores[beyond], bits[beyond]))
        self._rows += len(self._waiting[-1][0])
        if self._rows > _PENDING:
            self.found()

    def found(self) -> Ends:
        """Return the ends of all canaries so far."""
        if self._waiting:
            scores, bits = (np.concatenate(part) for part in zip(*self._waiting))  # noqa: B905
            high, low = self._most
            rows = Tail.of_rows(*_outer(scores, bits, high, low))
            self._ends = self._ends.merged(
                Ends(high=rows, low=rows, most_high=high, most_low=low)
            )
            self._waiting, self._rows = [], 0
            self._close_in()
        return self._ends

    def _close_in(self) -> None:
        high, low = self._ends.high, self._ends.low
        if high.counts.sum() >= self._ends.most_high:
            self._floor = float(high.scores[0]) if self._ends.most_high else np.inf
        if low.counts.sum() >= self._ends.most_low:
            self._roof = float(low.scores[-1]) if self._ends.most_low else -np.inf


def _outer(
    scores: NDArray[np.float64], bits: NDArray[np.uint8], high: int, low: int
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Return the rows that can be among the ends, so that fewer have to be sorted."""
    size = len(scores)
    if size <= 2 * (high + low):
        return scores, bits
    edges = np.partition(scores, (max(0, low - 1), min(size - high, size - 1)))
    roof, floor = edges[max(0, low - 1)], edges[min(size - high, size - 1)]
    outer = (scores <= roof) | (scores >= floor)
    return scores[outer], bits[outer]
