"""The posterior of a Dirac canary's coin, against enumeration and quantiles."""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.dpsgd.posterior import DiracPosterior, noise_scale, step_log_odds


@pytest.mark.parametrize("sample_rate", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_steps_add_up_to_the_posterior_over_all_batches(sample_rate, scale):
    sums = np.random.default_rng(0).normal(0.5, 1.5, (3, 4))
    got = sum(step_log_odds(x, scale=scale, sample_rate=sample_rate) for x in sums)
    for canary, seen in enumerate(sums.T):
        joint = {0: 0.0, 1: 0.0}
        for coin, batches in product((0, 1), product((0, 1), repeat=3)):
            drawn = np.array(batches)
            chance = np.prod(np.where(drawn, sample_rate, 1 - sample_rate))
            density = stats.norm.pdf(seen, loc=coin * drawn, scale=scale).prod()
            joint[coin] += chance * density
        assert got[canary] == pytest.approx(np.log(joint[1] / joint[0]), abs=1e-12)


def test_the_noise_is_found_beneath_a_few_signals():
    """Quantiles of the normal law instead of draws; one value in twenty is shifted."""
    noise = 0.6 * special.ndtri((np.arange(1000) + 0.5) / 1000)
    noise[::20] += 1.0
    assert noise_scale(noise) == pytest.approx(0.6, rel=0.08)


def test_noiseless_sums_stay_finite_and_are_read_rightly():
    posterior = DiracPosterior(canaries=4, sample_rate=0.1)
    for _ in range(1000):
        posterior.observe(np.array([0.0, 0.0, 0.0, 1.0]))
    assert np.all(np.isfinite(posterior.log_odds))
    assert list(np.sign(posterior.log_odds)) == [-1, -1, -1, 1]


def test_a_rate_of_zero_says_nothing():
    posterior = DiracPosterior(canaries=2, sample_rate=0.0)
    posterior.observe(np.array([5.0, -5.0]))
    np.testing.assert_array_equal(posterior.log_odds, [0.0, 0.0])
