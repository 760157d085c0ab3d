"""Are records sampled as the accountant believes? Watched as the loader yields them.

Under Poisson sampling each of n records joins each batch with chance q, independently.
So the number of records in T batches is binomial; a batch's size lies in the middle
half of its law as often as a coin falls on one side; no batch comes twice, and no
record twice in a batch. Batches of a fixed size, a rate other than the one accounted
for, a sampler that is seeded anew each epoch, and several views of each record all
break one of these. Each chance is exact or a bound.

How many batches the training loop was given is counted where a loader's iterator hands
them over, since workers draw ahead. A loader that is built around the sampler is not
seen handing over: there a batch counts once it is drawn.
"""

import gc
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from math import exp, log
from typing import Any, Final, final
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    Finding,
    Stage,
    fault,
    inspected,
    not_checked,
)
from dpaudit.training.guard import Guard

__all__ = ["SampledBatches"]

_SHARE: Final = FALSE_POSITIVE_RATE / 3  # of each kind of test
_BYTES: Final = 6  # of a batch's digest, so that JSON's numbers hold it
_HOLDERS: Final = (DataLoader, Sampler, _BaseDataLoaderIter)
_NAMES: Final = ("batch_sampler", "sampler", "_index_sampler")  # of a sampler, in them


@final
class _Pass:
    """One pass over a sampler.

    A batch counts as handed over once it is drawn; if an iterator that is watched hands
    it over, then.

    Args:
        noted: Is told of each batch.
        batches: What the sampler draws.
    """

    def __init__(self, noted: "SampledBatches", batches: Iterator[Any]) -> None:
        self._noted, self._batches = noted, batches
        self._drawn, self._watched = 0, False

    def __iter__(self) -> "_Pass":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (a list of numbers, or a tensor)
        batch = next(self._batches)
        self._noted.note(batch)
        self._drawn += 1
        self._noted.handed += not self._watched
        return batch

    def hand(self, batches: int) -> None:
        """Take note of so many batches that were handed over, and watch from now on."""
        if not self._watched:
            self._noted.handed -= self._drawn
            self._watched = True
        self._noted.handed += batches


@final
class SampledBatches(Sampler[list[int]]):
    """Hands on a sampler's batches, and notes their sizes and what they were.

    Args:
        loader: Whose batches; until ``detach`` this stands in its sampler's place.
        guard: The audit's, if there is one.

    Attributes:
        handed: How many batches the training loop was given.
    """

    def __init__(self, loader: DataLoader[Any], guard: Guard | None = None) -> None:
        self._guard = guard or Guard()
        self._sampler: Any = loader.batch_sampler
        self._records = len(loader.dataset)  # type: ignore[arg-type]
        self._sizes: list[int] = []
        self._digests: list[int] = []
        self._times = 0  # the most that a record was in one batch
        self.handed = 0
        self._put(loader, "batch_sampler", self)
        self._held: list[tuple[Any, str]] = []  # no iterators, which are to end
        for holder, name in [(loader, "batch_sampler"), *_holders(self._sampler)]:
            self._put(holder, name, self)
            if name == "_index_sampler":
                self.watch(holder, holder._num_yielded)
                continue
            self._held.append((holder, name))
            if hasattr(holder, "_get_iterator"):
                holder._get_iterator = partial(_watched, self, holder)

    def detach(self) -> None:
        """Leave the loader as it was."""
        for holder, name in self._held:
            if getattr(holder, name) is self:
                self._put(holder, name, self._sampler)
            vars(holder).pop("_get_iterator", None)
        self._held = []

    def _put(self, holder: Any, name: str, sampler: Any) -> None:  # noqa: ANN401
        # A loader refuses to be given another sampler; this one yields the same.
        object.__setattr__(holder, name, sampler)

    def watch(self, iterator: Any, given: int = 0) -> Any:  # noqa: ANN401
        """Count what an iterator hands over; return it.

        Args:
            iterator: A loader's.
            given: What it has handed over before.
        """
        if not isinstance(iterator._sampler_iter, _Pass):  # begun before the audit
            iterator._sampler_iter = _Pass(self, iterator._sampler_iter)
        iterator._sampler_iter.hand(given)
        # By a weak reference, so that an iterator ends, and its workers, as it used to.
        next_data, itself = type(iterator)._next_data, ref(iterator)

        def handed() -> Any:  # noqa: ANN401
            there: Any = itself()
            data = next_data(there)
            # Lasting workers have a pass for each epoch.
            self._guard.run(lambda: there._sampler_iter.hand(1))
            return data

        iterator._next_data = handed
        return iterator

    @property
    def rate(self) -> float | None:
        """The rate at which the sampler draws now; None if it draws otherwise."""
        return getattr(self._sampler, "sample_rate", None)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return _Pass(self, iter(self._sampler))

    def note(self, batch: Any) -> None:  # noqa: ANN401 (a list of numbers, or a tensor)
        """Take note of a batch that was drawn."""
        self._guard.run(self._note, batch)

    def _note(self, batch: Any) -> None:  # noqa: ANN401
        chosen = np.sort(np.asarray(batch, np.int64))
        self._sizes.append(len(chosen))
        digest = blake2b(chosen.tobytes(), digest_size=_BYTES).digest()
        self._digests.append(int.from_bytes(digest, "big"))
        if len(chosen) and not np.all(np.diff(chosen)):
            self._times = max(self._times, int(np.bincount(chosen).max()))

    def saved(self) -> list[list[int]]:
        """Return sizes and digests of all batches so far, and two counts."""
        return [self._sizes, self._digests, [self._times, self.handed]]

    def restore(self, saved: list[list[int]]) -> None:
        """Go on from what ``saved`` returned."""
        self._sizes, self._digests, (self._times, self.handed) = (
            [int(k) for k in part] for part in saved
        )

    def found(self, rate: float) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """Return what was seen, and what is wrong with it.

        Args:
            rate: What the accountant was told.
        """
        if not self._sizes:
            return (not_checked(Stage.SAMPLING, "sampling.no_batch"),), ()
        sizes = np.array(self._sizes)
        check = inspected(
            Stage.SAMPLING,
            "sampling.batches",
            batches=len(sizes),
            rate=sizes.sum() / (self._records * len(sizes)),
            accounted=rate,
            spread=sizes.std(),
            expected_spread=self._spread(rate),
        )
        tests = (
            self._several_times(),
            None if self._times > 1 else self._rate(sizes, rate),
            self._sizes_vary(sizes, rate),
            self._twice(rate),
        )
        return (check,), tuple(found for found in tests if found is not None)

    def _spread(self, rate: float) -> float:
        return float(np.sqrt(self._records * rate * (1 - rate)))

    def _several_times(self) -> Finding | None:
        """Return that a record was several times in one batch, if it was."""
        if self._times < 2:
            return None
        return fault(Stage.SAMPLING, "sampling.several_times", times=self._times)

    def _rate(self, sizes: NDArray[np.int64], rate: float) -> Finding | None:
        """Return that records come too often, if they do; more seldom is no fault."""
        chances = self._records * len(sizes)
        p = float(stats.binom.sf(sizes.sum() - 1, chances, rate))
        if p > _SHARE:
            return None
        return fault(
            Stage.SAMPLING,
            "sampling.too_often",
            rate=sizes.sum() / chances,
            accounted=rate,
            cause="records",
            probability=3 * p,
        )

    def _sizes_vary(self, sizes: NDArray[np.int64], rate: float) -> Finding | None:
        """Return that sizes are not those of Poisson sampling, if they vary too little.

        The middle is where the law has half of its mass, and half as often as not.
        """
        low, high = stats.binom.ppf((0.25, 0.75), self._records, rate)
        inside = float(
            stats.binom.cdf(high, self._records, rate)
            - stats.binom.cdf(low - 1, self._records, rate)
        )
        hits = int(((sizes >= low) & (sizes <= high)).sum())
        p = float(stats.binom.sf(hits - 1, len(sizes), inside))
        if p > _SHARE:
            return None
        return fault(
            Stage.SAMPLING,
            "sampling.not_poisson",
            spread=sizes.std(),
            expected_spread=self._spread(rate),
            probability=3 * p,
        )

    def _twice(self, rate: float) -> Finding | None:
        """Return that a batch came twice, if chance does not explain it."""
        first: dict[int, int] = {}
        for step, (digest, size) in enumerate(
            zip(self._digests, self._sizes, strict=True)
        ):
            if size and digest in first:
                return self._repeated(first[digest], step, rate)
            first.setdefault(digest, step)
        return None

    def _repeated(self, first: int, second: int, rate: float) -> Finding | None:
        steps = len(self._sizes)
        alike = self._records * log(1 - 2 * rate * (1 - rate))
        p = min(1.0, steps * (steps - 1) / 2 * (exp(alike) + 256.0**-_BYTES))
        if p > _SHARE:
            return None
        return fault(
            Stage.SAMPLING,
            "sampling.batch_repeated",
            earlier=first + 1,
            later=second + 1,
            probability=3 * p,
        )


def _watched(batches: SampledBatches, loader: Any) -> Any:  # noqa: ANN401
    """Return a new iterator of a loader, watched; loaders that hold this pickle."""
    return batches.watch(type(loader)._get_iterator(loader))


def _holders(sampler: object) -> Iterator[tuple[Any, str]]:
    """Find what draws from a sampler: other loaders, and iterators that were begun."""
    for each in gc.get_objects():
        if issubclass(type(each), _HOLDERS):
            held = getattr(each, "__dict__", {})
            yield from ((each, name) for name in _NAMES if held.get(name) is sampler)
