"""Checks that the ids in a stream of canaries are 0 to n - 1, each once.

One bit per canary, 125 MB for a billion, of which only the touched part takes memory.
An error names at once an id that is out of range or repeated. If as many rows were seen
as there are canaries, every canary was seen.

Shards on other machines cannot share these bits. A shard whose ids are an unbroken run
reports its ends, and runs are joined exactly. For any other set of ids it reports a
sum, modulo 2^64, of numbers mixed from each id and a salt; the sums of all shards must
add up to that of all ids. Wrong sets do so by accident about once in 2^64 times. The
salt comes from the key of the audit, if it has one: the author of the files cannot know
it until a tally is shown, and so cannot construct ids to match the sum.
"""

from dataclasses import dataclass
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.tie_breaking import mixed

__all__ = ["IdSet", "SeenIds", "fingerprint", "fingerprint_of_run", "joined"]

_BLOCK = 1 << 20
_SPREAD = 16  # ids in a range of less than this times their number are close together


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IdSet:
    """A summary of the ids of a shard, which are all different.

    Attributes:
        first: The smallest id.
        last: The largest id.
        count: The number of ids.
        fingerprint: A sum over them; None if they are an unbroken run.
    """

    first: int
    last: int
    count: int
    fingerprint: int | None

    def __post_init__(self) -> None:
        unbroken = self.last - self.first + 1
        if not (0 <= self.first <= self.last and 1 <= self.count <= unbroken):
            raise InvalidInputError(
                f"{self.count} different ids do not fit from {self.first} to "
                f"{self.last}"
            )
        if (self.fingerprint is None) != (self.count == unbroken) or not (
            0 <= (self.fingerprint or 0) < 1 << 64
        ):
            raise InvalidInputError(
                "an unbroken run of ids has no fingerprint, and other sets one of 64 "
                "bits"
            )


@final
class SeenIds:
    """The ids seen so far."""

    def __init__(self, canaries: int) -> None:
        self._canaries, self._count = canaries, 0
        self._seen = np.zeros((canaries + 7) // 8, np.uint8)
        self._first, self._last = canaries, -1

    def add(self, ids: NDArray[np.int64]) -> None:
        """Add some ids; an unknown or repeated one is refused."""
        first, last = int(ids.min()), int(ids.max())
        if first < 0 or last >= self._canaries:
            raise InvalidRunError(
                f"id {first if first < 0 else last} is unknown: the design has "
                f"canaries={self._canaries}, with ids from 0 to {self._canaries - 1}"
            )
        if last - first == len(ids) - 1 and np.all(ids[1:] - ids[:-1] == 1):
            self._add_run(first, last)
        elif last - first < _SPREAD * len(ids):
            self._add_near(ids, first, last)
        else:
            # 32-bit integers sort in half the time.
            kind = np.uint32 if last < 1 << 32 else np.int64
            self._add_sorted(np.sort(ids.astype(kind)))
        self._count += len(ids)
        self._first, self._last = min(self._first, first), max(self._last, last)

    def found(self, salt: int) -> IdSet:
        """Return the set of all ids so far."""
        first, last, count = self._first, self._last, self._count
        unbroken = count == last - first + 1
        total = None if unbroken else self._fingerprint(salt)
        return IdSet(first=first, last=last, count=count, fingerprint=total)

    def _add_run(self, first: int, last: int) -> None:
        """Add an unbroken run, whole bytes at once."""
        head = min(last + 1, -(-first // 8) * 8)
        tail = max(head, (last + 1) // 8 * 8)
        for edge in (range(first, head), range(tail, last + 1)):
            if len(edge):
                self._add_sorted(np.arange(edge.start, edge.stop))
        whole = slice(head // 8, tail // 8)
        if self._seen[whole].any():
            self._refuse(np.arange(head, tail))
        self._seen[whole] = 255

    def _add_near(self, ids: NDArray[np.int64], first: int, last: int) -> None:
        """Add ids that are close together, in any order."""
        start, stop = first // 8, last // 8 + 1
        here = np.zeros((stop - start) * 8, bool)
        here[ids - start * 8] = True
        packed = np.packbits(here, bitorder="little")
        known = self._seen[start:stop]
        if np.count_nonzero(here) < len(ids) or np.any(known & packed):
            self._add_sorted(np.sort(ids))  # finds the repeated id and refuses it
        known |= packed

    def _add_sorted(self, ordered: NDArray[np.integer]) -> None:
        again = ordered[1:] == ordered[:-1]
        if again.any():
            self._refuse(ordered[1:][again])
        byte = ordered >> 3
        bit = np.left_shift(np.uint8(1), (ordered & 7).astype(np.uint8))
        new = np.flatnonzero(np.append(True, byte[1:] != byte[:-1]))
        byte, bit = byte[new], np.bitwise_or.reduceat(bit, new)
        before = self._seen[byte]
        if np.any(before & bit):
            self._refuse(ordered)
        self._seen[byte] = before | bit

    def _refuse(self, ids: NDArray[np.integer]) -> NoReturn:
        """Raise an error naming an id seen before, or else the first of these."""
        before = self._seen[ids >> 3] >> (ids & 7).astype(np.uint8) & 1
        repeated = ids[before == 1] if before.any() else ids
        raise InvalidRunError(
            f"id {int(repeated[0])} appears twice: each canary has one coin and one "
            "score"
        )

    def _fingerprint(self, salt: int) -> int:
        total = 0
        for start in range(self._first // _BLOCK * _BLOCK, self._last + 1, _BLOCK):
            part = self._seen[start // 8 : (start + _BLOCK) // 8]
            here = np.flatnonzero(np.unpackbits(part, bitorder="little"))
            total += fingerprint(here + start, salt)
        return total % 2**64


def joined(sets: tuple[IdSet, ...]) -> tuple[IdSet, ...]:
    """Return sets of ids in which adjacent runs are joined."""
    runs: list[IdSet] = []
    for each in sorted(sets, key=lambda found: (found.first, found.last)):
        if each.fingerprint is not None:
            continue
        if runs and each.first <= runs[-1].last:
            raise InvalidRunError(
                f"ids {each.first} to {min(each.last, runs[-1].last)} are in two "
                "tallies: each canary has one coin and one score"
            )
        if runs and each.first == runs[-1].last + 1:
            first, last = runs.pop().first, each.last
            each = IdSet(  # noqa: PLW2901
                first=first, last=last, count=last - first + 1, fingerprint=None
            )
        runs.append(each)
    return (*runs, *(each for each in sets if each.fingerprint is not None))


def fingerprint_of_run(first: int, last: int, salt: int) -> int:
    """Return the fingerprint of an unbroken run of ids."""
    total = 0
    for start in range(first, last + 1, _BLOCK):
        total += fingerprint(np.arange(start, min(start + _BLOCK, last + 1)), salt)
    return total % 2**64


def fingerprint(ids: NDArray[np.int64], salt: int) -> int:
    """Return the sum, modulo 2^64, of the hashes of ids with a salt."""
    return int(mixed(ids, salt).sum(dtype=np.uint64))
