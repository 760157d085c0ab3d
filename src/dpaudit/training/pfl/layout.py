"""Where canaries live in the statistics that users send.

pfl's statistics are tensors by name. A coordinate of the whole update is a place in one
of them, found by its name, so that the order in which a postprocessor puts them back
does not matter.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pfl.internal.ops.selector import get_default_framework_module
from pfl.stats import MappedVectorStatistics

from dpaudit.errors import InvalidInputError, VoidAuditError

__all__ = ["Layout", "arrays"]

Floats: TypeAlias = NDArray[np.float64]


def arrays(stats: MappedVectorStatistics) -> dict[str, NDArray[Any]]:
    """Return statistics as arrays by name; not copies, where that can be helped."""
    ops = get_default_framework_module()
    return {name: np.asarray(ops.to_numpy(part)) for name, part in stats.items()}


@final
class Layout:
    """The canaries' places in an update.

    Args:
        parameters: Any statistics with the names and shapes of an update.
        coordinates: Of the canaries, in order, in all tensors one after the other.

    Attributes:
        names: Of the tensors.
        leaf: For each coordinate the number of its tensor.
    """

    def __init__(
        self, parameters: MappedVectorStatistics, coordinates: NDArray[np.int64]
    ) -> None:
        self._shapes = {name: part.shape for name, part in arrays(parameters).items()}
        self.names = list(self._shapes)
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes.values()])
        self.leaf = np.searchsorted(ends, coordinates, side="right")
        starts = np.concatenate([[0], ends[:-1]])
        self._offset = coordinates - starts[self.leaf]
        self._where = {
            name: np.flatnonzero(self.leaf == i) for i, name in enumerate(self.names)
        }

    def read(self, stats: MappedVectorStatistics) -> Floats:
        """Return what statistics hold at the coordinates."""
        found = np.zeros(len(self.leaf))
        for name, part in self._parts(stats):
            where = self._where[name]
            found[where] = part.reshape(-1)[self._offset[where]]
        return found

    def put(self, stats: MappedVectorStatistics, place: int, value: float) -> None:
        """Make statistics zero but for one of the coordinates; weights are kept."""
        ops, mine = get_default_framework_module(), self.names[self.leaf[place]]
        for name, part in self._parts(stats):
            update = np.zeros(part.shape, part.dtype)
            if name == mine:
                update.reshape(-1)[self._offset[place]] = value
            stats[name] = ops.to_tensor(update)

    def _parts(
        self, stats: MappedVectorStatistics
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        if not isinstance(stats, MappedVectorStatistics):
            raise InvalidInputError(
                "users must send MappedVectorStatistics, such as a model's update, got "
                f"{type(stats)!r}"
            )
        found = arrays(stats)
        if {name: part.shape for name, part in found.items()} != self._shapes:
            raise VoidAuditError(
                "users send statistics of other names or shapes than the model that "
                "the audit was given; pass the model that is trained"
            )
        yield from found.items()
