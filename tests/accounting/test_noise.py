"""Noise: the published figures, on the safe side, refused when there is none."""

import logging
import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from dpaudit.accounting import noise_for
from dpaudit.errors import InvalidInputError, UncertifiedError

ACCOUNTANTS = {"rdp": RdpAccountant, "pld": PLDAccountant}


def spent(noise, sample_rate, steps, delta, method):
    """What dp-accounting says of that noise, asked through its events."""
    step = dp_accounting.PoissonSampledDpEvent(
        sample_rate, dp_accounting.GaussianDpEvent(noise)
    )
    return ACCOUNTANTS[method]().compose(step, steps).get_epsilon(delta)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("epsilon", "sample_rate", "steps", "method", "noise"),
    [
        (2.0, 0.1, 100, "rdp", 2.42241),
        (4.0, 0.1, 100, "rdp", 1.48154),
        (8.0, 0.1, 100, "rdp", 0.99373),
        (2.0, 0.1, 100, "pld", 2.24771),
        (1.0, 1.0, 1, "rdp", 4.04539),
        (2.0, 1.0, 1, "rdp", 2.14911),
        (4.0, 1.0, 1, "rdp", 1.15757),
        (8.0, 1.0, 1, "rdp", 0.63767),
        (1.0, 1.0, 1, "pld", 3.73063),
        (2.0, 1.0, 1, "pld", 1.99381),
        (4.0, 1.0, 1, "pld", 1.08117),
    ],
)
def test_noise_gives_the_published_figures(epsilon, sample_rate, steps, method, noise):
    """Found once with dp-accounting's own calibration, printed to five decimals."""
    got = noise_for(epsilon, 1e-5, sample_rate=sample_rate, steps=steps, method=method)
    assert got == pytest.approx(noise, abs=1.5e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["rdp", "pld"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "sample_rate", "steps"),
    [(1.0, 1e-6, 0.05, 20), (3.0, 1e-5, 1.0, 7)],
)
def test_the_noise_is_enough_and_hardly_more(
    epsilon, delta, sample_rate, steps, method
):
    got = noise_for(epsilon, delta, sample_rate=sample_rate, steps=steps, method=method)
    assert spent(got, sample_rate, steps, delta, method) <= epsilon
    assert spent(got * (1 - 5e-5), sample_rate, steps, delta, method) > epsilon


def test_without_sampling_the_noise_is_that_of_the_analytic_gaussian_mechanism():
    """Steps add up like variances: 16 with noise s are one with noise s / 4."""
    got = noise_for(2.0, 1e-5, sample_rate=1.0, steps=16, method="pld") / 4
    mu = 1 / got
    far = stats.norm.cdf(-2.0 / mu - mu / 2)
    exact = stats.norm.cdf(-2.0 / mu + mu / 2) - math.exp(2.0) * far
    assert exact <= 1e-5
    assert exact == pytest.approx(1e-5, rel=1e-3)


def test_the_search_is_silent_and_leaves_the_logger_as_it_was(caplog):
    logger = logging.getLogger("absl")
    before = logger.level
    noise_for(8.0, 1e-5, sample_rate=0.1, steps=100, method="rdp")
    assert caplog.records == []
    assert logger.level == before


def test_a_target_that_needs_hardly_any_noise_is_refused():
    with pytest.raises(UncertifiedError, match="choose a smaller epsilon or delta"):
        noise_for(500.0, 1e-5, sample_rate=1.0, steps=1, method="rdp")


def test_a_target_beyond_the_method_is_refused():
    """No Renyi order is high enough for so small an epsilon at so small a delta."""
    with pytest.raises(UncertifiedError, match="does not reach the target"):
        noise_for(1e-3, 1e-9, sample_rate=0.1, steps=10, method="rdp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number"),
        ({"delta": 0.0}, "delta between 1e-12 and 1"),
        ({"delta": 1.0}, "delta between 1e-12 and 1"),
        ({"sample_rate": 0.0}, r"sample_rate must be in \(0, 1\]"),
        ({"sample_rate": 1.5}, r"sample_rate must be in \(0, 1\]"),
        ({"delta": 0.1, "sample_rate": 0.01}, "such a claim holds without noise"),
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"method": "prv"}, r"method must be one of \['pld', 'rdp'\]"),
    ],
)
def test_a_question_without_meaning_is_refused(change, message):
    asked = {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.1, "steps": 10}
    with pytest.raises(InvalidInputError, match=message):
        noise_for(**{**asked, "method": "rdp", **change})
