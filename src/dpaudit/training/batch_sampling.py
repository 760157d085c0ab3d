"""Test from record counts whether batches are Poisson samples at the accounted rate.

An accountant that uses amplification by sampling assumes that each of n records is in
each of T batches independently of all else, with a probability of at most q. A batch
that holds a record twice violates this with certainty. Eight tests detect the rest:

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
- *Apart*: given the sizes, the overlaps of consecutive batches are independent and
  hypergeometric, so each is a sum of as many independent Bernoulli variables as the
  smaller batch has records; by Hoeffding (1956) the lower tail of their total is at
  most that of a binomial with the same number of trials and the same mean.

The first four hold for any rates below q, even if they differ between records and
steps, so a rate below the accounted one is no fault; where the accounted rate varies,
q is the largest. *Sizes* and *in turns* assume one rate and are skipped if it varies;
if it is unknown whether it does, sizes that vary too much are no fault. Each test has
an equal part of sampling's share of ``FALSE_POSITIVE_RATE``. After a repeated batch or
too high a rate, their consequences are not reported as further faults.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, exp, floor, inf, log, sqrt
from typing import Any, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

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
_FAR: Final = 10.0  # standard deviations at which the score of a size is capped
_TINY: Final = 1e-300  # a probability of 0 marks faults without any randomness
_IN_TURN: Final = ("alike", "turns", "apart")  # tests that shuffling fails
_STATE: Final = "batch_sampling"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """A test: the log of its p-value, and the fault that it reports if it fails."""

    log_p: float
    code: str
    numbers: Mapping[str, Any]

    def failed(self, share: float) -> bool:
        return self.log_p <= log(FALSE_POSITIVE_RATE / _PARTS * share)

    def fault(self, share: float) -> Finding:
        p = min(1.0, max(exp(self.log_p) * _PARTS / share, _TINY))
        return fault(Stage.SAMPLING, self.code, probability=p, **self.numbers)


@final
class BatchSampling:
    """Counts how often records are in batches, and tests for Poisson sampling.

    It keeps eight bytes for each record, thirty-two for each batch, and the last batch.

    Args:
        records: Number of records, numbered from 0. None if it is not known; then the
            tests that need a probability are skipped.

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

    def __init__(self, records: int | None) -> None:
        if records is not None:
            _validate.whole_number("records", records, least=1)
        self.records = None if records is None else int(records)
        self._counts = np.zeros(self.records or 0, np.uint32)  # of batches, by record
        self._seen = np.zeros_like(self._counts)  # the number of its last batch
        self._sizes, self._digests = array("q"), array("Q")
        self._common = array("q")  # records in common with the batch before
        self._last = np.zeros(0, np.int64)
        self._times = 0  # the most occurrences of a record in one batch
        self._apart = 0  # the fewest steps from a record's batch to its next; 0 if none

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self._sizes)

    @property
    def total(self) -> int:
        """Sum of all batch sizes."""
        return sum(self._sizes)

    @property
    def most(self) -> int:
        """The largest number of batches that any record was in."""
        return int(self._counts.max(initial=0))

    def add(self, batch: ArrayLike) -> None:
        """Add a batch, given as the numbers of its records."""
        rows = np.asarray(batch)
        if rows.size and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
            raise InvalidInputError(
                "a batch is given as the numbers of its records, in one dimension, got "
                f"{rows.dtype} of shape {rows.shape}"
            )
        chosen, times = np.unique(rows.astype(np.int64), return_counts=True)
        self._make_room(chosen)
        if self._sizes:
            common = np.intersect1d(self._last, chosen, assume_unique=True)
            self._common.append(len(common))
        self._sizes.append(len(chosen))
        before, now = self._seen[chosen], len(self._sizes)
        if before.any():
            apart = now - int(before.max())
            self._apart = min(self._apart or apart, apart)
        self._seen[chosen] = now
        self._counts[chosen] += np.uint32(1)
        self._digests.append(_digest(chosen.tobytes()))
        self._last, self._times = chosen, max(self._times, int(times.max(initial=0)))

    def _make_room(self, chosen: _Sizes) -> None:
        """Refuse numbers out of range; make room for new ones."""
        if not len(chosen):
            return
        least, largest, known = int(chosen[0]), int(chosen[-1]), len(self._counts)
        if least < 0 or (self.records is not None and largest >= self.records):
            raise InvalidInputError(
                f"a batch holds record number {least if least < 0 else largest}, and "
                f"records={self.records} are numbered from 0; pass how many there are"
            )
        if largest >= known:
            more = np.zeros(max(largest + 1, 2 * known) - known, np.uint32)
            self._counts = np.concatenate([self._counts, more])
            self._seen = np.concatenate([self._seen, more])

    def of_all_ranks(
        self,
        add_up: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        gather: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> Self | None:
        """Return the counts of whole batches, of which each rank draws a part.

        Args:
            add_up: Returns the sums of all ranks' values.
            gather: Returns the values of all ranks, one rank after the other.

        Returns:
            The same on all ranks; None if they drew different numbers of batches, or
            from data sets of different sizes.
        """
        drawn = gather(np.array([len(self._sizes), len(self._counts)]))
        if len({*drawn[::2]}) > 1 or len({*drawn[1::2]}) > 1:
            return None
        whole = type(self)(self.records)
        if not self._sizes:
            return whole
        mine, common = (self._counts > 0).astype(np.int64), np.array(self._common)
        parts = [self._counts.astype(np.int64), mine, np.array(self._sizes), common]
        ends = np.cumsum([len(each) for each in parts])[:-1]
        summed = np.split(add_up(np.concatenate(parts).astype(np.int64)), ends)
        counts, holders, sizes, common = summed
        whole._counts = counts.astype(np.uint32)
        whole._sizes = array("q", sizes.tolist())
        if holders.max(initial=0) <= 1:  # else pairs of parts are not those of a batch
            whole._common = array("q", common.tolist())
        digests = gather(np.array(self._digests, np.uint64).view(np.int64))
        rows = np.ascontiguousarray(digests.reshape(-1, len(sizes)).T)
        whole._digests = array("Q", [_digest(row.tobytes()) for row in rows])
        whole._times = int(gather(np.array([self._times])).max())
        return whole

    def saved(self, name: str = _STATE) -> State:
        """Return the counts as arrays that ``restore`` takes.

        Args:
            name: Prefix of their names.
        """
        return {
            f"{name}_counts": self._counts,
            f"{name}_seen": self._seen,
            f"{name}_sizes": np.array(self._sizes, np.int64),
            f"{name}_digests": np.array(self._digests, np.uint64),
            f"{name}_common": np.array(self._common, np.int64),
            f"{name}_last": self._last,
            f"{name}_most": np.array([self._times, self._apart]),
        }

    def restore(self, state: State, name: str = _STATE) -> None:
        """Continue from what ``saved`` returned."""
        self._times, self._apart = saved_counts(state, f"{name}_most", 2)
        parts = ("counts", "seen", "sizes", "digests", "common", "last")
        kept = [np.asarray(state.get(f"{name}_{part}", ())) for part in parts]
        counts, seen, sizes, digests, common, last = kept
        records, steps = self.records or len(counts), len(sizes)
        lengths = [len(counts), len(seen), len(digests), len(common)]
        if lengths != [records, records, steps, max(steps - 1, 0)]:
            raise InvalidInputError(
                f"the batches that were saved are not of records={self.records}; they "
                "belong to another audit"
            )
        self._counts, self._seen = counts.astype(np.uint32), seen.astype(np.uint32)
        self._sizes = array("q", sizes.astype(np.int64).tolist())
        self._digests = array("Q", digests.astype(np.uint64).tolist())
        self._common = array("q", common.astype(np.int64).tolist())
        self._last = last.astype(np.int64)

    def found(
        self,
        rate: float,
        *,
        steady: bool | None = True,
        separation: int = 1,
        most: int | None = None,
        share: float = 1.0,
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """Return the check that was made, and the faults.

        Args:
            rate: The sampling rate accounted for, the largest if it varies.
            steady: Whether all batches are samples at one rate. None if that is not
                known: then sizes that vary too much leave sampling unchecked.
            separation: The least number of steps from one batch of a record to its
                next; 1 if there is no such restriction.
            most: In how many batches a record may be; None for any number.
            share: These tests' share of batch sampling's false-positive rate.
        """
        if not self._sizes:
            return (not_checked(Stage.SAMPLING, "sampling.no_batch"),), ()
        wrong = [*self.turns_missed(separation, most)]
        steps = len(self._sizes)
        opportunities = min(-(-steps // separation), steps if most is None else most)
        in_turn = separation > 1 or most is not None
        check = self._check(rate, separation, counted=in_turn)
        if self.records is not None and rate < 1:
            tests = self.tests(
                rate,
                steady=steady is not False,
                opportunities=opportunities if in_turn else None,
            )
            groups = tests.get("groups")
            if steady is None and groups is not None and groups.failed(share):
                del tests["groups"]
                check = not_checked(
                    Stage.SAMPLING, "sampling.sizes_vary", **groups.numbers
                )
            wrong += self._faults(tests, share)
        return (check,), tuple(wrong)

    def _check(self, rate: float, separation: int, *, counted: bool) -> Finding:
        sizes, records = np.array(self._sizes), self.records
        if records is None or counted:
            return inspected(
                Stage.SAMPLING,
                "sampling.turns",
                batches=len(sizes),
                times=self._times,
                apart=self._apart,
                separation=separation,
                most=self.most,
            )
        return inspected(
            Stage.SAMPLING,
            "sampling.batches",
            batches=len(sizes),
            rate=sizes.sum() / (records * len(sizes)),
            accounted=rate,
            spread=sizes.std(),
            expected_spread=sqrt(records * rate * (1 - rate)),
            most=self.most,
        )

    def turns_missed(self, separation: int, most: int | None) -> Iterator[Finding]:
        """Yield the faults that involve no probability; see ``found``."""
        if self._times > 1:
            yield fault(Stage.SAMPLING, "sampling.several_times", times=self._times)
        if most is not None and self.most > most:
            yield fault(
                Stage.ACCOUNTING,
                "accounting.participations",
                times=self.most,
                batches=len(self._sizes),
                accounted=most,
            )
        if 0 < self._apart < separation:
            yield fault(
                Stage.SAMPLING,
                "sampling.too_soon",
                apart=self._apart,
                separation=separation,
            )

    def _faults(self, tests: dict[str, _Tested], share: float) -> Iterator[Finding]:
        """Yield the faults of failed tests, without consequences of other faults."""
        failed = {name: each for name, each in tests.items() if each.failed(share)}
        if "repeated" in failed:
            failed = {"repeated": failed["repeated"]}
        if "rate" in failed:
            failed.pop("favoured", None)
            failed.pop("sticky", None)
        for also in [name for name in _IN_TURN if name in failed][1:]:  # same cause
            del failed[also]
        yield from (each.fault(share) for each in failed.values())

    def tests(
        self, rate: float, *, steady: bool = True, opportunities: int | None = None
    ) -> dict[str, _Tested]:
        """Return the applicable tests, by name.

        Args:
            rate: As in ``found``.
            steady: Likewise.
            opportunities: In how many batches each record may be, if that is not all.
        """
        sizes, records = np.array(self._sizes), self.records
        assert records is not None
        every = len(sizes) if opportunities is None else opportunities
        tests = {
            "repeated": self._repeated(sizes, rate),
            "rate": _too_often(int(sizes.sum()), records * every, rate),
            "favoured": self._favoured(rate, every, records),
        }
        if opportunities is None and len(self._common) == max(len(sizes) - 1, 0):
            tests |= {
                "sticky": self._sticky(rate, records),
                "apart": self._apart_test(sizes, records),
            }
        if steady and opportunities is None:
            tests |= _size_tests(sizes, records, rate)
            tests["turns"] = self._turns(rate, records)
        return tests

    def _repeated(self, sizes: _Sizes, rate: float) -> _Tested:
        """Test whether a batch was repeated, by the largest that was."""
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

    def _favoured(self, rate: float, steps: int, records: int) -> _Tested:
        """Test whether too many records are in too many of ``steps`` batches."""
        from scipy import stats  # noqa: PLC0415 (slow to import)

        counts = self._counts
        tails, candidates = (*_TAILS, min(1 / records, 0.5)), []
        for tail in tails:
            times = int(stats.binom.isf(tail, steps, rate)) + 1
            if times > steps:
                continue
            above, below = log_tails(times, steps, _log_odds(rate))
            many = int((counts >= times).sum())
            log_p = _log_upper(many, records, above - below) + log(len(tails))
            candidates.append((min(0.0, log_p), times, many, records * exp(above)))
        log_p, times, many, expected = min(candidates, default=(0.0, 0, 0, 0.0))
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

    def _sticky(self, rate: float, records: int) -> _Tested:
        """Test whether consecutive batches have too many records in common."""
        common = np.array(self._common)[::2]  # of disjoint pairs
        trials = records * len(common)
        log_both = 2 * log(rate)
        odds = log_both - log(-np.expm1(log_both))
        return _Tested(
            log_p=_log_upper(int(common.sum()), trials, odds),
            code="sampling.sticky",
            numbers={"common": common.sum(), "expected": trials * rate**2},
        )

    def _turns(self, rate: float, records: int) -> _Tested:
        """Test whether too many records are in nearly the same number of batches."""
        counts, steps = self._counts, len(self._sizes)
        times, log_p, many, share = floor(rate * steps), 0.0, 0, 1.0
        rest = steps - times
        if times >= 1 and rest >= 2:
            pair = np.array([times, times + 1])
            likeliest = log(times * (times + 1) / (rest * (rest - 1))) / 2
            share = float(np.exp(log_mass(pair, steps, likeliest)).sum())
            many = int(np.isin(counts, pair).sum())
        if share < 1:
            log_p = _log_upper(many, records, _log_odds(share))
        return _Tested(
            log_p=log_p,
            code="sampling.in_turns",
            numbers={
                "many": many,
                "times": times,
                "more": times + 1,
                "batches": steps,
                "expected": share * records,
            },
        )

    def _apart_test(self, sizes: _Sizes, records: int) -> _Tested:
        """Test whether consecutive batches have too few records in common."""
        common, trials = sum(self._common), np.minimum(sizes[1:], sizes[:-1]).sum()
        mean, log_p = float((sizes[1:] / records * sizes[:-1]).sum()), 0.0
        if common <= mean - 1:
            log_p = log_tails(common + 1, int(trials), _log_odds(mean / trials))[1]
        return _Tested(
            log_p=log_p,
            code="sampling.apart",
            numbers={"common": common, "expected": mean},
        )


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _too_often(seen: int, trials: int, rate: float) -> _Tested:
    """Test whether records are sampled too often; too rarely is no fault."""
    return _Tested(
        log_p=_log_upper(seen, trials, _log_odds(rate)),
        code="sampling.too_often",
        numbers={"rate": seen / trials, "accounted": rate},
    )


def _size_tests(sizes: _Sizes, records: int, rate: float) -> dict[str, _Tested]:
    """Return tests of whether sizes vary too little, and whether they vary too much."""
    low, high = _log_spread_tails(sizes, records)
    expected = sqrt(records * rate * (1 - rate))
    numbers = {"spread": sizes.std(), "expected_spread": expected}
    return {
        "alike": _Tested(log_p=low, code="sampling.not_poisson", numbers=numbers),
        "groups": _Tested(log_p=high, code="sampling.groups", numbers=numbers),
    }


def _log_spread_tails(sizes: _Sizes, records: int) -> tuple[float, float]:
    """Return bounds on the log p-values of too little and of too much spread.

    They are conditional on the sum of the sizes, and so hold for every rate.
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
    log_ps = []
    for a in (-np.geomspace(0.01, 10 * variance + 10, 40), np.geomspace(0.01, 2, 30)):
        inside = special.logsumexp(log_masses + a[:, np.newaxis] * scores, axis=1)
        log_mean = np.logaddexp(inside, beyond + a * _FAR**2)
        log_p = float((steps * log_mean - a * seen).min()) - log_sum
        log_ps.append(min(0.0, log_p))
    return log_ps[0], log_ps[1]


def _log_upper(hits: int, trials: int, log_odds: float) -> float:
    """Return the log of the probability of at least so many hits."""
    if hits <= 0 or log_odds == inf:
        return 0.0
    return log_tails(hits, trials, log_odds)[0]


def _log_odds(rate: float) -> float:
    return float(special.logit(rate))
