"""Levels from the law of losses: enumeration, closed forms, and the sum over orders."""

from itertools import pairwise, product
from math import exp, inf, log

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
)
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.theory import levels_from_loss
from dpaudit.theory.enumeration import enumerate_mechanism

FINITE = [
    *((count(n), n) for n in range(1, 9)),
    (CountInSets(elements=6, set_size=2), 6),
    (CountInSets(elements=6, set_size=3), 6),
    (CountInSets(elements=8, set_size=4), 8),
    (Xor(elements=1), 1),
    (Xor(elements=4), 4),
    (XorRandomisedResponse(elements=3, epsilon=1.0), 3),
    (XorInPairs(elements=4), 4),
    (LocalRandomisedResponse(epsilon=1.3), 5),
    (AllOrNothing(elements=4, probability=0.3), 4),
    (NameAndShame(elements=4), 4),
]
NAMES = [f"{type(m).__name__}-{n}" for m, n in FINITE]


def test_the_integrals_agree_with_enumeration(subtests):
    for mechanism, n in FINITE:
        with subtests.test(mechanism=mechanism, n=n):
            law = mechanism.loss_distribution(n)
            table = enumerate_mechanism(mechanism, mechanism.pairs, elements=n)
            close = {"rel": 1e-9, "abs": 1e-11}
            assert levels_from_loss.average_element(law) == pytest.approx(
                table.average_element, **close
            )
            assert levels_from_loss.average_case(law) == pytest.approx(
                table.average_case, **close
            )
            for k in range(1, n + 1):
                assert levels_from_loss.best(law, k) == pytest.approx(
                    table.best(k), **close
                )
            for epsilon in (0.0, 0.3, 1.0, 2.5):
                expected = table.delta_at(epsilon)
                assert levels_from_loss.delta_at(law, epsilon) == pytest.approx(
                    expected, **close
                )
            for delta in (0.0, 0.01, 0.2):
                expected = table.distributional(delta=delta)
                found = levels_from_loss.epsilon_at(law, delta)
                assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_exposed_elements_are_counted_output_by_output(subtests):
    for (mechanism, n), threshold in product(FINITE, [0.1, 0.9, 3.0, inf]):
        with subtests.test(mechanism=mechanism, n=n, threshold=threshold):
            law = mechanism.loss_distribution(n)
            table = enumerate_mechanism(mechanism, mechanism.pairs, elements=n)
            number = (np.abs(table.loss) >= threshold).sum(axis=1)
            assert levels_from_loss.exposed(law, threshold) == pytest.approx(
                float(table.probability @ number), abs=1e-12
            )
            for least in range(1, n + 1):
                found = levels_from_loss.probability_exposed(
                    law, threshold, at_least=least
                )
                expected = float(table.probability[number >= least].sum())
                assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_efficacy_of_local_laplace(epsilon):
    law = LocalLaplace(epsilon=epsilon).loss_distribution(1000)
    assert levels_from_loss.average_element(law) == pytest.approx(
        1 - exp(-epsilon / 2) / 2
    )
    assert levels_from_loss.epsilon_at(law, 0.0) == pytest.approx(epsilon)


@pytest.mark.parametrize("n", [1, 10, 10**8])
def test_the_efficacies_of_the_examples_of_the_paper(n):
    everything = AllOrNothing(elements=n, probability=0.3).loss_distribution(n)
    assert levels_from_loss.average_element(everything) == pytest.approx(0.65)
    assert levels_from_loss.average_case(everything) == pytest.approx(0.65)
    assert levels_from_loss.best(everything, max(1, n // 2)) == pytest.approx(0.65)
    shamed = NameAndShame(elements=n).loss_distribution(n)
    assert levels_from_loss.average_element(shamed) == pytest.approx(
        0.5 + 0.5 / n, rel=1e-14
    )
    assert levels_from_loss.average_case(shamed) == pytest.approx(1.0)
    for k in {1, n // 2 + 1, n}:
        assert levels_from_loss.best(shamed, k) == pytest.approx(
            0.5 + 0.5 / k, rel=1e-14
        )


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_local_gaussian_noise_is_gaussian_privacy(mu):
    law = LocalGaussian(sigma=1 / mu).loss_distribution(50)
    assert levels_from_loss.average_element(law) == pytest.approx(
        float(special.ndtr(mu / 2))
    )
    claim = GaussianDP(mu=mu)
    for delta in (0.05, 1e-5, 1e-12):
        expected = claim.epsilon_at(delta)
        assert levels_from_loss.epsilon_at(law, delta) == pytest.approx(
            expected, abs=1e-8
        )
    for epsilon in (0.0, 1.0, 4.0):
        expected = claim.delta_at(epsilon)
        assert levels_from_loss.delta_at(law, epsilon) == pytest.approx(
            expected, rel=1e-9
        )
    assert levels_from_loss.epsilon_at(law, 0.0) == inf


@pytest.mark.parametrize(("n", "k"), [(30, 1), (30, 7), (1000, 100), (10**6, 50)])
def test_the_best_of_many_gaussian_losses_by_order_statistics(n, k):
    # An element of loss l is among the k best if fewer than k others are above it.
    loss = stats.norm(0.5, 1.0)  # given either coin, mu = 1

    def integrand(size):
        above = loss.sf(size) + loss.cdf(-size)
        among = stats.binom.cdf(k - 1, n - 1, above)
        density = loss.pdf(size) + loss.pdf(-size)
        return special.expit(size) * among * density

    pieces = np.linspace(0, 12, 49)
    total = sum(
        integrate.quad(integrand, a, b, epsabs=1e-15, epsrel=1e-12)[0]
        for a, b in pairwise(pieces)
    )
    law = LocalGaussian(sigma=1.0).loss_distribution(n)
    assert levels_from_loss.best(law, k) == pytest.approx(n / k * total, abs=2e-10)


def test_a_hundred_million_groups_are_summed_to_ten_digits(subtests):
    for mean, k in product([0.5, 3.0, 40.0, 1000.0], [1, 2, 30, 128, 1100]):
        with subtests.test(mean=mean, k=k):
            groups, q = 10**8, mean / 10**8
            loss = DiscreteLoss(
                values=np.array([0.0, inf]), probabilities=np.array([1 - q, q])
            )
            law = LossDistribution(
                elements=3 * groups,
                kinds=(
                    OutputComponent(probability=0.5, groups=groups, size=3, loss=loss),
                ),
            )
            with mpmath.workdps(40):  # E[min(k, 3 B)] = k - sum (k - 3 b) P[B = b]
                p = mpmath.mpf(float(loss.tail(1.0)))
                mass, least = (1 - p) ** groups, mpmath.mpf(k)
                for b in range(-(-k // 3)):
                    least -= (k - 3 * b) * mass
                    mass *= mpmath.mpf(groups - b) / (b + 1) * p / (1 - p)
                expected = float(0.5 + 0.5 * 0.5 * least / k)
            assert levels_from_loss.best(law, k) == pytest.approx(expected, abs=1e-11)


def test_the_best_fall_from_the_average_case_to_the_average_element():
    law = LocalGaussian(sigma=0.7).loss_distribution(200)
    values = [levels_from_loss.best(law, k) for k in range(1, 201)]
    assert values[0] == pytest.approx(levels_from_loss.average_case(law))
    assert values[-1] == pytest.approx(levels_from_loss.average_element(law))
    assert np.all(np.diff(values) < 1e-12)


def test_levels_beyond_the_exponents_of_floats():
    loss = DiscreteLoss(
        values=np.array([1.0, 900.0]), probabilities=np.array([0.75, 0.25])
    )
    law = LossDistribution(
        elements=1,
        kinds=(OutputComponent(probability=1.0, groups=1, size=1, loss=loss),),
    )
    # (1 - e^(epsilon - 900)) / 4 = 0.1 at epsilon = 900 + ln 0.6
    assert levels_from_loss.epsilon_at(law, 0.1) == pytest.approx(900 + log(0.6))
    assert levels_from_loss.delta_at(law, 800.0) == pytest.approx(0.25)


def test_a_silent_mechanism_has_no_level():
    law = LossDistribution(elements=7, kinds=())
    assert (
        levels_from_loss.average_element(law)
        == levels_from_loss.average_case(law)
        == 0.5
    )
    assert levels_from_loss.best(law, 3) == 0.5
    assert (
        levels_from_loss.epsilon_at(law, 0.0)
        == levels_from_loss.epsilon_at(law, 0.1)
        == 0.0
    )
    assert levels_from_loss.exposed(law, 0.1) == 0.0


def test_arguments_without_meaning_are_refused():
    law = LossDistribution(elements=7, kinds=())
    with pytest.raises(InvalidInputError, match="at most elements=7, got guesses=8"):
        levels_from_loss.best(law, 8)
    with pytest.raises(InvalidInputError, match="guesses"):
        levels_from_loss.best(law, 0)
    with pytest.raises(InvalidInputError, match="threshold must be above 0"):
        levels_from_loss.exposed(law, 0.0)
    with pytest.raises(InvalidInputError, match="at_least"):
        levels_from_loss.probability_exposed(law, 1.0, at_least=0)
    with pytest.raises(InvalidInputError, match="delta"):
        levels_from_loss.epsilon_at(law, 1.5)
