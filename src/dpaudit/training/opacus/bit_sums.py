"""Sums of the bits of many tensors, to notice that one changed: in a few operations.

The bits are summed as integers, so that every value counts exactly, NaN too. Small
tensors are joined first, as an operation on each would take longer than the sums.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, final

import numpy as np
import torch

from dpaudit.training.opacus.transfers import Values, to_devices

__all__ = ["BitSums", "integers"]

_SMALL: Final = 1 << 14  # numbers of a tensor that is joined to others
_TYPES: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a flat tensor's memory as integers, as wide as its size allows.

    Equal values at other places in memory are equal integers. The result is a view if
    that is possible.

    Example:
        >>> integers(torch.tensor([0.0, 0.0, 1.0]).bfloat16())
        tensor([    0,     0, 16256], dtype=torch.int16)
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).reshape(-1)
    size, start = tensor.element_size(), int(tensor.storage_offset())
    own = tensor.view(_TYPES[size])
    if len(own) > 1 and own.stride(0) != 1:
        return own
    wide = next(n for n in (8, 4, 2, 1) if n == size or not size * len(own) % n)
    if size * start % wide:
        own = own.clone()
    return own.view(_TYPES[wide])


@final
class BitSums:
    """Sums flat tensors of integers, each by itself."""

    def __init__(self) -> None:
        # For each device: sizes of the tensors joined last, and where these end.
        self._ends: dict[torch.device, tuple[tuple[int, ...], torch.Tensor]] = {}

    def of(self, tensors: Sequence[torch.Tensor]) -> tuple[Values, list[int]]:
        """Return the sums where the tensors are, and each one's number in the list."""
        by_device: defaultdict[torch.device, list[int]] = defaultdict(list)
        for k, tensor in enumerate(tensors):
            by_device[tensor.device].append(k)
        sums: Values = []
        order: list[int] = []
        for device, which in by_device.items():
            small = [k for k in which if len(tensors[k]) <= _SMALL]
            large = [k for k in which if len(tensors[k]) > _SMALL]
            joined = self._joined(device, [tensors[k] for k in small])
            sums.append(torch.cat([joined, *(tensors[k].sum()[None] for k in large)]))
            order += small + large
        return sums, order

    def _joined(
        self, device: torch.device, tensors: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return the sums of small tensors, as differences of running ones."""
        whole = torch.cat([*tensors, torch.zeros(1, dtype=torch.int64, device=device)])
        sizes = tuple(map(len, tensors))
        known, ends = self._ends.get(device, (None, whole))
        if known != sizes:  # each end is also a beginning
            (ends,) = to_devices([(np.cumsum((0, *sizes)), device)])
            self._ends[device] = sizes, ends
        running = whole.cumsum(0) - whole  # of what comes before each
        return running.index_select(0, ends).diff()
