"""The pairs Z: for each element two records, of which its coin selects one.

The paper's pair vector ``Z = (x_1, y_1, ..., x_n, y_n)``. Bit 1 (S = +1) selects ``y``,
bit 0 selects ``x``. A pair that is the same for every element is stored once, so a
billion of them cost nothing.
"""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical
from dpaudit._codec import Document, decode
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency

__all__ = ["Pairs", "Records"]

Records: TypeAlias = NDArray[Any]  # rows of data, of whatever kind a program takes


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs(Document):
    """Two records per element, or one pair of records for all.

    Attributes:
        x: Selected by bit 0: one record (a scalar) or an array with a row per element.
        y: Selected by bit 1; of the same shape.
        adjacency: How the data change from ``x`` to ``y``.

    Example:
        >>> Pairs(x=-1, y=1).choose(np.array([1, 0, 0], np.uint8))
        array([ 1, -1, -1])
        >>> Pairs(x=np.array([0, 0]), y=np.array([5, 7])).choose(np.array([0, 1]))
        array([0, 7])
    """

    x: Records
    y: Records
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    form = "dpaudit.pairs.1"

    def __init__(
        self,
        *,
        x: object,
        y: object,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
    ) -> None:
        object.__setattr__(self, "x", _records("x", x))
        object.__setattr__(self, "y", _records("y", y))
        object.__setattr__(self, "adjacency", adjacency)
        if self.x.shape != self.y.shape:
            raise InvalidInputError(
                f"x and y must have one shape, got {self.x.shape} and {self.y.shape}"
            )
        same = np.asarray(self.x == self.y)  # text and numbers: False, before numpy 2.1
        row_same = same if same.ndim < 2 else same.reshape(len(same), -1).all(axis=1)
        if np.any(row_same):
            raise InvalidInputError(
                "x and y must differ in every pair: a coin that changes nothing "
                "cannot be guessed"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairs) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def check(self, canaries: int) -> None:
        """Refuse pairs that are neither one for all nor one for each canary."""
        if self.x.ndim and len(self.x) != canaries:
            raise InvalidInputError(
                f"{len(self.x)} pairs were given for canaries={canaries}; give one "
                "pair for each, or a single pair for all"
            )

    def choose(self, bits: NDArray[np.generic], *, start: int = 0) -> Records:
        """Return the records of elements from ``start`` on, selected by their bits."""
        if not self.x.ndim:
            return _choose_one(self.x, self.y, bits)
        rows = slice(start, start + len(bits))
        picks = np.asarray(bits, bool).reshape(-1, *(1,) * (self.x.ndim - 1))
        return np.where(picks, self.y[rows], self.x[rows])

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the pairs that parsed JSON contains: numbers, Booleans or text."""
        values = _canonical.document(plain, cls.form)
        _canonical.object_of(values, cls.form, {"adjacency", "x", "y"})
        adjacency = decode(Adjacency, values.pop("adjacency"), "adjacency")
        pairs = cls(**values, adjacency=adjacency)
        for name, value in values.items():
            _check_whole(name, value)
        return pairs


def _records(name: str, values: object) -> Records:
    try:
        return np.asarray(values)
    except (OverflowError, ValueError) as error:  # rows of different lengths
        raise InvalidInputError(f"{name} must be an array: {error}") from error


def _check_whole(name: str, value: object) -> None:
    """Refuse whole numbers that numpy would round to floats."""
    if isinstance(value, list):
        for each in value:
            _check_whole(name, each)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInputError(
            f"{name} must hold whole numbers of 64 bits, got one of "
            f"{value.bit_length()} bits"
        )


def _choose_one(x: Records, y: Records, bits: NDArray[np.generic]) -> Records:
    """Return x or y for each bit."""
    kind = np.result_type(x, y)
    if kind.kind not in "iu":
        return np.array([x, y])[np.asarray(bits, np.intp)]
    # For integers, x + bit (y - x) is exact, even if it wraps around, and many times
    # faster than indexing.
    step = np.subtract(y, x, dtype=kind)
    return np.asarray(bits.astype(kind, copy=False) * step + x.astype(kind))
