"""Are records sampled as the accountant believes? Watched as the loader yields them.

Under Poisson sampling each of n records joins each batch with chance q, independently.
So the number of records in T batches is binomial; a batch's size lies in the middle
half of its law as often as a coin falls on one side; no batch comes twice, and no
record twice in a batch. Batches of a fixed size, a rate other than the one accounted
for, a sampler that is seeded anew each epoch, and several views of each record all
break one of these. Each chance is exact or a bound.
"""

from collections.abc import Iterator
from hashlib import blake2b
from math import exp, log
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch.utils.data import DataLoader, Sampler

from dpaudit.game.ledger import BUDGET, Fault, How, Look, Road

__all__ = ["SampledBatches"]

_SHARE: Final = BUDGET / 3  # of each kind of test
_BYTES: Final = 6  # of a batch's digest, so that JSON's numbers hold it


@final
class SampledBatches(Sampler[list[int]]):
    """Hands on a sampler's batches, and notes their sizes and what they were.

    Args:
        loader: Whose batches; until ``detach`` this stands in its sampler's place.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader: Any = loader
        self._sampler: Any = loader.batch_sampler
        self._records = len(loader.dataset)  # type: ignore[arg-type]
        self._sizes: list[int] = []
        self._digests: list[int] = []
        self._times = 0  # the most that a record was in one batch
        self._put(self)

    def detach(self) -> None:
        """Leave the loader as it was."""
        if self._loader.batch_sampler is self:
            self._put(self._sampler)

    def _put(self, sampler: Any) -> None:  # noqa: ANN401 (any batch sampler)
        # A loader refuses to be given another sampler; this one yields the same.
        object.__setattr__(self._loader, "batch_sampler", sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._sampler:
            chosen = np.sort(np.asarray(batch, np.int64))
            self._sizes.append(len(chosen))
            digest = blake2b(chosen.tobytes(), digest_size=_BYTES).digest()
            self._digests.append(int.from_bytes(digest, "big"))
            if len(chosen) and not np.all(np.diff(chosen)):
                self._times = max(self._times, int(np.bincount(chosen).max()))
            yield batch

    def saved(self) -> list[list[int]]:
        """Return sizes and digests of all batches so far, and what came in one."""
        return [self._sizes, self._digests, [self._times]]

    def restore(self, saved: list[list[int]]) -> None:
        """Go on from what ``saved`` returned."""
        self._sizes, self._digests, (self._times,) = (
            [int(k) for k in part] for part in saved
        )

    def found(self, rate: float) -> tuple[tuple[Look, ...], tuple[Fault, ...]]:
        """Return what was seen, and what is wrong with it.

        Args:
            rate: What the accountant was told.
        """
        if not self._sizes:
            said = "no batch came from the loader that the audit was given"
            look = Look(road=Road.SAMPLING, how=How.NOT_LOOKED_AT, said=said)
            return (look,), ()
        sizes = np.array(self._sizes)
        seen = sizes.sum() / (self._records * len(sizes))
        look = Look(
            road=Road.SAMPLING,
            how=How.PROBED,
            said=f"{len(sizes)} batches as the loader yields them: records come at "
            f"{seen:.4g}, where {rate:.4g} is accounted for; sizes vary by "
            f"{sizes.std():.3g}, where {self._spread(rate):.3g} is expected",
        )
        tests = (
            self._several_times(),
            None if self._times > 1 else self._rate(sizes, rate),
            self._sizes_vary(sizes, rate),
            self._twice(rate),
        )
        return (look,), tuple(fault for fault in tests if fault is not None)

    def _spread(self, rate: float) -> float:
        return float(np.sqrt(self._records * rate * (1 - rate)))

    def _several_times(self) -> Fault | None:
        """Return that a record was several times in one batch, if it was."""
        if self._times < 2:
            return None
        return Fault(
            road=Road.SAMPLING,
            said="a record is several times in one batch, and clipped each time",
            measured=f"{self._times} times",
            claimed="at most once",
            cause="several views of each record as rows of their own (augmentations), "
            "or a sampler that draws with replacement",
        )

    def _rate(self, sizes: NDArray[np.int64], rate: float) -> Fault | None:
        """Return that records come too often, if they do; more seldom is no fault."""
        chances = self._records * len(sizes)
        p = float(stats.binom.sf(sizes.sum() - 1, chances, rate))
        if p > _SHARE:
            return None
        return Fault(
            road=Road.SAMPLING,
            said="records are sampled more often than is accounted for",
            measured=f"a rate of {sizes.sum() / chances:.4g}",
            claimed=f"{rate:.4g}",
            cause="an accountant that was told another batch size or number of records "
            "than the loader has",
            chance=3 * p,
        )

    def _sizes_vary(self, sizes: NDArray[np.int64], rate: float) -> Fault | None:
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
        return Fault(
            road=Road.SAMPLING,
            said="batches are not Poisson samples",
            measured=f"sizes that vary by {sizes.std():.3g}",
            claimed=f"{self._spread(rate):.3g}",
            cause="a loader that shuffles, with batches of a fixed size",
            chance=3 * p,
        )

    def _twice(self, rate: float) -> Fault | None:
        """Return that a batch came twice, if chance does not explain it."""
        first: dict[int, int] = {}
        for step, (digest, size) in enumerate(
            zip(self._digests, self._sizes, strict=True)
        ):
            if size and digest in first:
                return self._repeated(first[digest], step, rate)
            first.setdefault(digest, step)
        return None

    def _repeated(self, first: int, second: int, rate: float) -> Fault | None:
        steps = len(self._sizes)
        alike = self._records * log(1 - 2 * rate * (1 - rate))
        p = min(1.0, steps * (steps - 1) / 2 * (exp(alike) + 256.0**-_BYTES))
        if p > _SHARE:
            return None
        return Fault(
            road=Road.SAMPLING,
            said=f"batch {second + 1} holds the same records as batch {first + 1}",
            measured="the same records",
            claimed="a new sample in every step",
            cause="a sampler that is seeded anew",
            chance=3 * p,
        )
