"""Where in a model's parameters a flat coordinate lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = ["Coordinates", "scatter_coordinates"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """The canaries that live in one parameter.

    Attributes:
        parameter: The parameter.
        canaries: Which canaries.
        offsets: For each, the place of its coordinate in the flattened parameter.
    """

    parameter: torch.nn.Parameter
    canaries: NDArray[np.int64]
    offsets: torch.Tensor


def scatter_coordinates(
    parameters: Sequence[torch.nn.Parameter], *, canaries: int, seed: int
) -> list[Coordinates]:
    """Give each canary a coordinate of its own, at random, from a public seed."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    dimension = int(ends[-1])
    if canaries > dimension:
        raise InvalidInputError(
            f"canaries={canaries} need a coordinate each, but the optimizer trains "
            f"only {dimension} parameters; use at most that many canaries"
        )
    rng = np.random.default_rng(seed)
    flat = rng.choice(dimension, canaries, replace=False, shuffle=False)
    owner = np.searchsorted(ends, flat, side="right")
    return [
        Coordinates(
            parameter=parameters[i],
            canaries=np.flatnonzero(owner == i),
            offsets=torch.from_numpy(
                flat[owner == i] - (ends[i] - parameters[i].numel())
            ).to(parameters[i].device),
        )
        for i in np.unique(owner)
    ]
