"""What an audit is expected to find: against simulation, sums and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit import ApproxDP, GaussianDP, PureDP
from dpaudit.bounds import Counts, ExactBound, judge_claim
from dpaudit.bounds.power import least_refuting
from dpaudit.errors import InvalidInputError
from dpaudit.theory.power import bounds_by_count, power


def binomial(r, a):
    return stats.binom.pmf(np.arange(r + 1), r, a)


def at_odds(r, epsilon):
    return binomial(r, 1 / (1 + math.exp(-epsilon)))


def clopper_pearson(v, r, alpha):
    """The pure bound in closed form."""
    if v == 0:
        return 0.0
    q = stats.beta.ppf(alpha, v, r - v + 1)
    return max(0.0, math.log(q / (1 - q)))


def exact(m, r, v, delta):
    counts = Counts(canaries=m, guesses=r, correct=v)
    return ExactBound().epsilon_lower(counts, delta=delta, alpha=0.05).epsilon_lower


@pytest.mark.parametrize(("r", "a"), [(10, 0.9), (60, 0.55), (60, 0.8), (150, 0.73)])
def test_mean_and_spread_are_sums_over_clopper_pearson(r, a):
    law = binomial(r, a)
    bounds = np.array([clopper_pearson(v, r, 0.05) for v in range(r + 1)])
    found = power(
        law, canaries=r, guesses=r, claim=PureDP(epsilon=1.0), delta=0.0, alpha=0.05
    )
    mean = law @ bounds
    assert found.expected_bound == pytest.approx(mean, abs=1e-8)
    assert found.spread == pytest.approx(math.sqrt(law @ bounds**2 - mean**2), abs=1e-7)


def test_a_wide_law_is_summed_on_chords_that_stay_close():
    """Far more than 64 numbers of right guesses occur; 1e-5 is what is promised."""
    m, r, delta = 900, 600, 1e-4
    law = 0.4 * binomial(r, 0.56) + 0.6 * binomial(r, 0.93)
    common = np.flatnonzero(law > 1e-8)
    assert len(common) > 150
    want = sum(law[v] * exact(m, r, int(v), delta) for v in common)
    found = bounds_by_count(law, canaries=m, guesses=r, delta=delta, alpha=0.05)
    assert law @ found == pytest.approx(want, abs=1e-5)


def test_the_expected_bound_agrees_with_audits_that_are_run():
    """Bounds lie in [0, 2]: Hoeffding, wrong by chance less than once in 10^6."""
    m, r, runs = 400, 100, 20_000
    hits = np.random.default_rng(5).binomial(r, 0.7, size=runs)
    table = {v: exact(m, r, int(v), 1e-4) for v in np.unique(hits)}
    assert max(table.values()) < 2
    drawn = np.mean([table[v] for v in hits])
    found = power(
        binomial(r, 0.7),
        canaries=m,
        guesses=r,
        claim=ApproxDP(epsilon=1.0, delta=1e-4),
        delta=1e-4,
        alpha=0.05,
    )
    slack = 2 * math.sqrt(math.log(2e6) / (2 * runs))
    assert found.expected_bound == pytest.approx(drawn, abs=slack)
    assert found.spread == pytest.approx(np.std([table[v] for v in hits]), abs=0.01)


@pytest.mark.parametrize(
    "claim",
    [PureDP(epsilon=0.5), ApproxDP(epsilon=0.8, delta=1e-3), GaussianDP(mu=0.6)],
)
def test_the_chance_to_refute_is_a_sum_over_single_tests(claim):
    m, r, alpha = 60, 40, 0.05
    law = binomial(r, 0.75)
    refuted = [
        judge_claim(
            claim, Counts(canaries=m, guesses=r, correct=v), alpha=alpha
        ).refuted
        for v in range(r + 1)
    ]
    found = power(law, canaries=m, guesses=r, claim=claim, delta=0.0, alpha=alpha)
    assert found.refutes == pytest.approx(law[refuted].sum(), abs=1e-12)
    assert 0.01 < found.refutes < 0.99
    least = least_refuting(claim, canaries=m, guesses=r, alpha=alpha)
    assert refuted == [v >= least for v in range(r + 1)]


@given(
    st.integers(20, 300),
    st.floats(0.1, 3.0),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_a_true_claim_is_refuted_no_more_often_than_alpha(r, epsilon, alpha):
    claim = PureDP(epsilon=epsilon)
    least = least_refuting(claim, canaries=r, guesses=r, alpha=alpha)
    refuted = 0.0 if least is None else at_odds(r, epsilon)[least:].sum()
    assert refuted <= alpha * (1 + 1e-9)


@pytest.mark.parametrize(
    ("law", "advice"),
    [
        (np.ones(5) / 5, "guesses=3 has 4 probabilities"),
        (np.array([100, 300, 500, 100]), "divide counts of a simulation"),
        (np.array([-0.5, 0.5, 0.5, 0.5]), "at least 0 and add up to 1"),
    ],
)
def test_a_law_that_is_none_is_refused(law, advice):
    with pytest.raises(InvalidInputError, match=advice):
        power(
            law,
            canaries=3,
            guesses=3,
            claim=PureDP(epsilon=1.0),
            delta=0.0,
            alpha=0.05,
        )
