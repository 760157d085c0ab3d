"""Records the batches that a loader draws, and those that it hands over.

The batches that the training loop received are counted where a loader's iterator hands
them over, since workers draw ahead. With another loader built around the sampler this
cannot be observed: there a batch counts once it is drawn.
"""

import gc
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, final
from weakref import ref

import numpy as np
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpaudit.dpsgd.likelihood import State, saved_counts
from dpaudit.training.batch_sampling import BatchSampling
from dpaudit.training.guard import Guard

__all__ = ["SampledBatches"]

_HOLDERS: Final = (DataLoader, Sampler, _BaseDataLoaderIter)
_STATE: Final = "handed"
_NAMES: Final = ("batch_sampler", "sampler", "_index_sampler")  # attributes of holders


@final
class _Pass:
    """One pass over a sampler.

    A batch counts as handed over once it is drawn, or, with a watched iterator, once
    that hands it over.

    Args:
        noted: Records each batch.
        batches: The batches that the sampler draws.
    """

    def __init__(self, noted: "SampledBatches", batches: Iterator[Any]) -> None:
        self._noted, self._batches = noted, batches
        self._drawn, self._watched = deque[int](), False

    def __iter__(self) -> "_Pass":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (a list of numbers, or a tensor)
        self._noted.between()  # as a loop asks for a batch between two steps
        batch = next(self._batches)
        self._noted.note(batch)
        # Opacus may replace an empty batch by one row.
        self._drawn.append(max(len(batch), 1))
        if not self._watched:
            self._noted.hand(self._drawn[-1])
        return batch

    def hand(self, batches: int) -> None:
        """Count batches that were handed over, and count only these from now on."""
        if not self._watched:
            self._noted.take_back(len(self._drawn))
            self._watched = True
        for _ in range(batches):
            # The size of a batch drawn before the audit is unknown.
            most = self._noted.sampling.records
            self._noted.hand(self._drawn.popleft() if self._drawn else most or 0)


@final
class SampledBatches(Sampler[list[int]]):
    """Yields a sampler's batches, and records them.

    Args:
        loader: The loader whose sampler this replaces until ``detach``.
        guard: The audit's guard, if there is one.

    Attributes:
        sampling: Counts their records.
        sizes: Sizes of the batches that the training loop received, in order.
        between: Called just before each batch is drawn.
    """

    def __init__(self, loader: DataLoader[Any], guard: Guard | None = None) -> None:
        self._guard = guard or Guard()
        self._sampler: Any = loader.batch_sampler
        self.sampling = BatchSampling(len(loader.dataset))  # type: ignore[arg-type]
        self.sizes, self._asked = array("q"), 0
        self.between: Callable[[], object] = _nothing
        self._put(loader, "batch_sampler", self)
        self._held: list[tuple[Any, str]] = []  # without iterators: they must end
        for holder, name in [(loader, "batch_sampler"), *_holders(self._sampler)]:
            self._put(holder, name, self)
            if name == "_index_sampler":
                self.watch(holder, holder._num_yielded)
                continue
            self._held.append((holder, name))
            if hasattr(holder, "_get_iterator"):
                holder._get_iterator = partial(_watched, self, holder)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "between": _nothing}  # the callback refers to the run

    def detach(self) -> None:
        """Restore the loader."""
        for holder, name in self._held:
            if getattr(holder, name) is self:
                self._put(holder, name, self._sampler)
            vars(holder).pop("_get_iterator", None)
        self._held = []

    def _put(self, holder: Any, name: str, sampler: Any) -> None:  # noqa: ANN401
        # A loader refuses to be given another sampler; this one yields the same.
        object.__setattr__(holder, name, sampler)

    def watch(self, iterator: Any, given: int = 0) -> Any:  # noqa: ANN401
        """Count the batches that an iterator hands over, and return the iterator.

        Args:
            iterator: An iterator of the loader.
            given: Number of batches that it has handed over before.
        """
        if not isinstance(iterator._sampler_iter, _Pass):  # begun before the audit
            iterator._sampler_iter = _Pass(self, iterator._sampler_iter)
        iterator._sampler_iter.hand(given)
        # By a weak reference, so that the iterator and its workers still end.
        next_data, itself = type(iterator)._next_data, ref(iterator)

        def handed() -> Any:  # noqa: ANN401
            alive: Any = itself()
            data = next_data(alive)
            # With persistent workers there is a new pass in each epoch.
            self._guard.run(lambda: alive._sampler_iter.hand(1))
            return data

        iterator._next_data = handed
        return iterator

    @property
    def rate(self) -> float | None:
        """The rate at which the sampler draws now; None if it draws otherwise."""
        return getattr(self._sampler, "sample_rate", None)

    @property
    def shares(self) -> bool:
        """Whether the sampler draws this rank's share of one data set of all ranks."""
        return isinstance(self._sampler, DistributedUniformWithReplacementSampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return _Pass(self, iter(self._sampler))

    @property
    def handed(self) -> int:
        """How many batches the training loop received."""
        return len(self.sizes)

    def hand(self, records: int) -> None:
        """Record the number of records of a batch that was handed over."""
        self.sizes.append(records)

    def take_back(self, batches: int) -> None:
        """Remove the last batches, which were drawn and not yet handed over."""
        del self.sizes[len(self.sizes) - batches :]

    def fresh(self) -> "array[int]":
        """Return the sizes of batches handed over since the last call."""
        fresh, self._asked = self.sizes[self._asked :], len(self.sizes)
        return fresh

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        return {_STATE: np.array(self.sizes, np.int64), **self.sampling.saved()}

    def restore(self, state: State) -> None:
        """Continue from the state that ``saved`` returned."""
        self.sampling.restore(state)
        count = np.size(state.get(_STATE, ()))
        self.sizes = array("q", saved_counts(state, _STATE, count))
        self._asked = len(self.sizes)

    def note(self, batch: Any) -> None:  # noqa: ANN401 (a list of numbers, or a tensor)
        """Record a batch that was drawn."""
        self._guard.run(self.sampling.add, batch)


def _nothing() -> None:
    """Do nothing."""


def _watched(batches: SampledBatches, loader: Any) -> Any:  # noqa: ANN401
    """Return a new watched iterator; a module function, so that loaders pickle."""
    return batches.watch(type(loader)._get_iterator(loader))


def _holders(sampler: object) -> Iterator[tuple[Any, str]]:
    """Return objects that draw from a sampler: loaders, samplers, started iterators."""
    for each in gc.get_objects():
        if issubclass(type(each), _HOLDERS):
            held = getattr(each, "__dict__", {})
            yield from ((each, name) for name in _NAMES if held.get(name) is sampler)
