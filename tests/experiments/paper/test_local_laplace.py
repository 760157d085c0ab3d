"""The local Laplace figure: its curve and its audits."""

from math import exp, log

import numpy as np
import pytest

from dpaudit.experiments.paper import local_laplace
from dpaudit.experiments.paper.local_laplace import LOCAL_LAPLACE, limit
from dpaudit.reporting.chart import Look


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
    assert all("so it is here" in str(found) for found in result.findings)
    means = np.array(
        [
            [p.mean for p in result.chart.of(f"mean bound, {n:,} elements")]
            for n in local_laplace.CANARIES
        ]
    )
    gaps = [limit(e) for e in local_laplace.EPSILONS] - means
    assert (np.diff(gaps, axis=0) < 0).all()
    exact = [c.name for c in result.chart.curves if c.look is Look.COMPUTED]
    assert [p.repeats for p in result.chart.of(exact[0])] == [0] * 64
