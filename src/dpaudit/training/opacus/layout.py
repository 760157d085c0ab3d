"""Where in a model's parameters canaries live, and what they look like.

A canary is a gradient along one direction: a single coordinate, or one coordinate in
each of several parameters, for faults that treat parameters apart. Directions do not
overlap, so what a noisy sum shows along one of them is one canary coordinate's.

A sharded parameter (FSDP) is held by rows, some on each rank; a rank then holds the
places of its own rows only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.training.any_loop import scattered

__all__ = [
    "Canary",
    "CanaryPlaces",
    "Place",
    "local",
    "place_canaries",
]

_GOLDEN: Final = (sqrt(5) - 1) / 2  # its multiples fill the unit interval evenly


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """What an included canary's gradient is.

    Attributes:
        norm: Its norm before clipping, over the clipping norm. Above 1 it is for the
            clipping to cut, which only canaries that are records run through.
        spread: In how many parameters it has a coordinate, alike in all.
        least: The smallest norm, if canaries have several: from it to ``norm``, in
            equal ratios. All have ``norm`` if left out.

    Example:
        >>> Canary(norm=8.0, least=2.0).norms(4).round(1)
        array([2. , 4.7, 2.8, 6.5])
    """

    norm: float = 1.0
    spread: int = 1
    least: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("norm", self.norm)
        _validate.whole_number("spread", self.spread, least=1)
        if self.least is not None and not 0 < self.least <= self.norm:
            raise InvalidInputError(
                f"least must be above 0 and at most norm={self.norm:g}, got "
                f"least={self.least!r}"
            )

    def norms(self, coordinates: int) -> NDArray[np.float64]:
        """Return the norm at each coordinate; neighbours differ, so layers do not."""
        least = self.norm if self.least is None else self.least
        share = np.arange(coordinates) * _GOLDEN % 1
        return np.asarray(least * (self.norm / least) ** share, np.float64)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The canary coordinates that have a part in one parameter.

    Attributes:
        parameter: The parameter.
        which: Numbers of the canary coordinates.
        offsets: For each, where it is in the flattened parameter, or in the rows of it
            that this rank holds.
    """

    parameter: torch.nn.Parameter
    which: NDArray[np.int64]
    offsets: torch.Tensor

    def offset_of(
        self, coordinates: int
    ) -> tuple[torch.nn.Parameter, NDArray[np.int64]]:
        """Return the parameter, and where each coordinate is in it, -1 if nowhere."""
        found = np.full(coordinates, -1)
        found[self.which] = self.offsets.cpu().numpy()
        return self.parameter, found

    def offsets_at(
        self, coordinates: int
    ) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
        """Return what finds the offsets of coordinates that are given in order."""
        flat = self.offsets.cpu().numpy()
        if len(flat) and np.all(np.diff(self.which) == 1):
            first, last = self.which[0], self.which[-1]

            def in_a_row(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
                low, high = np.searchsorted(wanted, (first, last + 1))
                return np.asarray(flat[wanted[low:high] - first])

            return in_a_row
        _, offset_of = self.offset_of(coordinates)

        def anywhere(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
            found = offset_of[wanted]
            return np.asarray(found[found >= 0])

        return anywhere

    def only(self, wanted: NDArray[np.bool_]) -> "Place":
        """Return the part of it that is wanted, by number of the coordinate."""
        kept = wanted[self.which]
        return Place(
            parameter=self.parameter,
            which=self.which[kept],
            offsets=self.offsets[torch.from_numpy(kept).to(self.offsets.device)],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlaces:
    """Where all canary coordinates of a model are.

    Attributes:
        places: By parameter.
        weight: What a coordinate's direction is in each of its parameters.
        coordinates: How many canary coordinates there are, on all ranks together.
        groups: For each coordinate the number of its parameter, 0 if it has several.
    """

    places: tuple[Place, ...]
    weight: float
    coordinates: int
    groups: NDArray[np.int64]

    def only(self, wanted: NDArray[np.bool_]) -> "CanaryPlaces":
        """Return the places of some coordinates, which keep their numbers."""
        return CanaryPlaces(
            places=tuple(place.only(wanted) for place in self.places),
            weight=self.weight,
            coordinates=self.coordinates,
            groups=self.groups,
        )

    def said(self, kinds: Sequence[str] = ()) -> str:
        """Return in words how canaries are spread over parameters.

        Args:
            kinds: Of each place's parameter, if they are told apart.
        """
        counts = [len(place.which) for place in self.places]
        if kinds:
            return f"canaries in {', '.join(_by_kind(kinds, counts))}"
        least, most = min(counts, default=0), max(counts, default=0)
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        return f"canaries in {len(counts)} parameters, at {each} coordinates of each"

    def held(self) -> NDArray[np.bool_]:
        """Return which coordinates are there, on this rank."""
        found = np.zeros(self.coordinates, bool)
        for place in self.places:
            found[place.which] = True
        return found


def _by_kind(kinds: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Yield how many parameters and coordinates of each kind have canaries.

    Example:
        >>> print(*_by_kind(["heads", "layers", "heads"], [900, 20, 300]), sep="; ")
        heads (2 parameters, 1,200 coordinates); layers (1 parameter, 20 coordinates)
    """
    for kind in dict.fromkeys(kinds):
        own = [count for each, count in zip(kinds, counts, strict=True) if each == kind]
        s = "" if len(own) == 1 else "s"
        yield f"{kind} ({len(own)} parameter{s}, {sum(own):,} coordinates)"


def place_canaries(
    parameters: Sequence[torch.nn.Parameter],
    *,
    coordinates: int,
    spread: int,
    seed: int,
) -> CanaryPlaces:
    """Give each canary coordinate a direction of its own, from a public seed.

    Every parameter has some, as a fault may be in one of them only.
    """
    if spread == 1:
        shares = _shares([parameter.numel() for parameter in parameters], coordinates)
        owner = np.repeat(np.arange(len(shares)), shares)
        places = [
            _place(
                parameters[i],
                np.flatnonzero(owner == i),
                scattered(parameters[i].numel(), int(shares[i]), seed=seed + i),
            )
            for i in np.unique(owner)
        ]
    else:
        owner = np.zeros(coordinates, np.int64)
        places = [
            _place(
                parameter,
                np.arange(coordinates),
                scattered(parameter.numel(), coordinates, seed=seed + i),
            )
            for i, parameter in enumerate(_roomy(parameters, coordinates, spread))
        ]
    return CanaryPlaces(
        places=tuple(places),
        weight=1 / sqrt(spread),
        coordinates=coordinates,
        groups=owner,
    )


def _shares(sizes: Sequence[int], coordinates: int) -> NDArray[np.int64]:
    """Return how many coordinates each parameter gets: a quarter in equal parts.

    The rest is by size, as far as there is room.

    Example:
        >>> _shares([1000, 10, 3], 100)
        array([88,  9,  3])
    """
    room = np.asarray(sizes, np.int64)
    if coordinates > room.sum():
        raise InvalidInputError(
            f"the canaries need {coordinates} coordinates, but there are only "
            f"{room.sum()}; use fewer canaries, or more of them per coordinate"
        )
    found = np.minimum(room, max(1, coordinates // (4 * len(room))))
    if found.sum() > coordinates:  # more parameters than coordinates
        found[np.argsort(room, kind="stable")[: len(room) - coordinates]] = 0
    left = coordinates - int(found.sum())
    ends = np.cumsum(room - found)
    found += np.diff(np.floor(ends * (left / max(int(ends[-1]), 1))), prepend=0).astype(
        int
    )
    found[np.argmax(room - found)] += coordinates - int(found.sum())
    return found


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor, whether it is sharded or not."""
    if isinstance(tensor, DTensor):
        held: torch.Tensor = tensor.to_local()
        return held
    return tensor


def _roomy(
    parameters: Sequence[torch.nn.Parameter], coordinates: int, spread: int
) -> list[torch.nn.Parameter]:
    """Return the first parameters that have room for all canary coordinates."""
    found = [p for p in parameters if p.numel() >= coordinates][:spread]
    if len(found) < spread:
        raise InvalidInputError(
            f"spread={spread} needs as many parameters of at least {coordinates} "
            f"entries each, but there are {len(found)}; use fewer canaries"
        )
    if any(isinstance(p, DTensor) for p in found):
        raise InvalidInputError(
            "canaries spread over several parameters cannot be put into sharded ones, "
            "as no rank holds all of their coordinates; use spread=1"
        )
    return found


def _place(
    parameter: torch.nn.Parameter,
    which: NDArray[np.int64],
    flat: NDArray[np.int64],
) -> Place:
    device = local(parameter).device
    if isinstance(parameter, DTensor):
        start, stop = _rows_held(parameter)
        here = (flat >= start) & (flat < stop)
        which, flat = which[here], flat[here] - start
    return Place(
        parameter=parameter, which=which, offsets=torch.from_numpy(flat).to(device)
    )


def _rows_held(parameter: DTensor) -> tuple[int, int]:
    """Return which flat coordinates of a parameter this rank holds."""
    mesh, held = parameter.device_mesh, local(parameter)
    rows = parameter.shape[0] if parameter.dim() else 1
    size = parameter.numel() // max(rows, 1)
    each = -(-rows // mesh.size())  # as torch.chunk divides them
    start = min(mesh.get_local_rank() * each, rows) * size
    by_rows = all(placement.is_shard(0) for placement in parameter.placements)
    expected = (min((mesh.get_local_rank() + 1) * each, rows) * size) - start
    if mesh.ndim != 1 or not by_rows or held.numel() != expected:
        raise InvalidInputError(
            "canaries can be put into parameters that are sharded by rows over one "
            f"dimension of ranks, as fully_shard does; got {parameter.placements} on "
            f"{mesh}"
        )
    return start, start + expected
