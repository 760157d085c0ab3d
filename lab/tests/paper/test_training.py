"""The figures of DP-SGD over guesses and elements: counts, bounds, printed numbers."""

from math import hypot, log

import numpy as np
import pytest
from scipy import stats

from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Coins
from dpaudit_lab.paper import elements, guesses
from dpaudit_lab.paper.counting import (
    accuracy,
    epsilon_curves,
    estimation,
    exact,
    steinke,
)
from dpaudit_lab.paper.names import FIGURES
from dpaudit_lab.paper.training import EPSILON, NOISE, one_training


def coins(one, elements):
    """The coins of a training, which its key decides."""
    return Coins(key=one.key, count=elements).bits()


def test_the_paper_s_guesser_takes_the_highest_and_the_lowest_sums():
    one = one_training(2000, EPSILON, np.random.default_rng(1))
    # Sorted by hand: a coordinate's two elements have the same sum.
    order = np.argsort(one.seen.total)
    pairs = coins(one, 2000).reshape(1000, 2)
    low, high = pairs[order[:50]], pairs[order[-50:]]
    assert one.right_by_sums(200) == np.sum(low == 0) + np.sum(high == 1)


def right_guesses(elements, k, noise, rng):
    """How many of k guesses are right: the paper's experiment, written out."""
    d, s = min(elements, 1000), max(1, elements // 1000)
    bits = rng.integers(0, 2, (d, s))
    updates = rng.binomial(100 * bits.sum(axis=1), 0.1) + rng.normal(0, 10 * noise, d)
    ranked = bits[np.argsort(updates)].ravel()
    return np.sum(ranked[: k // 2] == 0) + np.sum(ranked[-(k // 2) :] == 1)


@pytest.mark.parametrize(
    ("trial", "setting", "key", "n", "k"),
    [
        (guesses.trial, {"epsilon": 2.0}, "sums 500", 5000, 500),
        (elements.trial, {"epsilon": 2.0, "elements": 500}, "sums", 500, 100),
        (elements.trial, {"epsilon": 8.0, "elements": 5000}, "sums", 5000, 100),
    ],
)
def test_right_guesses_are_those_of_the_experiment_written_out(
    trial, setting, key, n, k
):
    """Of 25 runs each; a right program fails with chance 1e-4 by the normal law."""
    rng = np.random.default_rng(5)
    found = [trial(setting, rng)[key] for _ in range(25)]
    noise = NOISE[setting["epsilon"]]
    expected = [right_guesses(n, k, noise, rng) for _ in range(400)]
    error = hypot(np.std(found) / 25**0.5, np.std(expected) / 400**0.5)
    assert abs(np.mean(found) - np.mean(expected)) < 4.1 * error


def test_likelihood_guesses_go_by_how_far_the_posterior_is_from_one_half():
    one = one_training(1000, EPSILON, np.random.default_rng(2))
    log_odds = one.mechanism.log_odds(one.seen)
    surest = sorted(range(1000), key=lambda i: -abs(log_odds[i]))[:100]
    bits = coins(one, 1000)
    right = sum((log_odds[i] > 0) == bool(bits[i]) for i in surest)
    assert one.right_by_likelihood(100) == right


def test_readings_of_counts():
    assert accuracy(1000, 100, 75) == 0.75
    assert estimation(1000, 100, 75) == pytest.approx(log(3))
    assert estimation(1000, 100, 100) == np.inf
    assert steinke(1000, 0, 0) == 0


def test_the_bounds_are_where_the_p_values_reach_alpha():
    n, k, v, delta = 8000, 100, 75, 1e-5

    def binomial(epsilon):
        return stats.binom(k, 1 / (1 + np.exp(-epsilon)))

    published = binomial(steinke(n, k, v))
    slope = max(
        (published.cdf(v - 1) - published.cdf(v - 1 - i)) / i for i in range(1, k)
    )
    p = published.sf(v - 1) + 2 * n * delta * slope
    assert p == pytest.approx(0.05, rel=1e-4)

    ours = binomial(exact(n, k, v))
    tail = ours.sf(v - 1)
    p = tail + n * delta * tail * (1 - tail) / (v * ours.pmf(v))
    assert p == pytest.approx(0.05, rel=1e-4)


def test_a_point_whose_mean_is_infinite_is_left_out():
    one, _ = epsilon_curves(2.0, 0)
    assert len(one.points(1.0, [(1000, 100, 70), (1000, 100, 75)])) == 1
    (reading,) = (c for c in guesses.BOUND_CURVES if c.curve.name == "estimation")
    assert reading.points(1.0, [(1000, 100, 70), (1000, 100, 100)]) == []


def test_a_chart_shows_means_of_what_the_store_holds(store):
    (sweep,) = FIGURES["guesses-accuracy"].sweeps(2)
    counts = ({"sums": 0.7, "likeliest": 0.8}, {"sums": 0.6, "likeliest": 0.8})
    outcomes = [
        (
            trial,
            {
                f"{who} {k}": round(share * k)
                for who, share in shares.items()
                for k in guesses.GUESSES
            },
        )
        for trial, shares in enumerate(counts)
    ]
    store.add(sweep.cell({"epsilon": 2.0}), outcomes)
    chart = FIGURES["guesses-accuracy"].read(store, (sweep,)).chart
    by_sums, likeliest = (chart.of(curve.name) for curve in chart.curves)
    assert [p.x for p in by_sums] == [k / 5000 for k in guesses.GUESSES]
    assert [p.mean for p in by_sums] == pytest.approx([0.65] * len(guesses.GUESSES))
    assert [p.error for p in by_sums] == pytest.approx([0.05] * len(guesses.GUESSES))
    assert [p.mean for p in likeliest] == pytest.approx([0.8] * len(guesses.GUESSES))
    assert {p.repeats for p in chart.points} == {2}
    # e^1.81482 right guesses for each wrong one
    assert [limit.text for limit in chart.limits] == ["true epsilon, as a share 0.860"]


def test_earlier_runs_are_named_and_infinite_estimations_left_out(store):
    (sweep,) = sweeps = FIGURES["elements"].sweeps(2)
    for setting in sweep.settings:
        right = 100 if setting["elements"] == 5000 else 75
        outcomes = [(0, {"sums": 70, "likeliest": 70})]
        outcomes.append((1, {"sums": right, "likeliest": 75}))
        store.add(sweep.cell(setting), outcomes)
    result = FIGURES["elements"].read(store, sweeps)
    first, second = map(str, result.findings[:2])
    assert first.endswith("an earlier 200 runs with other seeds gave 0.476 ± 0.014")
    assert second.endswith("an earlier 200 runs with other seeds gave 0.592 ± 0.013")
    drawn = {p.x for p in result.chart.of("estimation")}
    bounded = {p.x for p in result.chart.of("bound (Steinke et al.)")}
    assert bounded - drawn == {5.0}
    assert "its estimation is infinite; the mean is left out" in result.chart.caption


def test_a_store_that_lacks_trials_is_refused(store):
    figure = FIGURES["guesses"]
    with pytest.raises(InvalidInputError, match="the store holds 0 of 2 trials"):
        figure.read(store, figure.sweeps(2))


@pytest.mark.nightly
def test_the_printed_means_are_met(few):
    """Of 60 runs; a right program fails with chance 1e-4 by the normal law."""
    (sweep,) = elements.BOUNDS.sweeps(60)
    settings = [{"epsilon": 2.0, "elements": n} for n in (1000, 8000)]
    found = few(sweep, settings)
    for mark, n, outcomes in zip(elements.PRINTED, (1000, 8000), found, strict=True):
        bounds = np.array([steinke(n, 100, row["sums"]) for row in outcomes])
        error = hypot(bounds.std(ddof=1) / 60**0.5, mark.error)
        assert abs(bounds.mean() - mark.value) < 4.1 * error


def test_whole_figures_tell_printed_numbers_and_trends(reproduced):
    result = reproduced(FIGURES["guesses"], 3)
    said = [str(found) for found in result.findings]
    assert "increases the estimations: so" in said[0]
    assert "its estimation is infinite; the mean is left out" in result.chart.caption
    assert [limit.text for limit in result.chart.limits] == [
        "true epsilon 1.815",
        "no audit reliably shows more than 1.426",
    ]
    assert {p.mean for p in result.chart.of("no audit's median above")} == {0.776}
    assert said[-1].endswith("has a median bound above 0.776")
    measured = [p for p in result.chart.points if p.repeats]
    assert {p.repeats for p in measured} == {3}
    assert all(p.median is not None for p in measured)
    (top,) = {len(result.chart.of(curve.name)) for curve in result.chart.curves}
    assert top == len(guesses.GUESSES)


def test_more_noise_shows_less(reproduced):
    chart = reproduced(FIGURES["guesses-epsilons"], 2).chart
    means = [
        np.mean([p.mean for p in chart.of(f"epsilon = {epsilon}")])
        for epsilon in (1, 2, 4, 8)
    ]
    assert 0 < means[0] < means[1] < means[2] < means[3] < 8
    assert "shows more than 0.701, 1.426, 2.861, 5.691." in chart.caption
