"""The canaries' coordinates in the arrays of a model, for any library.

A canary is a gradient along a direction of its own: one coordinate of one array, or one
coordinate in each of several arrays, for faults that treat arrays separately.
Directions do not overlap, so a noisy sum along one of them belongs to one canary
coordinate. Only shapes are read here, and coordinates are drawn from them and the key
of the run: a program that knew them could be private there and nowhere else. Once the
key is revealed, anyone can recompute them. Adding and reading values is left to the
adapter of each library.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from typing import Any, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key

__all__ = ["ArrayCoordinates", "Arrays", "Layout", "scattered"]

Arrays: TypeAlias = Sequence[NDArray[Any]]

_LABEL: Final = "canary coordinates"  # of the key's stream


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayCoordinates:
    """The canary coordinates that lie in one array.

    Attributes:
        array: The number of the array.
        which: Numbers of the coordinates, in increasing order.
        offsets: The index of each in the flattened array.
    """

    array: int
    which: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(repr=False)  # secret until the run is over

    def offset_of(self, coordinates: int) -> NDArray[np.int64]:
        """Return the offset of each coordinate, -1 for those in other arrays."""
        offsets = np.full(coordinates, -1)
        offsets[self.which] = self.offsets
        return offsets

    def only(self, wanted: NDArray[np.bool_]) -> Self:
        """Return the part with the wanted coordinates, by their numbers."""
        kept = wanted[self.which]
        return replace(self, which=self.which[kept], offsets=self.offsets[kept])


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """The coordinates of all canaries.

    Attributes:
        parts: The coordinates in each array.
        coordinates: Number of canary coordinates.
        shapes: Of all arrays.
        dimension: Number of entries of all arrays that could hold a canary.
        weight: The entry of a coordinate's direction in each of its arrays.

    Example:
        >>> layout = Layout.uniform([(2, 2), (1,)], 5, key=Key(bytes(32)))
        >>> layout.array, layout.offset
        (array([0, 0, 0, 0, 1]), array([0, 1, 2, 3, 0]))
        >>> layout.values([np.ones((2, 2)), np.full(1, 7.0)])
        array([1., 1., 1., 1., 7.])
    """

    parts: tuple[ArrayCoordinates, ...]
    coordinates: int
    shapes: tuple[tuple[int, ...], ...]
    dimension: int
    weight: float = 1.0

    @classmethod
    def uniform(
        cls,
        shapes: Iterable[Sequence[int]],
        coordinates: int,
        *,
        key: Key,
        floats: Sequence[bool] | None = None,
    ) -> Self:
        """Return coordinates drawn uniformly among all entries of all arrays.

        Args:
            shapes: Of the arrays.
            coordinates: Number of coordinates.
            key: Of the run.
            floats: For each array whether it holds floating-point numbers; only these
                can hold a canary. All do if left out.
        """
        known = _known(shapes)
        dimension = sum(_sizes(known, floats))
        if not dimension:
            raise InvalidInputError("model must hold arrays of floats, and holds none")
        return cls.at(scattered(dimension, coordinates, key=key), known, floats)

    @classmethod
    def at(
        cls,
        numbers: NDArray[np.int64],
        shapes: Iterable[Sequence[int]],
        floats: Sequence[bool] | None = None,
    ) -> Self:
        """Return coordinates by number, counted through all arrays of floats."""
        known = _known(shapes)
        sizes = np.array(_sizes(known, floats), np.int64)
        ends = np.cumsum(sizes)
        owner = np.searchsorted(ends, numbers, side="right")
        offset = numbers - (ends - sizes)[owner]
        parts = tuple(
            ArrayCoordinates(
                array=int(i),
                which=np.flatnonzero(owner == i),
                offsets=offset[owner == i],
            )
            for i in np.unique(owner)
        )
        return cls(
            parts=parts,
            coordinates=len(numbers),
            shapes=known,
            dimension=int(sizes.sum()),
        )

    @classmethod
    def in_each(
        cls, shapes: Iterable[Sequence[int]], coordinates: int, *, key: Key
    ) -> Self:
        """Return coordinates with some in every array.

        A fault may be in one array only. A quarter of the coordinates is divided
        equally, the rest by size.
        """
        known = _known(shapes)
        sizes = _sizes(known)
        shares = _shares(sizes, coordinates)
        ends = np.cumsum(shares)
        parts = tuple(
            ArrayCoordinates(
                array=i,
                which=np.arange(ends[i] - shares[i], ends[i]),
                offsets=scattered(sizes[i], int(shares[i]), key=key, array=i),
            )
            for i in np.flatnonzero(shares).tolist()
        )
        return cls(
            parts=parts, coordinates=coordinates, shapes=known, dimension=sum(sizes)
        )

    @classmethod
    def spread(
        cls,
        shapes: Iterable[Sequence[int]],
        coordinates: int,
        *,
        over: int,
        key: Key,
    ) -> Self:
        """Return directions that each have an equal entry in several arrays.

        Args:
            shapes: Of the arrays; the first with enough room are taken.
            coordinates: Number of directions.
            over: In how many arrays a direction has a coordinate.
            key: Of the run.
        """
        known = _known(shapes)
        sizes = _sizes(known)
        roomy = [i for i, size in enumerate(sizes) if size >= coordinates][:over]
        if len(roomy) < over:
            raise InvalidInputError(
                f"spread={over} needs as many parameters of at least {coordinates} "
                f"entries each, but there are {len(roomy)}; use fewer canaries"
            )
        parts = tuple(
            ArrayCoordinates(
                array=i,
                which=np.arange(coordinates),
                offsets=scattered(sizes[i], coordinates, key=key, array=i),
            )
            for i in roomy
        )
        return cls(
            parts=parts,
            coordinates=coordinates,
            shapes=known,
            dimension=sum(sizes),
            weight=1 / sqrt(over),
        )

    @property
    def array(self) -> NDArray[np.int64]:
        """For each coordinate the number of its array; the last if it has several."""
        numbers = np.zeros(self.coordinates, np.int64)
        for part in self.parts:
            numbers[part.which] = part.array
        return numbers

    @property
    def offset(self) -> NDArray[np.int64]:
        """For each coordinate its index in that flattened array."""
        offsets = np.zeros(self.coordinates, np.int64)
        for part in self.parts:
            offsets[part.which] = part.offsets
        return offsets

    @property
    def groups(self) -> NDArray[np.int64]:
        """For each coordinate the number of its array; 0 if it lies in several."""
        if self.weight != 1:
            return np.zeros(self.coordinates, np.int64)
        return self.array

    def only(self, wanted: NDArray[np.bool_]) -> Self:
        """Return the layout of some coordinates, which keep their numbers."""
        return replace(self, parts=tuple(part.only(wanted) for part in self.parts))

    def held(self) -> NDArray[np.bool_]:
        """Return which coordinates this layout holds."""
        present = np.zeros(self.coordinates, bool)
        for part in self.parts:
            present[part.which] = True
        return present

    def values(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return the values of arrays at the coordinates."""
        shapes = tuple(each.shape for each in arrays)
        if shapes != self.shapes:
            raise InvalidRunError(
                f"the audit is of a model with arrays of shapes {self.shapes}, and "
                f"this one's are {shapes}; open the audit with the model that is "
                "trained"
            )
        values = np.zeros(self.coordinates)
        for part in self.parts:
            values[part.which] = arrays[part.array].reshape(-1)[part.offsets]
        return values


def scattered(
    dimension: int, coordinates: int, *, key: Key, array: int = 0
) -> NDArray[np.int64]:
    """Return distinct coordinates drawn from the key, in order.

    In order, because neighbours are read and written more quickly.

    Args:
        dimension: Number of coordinates to draw from.
        coordinates: Number to draw.
        key: Of the run. The draw has a stream of its own, independent of the coins.
        array: The number of the array, if each array has a draw of its own.

    Example:
        >>> scattered(10**6, 3, key=Key(bytes(32)))
        array([ 50845, 616239, 911943])
    """
    _validate.kind("key", key, Key)
    _validate.whole_number("dimension", dimension, least=1)
    _check_room(dimension, coordinates)
    rng = key.generator(_LABEL, array)
    return np.sort(rng.choice(dimension, coordinates, replace=False, shuffle=False))


def _check_room(dimension: int, coordinates: int) -> None:
    if coordinates > dimension:
        raise InvalidInputError(
            f"the canaries need {coordinates} coordinates, but there are only "
            f"{dimension}; use fewer canaries, or more of them per coordinate"
        )


def _known(shapes: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, shape)) for shape in shapes)


def _sizes(
    shapes: Sequence[tuple[int, ...]], floats: Sequence[bool] | None = None
) -> list[int]:
    """Return each array's number of coordinates; only floats can hold canaries."""
    given = [True] * len(shapes) if floats is None else floats
    return [
        prod(shape) if usable else 0
        for shape, usable in zip(shapes, given, strict=True)
    ]


def _shares(sizes: Sequence[int], coordinates: int) -> NDArray[np.int64]:
    """Return how many canary coordinates each array gets: a quarter in equal parts.

    The rest is divided by size, as far as there is room.

    Example:
        >>> _shares([1000, 10, 3], 100)
        array([88,  9,  3])
    """
    room = np.asarray(sizes, np.int64)
    _check_room(int(room.sum()), coordinates)
    shares = np.minimum(room, max(1, coordinates // (4 * len(room))))
    if shares.sum() > coordinates:  # more arrays than coordinates
        shares[np.argsort(room, kind="stable")[: len(room) - coordinates]] = 0
    left = coordinates - int(shares.sum())
    ends = np.cumsum(room - shares)
    shares += np.diff(
        np.floor(ends * (left / max(int(ends[-1]), 1))), prepend=0
    ).astype(int)
    shares[np.argmax(room - shares)] += coordinates - int(shares.sum())
    return shares
