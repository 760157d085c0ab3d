"""Moves what an audit reads and writes between device and host, in one copy each way.

On an accelerator every value that a program reads waits for the device, so a step of
the audit must read once, not once for each parameter. What it reads is collected on the
device (``Places``), crosses as one array of bytes (``ToHost``), and is used only then.
Where the device can copy while it computes, a step's array is used a step later.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor

from dpaudit.training.layout import ArrayCoordinates

__all__ = ["Places", "ToHost", "Values", "local", "to_devices"]

Values: TypeAlias = list[torch.Tensor]  # one tensor for each device
Receive: TypeAlias = Callable[..., object]
_Kind: TypeAlias = tuple[torch.dtype, int]  # of a flat tensor, and how many numbers


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, which is all of it if not sharded."""
    if isinstance(tensor, DTensor):
        held: torch.Tensor = tensor.to_local()
        return held
    return tensor


@final
class ToHost:
    """Collects tensors, and passes all of them to their receivers on the host."""

    def __init__(self) -> None:
        self._collected: list[tuple[list[Values], Receive]] = []
        self._under_way: Callable[[], object] | None = None

    def add(self, receive: Receive, *given: Values) -> None:
        """Collect tensors to be copied.

        Args:
            receive: Called with one array for each of ``given``, after the copy.
            given: Lists of tensors; an array is all numbers of a list, in order.
        """
        self._collected.append(([*given], receive))

    def start(self) -> None:
        """Copy what was collected; receivers of an earlier copy are called first."""
        self.settle()
        collected, self._collected = self._collected, []
        parts: defaultdict[torch.device, Values] = defaultdict(list)
        for given, _ in collected:
            for tensor in (tensor for each in given for tensor in each):
                parts[tensor.device].append(tensor)
        copies = {device: _Copy(device, values) for device, values in parts.items()}

        def receive() -> None:
            arrays = {device: copy.arrays() for device, copy in copies.items()}
            for given, receiver in collected:
                receiver(
                    *(
                        np.concatenate(
                            [next(arrays[t.device]) for t in each] or [_NONE]
                        )
                        for each in given
                    )
                )

        self._under_way = receive
        if not any(map(_overlaps, copies)):
            self.settle()

    def settle(self) -> None:
        """Wait for a copy that is under way, and call its receivers."""
        receive, self._under_way = self._under_way, None
        if receive is not None:
            receive()


_NONE: NDArray[Any] = np.zeros(0)


def _overlaps(device: torch.device) -> bool:
    """Return whether a device copies to the host while it computes."""
    return device.type == "cuda"


@final
class _Copy:
    """One copy of tensors of a device to the host, as bytes."""

    def __init__(self, device: torch.device, tensors: Sequence[torch.Tensor]) -> None:
        self._kinds = [(each.dtype, each.numel()) for each in tensors]
        flat = [tensors[k].reshape(-1).contiguous() for k in _order(self._kinds)]
        whole = torch.cat([_as(torch.uint8, each) for each in flat])
        self._made: Any = None
        if device.type == "cuda":
            self._bytes = torch.empty(len(whole), dtype=torch.uint8, pin_memory=True)
            self._bytes.copy_(whole, non_blocking=True)
            self._made = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._made.record(torch.cuda.current_stream(device))
        else:
            self._bytes = whole.cpu()

    def arrays(self) -> Iterator[NDArray[Any]]:
        """Yield the tensors' numbers: integers as they are, others as float64."""
        if self._made is not None:
            self._made.synchronize()
        for numbers in _unpacked(self._bytes, self._kinds):
            wide = numbers.double() if numbers.is_floating_point() else numbers
            yield wide.numpy()


def to_devices(
    given: Sequence[tuple[NDArray[Any], torch.device]],
) -> list[torch.Tensor]:
    """Return arrays on devices, with one copy to each device."""
    found: dict[int, torch.Tensor] = {}
    by_device: defaultdict[torch.device, list[int]] = defaultdict(list)
    for k, (_, device) in enumerate(given):
        by_device[device].append(k)
    for device, which in by_device.items():
        arrays = [_for(device, np.ascontiguousarray(given[k][0])) for k in which]
        kinds = [(torch.from_numpy(each).dtype, len(each)) for each in arrays]
        packed = np.concatenate([arrays[k].view(np.uint8) for k in _order(kinds)])
        sent = torch.from_numpy(packed)
        if device.type == "cuda":
            sent = sent.pin_memory()
        whole = sent.to(device, non_blocking=True)
        found |= zip(which, _unpacked(whole, kinds), strict=True)
    return [found[k] for k in range(len(given))]


def _order(kinds: Sequence[_Kind]) -> list[int]:
    """Return an order of decreasing size of numbers, in which bytes are aligned."""
    return sorted(range(len(kinds)), key=lambda k: -kinds[k][0].itemsize)


def _unpacked(data: torch.Tensor, kinds: Sequence[_Kind]) -> list[torch.Tensor]:
    """Return the tensors of which ``data`` holds the bytes, in ``_order``."""
    order = _order(kinds)
    sizes = [kinds[k][0].itemsize * kinds[k][1] for k in order]
    parts = dict(zip(order, torch.split(data, sizes), strict=True))
    return [_as(dtype, parts[k]) for k, (dtype, _) in enumerate(kinds)]


def _as(dtype: torch.dtype, data: torch.Tensor) -> torch.Tensor:
    """Return the memory of numbers as those of another type.

    Torch cannot view a tensor without numbers as another type.
    """
    return data.view(dtype) if len(data) else data.to(dtype)


def _for(device: torch.device, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of a type that the device has."""
    if device.type == "mps" and array.dtype == np.float64:
        return array.astype(np.float32)
    return array


@final
class Places:
    """Some numbered coordinates of parameters, on the parameters' devices.

    Args:
        parameters: All trained parameters.
        parts: The coordinates in each that has some.
        which: Which coordinates to take; they are numbered from 0 in this order.
        weight: A factor for what is read and written: the entry of a coordinate in each
            parameter if it has several.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        parts: Sequence[ArrayCoordinates],
        which: NDArray[np.bool_],
        weight: float = 1.0,
    ) -> None:
        self._count, self._weight = int(which.sum()), weight
        number = np.cumsum(which) - 1
        by_device: dict[torch.device, list[ArrayCoordinates]] = {}
        for part in (part.only(which) for part in parts):
            device = local(parameters[part.array]).device
            by_device.setdefault(device, []).append(part)
        ordered = [part for each in by_device.values() for part in each]
        self._numbers = np.concatenate(
            [number[part.which] for part in ordered] or [_NONE.astype(np.int64)]
        )
        self._sizes = {
            device: [len(part.which) for part in each]
            for device, each in by_device.items()
        }
        doubles = any(parameters[p.array].dtype == torch.float64 for p in ordered)
        self._type = np.float64 if doubles else np.float32  # of what is written
        offsets = to_devices(
            [(part.offsets, local(parameters[part.array]).device) for part in ordered]
        )
        self._parts = [
            (parameters[part.array], at)
            for part, at in zip(ordered, offsets, strict=True)
        ]

    def zeros(self) -> Values:
        """Return zeros at the coordinates, in double precision where there is one."""
        return [
            torch.zeros(sum(sizes), dtype=_widest(device), device=device)
            for device, sizes in self._sizes.items()
        ]

    @torch.no_grad()
    def read(self, tensor: Callable[[Any], torch.Tensor]) -> Values:
        """Return the values at the coordinates in the tensor of each parameter."""
        return self.gather(lambda parameter, at: torch.take(tensor(parameter), at))

    def gather(self, values: Callable[[Any, torch.Tensor], torch.Tensor]) -> Values:
        """Return values at the coordinates, given each parameter's offsets."""
        found: dict[torch.device, Values] = {device: [] for device in self._sizes}
        for parameter, at in self._parts:
            found[at.device].append(values(parameter, at))
        return [torch.cat(each) for each in found.values()]

    def add(
        self, tensor: Callable[[Any], torch.Tensor], amounts: NDArray[np.floating]
    ) -> None:
        """Add an amount at each coordinate to the flat tensor of each parameter."""
        ordered = (self._weight * amounts)[self._numbers].astype(self._type)
        ends = np.cumsum([sum(sizes) for sizes in self._sizes.values()])
        sent = to_devices(
            [*zip(np.split(ordered, ends[:-1]), self._sizes, strict=True)]
        )
        values = chain.from_iterable(map(torch.split, sent, self._sizes.values()))
        for (parameter, offsets), value in zip(self._parts, values, strict=True):
            into = tensor(parameter)
            into.index_add_(0, offsets, value.to(into.dtype))

    def on_host(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return an array with a number for each coordinate, of what was read."""
        values = self._weight * values
        return np.bincount(self._numbers, values, self._count).astype(np.float64)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
