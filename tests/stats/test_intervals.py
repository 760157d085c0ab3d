"""Limits of means: as published, and as wide as they must be."""

import math

import numpy as np
import pytest

from dpaudit.stats.binomial import rate_limits
from dpaudit.stats.intervals import mean_limits


def test_the_limits_are_those_of_the_theorem():
    """mean +- sqrt(2 V ln(4/a) / n) + 7 span ln(4/a) / (3 (n - 1)), V unbiased."""
    values = np.random.default_rng(0).uniform(2.0, 5.0, 400)
    cost = math.log(4 / 0.01)
    reach = math.sqrt(2 * values.var(ddof=1) * cost / 400) + 7 * 3 * cost / (3 * 399)
    found = mean_limits(values.mean(), values.var(), 400, span=(2.0, 5.0), alpha=0.01)
    want = (values.mean() - reach, values.mean() + reach)
    assert found == pytest.approx(want, rel=1e-12)


def test_limits_stay_in_the_span_and_around_the_mean():
    low, high = mean_limits(0.9, 0.01, 3, span=(0.5, 1.0), alpha=0.01)
    assert (low, high) == (0.5, 1.0)


def test_limits_miss_no_more_often_than_they_say():
    """Fixed seed; valid limits would fail this once in a million choices of it."""
    rng = np.random.default_rng(1)
    draws = rng.random((2000, 60)) < 0.1
    missed = 0
    for row in draws:
        low, high = mean_limits(row.mean(), row.var(), 60, span=(0.0, 1.0), alpha=0.1)
        missed += not low <= 0.1 <= high
    assert rate_limits(missed, 2000, alpha=2e-6)[0] <= 0.1
