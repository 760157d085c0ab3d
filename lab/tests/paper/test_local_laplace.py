"""The local Laplace figure: its curve and its audits."""

from math import exp, log

import numpy as np
import pytest
from scipy import stats

from dpaudit_lab.paper import local_laplace
from dpaudit_lab.paper.findings import Verdict
from dpaudit_lab.paper.local_laplace import LOCAL_LAPLACE, limit, nears
from dpaudit_lab.pictures.chart import Look, Point


@pytest.mark.parametrize("epsilon", [0.125, 1.0, 2.0, 8.0])
def test_the_limit_is_the_log_odds_of_the_printed_efficacy(epsilon):
    efficacy = 1 - exp(-epsilon / 2) / 2
    assert limit(epsilon) == pytest.approx(log(efficacy / (1 - efficacy)))
    assert 0 < limit(epsilon) < epsilon


def test_simulated_efficacy_is_the_printed_one(few):
    """Of 200,000 guesses; a right program fails with chance 1e-4."""
    (sweep,) = LOCAL_LAPLACE.sweeps(20)
    (outcomes,) = few(sweep, [{"canaries": 10_000, "epsilon": 3.0}])
    rate = sum(row["right"] for row in outcomes) / 200_000
    efficacy = 1 - exp(-1.5) / 2
    assert abs(rate - efficacy) < 3.9 * (efficacy * (1 - efficacy) / 200_000) ** 0.5


def test_bounds_come_nearer_to_the_limit_the_larger_the_audit(reproduced):
    result = reproduced(LOCAL_LAPLACE, 10)
    # Ten repeats need not make it clear.
    assert all(found.verdict is not Verdict.FAILS for found in result.findings)
    means = np.array(
        [
            [p.mean for p in result.chart.of(f"mean bound, {n:,} elements")]
            for n in local_laplace.CANARIES
        ]
    )
    gaps = [limit(e) for e in local_laplace.EPSILONS] - means
    assert (np.diff(gaps, axis=0) < 0).all()
    exact = [c.name for c in result.chart.curves if c.look is Look.LIMIT]
    assert exact == ["epsilon itself", "limit: log-odds of the efficacy"]
    for name in exact:
        assert [p.repeats for p in result.chart.of(name)] == [0] * 64


def at_sizes(*means, error=0.001):
    return [
        Point(curve="a", x=n, mean=mean, error=error, repeats=200)
        for n, mean in zip(local_laplace.CANARIES, means, strict=True)
    ]


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_expected_bounds_near_the_limit(epsilon):
    """By the law of the count and Clopper and Pearson's bound, without simulation."""
    efficacy = 1 - exp(-epsilon / 2) / 2
    expected = []
    for n in local_laplace.CANARIES:
        right = np.arange(1, n + 1)
        low = stats.beta.ppf(0.05, right, n - right + 1)
        bound = np.maximum(0, np.log(low / (1 - low)))
        expected.append(stats.binom.pmf(right, n, efficacy) @ bound)
    assert nears(at_sizes(*expected), limit(epsilon)) is Verdict.HOLDS


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ((0.1, 0.2, 0.3), Verdict.FAILS),  # stuck far below the limit
        ((1.0, 1.33, 1.33), Verdict.FAILS),  # stuck near it
        ((1.0, 1.8, 2.6), Verdict.FAILS),  # past it
        ((1.0, 1.32, 1.41), Verdict.HOLDS),  # 0.49, 0.17, 0.08 is lacking
        ((1.0, 1.25, 1.4), Verdict.UNCLEAR),  # about half
    ],
)
def test_means_that_are_stuck_are_said_not_to_converge(means, verdict):
    error = 0.001 if verdict is not Verdict.UNCLEAR else 0.01
    assert nears(at_sizes(*means, error=error), 1.49) is verdict


def test_a_stuck_figure_is_told_to_be_so(store):
    """All audits have 60 per cent right, whatever their size."""
    (sweep,) = sweeps = LOCAL_LAPLACE.sweeps(2)
    for setting in sweep.settings:
        right = 6 * setting["canaries"] // 10
        outcomes = [(0, {"right": right}), (1, {"right": right + 1})]
        store.add(sweep.cell(setting), outcomes)
    for found in LOCAL_LAPLACE.read(store, sweeps).findings:
        assert "the level of the efficacy: not so here; " in str(found)
