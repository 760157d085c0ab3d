"""Runs the user's loop in a copy of the process, with short epochs or other records.

The loop is everything that trains from the first step to the last. Its epochs are made
short and its batches drawn in this process; it ends by itself, or after a number of
steps. This changes only the copy's own objects (``process_copy``), so nothing has to be
restored.

What a loop does besides its steps depends on the number of the epoch, or on the step
within an epoch. So the first epoch is as long as possible, to cover the phases of an
epoch, and all others have a few steps each, to cover as many epochs as possible.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dpaudit.training.opacus.records import CanaryDataset
from dpaudit.training.opacus.setup import Loader

__all__ = ["MOST_STEPS", "EnoughError", "LoopRunner", "Places", "Train"]

MOST_STEPS: Final = 30
_FIRST_EPOCH_STEPS: Final = 15  # reserved for the first epoch, if it has so many
_LATER_EPOCH_STEPS: Final = 3  # of a later epoch, at most
Train: TypeAlias = Callable[[], object]
Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # first parts, rest


class EnoughError(BaseException):
    """Raised within a loop to end it once it has made enough steps."""


@final
class LoopRunner:
    """Runs the loop, in a copy of the process.

    Args:
        train: The loop, from its first step to its last.
        loader: The loader that ``make_private`` returned.
        steps: Number of steps that the loop makes, if known.
    """

    def __init__(self, train: Train, loader: Loader, *, steps: int | None) -> None:
        self._train, self._loader = train, loader
        self._lengths = _lengths(len(loader), steps)

    @property
    def records(self) -> int:
        """How many records the data set holds, without canaries."""
        data: Any = self._loader.dataset
        return data.first if isinstance(data, CanaryDataset) else len(data)

    def run(
        self,
        places: Places | None,
        sizes: list[int],
        *,
        lengths: tuple[int, int] | None = None,
    ) -> bool:
        """Run the loop, and return whether it ended by itself.

        Args:
            places: Places of the records that replace others; None for the data as it
                is.
            sizes: A list to which the sizes of drawn batches are added.
            lengths: Maximum numbers of steps of the first epoch and of each later one;
                by default such that ``MOST_STEPS`` cover most.
        """
        _shorten(self._loader, *(lengths or self._lengths), sizes)
        if places is not None:
            _exchange(self._loader.dataset, places)
        try:
            self._train()
        except EnoughError:
            return False
        return True


def _exchange(data: Dataset[Any], places: Places) -> None:
    """Replace records by others."""
    first, rest = places
    if isinstance(data, CanaryDataset):
        return _exchange(data.dataset, (first[: data.first], rest[: data.first]))
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple):  # in place, as the loop may hold them too
        for number, tensor in enumerate(tensors):
            at = torch.from_numpy(rest if number else first) % len(tensor)
            tensor.copy_(tensor[at].clone())
        return None
    kind = type(data)
    get = kind.__getitem__

    def other(self: Any, index: Any) -> Any:  # noqa: ANN401
        if self is not data:
            return get(self, index)
        one, two = get(self, int(first[int(index)])), get(self, int(rest[int(index)]))
        if isinstance(one, tuple):
            return (one[0], *two[1:])
        if isinstance(one, dict) and "labels" in one:
            return {**one, "labels": two["labels"]}
        return one

    kind.__getitem__ = other  # type: ignore[method-assign]
    return None


def _lengths(epoch: int, steps: int | None) -> tuple[int, int]:
    """Return the numbers of steps of the first epoch and of each later one.

    Args:
        epoch: Number of steps of an epoch in the run.
        steps: Number of steps of the run, if known.

    Example:
        >>> _lengths(10, 100), _lengths(100, 300), _lengths(10, 10), _lengths(4, 200)
        ((10, 2), (24, 3), (10, 3), (1, 1))
    """
    epoch = max(epoch, 1)
    if steps is None:
        return min(epoch, _FIRST_EPOCH_STEPS), _LATER_EPOCH_STEPS
    epochs = max(-(-steps // epoch) - 1, 1)  # after the first
    later = min(
        max((MOST_STEPS - min(epoch, _FIRST_EPOCH_STEPS)) // epochs, 1),
        _LATER_EPOCH_STEPS,
    )
    return max(min(epoch, MOST_STEPS - epochs * later), 1), later


def _shorten(loader: Loader, first: int, later: int, sizes: list[int]) -> None:
    """Shorten epochs, and draw all batches in this process.

    Args:
        loader: The user's loader.
        first: Number of steps of an epoch, until that many batches were drawn.
        later: Number of steps of an epoch after that.
        sizes: A list to which the sizes of drawn batches are added.
    """
    sampler: Any = loader.batch_sampler
    watched = copy.copy(sampler)
    kind = type(sampler)

    def shortened(most: int) -> None:
        if hasattr(sampler, "steps"):
            watched.steps = min(sampler.steps, most)

    def batches(self: Any) -> Iterator[Any]:  # noqa: ANN401
        for batch in kind.__iter__(self):
            sizes.append(len(batch))
            yield batch
        if len(sizes) >= first:
            shortened(later)

    shortened(first)
    watched.__class__ = type(kind.__name__, (kind,), {"__iter__": batches})
    object.__setattr__(loader, "batch_sampler", watched)
    for name, value in (
        ("num_workers", 0),
        ("prefetch_factor", None),
        ("persistent_workers", False),
        ("_iterator", None),
    ):
        object.__setattr__(loader, name, value)
