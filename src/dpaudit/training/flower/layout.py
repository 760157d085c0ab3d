"""Where canaries sit in a model: coordinates of all its float arrays, end to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.training.any_loop import scattered

__all__ = ["Arrays", "Layout"]

Arrays: TypeAlias = Sequence[NDArray[Any]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Coordinates of canaries in the arrays of a model.

    Attributes:
        array: For each coordinate the number of its array, in rising order.
        place: Where it is in that array, flattened.
        shapes: Of all arrays.
        dimension: How many numbers the float arrays have.

    Example:
        >>> layout = Layout.of([np.zeros((2, 2)), np.zeros(1)], 5, seed=0)
        >>> layout.array, layout.place
        (array([0, 0, 0, 0, 1]), array([0, 1, 2, 3, 0]))
        >>> layout.values([np.ones((2, 2)), np.full(1, 7.0)])
        array([1., 1., 1., 1., 7.])
    """

    array: NDArray[np.int64]
    place: NDArray[np.int64]
    shapes: tuple[tuple[int, ...], ...]
    dimension: int

    @classmethod
    def of(cls, arrays: Arrays, coordinates: int, *, seed: int) -> Self:
        """Return so many coordinates, at random from a public seed.

        Args:
            arrays: The model; whole numbers, such as counts of batches, are passed by.
            coordinates: How many.
            seed: Public.
        """
        floats = [
            number
            for number, each in enumerate(arrays)
            if np.issubdtype(each.dtype, np.floating)
        ]
        sizes = np.array([arrays[number].size for number in floats], np.int64)
        if not sizes.sum():
            raise InvalidInputError("model must hold arrays of floats, and holds none")
        ends = np.cumsum(sizes)
        found = scattered(int(ends[-1]), coordinates, seed=seed)
        which = np.searchsorted(ends, found, side="right")
        return cls(
            array=np.asarray(floats, np.int64)[which],
            place=found - (ends - sizes)[which],
            shapes=tuple(each.shape for each in arrays),
            dimension=int(ends[-1]),
        )

    def values(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return what a model holds at the coordinates."""
        shapes = tuple(each.shape for each in arrays)
        if shapes != self.shapes:
            raise VoidAuditError(
                f"the audit is of a model with arrays of shapes {self.shapes}, and "
                f"this one's are {shapes}; open the audit with the model that is "
                "trained"
            )
        found = np.empty(len(self.array))
        for number in np.unique(self.array):
            here = self.array == number
            found[here] = arrays[number].reshape(-1)[self.place[here]]
        return found
