"""Are records sampled as the accountant believes? Told by the batches of a run.

Under Poisson sampling each of n records joins each batch with chance q, independently.
So the number of records in T batches is binomial; a batch's size lies in the middle
half of its law as often as a coin falls on one side; no batch comes twice, and no
record twice in a batch. Batches of a fixed size, a rate other than the one accounted
for, a sampler that is seeded anew each epoch, and several views of each record all
break one of these. Each chance is exact or a bound.
"""

from hashlib import blake2b
from math import exp, log
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    Finding,
    Stage,
    fault,
    inspected,
    not_checked,
)

__all__ = ["BatchSampling"]

_SHARE: Final = FALSE_POSITIVE_RATE / 3  # of each kind of test
_BYTES: Final = 6  # of a batch's digest, so that JSON's numbers hold it


@final
class BatchSampling:
    """Counts the records of batches, and tests whether they are Poisson samples.

    Args:
        records: How many records there are.
    """

    def __init__(self, records: int) -> None:
        self._records = records
        self._sizes: list[int] = []
        self._digests: list[int] = []
        self._times = 0  # the most that a record was in one batch

    def add(self, batch: ArrayLike) -> None:
        """Take note of the numbers of the records in a batch."""
        chosen = np.sort(np.asarray(batch, np.int64))
        self._sizes.append(len(chosen))
        digest = blake2b(chosen.tobytes(), digest_size=_BYTES).digest()
        self._digests.append(int.from_bytes(digest, "big"))
        if len(chosen) and not np.all(np.diff(chosen)):
            self._times = max(self._times, int(np.bincount(chosen).max()))

    def saved(self) -> list[list[int]]:
        """Return sizes and digests of all batches so far, and a count."""
        return [self._sizes, self._digests, [self._times]]

    def restore(self, saved: list[list[int]]) -> None:
        """Go on from what ``saved`` returned."""
        self._sizes, self._digests, (self._times,) = (
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
