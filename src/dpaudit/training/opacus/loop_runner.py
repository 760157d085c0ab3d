"""Runs the user's loop in a copy of the process: short epochs, other records.

The loop is whatever trains from the first step to the last. Its epochs are made short
and its batches drawn in this process; it ends by itself, or after so many steps. All of
that is done to the copy's own objects (``process_copy``), so nothing is put back.

What a loop does besides its steps goes by the number of the epoch, or by the step of an
epoch. So the first epoch is as long as there is room for, to see the phases of an
epoch, and all others have a few steps each, to see as many epochs as can be.
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
_FIRST: Final = 15  # steps that the first epoch has if it has them, whatever the rest
_LATER: Final = 3  # steps of a later epoch, at most
Train: TypeAlias = Callable[[], object]
Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # first parts, rest


class EnoughError(BaseException):
    """Ends a loop from within; to be raised once it has made enough steps."""


@final
class LoopRunner:
    """Runs the loop, in a copy of the process.

    Args:
        train: The loop, from its first step to its last.
        loader: As ``make_private`` returned it.
        steps: How many steps it makes, if that is known.
    """

    def __init__(self, train: Train, loader: Loader, *, steps: int | None) -> None:
        self._train, self._loader = train, loader
        self._lengths = _lengths(len(loader), steps)

    @property
    def records(self) -> int:
        """How many records the data set holds, canaries left out."""
        data: Any = self._loader.dataset
        return data.first if isinstance(data, CanaryDataset) else len(data)

    def run(
        self,
        places: Places | None,
        sizes: list[int],
        *,
        lengths: tuple[int, int] | None = None,
    ) -> bool:
        """Return whether the loop came to its end by itself.

        Args:
            places: Of records that are put in place of others; None for the data as
                they are.
            sizes: Of the batches that are drawn are added to it.
            lengths: How many steps the first epoch has at most, and each later one; if
                left out, such that ``MOST_STEPS`` show most.
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
    """Put records in others' places."""
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
    """Return how many steps the first epoch has, and how many each later one.

    Args:
        epoch: How many it has in the run.
        steps: How many steps the run has, if that is known.

    Example:
        >>> _lengths(10, 100), _lengths(100, 300), _lengths(10, 10), _lengths(4, 200)
        ((10, 2), (24, 3), (10, 3), (1, 1))
    """
    epoch = max(epoch, 1)
    if steps is None:
        return min(epoch, _FIRST), _LATER
    epochs = max(-(-steps // epoch) - 1, 1)  # after the first
    later = min(max((MOST_STEPS - min(epoch, _FIRST)) // epochs, 1), _LATER)
    return max(min(epoch, MOST_STEPS - epochs * later), 1), later


def _shorten(loader: Loader, first: int, later: int, sizes: list[int]) -> None:
    """Let epochs be short, and everything happen in this process.

    Args:
        loader: The user's.
        first: How many steps an epoch has, until so many batches were drawn.
        later: How many it has then.
        sizes: Of the batches that are drawn are added to it.
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
