"""Training that is seldom heard: its delta against integrals, its draws, its bite."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration.cases import Case
from dpaudit_lab.calibration.nulls import curve_of
from dpaudit_lab.calibration.subjects import TRAININGS, subject
from dpaudit_lab.calibration.training import SeldomTraining, training_delta


def gaussian_delta(mu, epsilon):
    """Balle and Wang's formula."""
    return special.ndtr(mu / 2 - epsilon / mu) - exp(epsilon) * special.ndtr(
        -mu / 2 - epsilon / mu
    )


def normal(x, sigma):
    return np.exp(-0.5 * (x / sigma) ** 2) / (sigma * sqrt(2 * np.pi))


def two_steps(epsilon, rate, sigma):
    """The larger of both deltas of a canary alone, by an integral over two sums."""
    x = np.linspace(-8 * sigma, 1 + 8 * sigma, 1500)
    alone, joined = normal(x, sigma), normal(x - 1, sigma)
    present = (1 - rate) * alone + rate * joined
    p, q = np.outer(present, present), np.outer(alone, alone)
    cell = (x[1] - x[0]) ** 2
    return max(
        float(np.maximum(a - exp(epsilon) * b, 0).sum() * cell)
        for a, b in ((p, q), (q, p))
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("steps", "sigma"), [(1, 2.0), (9, 3.0), (16, 1.0)])
def test_the_full_batch_is_a_gaussian_mechanism(steps, sigma, epsilon):
    found = training_delta(epsilon, steps=steps, rate=1.0, sigma=sigma)
    expected = gaussian_delta(sqrt(steps) / sigma, epsilon)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found >= expected * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0])
@pytest.mark.parametrize(("rate", "sigma"), [(0.5, 0.2), (0.3, 0.3), (0.5, 1.0)])
def test_the_bound_is_no_less_than_the_true_delta(rate, sigma, epsilon):
    truth = two_steps(epsilon, rate, sigma)
    found = training_delta(epsilon, steps=2, rate=rate, sigma=sigma)
    assert found >= truth - 1e-6


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_the_bound_is_nearly_sharp_where_noise_is_little(epsilon):
    found = training_delta(epsilon, steps=2, rate=0.5, sigma=0.1)
    assert found == pytest.approx(two_steps(epsilon, 0.5, 0.1), rel=0.005)
    assert found == pytest.approx(0.75, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 5.0])
def test_the_claims_in_use_are_nearly_sharp(epsilon):
    """Delta is a mean over runs with the canary; 6 deviations, false alarms 1e-9."""
    null = SeldomTraining(epsilon=epsilon, chance=1.0)
    steps, rate, sigma = null.steps, null.rate, null.sigma
    rng = np.random.default_rng(0)
    joined = rng.random((100_000, steps)) < rate
    x = joined + rng.normal(0, sigma, joined.shape)
    ratio = 1 - rate + rate * np.exp((2 * x - 1) / (2 * sigma**2))
    excess = np.maximum(0, 1 - np.exp(epsilon - np.log(ratio).sum(axis=1)))
    slack = 6 * excess.std() / sqrt(len(excess))
    assert null.claim.delta >= excess.mean() - slack
    assert null.claim.delta <= 1.013 * (excess.mean() + slack)


def test_others_at_the_coordinate_only_hide_a_canary():
    """With a second canary there, one step: an integral over the sum."""
    rate, sigma, epsilon = 0.5, 0.3, 1.0
    x = np.linspace(-3, 5, 20_001)
    one = (1 - rate) * normal(x, sigma) + rate * normal(x - 1, sigma)
    both = (
        (1 - rate) ** 2 * normal(x, sigma)
        + 2 * rate * (1 - rate) * normal(x - 1, sigma)
        + rate**2 * normal(x - 2, sigma)
    )
    truth = max(
        float(np.maximum(a - exp(epsilon) * b, 0).sum() * (x[1] - x[0]))
        for a, b in ((one, both), (both, one))
    )
    assert truth <= training_delta(epsilon, steps=1, rate=rate, sigma=sigma)


def test_silence_scales_the_whole_curve():
    null = SeldomTraining(epsilon=1.0, chance=0.02)
    for epsilon in (0.0, 1.0, 5.0):
        loud = SeldomTraining(epsilon=epsilon, chance=1.0).claim.delta
        assert null.delta_at(epsilon) == pytest.approx(0.02 * loud, rel=1e-12)
        # Between its points a curve is a chord, which lies above.
        assert curve_of(null).delta_at(epsilon) >= null.delta_at(epsilon) * (1 - 1e-9)
    assert null.claim.adjacency is Adjacency.ADD_REMOVE
    assert null.mechanism(10).pairs.adjacency is Adjacency.ADD_REMOVE


def test_it_is_heard_as_seldom_as_it_says_and_then_loudly():
    """The chance of a false alarm is 1e-6."""
    null = SeldomTraining(epsilon=1.0, chance=0.2)
    draws = null.draw(np.random.default_rng(0), canaries=40, audits=1000)
    heard = draws.log_odds.any(axis=1)
    low, high = rate_limits(int(heard.sum()), 1000, alpha=1e-6)
    assert low <= 0.2 <= high
    sure = np.abs(draws.log_odds) > 5
    assert sure[heard].mean() > 0.3
    assert draws.right[sure].mean() > 0.99


@pytest.mark.parametrize("rule", ["exact, r = n", "betting", "ranked looks"])
def test_it_bites_a_valid_rule_with_less_than_its_level(rule):
    """That one which ignores delta stops above is shown in test_forgetting."""
    case = Case(rule=rule, null="DP-SGD, all or nothing", canaries=1000, alpha=0.05)
    judge, null = case.parts()
    assert null.chance <= 0.05
    loud = replace(null, chance=1.0)
    draws = loud.draw(np.random.default_rng(5), canaries=1000, audits=10)
    found = judge.rejects(draws, null.claim, 0.05, np.random.default_rng(6))
    assert found.mean() >= 0.8


@pytest.mark.parametrize("name", TRAININGS)
def test_what_whole_audits_train_has_more_than_one_canary_per_coordinate(name):
    null, audited = TRAININGS[name], subject(name)
    assert null.per_coordinate > 1
    assert null.steps > 1
    assert null.rate < 1
    assert audited.claim == null.claim
    assert audited.canaries == 1000
    # Too little noise: the same run, always seen, is far from its claim.
    loud = training_delta(
        null.epsilon, steps=null.steps, rate=null.rate, sigma=null.sigma
    )
    assert loud > 0.99


def test_canaries_that_do_not_fill_coordinates_are_refused():
    with pytest.raises(InvalidInputError, match="multiple of per_coordinate=2"):
        SeldomTraining(epsilon=1.0, chance=0.1).mechanism(5)
