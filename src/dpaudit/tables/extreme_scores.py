"""The highest and the lowest scores of a stream, exactly, with their coins.

Each entry is a pair of a score and a tie-break, with the number of canaries that have
it and the number of those included. Entries are kept from the top until they cover as
many canaries as needed, and likewise from the bottom. If ids are known, each has its
own tie-break, which ranks it among equal scores (``dpaudit.game.tie_breaking``), so
each canary is an entry of its own. If ids are unknown, or no tie-breaking was fixed,
all tie-breaks are 0: equal scores form one entry, and the last entry is kept whole.

An entry that a shard drops lies below enough others of that shard alone, so it is not
among the highest of all shards either: merging shards gives the same as one pass over
all of them.
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

_PENDING = 1 << 17  # scores that are buffered before they are merged
_LAST = np.uint64(2**64 - 1)

_Pair: TypeAlias = tuple[float, np.uint64]  # score and tie-break
_Rows: TypeAlias = tuple[NDArray[np.float64], NDArray[np.uint64], NDArray[np.uint8]]
_Waiting: TypeAlias = tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.int64]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """Distinct pairs of score and tie-break from one end, lowest first.

    Attributes:
        scores: The scores.
        tie_breaks: Order equal scores; 0 without tie-breaking.
        counts: The number of canaries with each pair.
        ones: The number of these that were included.
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
            raise InvalidInputError(
                "the scores of a tail must rise, or their tie-breaks"
            )

    @classmethod
    def of(cls, parts: Iterable[Self]) -> Self:
        """Return one tail with all scores of several."""
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
        """Return the tail of canaries given one by one, in any order."""
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
        """Return the fewest scores from the top that cover so many canaries."""
        covered = np.cumsum(self.counts[::-1])
        last = int(np.searchsorted(covered, canaries)) + 1 if canaries else 0
        return self._slice(max(0, len(self.counts) - last), len(self.counts))

    def lowest(self, canaries: int) -> Self:
        """Return the fewest scores from the bottom that cover so many canaries."""
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
        high: The highest, covering ``most_high`` canaries or all there are.
        low: The lowest, covering ``most_low``.
        most_high: The number of canaries needed from the top.
        most_low: The number needed from the bottom.
    """

    high: Tail
    low: Tail
    most_high: int
    most_low: int

    def merged(self, other: Self) -> Self:
        """Return the extreme scores of all canaries of two shards."""
        return type(self)(
            high=Tail.of([self.high, other.high]).highest(self.most_high),
            low=Tail.of([self.low, other.low]).lowest(self.most_low),
            most_high=self.most_high,
            most_low=self.most_low,
        )

    @property
    def by_id(self) -> bool:
        """Whether there are tie-breaks, which are derived from the canaries' ids."""
        return bool(self.high.tie_breaks.any() or self.low.tie_breaks.any())

    def covers(self, rows: int) -> bool:
        """Return whether both ends reach as far as so many canaries require."""
        return int(self.high.counts.sum()) >= min(self.most_high, rows) and (
            int(self.low.counts.sum()) >= min(self.most_low, rows)
        )

    def cells(self, rows: int, ones: int) -> ScoreBins:
        """Return all canaries in bins; what lies between the ends is one bin."""
        low, high = self.low, self.high
        if len(low.scores) and len(high.scores):
            # Entries that both ends reached appear twice, whole.
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
    """Collects the extreme scores of a stream."""

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
        # Only scores on or beyond these can still be among the extremes.
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
        """Add some canaries; no score may be NaN. Tie-breaking needs their ids."""
        beyond = (scores >= self._floor[0]) | (scores <= self._roof[0])
        named = np.empty(0, np.int64)
        if self._tie_breaks is not None:
            assert ids is not None  # tie-breaking is set only if ids are read
            named = ids[beyond]
        self._waiting.append((scores[beyond], bits[beyond], named))
        self._rows += len(self._waiting[-1][0])
        if self._rows > _PENDING:
            self.found()

    def found(self) -> ExtremeScores:
        """Return the extreme scores of all canaries so far."""
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
        """Return the buffered rows that can be extreme, with their tie-breaks."""
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
    """Return the rows that can be extreme, so that fewer have to be sorted."""
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
    """Return where a pair of score and tie-break ranks above another."""
    return np.asarray(
        np.greater(scores, than) | ((scores == than) & (tie_breaks > tie_break))
    )
