"""Where canaries sit in the arrays of a model, whichever library holds these arrays.

A canary is a gradient along a direction of its own: one coordinate of one array, or one
coordinate in each of several arrays, for faults that treat arrays apart. Directions do
not overlap, so what a noisy sum shows along one of them is one canary coordinate's.
Only shapes are read here, and coordinates follow from them and the key of the run: a
program that knew them could be private there and nowhere else. Once the key is revealed
anybody can compute them again. How a value is added or read there is up to whoever
knows the library.
"""

from collections.abc import Callable, Iterable, Sequence
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
        which: Numbers of the coordinates, in rising order.
        offsets: For each, where it is in the flattened array.
    """

    array: int
    which: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(repr=False)  # secret until the run is over

    def offset_of(self, coordinates: int) -> NDArray[np.int64]:
        """Return where each of all coordinates is in the array, -1 if nowhere."""
        found = np.full(coordinates, -1)
        found[self.which] = self.offsets
        return found

    def offsets_at(
        self, coordinates: int
    ) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
        """Return what finds the offsets of coordinates that are given in order."""
        flat = self.offsets
        if len(flat) and np.all(np.diff(self.which) == 1):
            first, last = self.which[0], self.which[-1]

            def in_a_row(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
                low, high = np.searchsorted(wanted, (first, last + 1))
                return np.asarray(flat[wanted[low:high] - first])

            return in_a_row
        offset_of = self.offset_of(coordinates)

        def anywhere(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
            found = offset_of[wanted]
            return np.asarray(found[found >= 0])

        return anywhere

    def only(self, wanted: NDArray[np.bool_]) -> Self:
        """Return the part of it that is wanted, by number of the coordinate."""
        kept = wanted[self.which]
        return replace(self, which=self.which[kept], offsets=self.offsets[kept])


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """The coordinates of all canaries.

    Attributes:
        parts: What lies in which array.
        coordinates: How many canary coordinates there are.
        shapes: Of all arrays.
        dimension: How many numbers of all arrays could hold a canary.
        weight: What a coordinate's direction is in each of its arrays.

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
        """Return coordinates at random, among all numbers of all arrays.

        Args:
            shapes: Of the arrays.
            coordinates: How many.
            key: Of the run.
            floats: For each array whether it holds floating-point numbers; no others
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
        """Return coordinates of which every array has some.

        A fault may be in one array only. A quarter of the coordinates are divided
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
        """Return directions that each lie in several arrays, alike in all of them.

        Args:
            shapes: Of the arrays; the first that have room are taken.
            coordinates: How many.
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
        """For each coordinate the number of its array, the last of them if several."""
        found = np.zeros(self.coordinates, np.int64)
        for part in self.parts:
            found[part.which] = part.array
        return found

    @property
    def offset(self) -> NDArray[np.int64]:
        """For each coordinate its place in the flattened array, likewise."""
        found = np.zeros(self.coordinates, np.int64)
        for part in self.parts:
            found[part.which] = part.offsets
        return found

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
        """Return which coordinates are there."""
        found = np.zeros(self.coordinates, bool)
        for part in self.parts:
            found[part.which] = True
        return found

    def values(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return what arrays hold at the coordinates."""
        shapes = tuple(each.shape for each in arrays)
        if shapes != self.shapes:
            raise InvalidRunError(
                f"the audit is of a model with arrays of shapes {self.shapes}, and "
                f"this one's are {shapes}; open the audit with the model that is "
                "trained"
            )
        found = np.zeros(self.coordinates)
        for part in self.parts:
            found[part.which] = arrays[part.array].reshape(-1)[part.offsets]
        return found


def scattered(
    dimension: int, coordinates: int, *, key: Key, array: int = 0
) -> NDArray[np.int64]:
    """Return different coordinates of so many, drawn from the key, in order.

    In order, as neighbours are read and written more quickly.

    Args:
        dimension: How many there are.
        coordinates: How many of them.
        key: Of the run. The draw has a stream of its own, so that it says nothing of
            the coins.
        array: The number of the array, where each array has a draw of its own.

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
    """Return how many coordinates each array has; only floats can hold canaries."""
    given = [True] * len(shapes) if floats is None else floats
    return [
        prod(shape) if usable else 0
        for shape, usable in zip(shapes, given, strict=True)
    ]


def _shares(sizes: Sequence[int], coordinates: int) -> NDArray[np.int64]:
    """Return how many coordinates each array gets: a quarter in equal parts.

    The rest is by size, as far as there is room.

    Example:
        >>> _shares([1000, 10, 3], 100)
        array([88,  9,  3])
    """
    room = np.asarray(sizes, np.int64)
    _check_room(int(room.sum()), coordinates)
    found = np.minimum(room, max(1, coordinates // (4 * len(room))))
    if found.sum() > coordinates:  # more arrays than coordinates
        found[np.argsort(room, kind="stable")[: len(room) - coordinates]] = 0
    left = coordinates - int(found.sum())
    ends = np.cumsum(room - found)
    found += np.diff(np.floor(ends * (left / max(int(ends[-1]), 1))), prepend=0).astype(
        int
    )
    found[np.argmax(room - found)] += coordinates - int(found.sum())
    return found
