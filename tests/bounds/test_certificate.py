"""The whole-curve certificate: consistent, simultaneous, valid."""

import bisect
import math

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import GaussianDP, PureDP
from dpaudit.bounds import Counts, CurveCertificate, Exact
from dpaudit.errors import InvalidInputError


@pytest.mark.parametrize(
    ("m", "r", "v"), [(1000, 100, 90), (100_000, 1510, 1439), (300, 300, 240)]
)
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_at_its_delta_the_exact_p_value_is_alpha(m, r, v, alpha):
    seen = Counts(canaries=m, guesses=r, correct=v)
    certificate = CurveCertificate(counts=seen, alpha=alpha)
    for epsilon in (0.1, 0.5, 0.8):
        (delta,) = certificate.delta_lower(epsilon)
        if 0 < delta < 1:
            p_value = Exact().p_value(seen, epsilon=epsilon, delta=delta)
            assert p_value == pytest.approx(alpha, rel=1e-9)


def test_it_says_nothing_above_the_pure_bound_and_falls_with_epsilon():
    seen = Counts(canaries=1000, guesses=100, correct=90)
    certificate = CurveCertificate(counts=seen, alpha=0.05)
    top = Exact().epsilon_lower(seen, delta=0.0, alpha=0.05).epsilon_lower
    assert certificate.delta_lower([top + 1e-6, 20.0]).tolist() == [0.0, 0.0]
    deltas = certificate.delta_lower(np.linspace(0, top - 0.01, 50))
    assert np.all(np.diff(deltas) < 0)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_it_crosses_the_true_curve_no_more_often_than_alpha(alpha):
    """Exact: 300 coins share one loss drawn from the law of 1-GDP."""
    n = 300
    loss = np.abs(special.ndtri((np.arange(4000) + 0.5) / 4000) + 0.5)
    v = np.arange(n + 1)
    law = stats.binom.pmf(v[:, None], n, special.expit(loss)).mean(axis=1)
    truth = GaussianDP(mu=1.0)

    def crosses(correct):
        seen = Counts(canaries=n, guesses=n, correct=correct)
        return CurveCertificate(counts=seen, alpha=alpha).refutes(truth)

    least = bisect.bisect_left(range(n + 1), True, lo=n // 2, key=crosses)
    assert not crosses(least - 1)
    assert law[least:].sum() <= alpha
    assert alpha < 0.05 or law[least:].sum() > 0.1 * alpha  # it is not idle either


def test_a_leak_is_refuted_and_an_honest_mechanism_is_not():
    right = {mu: round(1000 * math.erf(mu / 2 / 2**0.5) / 2 + 500) for mu in (1, 4)}
    honest = Counts(canaries=1000, guesses=1000, correct=right[1])
    leaking = Counts(canaries=1000, guesses=1000, correct=right[4])
    claim = GaussianDP(mu=1.0)
    assert not CurveCertificate(counts=honest, alpha=0.05).refutes(claim)
    assert CurveCertificate(counts=leaking, alpha=0.05).refutes(claim)


@pytest.mark.parametrize("correct", [0, 50, 57])
def test_what_says_nothing_refutes_nothing(correct):
    seen = Counts(canaries=100, guesses=100, correct=correct)
    certificate = CurveCertificate(counts=seen, alpha=0.05)
    assert not certificate.refutes(PureDP(epsilon=1.0))
    assert not certificate.refutes(GaussianDP(mu=1.0))


def test_a_chance_of_being_wrong_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match=r"^alpha is the chance of being wrong"):
        CurveCertificate(counts=Counts(canaries=1, guesses=1, correct=1), alpha=0.95)
