"""The canaries' coordinates in the statistics that users send.

pfl's statistics are tensors by name. A coordinate of the whole update is an entry of
one of them, identified by its name, so that the order in which a postprocessor returns
them does not matter.
"""

from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pfl.internal.ops.selector import get_default_framework_module
from pfl.stats import MappedVectorStatistics

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.training.layout import Layout

__all__ = ["StatisticsLayout", "arrays"]

Floats: TypeAlias = NDArray[np.float64]


def arrays(stats: MappedVectorStatistics) -> dict[str, NDArray[Any]]:
    """Return statistics as arrays by name, without copying if possible."""
    ops = get_default_framework_module()
    return {name: np.asarray(ops.to_numpy(part)) for name, part in stats.items()}


@final
class StatisticsLayout:
    """Reads and writes at the canaries' coordinates of an update.

    Args:
        parameters: Any statistics with the names and shapes of an update.
        coordinates: Number of coordinates that canaries need.
        key: Of the run, from which they are drawn.

    Attributes:
        names: Of the tensors.
        layout: The coordinates' positions in them.
    """

    def __init__(
        self, parameters: MappedVectorStatistics, coordinates: int, *, key: Key
    ) -> None:
        self._shapes = {name: part.shape for name, part in arrays(parameters).items()}
        self.names = list(self._shapes)
        self.layout = Layout.uniform(self._shapes.values(), coordinates, key=key)
        self._array, self._offset = self.layout.array, self.layout.offset

    def read(self, stats: MappedVectorStatistics) -> Floats:
        """Return the values of statistics at the coordinates."""
        parts = self._parts(stats)
        return self.layout.values([parts[name] for name in self.names])

    def put(self, stats: MappedVectorStatistics, place: int, value: float) -> None:
        """Set statistics to zero except at one coordinate; the weight is kept."""
        ops = get_default_framework_module()
        mine = self.names[self._array[place]]
        for name, part in self._parts(stats).items():
            update = np.zeros(part.shape, part.dtype)
            if name == mine:
                update.reshape(-1)[self._offset[place]] = value
            stats[name] = ops.to_tensor(update)

    def _parts(self, stats: MappedVectorStatistics) -> dict[str, NDArray[Any]]:
        if not isinstance(stats, MappedVectorStatistics):
            raise InvalidInputError(
                "users must send MappedVectorStatistics, such as a model's update, got "
                f"{type(stats)!r}"
            )
        parts = arrays(stats)
        if {name: part.shape for name, part in parts.items()} != self._shapes:
            raise InvalidRunError(
                "users send statistics of other names or shapes than the model that "
                "the audit was given; pass the model that is trained"
            )
        return parts
