"""Limited normal scores: right by enumeration, rising, and limited."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit.stats.limited_score import empty_score, limited_score

CLASSES = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 4)),
    min_size=1,
    max_size=2,
    unique_by=lambda c: c[0],
)


def law(classes, p):
    """Return the chance of every weighted count, by enumeration."""
    found = {}
    for counts in itertools.product(*(range(n + 1) for _, n in classes)):
        pairs = list(zip(classes, counts, strict=True))
        total = sum(w * k for (w, _), k in pairs)
        chance = math.prod(stats.binom.pmf(k, n, p) for (_, n), k in pairs)
        found[total] = found.get(total, 0.0) + chance
    return found


def score(classes, at, *, log_odds, uniform, step=np.inf):
    weights, trials = (np.array(column) for column in zip(*classes, strict=True))
    return limited_score(
        weights, trials, at, log_odds=log_odds, uniform=uniform, step=step
    )


@given(CLASSES, st.floats(-1, 2), st.floats(0.01, 0.99))
def test_without_a_limit_it_is_the_quantile_of_the_tail(classes, log_odds, uniform):
    chances = law(classes, 1 / (1 + math.exp(-log_odds)))
    for at, chance in chances.items():
        tail = sum(c for w, c in chances.items() if w > at) + uniform * chance
        want = stats.norm.isf(tail)
        if 1e-9 < tail < 1 - 1e-9:
            got = score(classes, at, log_odds=log_odds, uniform=uniform)
            assert got == pytest.approx(want, abs=1e-4 if abs(want) > 5 else 1e-7)


@given(
    CLASSES, st.floats(-1, 2), st.floats(0.0, 1.0, exclude_max=True), st.floats(0.1, 3)
)
def test_one_success_more_raises_it_by_no_more_than_the_step(
    classes, log_odds, uniform, step
):
    for counts in itertools.product(*(range(n + 1) for _, n in classes)):
        at = sum(w * k for (w, _), k in zip(classes, counts, strict=True))
        here = score(classes, at, log_odds=log_odds, uniform=uniform, step=step)
        free = score(classes, at, log_odds=log_odds, uniform=uniform)
        assert here <= free
        for (w, n), k in zip(classes, counts, strict=True):
            if k < n:
                more = score(
                    classes, at + w, log_odds=log_odds, uniform=uniform, step=step
                )
                assert -1e-9 <= more - here <= step + 1e-9


def test_a_wide_step_limits_nothing_in_the_middle():
    """The middle of 400 fair coins rises by a tenth per success."""
    for at in range(180, 221):
        limited, free = (
            score([(1, 400)], at, log_odds=0.0, uniform=0.4, step=s)
            for s in (0.12, np.inf)
        )
        assert limited == pytest.approx(free, abs=1e-9)


def test_large_classes_agree_with_the_normal_law():
    """Two classes of a hundred thousand; the normal law is right to a part in 300."""
    classes, n = [(3, 100_000), (5, 100_000)], 100_000
    deviation = math.sqrt((9 + 25) * n * 0.25)
    for z in (-3.0, 0.0, 1.0, 4.0):
        at = round(8 * n / 2 + z * deviation)
        got = score(classes, at, log_odds=0.0, uniform=0.5, step=0.02)
        assert got == pytest.approx(z, abs=0.01)


@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_extremes_are_finite(uniform):
    for at in (0, 50):
        found = score([(1, 50)], at, log_odds=0.0, uniform=uniform, step=0.4)
        assert abs(found) < 8
    assert abs(empty_score(uniform)) < 8


@pytest.mark.parametrize(
    "with_empty", [[(9, 0), (2, 5)], [(2, 5), (9, 0)], [(1, 0), (9, 0), (2, 5)]]
)
@pytest.mark.parametrize("step", [np.inf, 0.3])
def test_a_class_of_nobody_changes_nothing(with_empty, step):
    for at in range(0, 11, 2):
        got = score(with_empty, at, log_odds=0.4, uniform=0.3, step=step)
        want = score([(2, 5)], at, log_odds=0.4, uniform=0.3, step=step)
        assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("uniform", [0.01, 0.5, 0.8])
def test_with_nobody_at_all_it_is_pure_chance(uniform):
    got = score([(1, 0), (3, 0)], 0, log_odds=0.4, uniform=uniform, step=0.3)
    assert got == pytest.approx(stats.norm.isf(uniform), abs=1e-9)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0])
def test_far_beyond_all_that_is_resolved_the_score_is_cut(uniform):
    """None or all of a hundred thousand fair coins, 316 standard deviations out."""
    cut = stats.norm.isf(1e-14)
    for classes, most in (([(1, 100_000)], 100_000), ([(2, 30_000), (5, 7)], 60_035)):
        for at, want in ((0, -cut), (1, -cut), (most - 1, cut), (most, cut)):
            got = score(classes, at, log_odds=0.0, uniform=uniform)
            assert got == pytest.approx(want, abs=1e-6)
