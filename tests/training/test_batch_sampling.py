"""Batches that are Poisson samples, and those that are not."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from math import comb, exp
from threading import Barrier

import numpy as np
import pytest
from scipy import stats

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import FALSE_POSITIVE_RATE, SAMPLING_SHARE, Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.stats.binomial import rate_limits
from dpaudit.training import batch_sampling
from dpaudit.training.batch_sampling import BatchSampling

RECORDS, STEPS, RATE = 1000, 100, 0.1
LEVEL = FALSE_POSITIVE_RATE * SAMPLING_SHARE / 8


def poisson(rng, rates, steps=STEPS):
    return [np.flatnonzero(rng.random(len(rates)) < rates) for _ in range(steps)]


def alike(rate=RATE):
    return np.full(RECORDS, rate)


def minority(rng):
    """One record in fifty at six times the rate, the mean kept."""
    rates = alike(RATE * 0.88 / 0.98)
    rates[:20] = 6 * RATE
    return poisson(rng, rates)


def balanced(rng):
    """Four classes of unlike size that are sampled alike."""
    sizes = np.array([400, 300, 200, 100])
    return poisson(rng, np.repeat(RATE * RECORDS / 4 / sizes, sizes))


def fixed(rng):
    return [rng.choice(RECORDS, 100, replace=False) for _ in range(STEPS)]


def shuffled(rng):
    """Every record once an epoch, in batches whose sizes are Poisson's."""
    found = []
    for _ in range(10):
        ends = np.cumsum(rng.multinomial(RECORDS, np.full(10, RATE)))[:-1]
        found += np.split(rng.permutation(RECORDS), ends)
    return found


def first_epoch(rng):
    return shuffled(rng)[:8]


def groups(rng):
    """Clusters of ten records."""
    return [
        np.flatnonzero(np.repeat(rng.random(RECORDS // 10) < RATE, 10))
        for _ in range(STEPS)
    ]


def sticky(rng):
    """A fifth of a batch stays, and each record has the right rate."""
    here, found = rng.random(RECORDS) < RATE, []
    for _ in range(STEPS):
        found.append(np.flatnonzero(here))
        fresh = rng.random(RECORDS) < RATE * 0.8 / 0.9
        here = np.where(here, rng.random(RECORDS) < 0.2, fresh)
    return found


def again(rng):
    return poisson(rng, alike(), 10) * 10


def counted(batches, records=RECORDS):
    sampling = BatchSampling(records)
    for batch in batches:
        sampling.add(batch)
    return sampling


FAULTS = {
    minority: {"sampling.favoured", "sampling.sticky"},
    balanced: {"sampling.favoured", "sampling.sticky"},
    fixed: {"sampling.not_poisson"},
    shuffled: {"sampling.in_turns"},
    first_epoch: {"sampling.apart"},
    groups: {"sampling.groups"},
    sticky: {"sampling.sticky"},
    again: {"sampling.batch_repeated"},
    lambda rng: poisson(rng, alike(0.11)): {"sampling.too_often"},
}


@pytest.mark.parametrize("sampler", FAULTS)
def test_batches_that_are_no_poisson_samples_are_named(sampler):
    (check,), faults = counted(sampler(np.random.default_rng(0))).found(RATE)
    assert (check.stage, check.status) == (Stage.SAMPLING, Status.INSPECTED)
    assert {fault.code for fault in faults} == FAULTS[sampler]
    for fault in faults:
        assert fault.stage is Stage.SAMPLING
        assert 0 < fault.probability <= FALSE_POSITIVE_RATE
        assert fault.code not in sentence(fault)


def test_poisson_samples_at_the_rate_or_below_it_are_no_fault():
    rng = np.random.default_rng(0)
    seldom = np.where(np.arange(RECORDS) < 300, 0.02, RATE)
    for rates in (alike(), alike(0.07), seldom, alike(0.0)):
        assert not counted(poisson(rng, rates)).found(RATE)[1]
    every = counted([np.arange(RECORDS)] * 5)
    assert not every.found(1.0)[1]


def test_a_rate_that_changes_is_held_against_the_largest():
    rng = np.random.default_rng(0)
    batches = poisson(rng, alike(), 50) + poisson(rng, alike(0.05), 50)
    sampling = counted(batches)
    assert [f.code for f in sampling.found(RATE)[1]] == ["sampling.groups"]
    assert not sampling.found(RATE, steady=False)[1]
    (fault,) = sampling.found(0.05, steady=False)[1]
    assert fault.code == "sampling.too_often"


def simulated(rates, *, runs, steps=12, seed=0):
    """The p-values of correct runs of 60 records, a row for each."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(runs):
        tests = counted(poisson(rng, rates, steps), len(rates)).tests(0.2)
        found.append([exp(test.log_p) for test in tests.values()])
    return np.array(found), list(tests)


@pytest.mark.parametrize("rate", [0.2, 0.15])
def test_no_test_is_wrong_more_often_than_its_level(rate):
    chances, _ = simulated(np.full(60, rate), runs=400)
    for level in (0.2, 0.05, 0.01):
        for column in chances.T:
            low, _ = rate_limits(int((column <= level).sum()), 400, alpha=1e-4)
            assert low <= level


def test_rates_below_that_accounted_may_be_unlike():
    rates = np.where(np.arange(60) < 20, 0.05, 0.2)
    chances, names = simulated(rates, runs=400)
    for name in ("rate", "repeated", "favoured", "sticky"):
        wrong = int((chances[:, names.index(name)] <= 0.05).sum())
        assert rate_limits(wrong, 400, alpha=1e-4)[0] <= 0.05


# Each test against an oracle of its own.


def test_too_high_a_rate_is_a_fault_at_its_exact_level():
    enough = int(stats.binom.isf(LEVEL, RECORDS * 50, RATE)) + 1
    rng = np.random.default_rng(0)
    for total, wrong in ((enough, True), (enough - 1, False)):
        sizes = rng.multinomial(total, np.full(50, 0.02))
        batches = [rng.choice(RECORDS, size, replace=False) for size in sizes]
        codes = [fault.code for fault in counted(batches).found(RATE)[1]]
        assert codes == ["sampling.too_often"] * wrong


def test_sizes_given_their_sum_are_bounded_at_every_spread():
    """All sizes of four batches of five records, by enumeration."""
    ways = {}
    for sizes in product(range(6), repeat=4):
        weight = np.prod([comb(5, size) for size in sizes])
        ways.setdefault(sum(sizes), []).append((sizes, weight))
    for total, each in ways.items():
        weights = np.array([weight for _, weight in each], float)
        spread = np.array([np.var(sizes) for sizes, _ in each])
        for sizes, _ in each:
            low, high = batch_sampling._log_spread_tails(np.array(sizes), 5)
            at = np.var(sizes)
            least, most = spread <= at + 1e-12, spread >= at - 1e-12
            assert exp(low) >= weights[least].sum() / weights.sum() - 1e-12, total
            assert exp(high) >= weights[most].sum() / weights.sum() - 1e-12, total


def test_equal_sizes_have_their_exact_probability():
    sizes = np.full(20, 10)
    low, _ = batch_sampling._log_spread_tails(sizes, 100)
    equal = 20 * np.log(comb(100, 10)) - np.log(float(comb(2000, 200)))
    assert low == pytest.approx(equal, abs=1e-3)


def test_records_in_common_are_bounded_by_sums_of_hypergeometrics():
    sizes, records = np.array([3, 9, 4, 12, 8]), 30
    exact = np.ones(1)
    for first, second in pairwise(sizes.tolist()):
        law = stats.hypergeom.pmf(
            np.arange(min(first, second) + 1), records, first, second
        )
        exact = np.convolve(exact, law)
    below = np.cumsum(exact)
    for common, chance in enumerate(below):
        sampling = BatchSampling(records)
        sampling._common.append(common)
        assert exp(sampling._apart_test(sizes, records).log_p) >= chance * (1 - 1e-9)


def test_counts_in_turns_are_bounded_at_every_rate():
    sampling = counted([[0]] * 20, 10)
    for accounted in (0.1, 0.35, 0.6):
        tested = sampling._turns(accounted, 10)
        pair = [tested.numbers["times"], tested.numbers["more"]]
        largest = max(
            stats.binom.pmf(pair, 20, rate).sum() for rate in np.linspace(0, 1, 2001)
        )
        expected = tested.numbers["expected"] / 10
        assert largest <= expected * (1 + 1e-9)
        assert largest == pytest.approx(expected, rel=1e-5)


def test_favoured_records_have_their_binomial_probability():
    """Of 1000 records, some that are in 18 of 20 batches, and the rest in none."""
    batches = [np.arange(3)] * 18 + [[]] * 2
    tested = counted(batches).tests(RATE)["favoured"]
    times, many = tested.numbers["times"], tested.numbers["many"]
    assert many == 3
    share = stats.binom.sf(times - 1, 20, RATE)
    best = 5 * stats.binom.sf(many - 1, RECORDS, share)
    assert exp(tested.log_p) == pytest.approx(best)


# What is taken, and kept.


def test_a_record_several_times_in_a_batch_is_a_fault_and_counts_once():
    batches = [np.tile(b, 3) for b in poisson(np.random.default_rng(0), alike())]
    (fault,) = counted(batches).found(RATE)[1]
    assert "several times in one batch" in fault_parts(fault)[0]
    assert fault_parts(fault)[1] == "3 times"
    assert fault.probability == 0


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([0, RECORDS], "record number 1000"),
        ([-1, 5], "record number -1"),
        ([0.5], "float64"),
        (np.ones(5, bool), "bool"),
        ([[1, 2]], "shape"),
    ],
)
def test_a_batch_holds_numbers_of_records(batch, said):
    with pytest.raises(InvalidInputError, match=said):
        BatchSampling(RECORDS).add(batch)


def test_counts_outlive_a_checkpoint():
    batches = minority(np.random.default_rng(0))
    first, again = counted(batches[:50]), BatchSampling(RECORDS)
    again.restore(first.saved())
    for batch in batches[50:]:
        again.add(batch)
    whole = counted(batches)
    assert again.found(RATE) == whole.found(RATE)
    kept, expected = again.saved(), whole.saved()
    assert all(np.array_equal(kept[name], expected[name]) for name in expected)
    with pytest.raises(InvalidInputError, match="records=999"):
        BatchSampling(999).restore(first.saved())


def test_nothing_seen_is_nothing_checked():
    (check,), faults = BatchSampling(5).found(RATE)
    assert check.status is Status.NOT_CHECKED
    assert not faults


def joined(parts):
    """What the first rank makes of all ranks' batches, each rank in its own thread."""
    given, barrier = [None] * len(parts), Barrier(len(parts))

    def exchange(rank, combine):
        def exchanged(values):
            given[rank] = np.array(values)
            barrier.wait()
            found = combine([*given])
            barrier.wait()
            return found

        return exchanged

    def whole(rank):
        return parts[rank].of_all_ranks(exchange(rank, sum), exchange(rank, np.hstack))

    with ThreadPoolExecutor(len(parts)) as threads:
        first, *_ = threads.map(whole, range(len(parts)))
    return first


def test_parts_of_batches_on_ranks_are_tested_as_whole_batches():
    rng = np.random.default_rng(0)
    whole, parts = BatchSampling(400), [BatchSampling(400) for _ in range(2)]
    for _ in range(60):
        batch = np.flatnonzero(rng.random(400) < 0.1)
        whole.add(batch)
        for rank, part in enumerate(parts):
            part.add(batch[batch % 2 == rank])
    found = joined(parts)
    assert (found.batches, found.total, found.most) == (60, whole.total, whole.most)
    expected, seen = (
        {name: each.log_p for name, each in one.tests(0.1).items()}
        for one in (whole, found)
    )
    assert seen == pytest.approx(expected)


def test_shares_that_change_between_ranks_leave_out_what_pairs_of_batches_show():
    first, second = BatchSampling(4), BatchSampling(4)
    for batch, other in (([0, 1], [2, 3]), ([2], [0])):
        first.add(batch)
        second.add(other)
    tests = joined([first, second]).tests(0.9)
    assert "rate" in tests
    assert not {"sticky", "apart"} & tests.keys()


def test_without_a_batch_on_any_rank_nothing_was_checked():
    found = joined([BatchSampling(10), BatchSampling(10)])
    assert [each.code for each in found.found(0.1)[0]] == ["sampling.no_batch"]


def test_different_numbers_of_batches_are_not_put_together():
    parts = [BatchSampling(10), BatchSampling(10)]
    parts[0].add([1, 2])
    assert joined(parts) is None
