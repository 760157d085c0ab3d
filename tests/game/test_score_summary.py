"""Scores in a few numbers: counts by hand, and the ROC against one made by sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.score_summary import ScoreSummary


def area(summary):
    return np.trapezoid(summary.true_positive, summary.false_positive)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1)), min_size=1))
def test_every_canary_is_counted_once_and_the_area_is_that_of_all_pairs(rows):
    scores, bits = np.array(rows, float).T
    summary = ScoreSummary.of(scores, bits)
    assert (sum(summary.included), sum(summary.excluded)) == (
        np.sum(bits == 1),
        np.sum(bits == 0),
    )
    inside, outside = scores[bits == 1], scores[bits == 0]
    if len(inside) and len(outside):
        # Few values, so no point is left out: the area is the share of ordered pairs.
        pairs = np.sign(np.subtract.outer(inside, outside))
        assert area(summary) == pytest.approx((pairs.mean() + 1) / 2)
    assert decode(ScoreSummary, encode(summary), "scores") == summary


def test_many_scores_keep_both_ends_of_the_curve():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, 200_000)
    scores = bits + rng.normal(size=len(bits))
    summary = ScoreSummary.of(scores, bits)
    assert len(summary.true_positive) <= 130
    top = np.flatnonzero(np.array(summary.true_positive) > 0)[0]
    assert summary.true_positive[top] < 2e-4  # the very first canaries are told apart
    # The chance that one normal exceeds another one lower; the polyline cuts corners.
    assert area(summary) == pytest.approx(0.7602, abs=0.005)


@pytest.mark.parametrize(
    "scores",
    [
        [np.inf, -np.inf, 0.0],
        [np.inf] * 3,
        [7.0] * 3,
        [1e17] * 3,
        [-1e308, 1e308, 0.0],
    ],
)
def test_endless_and_equal_scores_have_bins_too(scores):
    summary = ScoreSummary.of(scores, [1, 0, 1])
    assert (sum(summary.included), sum(summary.excluded)) == (2, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [0.0, 0.0]},
        {"included": [-1]},
        {"included": [True]},
        {"included": [0.5]},
        {"true_positive": [0.0, 0.5]},
        {"true_positive": [0.0, 1.0, 1.0]},
        {"false_positive": "0"},
        {"more": []},
    ],
)
def test_what_no_scores_give_is_refused(change):
    plain = {
        "edges": [0.0, 1.0],
        "included": [1],
        "excluded": [1],
        "false_positive": [0.0, 1.0],
        "true_positive": [0.0, 1.0],
    }
    assert decode(ScoreSummary, plain, "scores").included == (1,)
    with pytest.raises(InvalidInputError):
        decode(ScoreSummary, {**plain, **change}, "scores")


def test_no_number_is_refused():
    with pytest.raises(InvalidInputError, match="NaN"):
        ScoreSummary.of([np.nan, 1.0], [0, 1])


@pytest.mark.parametrize(
    ("scores", "bits"), [([], []), ([1.0, 2.0], [1]), ([[1.0, 2.0]], [[1, 0]])]
)
def test_scores_without_coins_are_refused(scores, bits):
    with pytest.raises(InvalidInputError, match=r"^scores and bits must be two lists"):
        ScoreSummary.of(scores, bits)


@pytest.mark.parametrize("name", ["included", "excluded"])
def test_a_part_of_a_canary_is_refused(name):
    plain = encode(ScoreSummary.of([1.0, 2.0, 3.0], [1, 0, 1]))
    plain[name] = [count + 0.5 for count in plain[name]]
    with pytest.raises(InvalidInputError, match=name):
        decode(ScoreSummary, plain, "scores")


def test_bins_reach_from_the_lowest_to_the_highest_score():
    summary = ScoreSummary.of(np.linspace(-3.0, 5.0, 101), np.arange(101) % 2)
    assert (summary.edges[0], summary.edges[-1]) == (-3.0, 5.0)
    assert np.ptp(np.diff(summary.edges)) < 1e-6
    endless = ScoreSummary.of([np.inf, -np.inf], [1, 0])
    assert endless.edges == (-0.5, 0.5)
