"""Weighted tails: right, never understated, near and far, few trials and a billion."""

import itertools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit.stats.binomial import log_tails
from dpaudit.stats.weighted import weighted_tail


@st.composite
def classes(draw, weights, most=6):
    """Draw up to four classes: weights, trials, whole odds."""
    size = draw(st.integers(1, 4))
    return (
        [draw(weights) for _ in range(size)],
        [draw(st.integers(0, most)) for _ in range(size)],
        [draw(st.integers(1, 9)) for _ in range(size)],
    )


def law(weights, trials, odds):
    """Return every value of the sum with its exact chance."""
    found = []
    for counts in itertools.product(*(range(n + 1) for n in trials)):
        chance = Fraction(1)
        for k, n, o in zip(counts, trials, odds, strict=True):
            chance *= math.comb(n, k) * Fraction(o) ** k / Fraction(1 + o) ** n
        found.append((float(np.dot(weights, counts)), chance))
    return found


def log_odds(odds):
    return [math.log(o) for o in odds]


@given(classes(st.integers(1, 7)), st.integers(0, 60))
def test_whole_weights_agree_with_every_outcome_counted(drawn, threshold):
    weights, trials, odds = drawn
    want = sum(c for x, c in law(weights, trials, odds) if x >= threshold)
    tail = weighted_tail(weights, trials, log_odds(odds), threshold)
    assert math.exp(tail.log_upper) == pytest.approx(float(want), rel=1e-9)
    assert math.exp(tail.log_upper) >= float(want) * (1 - 1e-15)


@given(classes(st.floats(0.1, 3)), st.data())
def test_real_weights_are_never_understated_and_as_tight_as_the_slack_says(drawn, data):
    weights, trials, odds = drawn
    outcomes = law(weights, trials, odds)
    threshold = data.draw(st.sampled_from([x for x, _ in outcomes]))
    want = float(sum(c for x, c in outcomes if x >= threshold))
    tail = weighted_tail(weights, trials, log_odds(odds), threshold)
    assert math.exp(tail.log_upper) >= want * (1 - 1e-12)
    assert math.exp(tail.log_upper - tail.slack) <= want * (1 + 1e-9)


@given(st.integers(1, 2000), st.floats(-3, 6), st.data())
def test_one_class_is_a_binomial_tail_however_far(r, epsilon, data):
    v = data.draw(st.integers(0, r))
    got = weighted_tail([1], [r], [epsilon], v).log_upper
    assert got == pytest.approx(log_tails(v, r, epsilon)[0], rel=1e-9, abs=1e-9)


def test_a_billion_trials(subtests):
    for share, scale in product([0.6, 0.75, 0.95, 1.0], [1, 2, 0.3, math.pi]):
        with subtests.test(share=share, scale=scale):
            r = 10**9
            v = round(share * r)
            got = weighted_tail([scale], [r], [0.0], scale * v)
            want = log_tails(v, r, 0.0)[0]
            assert want * (1 + 1e-9) <= got.log_upper
            assert got.log_upper - got.slack <= want * (1 - 1e-9)
            assert got.log_upper == pytest.approx(want, rel=1e-7)


def exact_log_tail(weights, trials, odds, threshold):
    """Convolve in whole numbers of any size: no rounding until the logarithm."""
    counts = [1]
    scale = 1
    for w, n, o in zip(weights, trials, odds, strict=True):
        term = [0] * (w * n + 1)
        for k in range(n + 1):
            term[w * k] = math.comb(n, k) * o**k
        scale *= (1 + o) ** n
        longer = [0] * (len(counts) + len(term) - 1)
        for i, a in enumerate(counts):
            for k in range(0, len(term), w):
                longer[i + k] += a * term[k]
        counts = longer
    return math.log(sum(counts[threshold:])) - math.log(scale)


@pytest.mark.parametrize("threshold", [300, 400, 450, 499, 500])
def test_a_far_tail_agrees_with_arithmetic_in_whole_numbers(threshold):
    weights, trials, odds = [3, 1, 2], [50, 150, 100], [1, 2, 1]
    want = exact_log_tail(weights, trials, odds, threshold)
    got = weighted_tail(weights, trials, log_odds(odds), threshold)
    assert got.log_upper == pytest.approx(want, abs=1e-8)
    assert got.log_upper >= want - 1e-12 * abs(want)


@pytest.mark.parametrize("threshold", [300, 400, 450, 499, 500])
def test_a_far_tail_of_weights_that_are_not_whole_stays_above_the_truth(threshold):
    """The same sum in units of a third: a grid is needed, and only ever rounds up."""
    trials, odds = [50, 150, 100], [1, 2, 1]
    want = exact_log_tail([3, 1, 2], trials, odds, threshold)
    got = weighted_tail([1.0, 1 / 3, 2 / 3], trials, log_odds(odds), threshold / 3)
    assert got.log_upper >= want - 1e-12 * abs(want)
    assert got.log_upper - got.slack <= want + 1e-9
    assert got.log_upper <= want + 0.7  # a value just below may be counted in


@given(classes(st.integers(1, 5)), st.integers(1, 40), st.floats(0, 2))
def test_the_tail_grows_with_the_odds_and_falls_with_the_threshold(drawn, t, more):
    weights, trials, odds = drawn
    here = weighted_tail(weights, trials, log_odds(odds), t).log_upper
    beyond = weighted_tail(weights, trials, log_odds(odds), t + 1).log_upper
    better = [x + more for x in log_odds(odds)]
    assert beyond <= here + 1e-9
    assert here <= weighted_tail(weights, trials, better, t).log_upper + 1e-9


def test_what_must_be_has_chance_one_and_what_cannot_be_has_none():
    assert weighted_tail([2.0], [3], [0.0], 0.0).log_upper == 0.0
    assert weighted_tail([2.0], [3], [0.0], 6.1).log_upper == -math.inf
    assert weighted_tail([2.0], [0], [0.0], 1.0).log_upper == -math.inf


def test_hundreds_of_classes_hold_a_simulated_tail_within_their_slack():
    """100 000 draws; four sigma on either side, a false alarm in 10^4 seeds."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 2.0, 300)
    sums = (rng.random((100_000, 300)) < special.expit(1.0)) @ weights
    threshold = float(weights.sum() * special.expit(1.0) + 25)
    rate = float(np.mean(sums >= threshold))
    error = 4 * math.sqrt(rate * (1 - rate) / 100_000)
    tail = weighted_tail(weights, [1] * 300, [1.0] * 300, threshold)
    assert rate - error <= math.exp(tail.log_upper)
    assert math.exp(tail.log_upper - tail.slack) <= rate + error
    assert tail.slack < 0.5


def test_weights_of_any_size_have_the_tail_of_a_count(subtests):
    for unit, right in product(
        [1e-300, 5e-324, 1e-9, 1e9, 1e155, 1e200, 1e307], [0, 1, 2, 3]
    ):
        with subtests.test(unit=unit, right=right):
            tail = weighted_tail([unit], [3], [0.3], unit * right)
            want = stats.binom.sf(right - 1, 3, special.expit(0.3))
            assert math.exp(tail.log_upper) == pytest.approx(want, rel=1e-6)
            assert math.exp(tail.log_upper) >= want


@pytest.mark.parametrize("large", [1e20, 1e155, 1e300])
def test_a_weight_beside_which_others_vanish_leaves_a_safe_tail(large):
    """Both right, or the large one alone, which floats cannot tell apart."""
    tail = weighted_tail([large, 1.0], [1, 1], [0.0, 0.0], large + 1.0)
    assert 0.25 <= math.exp(tail.log_upper) <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("weights", [[np.inf], [np.nan], [np.inf, 1.0]])
def test_weights_that_are_no_numbers_prove_nothing(weights):
    n = len(weights)
    assert weighted_tail(weights, [2] * n, [0.0] * n, 1.0).log_upper == 0.0


def test_a_threshold_one_digit_above_a_sum_is_within_the_slack():
    """5 w is not quite the threshold; in units of w it is, and the slack says so."""
    w = 1.170110592254758
    threshold = math.nextafter(5 * w, 10.0)
    tail = weighted_tail([w, w], [3, 5], [0.0, 0.0], threshold)
    sums = [w * k for k in range(9)]
    want = sum(math.comb(8, k) for k in range(9) if sums[k] >= threshold) / 2**8
    assert math.exp(tail.log_upper) >= want
    assert math.exp(tail.log_upper - tail.slack) <= want * (1 + 1e-9)


def test_where_the_chance_is_known_for_sure_there_is_no_slack():
    for threshold in (-1.0, 0.0):
        assert weighted_tail([2.0], [3], [0.0], threshold).slack == 0.0
    assert weighted_tail([2.0], [3], [0.0], 6.1).slack == 0.0


def test_no_chance_is_above_one():
    """Ten near-certain successes of which one is needed: all but 1e-130."""
    assert weighted_tail([1.0], [10], [30.0], 1).log_upper <= 0.0
    assert weighted_tail([0.3, 0.7], [10, 10], [30.0, 30.0], 0.3).log_upper <= 0.0


@pytest.mark.parametrize("unit", [1e-9, 1.17, 1e200])
def test_between_two_sums_the_unit_of_the_weights_costs_nothing(unit):
    tail = weighted_tail([unit], [8], [0.0], 4.5 * unit)
    assert math.exp(tail.log_upper) == pytest.approx(stats.binom.sf(4, 8, 0.5))
    assert 0 <= tail.slack < 1e-6
