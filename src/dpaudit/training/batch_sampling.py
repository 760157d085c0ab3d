"""Are batches Poisson samples at the rate accounted for? Record counts tell.

An accountant that amplifies by sampling assumes that each of n records is in each of T
batches independently of all else, with a probability of at most q. A batch that holds a
record twice breaks that whatever the probability. The rest shows in eight tests:

- *Rate*: all T batches together hold at most Bin(nT, q) records.
- *Repeated*: two batches of b records or more are equal with a probability of at most
  q^b for each pair of batches.
- *Favoured*: at most Bin(n, P[Bin(T, q) >= k]) records are in k batches or more; at
  five thresholds k, so that both many and few favoured records show.
- *Sticky*: T/2 disjoint pairs of consecutive batches have at most Bin(nT/2, q^2)
  records in common.
- *Sizes*: given their sum, sizes are those of independent Bin(n, r), whatever the rate
  r. For any score, ``P[sum of scores >= v | sum of sizes]`` is at most
  ``exp(-a v) E[exp(a score)]^T / P[sum of sizes]``, for every a. The score is the
  squared distance from the mean; a > 0 bounds sizes that vary too much (records that
  come in groups), a < 0 those that vary too little (batches of a fixed size).
- *In turns*: whatever r, at most Bin(n, max over r of P[k <= Bin(T, r) <= k + 1])
  records are in k or k + 1 batches. Under shuffling all are, with k = qT rounded down.
- *Apart*: given their sizes, what consecutive batches have in common is independent and
  hypergeometric, so a sum of independent Bernoulli variables, of which there are as
  many as records in the smaller batch; by Hoeffding (1956) its lower tail is at most
  that of a binomial with as many trials in all and the same mean.

The first four hold for rates below q, unlike in records and steps, so that less than
was accounted for is no fault; where the accounted rate varies, q is the largest.
*Sizes* and *in turns* are for one rate, and not made if it varies. Each test has an
equal part of sampling's share of ``FALSE_POSITIVE_RATE``. After a repeated batch, or
too high a rate, no fault is made of what that brings about.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, exp, floor, inf, log, sqrt
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import State, saved_counts
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    SAMPLING_SHARE,
    Finding,
    Stage,
    fault,
    inspected,
    not_checked,
)
from dpaudit.stats.binomial import log_mass, log_tails

__all__ = ["BatchSampling"]

_Sizes: TypeAlias = NDArray[np.int64]

_PARTS: Final = 8 / SAMPLING_SHARE  # of the rate, of which each test has one
_TAILS: Final = (0.2, 0.05, 0.01, 0.001)  # shares of records; and one record
_FAR: Final = 10.0  # standard deviations from which on sizes count alike
_TINY: Final = 1e-300  # 0 is for faults that no chance is involved in
_STATE: Final = "batch_sampling"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """A test: the log of its p-value, and the fault that it would be."""

    log_p: float
    code: str
    numbers: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        return self.log_p <= log(FALSE_POSITIVE_RATE / _PARTS)

    def fault(self) -> Finding:
        p = min(1.0, max(exp(self.log_p) * _PARTS, _TINY))
        return fault(Stage.SAMPLING, self.code, probability=p, **self.numbers)


@final
class BatchSampling:
    """Counts the records of batches, and tests whether they are Poisson samples.

    It keeps four bytes for each record, twenty-four for each batch, and the last batch.

    Args:
        records: How many records there are, numbered from 0.

    Attributes:
        records: As given.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> sampling = BatchSampling(1000)
        >>> for batch in rng.permutation(1000).reshape(10, 100):
        ...     sampling.add(batch)
        >>> [fault.code for fault in sampling.found(0.1)[1]]
        ['sampling.not_poisson']
    """

    def __init__(self, records: int) -> None:
        _validate.whole_number("records", records, least=1)
        self.records = int(records)
        self._counts = np.zeros(self.records, np.uint32)  # of batches, by record
        self._sizes, self._digests = array("q"), array("Q")
        self._common = array("q")  # records in common with the batch before
        self._last = np.zeros(0, np.int64)
        self._times = 0  # the most that a record was in one batch

    def add(self, batch: ArrayLike) -> None:
        """Take note of the numbers of the records in a batch."""
        rows = np.asarray(batch)
        if rows.size and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
            raise InvalidInputError(
                "a batch is given as the numbers of its records, in one dimension, got "
                f"{rows.dtype} of shape {rows.shape}"
            )
        chosen, times = np.unique(rows.astype(np.int64), return_counts=True)
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < self.records:
            raise InvalidInputError(
                f"a batch holds record number {chosen[0 if chosen[0] < 0 else -1]}, "
                f"and records={self.records} are numbered from 0; pass how many there "
                "are"
            )
        if self._sizes:
            common = np.intersect1d(self._last, chosen, assume_unique=True)
            self._common.append(len(common))
        self._counts[chosen] += np.uint32(1)
        self._sizes.append(len(chosen))
        digest = blake2b(chosen.tobytes(), digest_size=self._digests.itemsize)
        self._digests.append(int.from_bytes(digest.digest(), "big"))
        self._last, self._times = chosen, max(self._times, int(times.max(initial=0)))

    def saved(self) -> State:
        """Return what was counted, as arrays that ``restore`` takes."""
        counts = self._counts
        return {
            f"{_STATE}_counts": counts.astype(np.min_scalar_type(counts.max())),
            f"{_STATE}_sizes": np.array(self._sizes, np.int64),
            f"{_STATE}_digests": np.array(self._digests, np.uint64),
            f"{_STATE}_common": np.array(self._common, np.int64),
            f"{_STATE}_last": self._last,
            f"{_STATE}_times": np.array([self._times]),
        }

    def restore(self, state: State) -> None:
        """Go on from what ``saved`` returned."""
        (self._times,) = saved_counts(state, f"{_STATE}_times", 1)
        names = ("counts", "sizes", "digests", "common", "last")
        kept = [np.asarray(state.get(f"{_STATE}_{name}", ())) for name in names]
        counts, sizes, digests, common, last = kept
        lengths = [len(counts), len(digests), len(common)]
        if lengths != [self.records, len(sizes), max(len(sizes) - 1, 0)]:
            raise InvalidInputError(
                f"the batches that were saved are not of records={self.records}; they "
                "belong to another audit"
            )
        self._counts = counts.astype(np.uint32)
        self._sizes = array("q", sizes.astype(np.int64).tolist())
        self._digests = array("Q", digests.astype(np.uint64).tolist())
        self._common = array("q", common.astype(np.int64).tolist())
        self._last = last.astype(np.int64)

    def found(
        self, rate: float, *, steady: bool = True
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """Return what was seen, and what is wrong with it.

        Args:
            rate: What the accountant was told, the largest if there were several.
            steady: Whether batches are drawn at one rate.
        """
        if not self._sizes:
            return (not_checked(Stage.SAMPLING, "sampling.no_batch"),), ()
        sizes, records = np.array(self._sizes), self.records
        check = inspected(
            Stage.SAMPLING,
            "sampling.batches",
            batches=len(sizes),
            rate=sizes.sum() / (records * len(sizes)),
            accounted=rate,
            spread=sizes.std(),
            expected_spread=sqrt(records * rate * (1 - rate)),
            most=self._counts.max(),
        )
        return (check,), tuple(self._faults(rate, steady=steady))

    def _faults(self, rate: float, *, steady: bool) -> Iterator[Finding]:
        if self._times > 1:
            yield fault(Stage.SAMPLING, "sampling.several_times", times=self._times)
        tests = self.tests(rate, steady=steady)
        if tests["repeated"].failed:
            yield tests["repeated"].fault()
            return
        names = ["rate", "groups", "favoured", "sticky"]
        if tests["rate"].failed:
            names[2:] = []
        failed = [tests[name] for name in names if tests[name].failed]
        in_turn = [tests[name] for name in ("alike", "turns", "apart")]
        failed += [each for each in in_turn if each.failed][:1]  # of one cause
        yield from (each.fault() for each in failed)

    def tests(self, rate: float, *, steady: bool = True) -> dict[str, _Tested]:
        """Return all tests by name."""
        sizes = np.array(self._sizes)
        alike, groups = _size_tests(sizes, self.records, rate, steady=steady)
        return {
            "rate": self._rate(sizes, rate),
            "repeated": self._repeated(sizes, rate),
            "groups": groups,
            "favoured": self._favoured(rate),
            "sticky": self._sticky(rate),
            "alike": alike,
            "turns": self._turns(rate if steady else 0.0),
            "apart": self._apart(sizes),
        }

    def _rate(self, sizes: _Sizes, rate: float) -> _Tested:
        """Test whether records come too often; more seldom is no fault."""
        chances = self.records * len(sizes)
        return _Tested(
            log_p=_log_upper(int(sizes.sum()), chances, _log_odds(rate)),
            code="sampling.too_often",
            numbers={
                "rate": sizes.sum() / chances,
                "accounted": rate,
                "cause": "records",
            },
        )

    def _repeated(self, sizes: _Sizes, rate: float) -> _Tested:
        """Test whether a batch came twice, the largest that did."""
        digests = np.array(self._digests)
        order = np.argsort(digests, kind="stable")
        again = np.flatnonzero(np.diff(digests[order]) == 0)
        earlier, later = order[again], order[again + 1]
        steps, log_p, first, second = len(sizes), 0.0, 0, 0
        if len(later) and (most := int(sizes[later].max())):
            second = int(later[sizes[later] == most].min())
            first = int(earlier[later == second][0])
            alike = np.logaddexp(most * log(rate), -log(2) * 8 * digests.itemsize)
            log_p = min(0.0, log(steps * (steps - 1) / 2) + float(alike))
        return _Tested(
            log_p=log_p,
            code="sampling.batch_repeated",
            numbers={"earlier": first + 1, "later": second + 1},
        )

    def _favoured(self, rate: float) -> _Tested:
        """Test whether too many records are in too many batches."""
        counts, steps, records = self._counts, len(self._sizes), self.records
        tails, found = (*_TAILS, min(1 / records, 0.5)), []
        for tail in tails:
            times = int(stats.binom.isf(tail, steps, rate)) + 1
            if times > steps:
                continue
            above, below = log_tails(times, steps, _log_odds(rate))
            many = int((counts >= times).sum())
            log_p = _log_upper(many, records, above - below) + log(len(tails))
            found.append((min(0.0, log_p), times, many, records * exp(above)))
        log_p, times, many, expected = min(found, default=(0.0, 0, 0, 0.0))
        return _Tested(
            log_p=log_p,
            code="sampling.favoured",
            numbers={
                "many": many,
                "times": times,
                "batches": steps,
                "expected": expected,
            },
        )

    def _sticky(self, rate: float) -> _Tested:
        """Test whether consecutive batches have too many records in common."""
        common = np.array(self._common)[::2]  # of disjoint pairs
        chances = self.records * len(common)
        log_both = 2 * log(rate)
        odds = log_both - log(-np.expm1(log_both)) if rate < 1 else inf
        return _Tested(
            log_p=_log_upper(int(common.sum()), chances, odds),
            code="sampling.sticky",
            numbers={"common": common.sum(), "expected": chances * rate**2},
        )

    def _turns(self, rate: float) -> _Tested:
        """Test whether too many records are in about as many batches as all others."""
        counts, steps = self._counts, len(self._sizes)
        times, log_p, many, share = floor(rate * steps), 0.0, 0, 1.0
        rest = steps - times
        if times >= 1 and rest >= 2:
            pair = np.array([times, times + 1])
            likeliest = log(times * (times + 1) / (rest * (rest - 1))) / 2
            share = float(np.exp(log_mass(pair, steps, likeliest)).sum())
            many = int(np.isin(counts, pair).sum())
        if share < 1:
            log_p = _log_upper(many, self.records, _log_odds(share))
        return _Tested(
            log_p=log_p,
            code="sampling.in_turns",
            numbers={
                "many": many,
                "times": times,
                "more": times + 1,
                "batches": steps,
                "expected": share * self.records,
            },
        )

    def _apart(self, sizes: _Sizes) -> _Tested:
        """Test whether consecutive batches have too few records in common."""
        common, trials = sum(self._common), np.minimum(sizes[1:], sizes[:-1]).sum()
        mean, log_p = float((sizes[1:] / self.records * sizes[:-1]).sum()), 0.0
        if common <= mean - 1:
            log_p = log_tails(common + 1, int(trials), _log_odds(mean / trials))[1]
        return _Tested(
            log_p=log_p,
            code="sampling.apart",
            numbers={"common": common, "expected": mean},
        )


def _size_tests(
    sizes: _Sizes, records: int, rate: float, *, steady: bool
) -> tuple[_Tested, _Tested]:
    """Test whether sizes vary too little, and whether they vary too much."""
    low, high = _log_spread_tails(sizes, records) if steady else (0.0, 0.0)
    numbers = {
        "spread": sizes.std(),
        "expected_spread": sqrt(records * rate * (1 - rate)),
    }
    return (
        _Tested(log_p=low, code="sampling.not_poisson", numbers=numbers),
        _Tested(log_p=high, code="sampling.groups", numbers=numbers),
    )


def _log_spread_tails(sizes: _Sizes, records: int) -> tuple[float, float]:
    """Return bounds on the logs of two p-values: of too little and of too much spread.

    They are given the sum of the sizes, and so hold for every rate.
    """
    steps, total = len(sizes), int(sizes.sum())
    if steps < 2 or not 0 < total < records * steps:
        return 0.0, 0.0
    rate, mean = total / (records * steps), total / steps
    odds, variance = _log_odds(rate), records * rate * (1 - rate)
    reach = _FAR * sqrt(variance)
    low, high = max(0, floor(mean - reach)), min(records, ceil(mean + reach))

    def score(size: NDArray[np.number]) -> NDArray[np.float64]:
        return np.asarray(np.minimum(np.square(size - mean) / variance, _FAR**2))

    counts = np.arange(low, high + 1)
    log_masses, scores = log_mass(counts, records, odds), score(counts)
    below, above = log_tails(low, records, odds)[1], -inf
    if high < records:
        above = log_tails(high + 1, records, odds)[0]
    beyond = np.logaddexp(below, above)
    seen, log_sum = (
        float(score(sizes).sum()),
        float(log_mass(total, records * steps, odds)),
    )
    found = []
    for a in (-np.geomspace(0.01, 10 * variance + 10, 40), np.geomspace(0.01, 2, 30)):
        inside = special.logsumexp(log_masses + a[:, np.newaxis] * scores, axis=1)
        log_mean = np.logaddexp(inside, beyond + a * _FAR**2)
        log_p = float((steps * log_mean - a * seen).min()) - log_sum
        found.append(min(0.0, log_p))
    return found[0], found[1]


def _log_upper(hits: int, trials: int, log_odds: float) -> float:
    """Return the log of the probability of so many hits or more."""
    if hits <= 0 or log_odds == inf:
        return 0.0
    return log_tails(hits, trials, log_odds)[0]


def _log_odds(rate: float) -> float:
    return float(special.logit(rate))
