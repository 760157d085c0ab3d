"""Sizes that agree: how likely that is, and which steps used a batch again."""

import numpy as np
import pytest
from scipy import stats

from dpaudit.training.opacus.size_agreement import (
    log_likeliest_size,
    reused_batches,
)


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01])
def test_no_size_is_more_likely_than_the_bound(rate):
    """Of sums whose rates differ too; the sum that is seen may be a lucky one."""
    rng = np.random.default_rng(0)
    for count in (1, 5, 40, 400):
        for rates in (np.full(count, rate), rate * rng.random(count)):
            exact = np.ones(1)
            for each in rates:
                exact = np.convolve(exact, [1 - each, each])
            for steps in (1, 10, 1000):
                mean = steps * rates.sum()
                for seen in (mean, stats.poisson.isf(1e-7, mean)):
                    bound = log_likeliest_size(int(seen), steps, rate=rate)
                    assert np.log(exact.max()) <= bound + 1e-12


def test_the_bound_falls_as_sizes_vary_more_and_says_nothing_of_those_that_do_not():
    found = [log_likeliest_size(20 * mean, 20, rate=0.1) for mean in (1, 10, 100, 1000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 0
    assert log_likeliest_size(100, 1, rate=1.0) == 0
    assert log_likeliest_size(0, 10, rate=0.1) == 0
    assert log_likeliest_size(0, 0, rate=0.1) == 0


def test_steps_on_sizes_of_their_own_are_as_rarely_taken_for_reuse_as_stated():
    """2,000 programs, half of whose steps draw samples of their own."""
    rng, logs = np.random.default_rng(0), []
    for k in range(2000):
        at = range(2, 13, 2) if k % 2 else range(7, 13)
        sizes, rows = rng.binomial(40, 0.1, (2, 6))
        logs.append(reused_batches(at, rows, sizes, rate=0.1)[1])
    for level in (0.3, 0.1, 0.01):
        assert np.mean(np.exp(logs) <= level) <= level


def test_power_grows_with_the_batches_that_come_back():
    rng = np.random.default_rng(0)
    sizes = rng.binomial(1000, 0.1, 30)
    found = [
        reused_batches(range(k + 1, 2 * k + 1), sizes[:k], sizes[:k], rate=0.1)
        for k in (3, 6, 12, 30)
    ]
    assert [again for again, _ in found] == [3, 6, 12, 30]
    logs = [log_p for _, log_p in found]
    assert logs == sorted(logs, reverse=True)
    assert logs[1] < np.log(1e-5)


def test_batches_that_come_back_at_once_or_in_turns_are_told_apart_from_others():
    rng = np.random.default_rng(0)
    sizes = rng.binomial(1000, 0.1, 12).tolist()
    thrice = [step for step in range(1, 37) if step % 3 != 1]
    assert reused_batches(thrice, np.repeat(sizes, 2), sizes, rate=0.1)[0] == 24
    cycle = range(13, 61)
    assert reused_batches(cycle, sizes * 4, sizes, rate=0.1)[0] == 48
    others = rng.binomial(1000, 0.1, 48).tolist()
    assert reused_batches(cycle, others, sizes, rate=0.1)[1] > np.log(1e-3)


def test_the_p_value_is_a_binomial_tail():
    sizes = [100, 90, 110, 95, 105, 98, 102, 88]
    rows = [*sizes[:7], 1]
    likeliest = np.exp(log_likeliest_size(sum(sizes), 8, rate=0.1))
    expected = 3 * stats.binom.sf(6, 8, likeliest)
    again, log_p = reused_batches(range(9, 17), rows, sizes, rate=0.1)
    assert again == 7
    assert np.exp(log_p) == pytest.approx(expected)
    assert reused_batches([], [], sizes, rate=0.1) == (0, 0.0)
    assert reused_batches([1, 2], [5, 5], [], rate=0.1) == (0, 0.0)


def test_batches_that_come_back_in_any_order_are_told_by_all_their_sizes():
    rng = np.random.default_rng(0)
    sizes = rng.binomial(1000, 0.1, 12).tolist()
    rows = [size for _ in range(3) for size in rng.permutation(sizes)]
    again, log_p = reused_batches(range(13, 49), rows, sizes, rate=0.1)
    assert again == 36
    likeliest = log_likeliest_size(sum(sizes), 12, rate=0.1)
    expected = 12 * likeliest + np.log(np.arange(1, 13)).sum() + np.log(9)
    assert log_p == pytest.approx(expected)
    rows[0] += 1  # one round of three, the same bound
    again, same = reused_batches(range(13, 49), rows, sizes, rate=0.1)
    assert (again, same) == (24, log_p)
    assert reused_batches(range(14, 50), rows, sizes, rate=0.1) == (0, 0.0)
