"""The highest and the lowest scores of a stream, exactly, with their coins.

Kept are scores with their lots, with how many canaries have both and how many of those
were included, from the top until as many canaries as needed are covered, and from the
bottom likewise. Where ids are known each has a lot of its own, which ranks it among
those of the same score (``dpaudit.game.tie_breaking``), so each canary stands by
itself. Where they are not, or nothing fixed lots, all lots are 0: equal scores are kept
together, the last of them whole.

What some shard dropped lies below enough others of that shard alone, so it is not among
the highest of all shards either: merging shards gives what one pass over all of them
gives.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.tables.score_bins import ScoreBins, check_counts, summed

__all__ = ["ExtremeScores", "ExtremeScoresSoFar", "Tail"]

_PENDING = 1 << 17  # scores that wait until they are sorted in
_LAST = np.uint64(2**64 - 1)

_Pair: TypeAlias = tuple[float, np.uint64]  # score and lot
_Rows: TypeAlias = tuple[NDArray[np.float64], NDArray[np.uint64], NDArray[np.uint8]]
_Waiting: TypeAlias = tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.int64]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """Distinct pairs of score and lot from one end, lowest first.

    Attributes:
        scores: The scores.
        tie_breaks: Decide between equal ones; 0 where there are none.
        counts: How many canaries have each pair.
        ones: How many of these were included.
    """

    scores: NDArray[np.float64]
    tie_breaks: NDArray[np.uint64]
    counts: NDArray[np.int64]
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        check_counts("a tail", self.scores, self.counts, self.ones)
        if self.tie_breaks.shape != self.scores.shape:
            raise InvalidInputError("a tail has a lot for every score")
        higher = _above(
            self.scores[1:], self.tie_breaks[1:], self.scores[:-1], self.tie_breaks[:-1]
        )
        if np.isnan(self.scores).any() or not np.all(higher):
            raise InvalidInputError("the scores of a tail must rise, or their lots")

    @classmethod
    def of(cls, parts: Iterable[Self]) -> Self:
        """Return the tail with all scores of some."""
        parts = list(parts)
        return cls._summed(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.tie_breaks for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.ones for part in parts]),
        )

    @classmethod
    def of_rows(
        cls,
        scores: NDArray[np.float64],
        tie_breaks: NDArray[np.uint64],
        bits: NDArray[np.uint8],
    ) -> Self:
        """Return the tail of a canary after the other."""
        single = np.ones(len(scores), np.int64)
        # not -0.0
        return cls._summed(scores + 0.0, tie_breaks, single, bits.astype(np.int64))

    @classmethod
    def _summed(
        cls,
        scores: NDArray[np.float64],
        tie_breaks: NDArray[np.uint64],
        counts: NDArray[np.int64],
        ones: NDArray[np.int64],
    ) -> Self:
        (scores, tie_breaks), counts, ones = summed([scores, tie_breaks], counts, ones)
        return cls(scores=scores, tie_breaks=tie_breaks, counts=counts, ones=ones)

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
            tie_breaks=self.tie_breaks[first:last],
            counts=self.counts[first:last],
            ones=self.ones[first:last],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtremeScores:
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

    @property
    def by_id(self) -> bool:
        """Whether there are lots, and so something of who the canaries are."""
        return bool(self.high.tie_breaks.any() or self.low.tie_breaks.any())

    def covers(self, rows: int) -> bool:
        """Return whether the ends are those of so many canaries, not fewer."""
        return int(self.high.counts.sum()) >= min(self.most_high, rows) and (
            int(self.low.counts.sum()) >= min(self.most_low, rows)
        )

    def cells(self, rows: int, ones: int) -> ScoreBins:
        """Return all canaries in cells: what lies between the ends is one cell."""
        low, high = self.low, self.high
        if len(low.scores) and len(high.scores):
            # What both ends reached is there twice, whole.
            above = _above(
                high.scores, high.tie_breaks, low.scores[-1], low.tie_breaks[-1]
            )
            high = high._slice(
                len(high.scores) - int(np.count_nonzero(above)), len(high.scores)
            )
        middle = rows - int(low.counts.sum() + high.counts.sum())
        between = ones - int(low.ones.sum() + high.ones.sum())
        if middle < 0 or not 0 <= between <= middle:
            raise InvalidInputError(
                "the ends hold more canaries or coins than there are rows"
            )
        return ScoreBins(
            counts=np.concatenate([low.counts, [middle], high.counts]),
            ones=np.concatenate([low.ones, [between], high.ones]),
        )


@final
class ExtremeScoresSoFar:
    """The ends of a stream of scores."""

    def __init__(
        self, *, most_high: int, most_low: int, tie_breaks: TieBreaking | None = None
    ) -> None:
        self._most, self._tie_breaks = (most_high, most_low), tie_breaks
        nothing = Tail.of_rows(
            np.empty(0), np.empty(0, np.uint64), np.empty(0, np.uint8)
        )
        self._ends = ExtremeScores(
            high=nothing, low=nothing, most_high=most_high, most_low=most_low
        )
        # Only what lies beyond these, or on them, can be among the ends any more.
        self._floor: _Pair = (-np.inf, np.uint64(0))
        self._roof: _Pair = (np.inf, _LAST)
        self._waiting: list[_Waiting] = []
        self._rows = 0

    def add(
        self,
        scores: NDArray[np.float64],
        bits: NDArray[np.uint8],
        ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Take in some canaries; no score may be NaN. With lots, ids are needed."""
        beyond = (scores >= self._floor[0]) | (scores <= self._roof[0])
        named = np.empty(0, np.int64)
        if self._tie_breaks is not None:
            assert ids is not None  # who has lots has ids to draw them for
            named = ids[beyond]
        self._waiting.append((scores[beyond], bits[beyond], named))
        self._rows += len(self._waiting[-1][0])
        if self._rows > _PENDING:
            self.found()

    def found(self) -> ExtremeScores:
        """Return the ends of all canaries so far."""
        if self._waiting:
            high, low = self._most
            rows = Tail.of_rows(*_outer(*self._beyond(), high, low))
            self._ends = self._ends.merged(
                ExtremeScores(high=rows, low=rows, most_high=high, most_low=low)
            )
            self._waiting, self._rows = [], 0
            self._close_in()
        return self._ends

    def _beyond(self) -> _Rows:
        """Return the rows that wait, with their lots, without what these leave out."""
        scores, bits, ids = (np.concatenate(part) for part in zip(*self._waiting))  # noqa: B905
        if self._tie_breaks is None:
            return scores, np.zeros(len(scores), np.uint64), bits
        tie_breaks = self._tie_breaks.at(ids)
        below = _above(*self._floor, scores, tie_breaks)
        here = ~(below & _above(scores, tie_breaks, *self._roof))
        return scores[here], tie_breaks[here], bits[here]

    def _close_in(self) -> None:
        high, low = self._ends.high, self._ends.low
        if high.counts.sum() >= self._ends.most_high:
            self._floor = np.inf, _LAST
            if self._ends.most_high:
                self._floor = float(high.scores[0]), high.tie_breaks[0]
        if low.counts.sum() >= self._ends.most_low:
            self._roof = -np.inf, np.uint64(0)
            if self._ends.most_low:
                self._roof = float(low.scores[-1]), low.tie_breaks[-1]


def _outer(
    scores: NDArray[np.float64],
    tie_breaks: NDArray[np.uint64],
    bits: NDArray[np.uint8],
    high: int,
    low: int,
) -> _Rows:
    """Return the rows that can be among the ends, so that fewer have to be sorted."""
    size = len(scores)
    if size <= 2 * (high + low):
        return scores, tie_breaks, bits
    edges = np.partition(scores, (max(0, low - 1), min(size - high, size - 1)))
    roof, floor = edges[max(0, low - 1)], edges[min(size - high, size - 1)]
    outer = (scores <= roof) | (scores >= floor)
    return scores[outer], tie_breaks[outer], bits[outer]


def _above(
    scores: NDArray[np.float64] | float,
    tie_breaks: NDArray[np.uint64] | np.uint64,
    than: NDArray[np.float64] | float,
    tie_break: NDArray[np.uint64] | np.uint64,
) -> NDArray[np.bool_]:
    """Return where a pair of score and lot ranks above another."""
    return np.asarray(
        np.greater(scores, than) | ((scores == than) & (tie_breaks > tie_break))
    )
