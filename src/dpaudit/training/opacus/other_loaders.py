"""Tests the batches of other loaders, where training steps use those.

A program may draw Poisson samples with its own ``DataLoader``, over the data set of the
given loader or a ``Subset`` of it. Then its batches must be tested, and no others:
loaders also hand over public records, validation sets, and the training set to measure
a loss on it.

The batches that all loaders draw and hand over between two private steps are recorded.
A step used a loader's batches if it clips as many rows as they hold records, and none
of the rows is zero: all pending batches, which may be parts of one; or the first, if
others were drawn ahead; or the last, if the program skipped others. If exactly one
loader has such batches, they are recorded as a sample of its data set. If none or
several have, their data sets are doubtful from then on, whatever came before. So a data
set that is not doubtful in the end had a batch recorded at every step before which one
was handed over, and the whole sequence is tested: which steps count does not depend on
what is drawn.

Rows and records may agree by chance. The probability of that is bounded
(``size_agreement``), and a data set is only tested once it is below a share of the
false-positive rate of batch sampling. Batches that are handed over while gradients are
disabled belong to no step.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import log
from typing import Any, Final, TypeAlias, final
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, Subset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpaudit.dpsgd.likelihood import State
from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    SAMPLING_SHARE,
    Finding,
    Stage,
    inspected,
)
from dpaudit.training.batch_sampling import BatchSampling
from dpaudit.training.guard import Guard
from dpaudit.training.opacus.records import CanaryDataset
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.setup import Loader
from dpaudit.training.opacus.size_agreement import log_likeliest_size

__all__ = ["OtherLoaders"]

_MAX_DATA_SETS: Final = 8
# For each data set, of the false-positive rate of batch sampling: its test, and the
# probability that its sizes agree by chance.
_TEST_SHARE: Final = 0.4 / _MAX_DATA_SETS
_MATCH_SHARE: Final = 0.1 / _MAX_DATA_SETS
_STATE: Final = "other_batches"
_ITERATOR: Final[Any] = _BaseDataLoaderIter

Numbers: TypeAlias = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A data set whose records are some of the given one.

    Attributes:
        key: The same for all data sets with the same records in the same order.
        records: How many records there are.
        numbers: The record number of each of its items; None if items are records.
    """

    key: str
    records: int
    numbers: Numbers | None

    def of(self, batch: Any) -> Numbers | None:  # noqa: ANN401 (any index of torch's)
        """Return the records of a batch of items; None if they are not numbers."""
        items = np.atleast_1d(np.asarray(batch))
        if items.ndim != 1 or (items.size and items.dtype.kind not in "iu"):
            return None
        count = self.records if self.numbers is None else len(self.numbers)
        if items.size and not 0 <= items.min() <= items.max() < count:
            return None
        items = items.astype(np.int64)
        return items if self.numbers is None else self.numbers[items]


@final
@dataclass(slots=True, kw_only=True)
class _Drawn:
    """The batches that one iterator has drawn and not yet handed over.

    Attributes:
        view: The loader's data set; None if its batches are irrelevant.
        passing: The sampler's iterator that it draws from, a new one in each epoch.
        batches: The batches in the order in which they were drawn.
        late: Whether earlier draws were missed, or batches may be out of order.
    """

    view: _View | None
    passing: object
    batches: deque[Numbers | None] = field(default_factory=deque)
    late: bool = False


@final
@dataclass(slots=True, kw_only=True)
class _Waiting:
    """Pending batches: a loader handed them over, and no step has used them.

    Attributes:
        sampler: The loader's sampler, kept so that no other gets the same id.
        view: The loader's data set.
        batches: The record numbers of each batch; None for one with unknown records.
        used: Whether steps have used earlier ones.
    """

    sampler: object
    view: _View
    batches: deque[Numbers | None] = field(default_factory=deque)
    used: bool = False

    def holding(self, rows: int) -> tuple[int, int]:
        """Return how many batches together hold ``rows`` records, and the ways tried.

        The number is 0 if none match and -1 for the last batch alone. The ways are all
        batches, the first, and the last.
        """
        sizes = [-1 if each is None else len(each) for each in self.batches]
        if -1 in sizes:
            return 0, 1
        ways = {len(sizes): sum(sizes), 1: sizes[0], -1: sizes[-1]}
        if len(sizes) == 1:
            del ways[-1]
        for count, size in ways.items():
            if rows in (size, max(size, 1)):  # one row may replace an empty batch
                return count, len(ways)
        return 0, len(ways)

    def take(self, count: int) -> Numbers:
        """Return the records of the first batches, or of the last one alone."""
        if count < 0:
            taken = [self.batches[-1]]
            self.batches.clear()
        else:
            taken = [self.batches.popleft() for _ in range(count)]
        self.used = True
        return np.concatenate([each for each in taken if each is not None])


@final
@dataclass(slots=True, kw_only=True)
class _DataSet:
    """The samples recorded for one data set.

    Attributes:
        sampling: Counts their records.
        steps: How many steps used them.
        needed: In how many of these there was no batch of the given loader.
        log_tried: The log of the number of ways in which sizes could agree.
        rates: The rates that their samplers state; contains None if one states none.
    """

    sampling: BatchSampling
    steps: int = 0
    needed: int = 0
    log_tried: float = 0.0
    rates: set[float | None] = field(default_factory=set)

    @property
    def steady(self) -> bool | None:
        """Whether all are samples at one rate; None if unknown."""
        return None if None in self.rates else len(self.rates) <= 1

    def certain(self, rate: float) -> bool:
        """Return whether the sizes agree too often to be by chance."""
        one = log_likeliest_size(self.sampling.total, self.steps, rate=rate)
        log_p = self.steps * one + self.log_tried
        return log_p <= log(FALSE_POSITIVE_RATE * SAMPLING_SHARE * _MATCH_SHARE)


@final
class OtherLoaders:
    """Watches all loaders but the given one, and tests the batches that steps used.

    Args:
        loader: The given loader.
        given: Records its batches.
        guard: The audit's guard.
        watching: Whether a batch handed over now may be for a training step.

    Attributes:
        between: Called just before a batch is drawn that may be for a step.
    """

    def __init__(
        self,
        loader: Loader,
        given: SampledBatches,
        guard: Guard,
        watching: Callable[[], bool],
    ) -> None:
        data = loader.dataset
        inside = data.dataset if isinstance(data, CanaryDataset) else data
        self._data: dict[int, tuple[str, Any]] = {
            id(inside): ("inside", inside),
            id(data): ("given", data),
        }
        self._given, self._guard, self._watching = given, guard, watching
        self._drawn: WeakKeyDictionary[Any, _Drawn] = WeakKeyDictionary()
        self._waiting: dict[int, _Waiting] = {}
        self._sets: dict[str, _DataSet] = {}
        self._doubtful: set[str] = set()
        self.between: Callable[[], object] = _nothing

    def attach(self) -> None:
        """Begin to watch all loaders."""
        _WATCHED.add(self)

    def detach(self) -> None:
        """Stop watching."""
        _WATCHED.discard(self)

    @property
    def waiting(self) -> bool:
        """Whether batches were handed over that the next step may use."""
        return any(each.batches for each in self._waiting.values())

    def draw(self, iterator: Any, draw: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Record and return the batch that an iterator draws from its sampler."""
        self._guard.run(self._before, iterator)
        before = self._given.sampling.batches
        batch = draw()
        ours = self._given.sampling.batches > before
        self._guard.run(self._note, iterator, batch, ours=ours)
        return batch

    def _before(self, iterator: Any) -> None:  # noqa: ANN401
        drawn = self._drawn.get(iterator)
        if drawn is None or drawn.passing is not iterator._sampler_iter:
            drawn = self._drawn[iterator] = self._begun(iterator)
        if drawn.view is not None and not self._given.handed and self._serving():
            self.between()  # otherwise called when the given loader draws

    def _note(self, iterator: Any, batch: Any, *, ours: bool) -> None:  # noqa: ANN401
        drawn = self._drawn[iterator]
        if ours:  # built around the given loader's sampler, and counted there
            drawn.view = None
        if drawn.view is not None:
            drawn.batches.append(None if drawn.late else drawn.view.of(batch))

    def _begun(self, iterator: Any) -> _Drawn:  # noqa: ANN401
        ordered = getattr(iterator, "_in_order", True)
        return _Drawn(
            view=self._view(iterator._dataset),
            passing=iterator._sampler_iter,
            late=not ordered or getattr(iterator, "_send_idx", 0) > 0,
        )

    def _serving(self) -> bool:
        """Return whether a batch drawn or handed over now may be for a step."""
        return self._watching() and torch.is_grad_enabled()

    def hand(self, iterator: Any) -> None:  # noqa: ANN401
        """Record a batch that an iterator handed over."""
        self._guard.run(self._hand, iterator)

    def _hand(self, iterator: Any) -> None:  # noqa: ANN401
        drawn = self._drawn.get(iterator)
        if drawn is None or drawn.view is None:
            return
        batch = drawn.batches.popleft() if drawn.batches else None
        if self._serving() and drawn.view.key not in self._doubtful:
            sampler = iterator._index_sampler
            waiting = _Waiting(sampler=sampler, view=drawn.view)
            self._waiting.setdefault(id(sampler), waiting).batches.append(batch)

    def _view(self, data: Any) -> _View | None:  # noqa: ANN401 (any data set)
        """Return the records of the given data set that another holds, or None."""
        chosen: list[Numbers] = []
        while id(data) not in self._data and isinstance(data, Subset):
            chosen.append(np.asarray(data.indices, np.int64))
            data = data.dataset
        if id(data) not in self._data:
            return None
        name, whole = self._data[id(data)]
        if not chosen:
            return _View(key=name, records=len(whole), numbers=None)
        numbers = chosen.pop()
        while chosen:
            numbers = numbers[chosen.pop()]
        if not len(numbers):
            return None
        held, which = np.unique(numbers, return_inverse=True)
        digest = blake2b(numbers.tobytes(), digest_size=16).hexdigest()
        return _View(key=f"{name} {digest}", records=len(held), numbers=which)

    def use(self, rows: int | None) -> str | None:
        """Return the data set whose batches a private step used; None if unknown.

        Args:
            rows: How many rows it clipped; None if some of them were zero.
        """
        waiting = {place: each for place, each in self._waiting.items() if each.batches}
        if not waiting:
            return None
        counts, tried = {}, 0
        for place, each in waiting.items():
            count, ways = each.holding(-1 if rows is None else rows)
            tried += ways
            if count:
                counts[place] = count
        known = [place for place in counts if waiting[place].used]
        if len(counts) > 1 and len(known) == 1:
            counts = {known[0]: counts[known[0]]}
        if len(counts) != 1:
            self._doubt({waiting[place].view.key for place in counts or waiting})
            return None
        ((place, count),) = counts.items()
        used = waiting[place]
        self._waiting = {place: used}
        return used.view.key if self._add(used, count, log(tried)) else None

    def _add(self, used: _Waiting, count: int, log_tried: float) -> bool:
        """Record batches that a step used; return False if there are too many sets."""
        key, batch = used.view.key, used.take(count)
        if key not in self._sets:
            if len(self._sets) == _MAX_DATA_SETS:
                return False
            self._sets[key] = _DataSet(sampling=BatchSampling(used.view.records))
        data_set = self._sets[key]
        data_set.sampling.add(batch)
        data_set.steps += 1
        data_set.log_tried += log_tried
        data_set.rates.add(_declared(used.sampler))
        return True

    def _doubt(self, keys: Iterable[str]) -> None:
        """Exclude some data sets from the test, whatever was recorded for them."""
        self._doubtful |= {*keys}
        self._waiting = {
            place: each
            for place, each in self._waiting.items()
            if each.view.key not in self._doubtful and each.used
        }
        for each in self._waiting.values():
            each.batches.clear()

    def need(self, key: str) -> None:
        """Count a step that had no batch of the given loader, only of a data set."""
        self._sets[key].needed += 1

    def _tested(self, rate: float) -> list[_DataSet]:
        """Return the data sets that steps needed and that can be tested."""
        return [
            each
            for key, each in self._sets.items()
            if each.needed and key not in self._doubtful and each.certain(rate)
        ]

    @property
    def needed(self) -> int:
        """How many steps had only a batch of these, and none of the given loader."""
        return sum(each.needed for each in self._sets.values())

    def unknown(self, rate: float) -> int:
        """Return for how many of these steps the batch used is uncertain."""
        return self.needed - sum(each.needed for each in self._tested(rate))

    def found(self, rate: float) -> Iterator[Finding]:
        """Return checks of the batches that steps needed, and the faults found.

        Args:
            rate: The largest sampling rate given to the accountant.
        """
        tested = self._tested(rate)
        for each in tested:
            checks, faults = each.sampling.found(
                rate, steady=each.steady, share=_TEST_SHARE
            )
            yield from (*checks, *faults)
        if tested:
            needed = sum(each.needed for each in tested)
            yield inspected(Stage.SAMPLING, "sampling.own_loader", needed=needed)

    def saved(self) -> tuple[dict[str, Any], State]:
        """Return the state as JSON values and as arrays."""
        plain, arrays = {}, dict[str, NDArray[np.generic]]()
        for number, (key, each) in enumerate(self._sets.items()):
            plain[key] = {
                "records": each.sampling.records,
                "steps": each.steps,
                "needed": each.needed,
                "log_tried": each.log_tried,
                "rates": [-1.0 if rate is None else rate for rate in each.rates],
            }
            arrays |= each.sampling.saved(f"{_STATE}_{number}")
        return {"sets": plain, "doubtful": sorted(self._doubtful)}, arrays

    def restore(self, plain: Mapping[str, Any], state: State) -> None:
        """Continue from the state that ``saved`` returned."""
        self._doubtful = {str(key) for key in plain["doubtful"]}
        self._sets = {}
        for number, (key, each) in enumerate(plain["sets"].items()):
            data_set = self._sets[key] = _DataSet(
                sampling=BatchSampling(int(each["records"])),
                steps=int(each["steps"]),
                needed=int(each["needed"]),
                log_tried=float(each["log_tried"]),
                rates={None if rate < 0 else float(rate) for rate in each["rates"]},
            )
            data_set.sampling.restore(state, f"{_STATE}_{number}")


def _nothing() -> None:
    """Do nothing."""


def _declared(sampler: Any) -> float | None:  # noqa: ANN401 (any batch sampler)
    """Return the rate that a sampler states; None if it states none.

    A fixed batch size counts as a rate of its own.
    """
    for _ in range(3):  # a sampler of parts of batches wraps the one of batches
        rate = getattr(sampler, "sample_rate", None)
        if isinstance(rate, float | int):
            return float(rate)
        if type(sampler) is BatchSampler:
            return float(sampler.batch_size)
        sampler = getattr(sampler, "sampler", None)
    return None


@final
class _Watched:
    """Patches the iterators of all loaders as long as some audit watches them."""

    def __init__(self) -> None:
        self._watchers: WeakSet[OtherLoaders] = WeakSet()
        self._was: dict[str, Any] = {}
        self._ours: dict[str, Any] = {}

    def add(self, watcher: OtherLoaders) -> None:
        if not self._ours:
            self._was = {
                name: getattr(_ITERATOR, name) for name in ("_next_index", "__next__")
            }
            self._ours = {
                "_next_index": self._drawing(self._was["_next_index"]),
                "__next__": self._handing(self._was["__next__"]),
            }
            for name, method in self._ours.items():
                setattr(_ITERATOR, name, method)
        self._watchers.add(watcher)

    def discard(self, watcher: OtherLoaders) -> None:
        self._watchers.discard(watcher)
        # A wrapper that was added later still calls ours, which then do nothing.
        untouched = all(
            getattr(_ITERATOR, name) is method for name, method in self._ours.items()
        )
        if self._ours and not self._watchers and untouched:
            for name, method in self._was.items():
                setattr(_ITERATOR, name, method)
            self._ours = {}

    def _drawing(self, draw: Any) -> Any:  # noqa: ANN401
        def drawing(iterator: Any) -> Any:  # noqa: ANN401
            drawn: Callable[[], Any] = partial(draw, iterator)
            for each in self._watchers:
                drawn = partial(each.draw, iterator, drawn)
            return drawn()

        return drawing

    def _handing(self, hand: Any) -> Any:  # noqa: ANN401
        def handing(iterator: Any) -> Any:  # noqa: ANN401
            data = hand(iterator)
            for each in self._watchers:
                each.hand(iterator)
            return data

        return handing


_WATCHED: Final = _Watched()
