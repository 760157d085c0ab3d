"""All scores of a stream in bins, as fine as a fixed number of bins allows.

A bin is the sign, the exponent and the first bits of the mantissa of a score: the top
bits of its float, which are in the order of the scores on either side of zero. The
number of mantissa bits follows from how many pairs of sign and exponent (octaves)
occur, so that the number of bins stays below a fixed limit: scores near 1000 with a
spread of 1 get bins of 0.002, and scores spread over forty octaves some 4,096 bins in
each.

Octaves are only ever added, so bins only become coarser, by merging in pairs. Whatever
the order of the stream and however it was divided, the final bins are determined by the
octaves of all scores, and their counts are sums.

If guesses end within a bin, ties are broken at random, but not per canary, as a bin
does not store its canaries: the number of its ones that lie above is drawn. A draw
fixed before the coins, by a salt that may be public, would not depend on them: scores
that are all equal would always be judged alike, and for some salts refute every claim.
So the draw is a hash of the salt and of the whole tally, including a fingerprint of the
included canaries' ids (``seen_ids``), and differs for other coins. For a fixed salt the
draw is then a function of the coins, and the significance level holds for that salt as
there are many coins: bins are used for more than 65,536 canaries, whose coins fall in
2^65536 ways, and two of these have the same fingerprint once in 2^64 times. For a hash
that is indistinguishable from a random function, the probability of refuting a true
claim differs between salts with a variance of at most alpha / 2^64: by about 10^-10,
and trying 10^12 salts would gain ten times that.
"""

from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.tables.score_bins import ScoreBins, check_counts, summed
from dpaudit.tables.seen_ids import fingerprint

__all__ = ["MOST_CELLS", "Histogram", "HistogramSoFar"]

MOST_CELLS: Final = 1 << 18
_FINEST = 18  # bits of the mantissa
_MANTISSA, _OCTAVES = 52, 1 << 12  # of a float: bits, and signs with exponents
_NEGATIVE = _OCTAVES // 2


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Scores in bins.

    Attributes:
        mantissa_bits: The number of mantissa bits that define a bin.
        keys: The bins that are not empty, lowest first: exponent and bits of the
            mantissa as one whole number, with the sign of the score.
        counts: The number of canaries in each.
        ones: The number of them that were included.
        coins: The fingerprint of the included ids; 0 if ids were not checked.
    """

    mantissa_bits: int
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    ones: NDArray[np.int64]
    coins: int

    def __post_init__(self) -> None:
        if not 0 <= self.mantissa_bits <= _FINEST:
            raise InvalidInputError(
                f"mantissa_bits must be from 0 to {_FINEST}, got {self.mantissa_bits}"
            )
        if np.any(np.diff(self.keys) <= 0) or (
            len(self.keys)
            and max(-self.keys[0], self.keys[-1]) >> self.mantissa_bits >= _NEGATIVE
        ):
            raise InvalidInputError("the keys of a histogram must rise, and be scores'")
        check_counts("a histogram", self.keys, self.counts, self.ones)
        if not 0 <= self.coins < 1 << 64:
            raise InvalidInputError(
                f"the fingerprint of coins has 64 bits, got coins={self.coins}"
            )

    @property
    def by_id(self) -> bool:
        """Whether the histogram depends on the canaries' ids."""
        return self.coins != 0

    def merged(self, other: Self) -> Self:
        """Return the histogram of all canaries of two shards."""
        bits = min(self.mantissa_bits, other.mantissa_bits)
        parts = [each._coarser(bits) for each in (self, other)]
        both = self._summed(
            bits,
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.ones for part in parts]),
            (self.coins + other.coins) % 2**64,
        )
        return both._coarser(_bits_for(both._octaves()))

    def cells(self, rows: int, ones: int) -> ScoreBins:
        """Return all canaries in bins."""
        if int(self.counts.sum()) != rows or int(self.ones.sum()) != ones:
            raise InvalidInputError("the histogram does not hold all rows and coins")
        return ScoreBins(counts=self.counts, ones=self.ones)

    def _octaves(self) -> int:
        return len(np.unique(_shifted(self.keys, self.mantissa_bits)))

    def _coarser(self, bits: int) -> Self:
        if bits >= self.mantissa_bits:
            return self
        keys = _shifted(self.keys, self.mantissa_bits - bits)
        return self._summed(bits, keys, self.counts, self.ones, self.coins)

    @classmethod
    def _summed(
        cls,
        bits: int,
        keys: NDArray[np.int64],
        counts: NDArray[np.int64],
        ones: NDArray[np.int64],
        coins: int,
    ) -> Self:
        """Return the histogram of keys that may be repeated."""
        (distinct,), counts, ones = summed([keys], counts, ones)
        return cls(
            mantissa_bits=bits, keys=distinct, counts=counts, ones=ones, coins=coins
        )


@final
class HistogramSoFar:
    """Collects the histogram of a stream; the salt is for ids, if these are given."""

    def __init__(self, salt: int = 0) -> None:
        self._salt, self._coins = salt, 0
        self._bits = _FINEST
        self._start = np.full(_OCTAVES, -1, np.int64)  # of each octave in _counted
        self._octaves: list[int] = []
        self._counted = np.zeros(0, np.int64)  # by page, bits of the mantissa, coin

    def add(
        self,
        scores: NDArray[np.float64],
        bits: NDArray[np.uint8],
        ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Add some canaries; no score may be NaN."""
        if ids is not None:
            self._coins += fingerprint(ids[bits.view(bool)], self._salt)
        words = np.ascontiguousarray(scores, np.float64).view(np.uint64)
        octave = (words >> np.uint64(_MANTISSA)).view(np.int64)
        place = self._start.take(octave)
        if len(place) and place.min() < 0:
            self._make_room(np.unique(octave[place < 0]).tolist())
            place = self._start.take(octave)
        # Twice the first bits of the mantissa, as every bin has two counts.
        words = words >> np.uint64(_MANTISSA - self._bits - 1)
        words &= np.uint64((1 << (self._bits + 1)) - 2)
        place += words.view(np.int64)
        place += bits
        np.add.at(self._counted, place, 1)

    def found(self) -> Histogram:
        """Return the histogram of all canaries so far."""
        counted = self._counted.reshape(-1, 2)
        full = np.flatnonzero(counted.any(axis=1))
        page, mantissa = full >> self._bits, full & ((1 << self._bits) - 1)
        octave = np.array(self._octaves, np.int64)[page]
        size = (octave & (_NEGATIVE - 1)) << self._bits | mantissa
        return Histogram._summed(
            self._bits,
            np.where(octave < _NEGATIVE, size, -size),
            counted[full].sum(axis=1),
            counted[full, 1],
            self._coins % 2**64,
        )

    def _make_room(self, octaves: list[int]) -> None:
        self._octaves += octaves
        # Plus and minus zero are one octave.
        bits = _bits_for(len({each % _NEGATIVE and each for each in self._octaves}))
        old = self._counted.reshape(-1, 1 << (self._bits - bits), 2).sum(axis=1)
        self._counted = np.zeros(len(self._octaves) << (bits + 1), np.int64)
        self._counted[: old.size] = old.ravel()
        self._bits = bits
        self._start[self._octaves] = np.arange(len(self._octaves)) << (bits + 1)


def _bits_for(octaves: int) -> int:
    """Return how many mantissa bits fit into ``MOST_CELLS`` for so many octaves."""
    return min(_FINEST, (MOST_CELLS // max(1, octaves)).bit_length() - 1)


def _shifted(keys: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    return np.asarray(np.sign(keys) * (np.abs(keys) >> bits))
