"""The law of the number right: against enumeration, integrals and brute force."""

import itertools
import math
from itertools import product

import numpy as np
import pytest
from scipy import integrate, special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import MostLikely, Submission
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.catalogue import Parameters, named
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
    SmoothLoss,
)
from dpaudit.theory import correct_guess_distribution as module
from dpaudit.theory.correct_guess_distribution import (
    correct_guess_distribution,
    determines_correct_guesses,
    simulated_counts,
)

LRR = DiscreteLoss(values=np.array([1.2]), probabilities=np.ones(1))
THREE = DiscreteLoss(
    values=np.array([0.0, 0.7, np.inf]), probabilities=np.array([0.3, 0.5, 0.2])
)
ZERO_TO_ONE = DiscreteLoss(
    values=np.array([0.2, 1.0, 2.5]), probabilities=np.array([0.6, 0.1, 0.3])
)


def local(loss, elements, groups=None, size=1):
    kind = OutputComponent(
        probability=1.0, groups=groups or elements, size=size, loss=loss
    )
    return LossDistribution(elements=elements, kinds=(kind,))


def gaussian(mu):
    """What N(+-mu/2, 1) says about the sign: l = mu x."""

    def tail(t):
        x = t / mu
        return special.ndtr(mu / 2 - x) + special.ndtr(-mu / 2 - x)

    return SmoothLoss(tail_at=tail, breaks=(0.0, mu, 3 * mu, mu * (10 + mu)))


def laplace(epsilon):
    """What a sign with Laplace noise says: an atom at epsilon, smooth below.

    Records -1 and +1, noise of scale 2 / epsilon: l = epsilon x, cut at +-epsilon.
    """

    def tail(t):
        x, b = t / epsilon, 2 / epsilon
        above = 0.5 * np.exp(-(1 + x) / b) + np.where(
            x <= 1, 1 - 0.5 * np.exp((x - 1) / b), 0.5 * np.exp((1 - x) / b)
        )
        return np.where(t > epsilon, 0.0, above)

    return SmoothLoss(tail_at=tail, breaks=(0.0, epsilon), supremum=epsilon)


def sum_of_coins(chances):
    law = np.ones(1)
    for a in chances:
        law = np.convolve(law, [1 - a, a])
    return law


def enumerated(loss, n, k):
    """Over all vectors of losses; the k largest are independent coins."""
    law = np.zeros(k + 1)
    for pick in itertools.product(range(len(loss.values)), repeat=n):
        best = np.sort(loss.values[list(pick)])[::-1][:k]
        law += np.prod(loss.probabilities[list(pick)]) * sum_of_coins(
            special.expit(best)
        )
    return law


def test_small_laws_agree_with_enumeration(subtests):
    for loss, (n, k) in product(
        [LRR, THREE, ZERO_TO_ONE], [(1, 1), (2, 1), (5, 2), (6, 1), (6, 4), (6, 6)]
    ):
        with subtests.test(loss=loss, n=n, k=k):
            found = correct_guess_distribution(local(loss, n), guesses=k)
            assert found == pytest.approx(enumerated(loss, n, k), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
def test_silent_elements_are_coins_that_come_last(k):
    """Three elements speak, four are silent: silence is a loss of zero."""
    found = correct_guess_distribution(local(THREE, 7, groups=3), guesses=k)
    spoken = enumerated(THREE, 3, min(k, 3))
    want = np.convolve(spoken, sum_of_coins([0.5] * max(0, k - 3)))
    assert found == pytest.approx(want, abs=1e-12)


def test_kinds_of_output_mix_and_the_rest_is_silent():
    kinds = (
        OutputComponent(probability=0.25, groups=4, size=1, loss=LRR),
        OutputComponent(probability=0.35, groups=4, size=1, loss=THREE),
    )
    found = correct_guess_distribution(
        LossDistribution(elements=4, kinds=kinds), guesses=3
    )
    want = 0.25 * enumerated(LRR, 4, 3) + 0.35 * enumerated(THREE, 4, 3)
    assert found == pytest.approx(want + 0.4 * sum_of_coins([0.5] * 3), abs=1e-12)


def test_all_or_nothing_is_all_right_or_coins():
    sure = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))
    kind = OutputComponent(probability=0.3, groups=1, size=10, loss=sure)
    found = correct_guess_distribution(
        LossDistribution(elements=10, kinds=(kind,)), guesses=10
    )
    want = 0.7 * stats.binom.pmf(np.arange(11), 10, 0.5)
    want[10] += 0.3
    assert found == pytest.approx(want, abs=1e-14)


def test_a_mechanism_that_never_speaks_leaves_coins():
    found = correct_guess_distribution(
        LossDistribution(elements=50, kinds=()), guesses=50
    )
    assert found == pytest.approx(stats.binom.pmf(np.arange(51), 50, 0.5), abs=1e-14)


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("n", "k"), [(20, 5), (100, 10), (100, 99), (2000, 300)])
def test_the_mean_agrees_with_an_integral_over_the_order_statistics(mu, n, k):
    """E[V] = n E[p(|l|) P[fewer than k others are larger]], by adaptive quadrature."""

    def integrand(x):
        density = (stats.norm.pdf(x - mu / 2) + stats.norm.pdf(x + mu / 2)) / 2
        larger = stats.norm.sf(x - mu / 2) + stats.norm.sf(x + mu / 2)
        few = stats.binom.cdf(k - 1, n - 1, larger)
        return 2 * n * special.expit(mu * x) * density * few

    cut = stats.norm.isf(k / n / 2)
    want, _ = integrate.quad(
        integrand, 0, 12 + mu, points=[cut, cut + mu], epsabs=1e-11, limit=500
    )
    found = correct_guess_distribution(local(gaussian(mu), n), guesses=k) @ np.arange(
        k + 1
    )
    assert found == pytest.approx(want, rel=1e-9)


def test_all_guesses_is_a_binomial_with_the_closed_form_of_laplace():
    """1 - e^(-epsilon / 2) / 2, the paper's local Laplace."""
    found = correct_guess_distribution(local(laplace(1.5), 40), guesses=40)
    want = stats.binom.pmf(np.arange(41), 40, 1 - math.exp(-0.75) / 2)
    assert found == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "n", "k"), [(1.0, 60, 6), (1.0, 60, 25), (4.0, 60, 45)]
)
def test_the_law_agrees_with_a_brute_force_simulation(epsilon, n, k):
    """Wrong by chance less than once in 10^6, by Dvoretzky, Kiefer and Wolfowitz."""
    runs, rng = 100_000, np.random.default_rng(7)
    signs = rng.choice([-1, 1], size=(runs, n)).astype(np.int8)
    seen = signs + rng.laplace(scale=2 / epsilon, size=(runs, n))
    size = np.minimum(np.abs(seen), 1.0) + 1e-9 * rng.random((runs, n))
    best = np.argpartition(-size, k - 1, axis=1)[:, :k]
    hits = np.take_along_axis((seen > 0) == (signs > 0), best, axis=1).sum(axis=1)
    found = correct_guess_distribution(local(laplace(epsilon), n), guesses=k)
    empirical = np.bincount(hits, minlength=k + 1) / runs
    distance = np.abs(np.cumsum(found - empirical)).max()
    assert distance < math.sqrt(math.log(2e6) / (2 * runs))


@pytest.mark.parametrize(
    ("loss", "n", "k"),
    [
        (gaussian(1.0), 1000, 50),
        (laplace(2.0), 1000, 400),
        (THREE, 1000, 210),
        (THREE, 100_000, 20_100),
    ],
)
def test_more_points_change_nothing(loss, n, k, monkeypatch):
    found = correct_guess_distribution(local(loss, n), guesses=k)
    monkeypatch.setattr(module, "_COARSE", np.polynomial.legendre.leggauss(70))
    monkeypatch.setattr(module, "_FINE", np.polynomial.legendre.leggauss(430))
    again = correct_guess_distribution(local(loss, n), guesses=k)
    assert np.abs(found - again).sum() < 1e-8
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_groups_that_share_an_output_are_referred_to_simulation():
    with pytest.raises(
        InvalidInputError, match=r"5 elements share.*simulated_counts\("
    ):
        correct_guess_distribution(local(LRR, 10, groups=2, size=5), guesses=3)


@pytest.mark.parametrize("guesses", [0, 7])
def test_guesses_must_be_possible(guesses):
    with pytest.raises(InvalidInputError, match=f"guesses={guesses}"):
        correct_guess_distribution(local(LRR, 6), guesses=guesses)


class Count:
    def run(self, data, rng):
        return int(data.sum())


class Majority:
    """Guesses of every coin what most of them show."""

    def __init__(self, elements, guesses):
        self.elements, self.guesses = elements, guesses

    def guess(self, output):
        guess = np.full(self.guesses, 1 if output > self.elements / 2 else -1, np.int8)
        return Submission(index=np.arange(self.guesses), guess=guess)


def simulated(guesses, guesser, runs, elements=9):
    return simulated_counts(
        Count(),
        guesser,
        Pairs(x=0, y=1),
        elements=elements,
        guesses=guesses,
        runs=runs,
        rng=np.random.default_rng(3),
    )


@pytest.mark.parametrize("k", [4, 9])
def test_a_simulation_finds_the_law_of_a_count(k):
    """Given the count all sets of ones are equally likely: a hypergeometric V.

    Wrong by chance less than once in 10^6, as above.
    """
    n, runs = 9, 20_000
    counts = simulated(k, Majority(n, k), runs)
    assert counts.sum() == runs
    v = np.arange(k + 1)
    want = sum(
        stats.binom.pmf(o, n, 0.5) * stats.hypergeom.pmf(v, n, max(o, n - o), k)
        for o in range(n + 1)
    )
    distance = np.abs(np.cumsum(counts / runs - want)).max()
    assert distance < math.sqrt(math.log(2e6) / (2 * runs))


@pytest.mark.nightly
def test_the_law_is_that_of_the_mechanisms_when_they_are_run(subtests):
    """Wrong by chance less than once in 10^6, as above."""
    for k, name in product(
        [3, 8],
        [
            "local-randomised-response",
            "local-laplace",
            "local-gaussian",
            "name-and-shame",
            "all-or-nothing",
            "xor",
            "xor-randomised-response",
            "xor-in-pairs",
        ],
    ):
        with subtests.test(k=k, name=name):
            n, runs = 8, 4000
            mechanism = named(name, Parameters(elements=n, probability=0.3))
            law = mechanism.loss_distribution(n)
            assert determines_correct_guesses(law)
            counts = simulated_counts(
                mechanism,
                MostLikely(mechanism=mechanism, guesses=k),
                mechanism.pairs,
                elements=n,
                guesses=k,
                runs=runs,
                rng=np.random.default_rng(9),
            )
            distance = np.abs(
                np.cumsum(counts / runs - correct_guess_distribution(law, guesses=k))
            ).max()
            assert distance < math.sqrt(math.log(2e6) / (2 * runs))


def test_guesses_not_made_are_wrong():
    assert simulated(9, Majority(9, 2), 200)[3:].sum() == 0


def test_a_guesser_that_guesses_too_often_is_refused():
    with pytest.raises(InvalidInputError, match="at most guesses=3 coins"):
        simulated(3, Majority(9, 4), 1)


def test_only_groups_of_one_or_of_certainty_determine_the_law():
    assert determines_correct_guesses(local(THREE, 10))
    assert determines_correct_guesses(LossDistribution(elements=10, kinds=()))
    assert not determines_correct_guesses(local(LRR, 10, groups=2, size=5))
