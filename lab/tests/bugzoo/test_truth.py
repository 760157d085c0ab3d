"""True epsilons against closed forms, and bounds on the right side."""

from math import exp, log, sqrt

import numpy as np
import pytest
from scipy import stats

from dpaudit.privacy.guarantees import GaussianDP
from dpaudit_lab.bugzoo.shuffled import shuffled_epsilon
from dpaudit_lab.bugzoo.truth import (
    DELTA,
    epsilon_of,
    few_records,
    nearly_noiseless,
)


def test_without_sampling_epsilon_is_that_of_gaussian_privacy():
    found = epsilon_of(((4.0, 1.0, 9),))
    assert found == pytest.approx(GaussianDP(mu=0.75).epsilon_at(DELTA), rel=1e-3)


def test_little_noise_spends_no_less_than_the_bound_says():
    for noise in (0.2, 0.4):
        exact = GaussianDP(mu=sqrt(3) / noise).epsilon_at(DELTA)  # every record joins
        assert nearly_noiseless(noise, 1 - 1e-12, 3) <= exact
    # With next to no noise half the squared distance of the two means is spent.
    assert nearly_noiseless(0.01, 0.1, 100) == pytest.approx(0.5 / 1e-4, rel=0.01)


def test_two_records_spend_no_less_than_the_bound_says():
    d, q, steps = 200, 0.1, 50
    # Chance of a small square norm in some step, by the chi-square law itself.
    both = q**2 * stats.chi2(d).cdf(2 * d)
    with_both = 1 - (1 - both) ** steps
    with_one = 1 - (1 - stats.chi2(d).cdf(d / 2)) ** steps
    found = few_records(dimension=d, rate=q, steps=steps)
    assert found <= log((with_both - DELTA) / with_one)
    assert exp(found) > 1


@pytest.mark.parametrize("crowd", [False, True])
def test_one_batch_is_no_sampling_at_all(crowd):
    """200,000 draws at delta = 0.01: the error of epsilon is about 0.01."""
    found = shuffled_epsilon(
        noise=2.0,
        batches=1,
        epochs=4,
        delta=0.01,
        crowd=crowd,
        draws=200_000,
        rng=np.random.default_rng(1),
    )
    assert found == pytest.approx(GaussianDP(mu=1.0).epsilon_at(0.01), abs=0.05)


def test_two_batches_spend_what_an_integral_says():
    """The pair alone, one epoch: the mean excess over both batches, by quadrature."""
    noise, delta = 1.0, 0.01
    grid = np.linspace(-9, 10, 2001)
    weight = stats.norm(scale=noise).pdf(grid) * (grid[1] - grid[0])
    ratio = np.exp((2 * grid - 1) / (2 * noise**2))
    mean = (ratio[:, None] + ratio) / 2
    low, high = 0.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        excess = np.maximum(mean - exp(middle), 0)
        low, high = (
            (middle, high) if weight @ excess @ weight > delta else (low, middle)
        )
    found = shuffled_epsilon(
        noise=noise,
        batches=2,
        epochs=1,
        delta=delta,
        crowd=False,
        draws=400_000,
        rng=np.random.default_rng(2),
    )
    assert found == pytest.approx(low, abs=0.05)


def test_a_crowd_gives_a_record_away():
    def spent(*, crowd):
        return shuffled_epsilon(
            noise=1.0,
            batches=10,
            epochs=1,
            delta=1e-3,
            crowd=crowd,
            draws=100_000,
            rng=np.random.default_rng(3),
        )

    assert spent(crowd=True) > 1.5 * spent(crowd=False)
