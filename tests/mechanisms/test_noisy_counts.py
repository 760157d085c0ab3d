"""Counts with noise: what an output says, and the law of the losses."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.loss_distribution import DiscreteLoss
from dpaudit.mechanisms.noise import (
    GaussianNoise,
    GeometricNoise,
    LaplaceNoise,
    NoNoise,
)
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.theory.integrals import tail_average

NOISES = [
    GeometricNoise(epsilon=0.9),
    LaplaceNoise(epsilon=0.9),
    GaussianNoise(sigma=0.7),
]
SMOOTH = [
    LaplaceNoise(epsilon=0.4),
    LaplaceNoise(epsilon=3.0),
    GaussianNoise(sigma=0.35),
    GaussianNoise(sigma=1.0),
    GaussianNoise(sigma=4.0),
]


def by_scipy(noise):
    match noise:
        case GeometricNoise(epsilon=epsilon):
            return stats.dlaplace(epsilon)
        case LaplaceNoise(epsilon=epsilon):
            return stats.laplace(scale=1 / epsilon)
        case GaussianNoise(sigma=sigma):
            return stats.norm(scale=sigma)


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize(("n", "set_size"), [(1, 1), (4, 4), (4, 2), (5, 2), (5, 3)])
def test_outputs_say_what_bayes_says(noise, n, set_size, bayes, play):
    law = by_scipy(noise)
    density = law.pmf if isinstance(noise, GeometricNoise) else law.pdf
    mechanism = CountInSets(elements=n, set_size=set_size, noise=noise)
    rng = np.random.default_rng(n)
    for _ in range(5):
        bits = rng.integers(0, 2, n)
        output = mechanism.run(mechanism.pairs.choose(bits), rng)

        def likelihood(coins, output=output):
            sums = [sum(coins[i : i + set_size]) for i in range(0, n, set_size)]
            return math.prod(density(o - c) for o, c in zip(output, sums, strict=True))

        want = list(bayes(likelihood, n).values())
        found = mechanism.log_odds(output)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-10)
        play(mechanism.posterior(output), likelihood, bits, rng.permutation(n))


@given(st.integers(1, 6), st.floats(0.1, 4.0), st.floats(-9.0, 15.0))
def test_a_noisy_count_never_says_more_than_its_epsilon(n, epsilon, output):
    laplace = count(n, LaplaceNoise(epsilon=epsilon)).log_odds(np.array([output]))
    whole = np.array([round(output)])
    geometric = count(n, GeometricNoise(epsilon=epsilon)).log_odds(whole)
    for found in (laplace, geometric):
        assert np.all(np.abs(found) <= epsilon * (1 + 1e-12))
        assert len(set(found.tolist())) == 1


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_noise_gives_sets_its_guarantee(noise):
    mechanism = CountInSets(elements=6, set_size=2, noise=noise)
    assert mechanism.guarantee == noise.guarantee
    assert not hasattr(mechanism, "distribution")
    assert not hasattr(mechanism, "outputs")


# The law of the losses. The oracle enumerates all coins of a set at every output.


def enumerated(size, density, outputs):
    """The density of each output under fair coins, and the size of its loss."""
    coins = list(itertools.product((0, 1), repeat=size - 1))
    others = np.array([sum(c) for c in coins])
    zero = np.array([density(o - others).mean() for o in outputs])
    one = np.array([density(o - others - 1).mean() for o in outputs])
    return (zero + one) / 2, np.abs(np.log(one) - np.log(zero))


def in_rationals(size):
    """Exact chances and odds for geometric noise of epsilon = ln 2, lumped in [0, s].

    P[z] = 2^-|z| / 3; from s upwards and from 0 downwards the odds are 2.
    """

    def chance(z):
        return Fraction(1, 3) / 2 ** abs(z)

    found = {}
    for z in range(-200, size + 201):
        zero = one = Fraction(0)
        for ones in range(size):
            ways = Fraction(math.comb(size - 1, ones), 2 ** (size - 1))
            zero += ways * chance(z - ones)
            one += ways * chance(z - ones - 1)
        odds = max(one / zero, zero / one)
        found[odds] = found.get(odds, 0) + (zero + one) / 2
    return sorted(found.items())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12])
def test_the_geometric_law_is_that_of_rationals(size):
    want = in_rationals(size)
    (kind,) = (
        count(size, GeometricNoise(epsilon=math.log(2))).loss_distribution(size).kinds
    )
    assert isinstance(kind.loss, DiscreteLoss)
    values = [math.log(odds) for odds, _ in want]
    np.testing.assert_allclose(kind.loss.values, values, rtol=1e-12, atol=1e-13)
    chances = [float(p) for _, p in want]
    np.testing.assert_allclose(kind.loss.probabilities, chances, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 50])
def test_the_noiseless_law_is_that_of_binomials(size):
    (kind,) = count(size).loss_distribution(size).kinds
    found = {}
    for ones in range(size + 1):
        rest = size - ones
        loss = abs(math.log(ones / rest)) if ones and rest else math.inf
        loss = round(loss, 12)
        found[loss] = found.get(loss, 0) + Fraction(math.comb(size, ones), 2**size)
    np.testing.assert_allclose(kind.loss.values, sorted(found), rtol=1e-11, atol=1e-12)
    want = [float(found[loss]) for loss in sorted(found)]
    np.testing.assert_allclose(kind.loss.probabilities, want, rtol=1e-11)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("noise", SMOOTH, ids=str)
def test_tails_of_smooth_laws_are_chances_of_outputs(size, noise):
    """An output loses as much as another or more if it is further from s / 2."""
    law = by_scipy(noise)
    (kind,) = count(size, noise).loss_distribution(size).kinds
    grid = np.linspace(size / 2, size / 2 + 6, 40)[1:]
    _, losses = enumerated(size, law.pdf, grid)
    masses = stats.binom.pmf(np.arange(size + 1), size, 0.5)
    for x, loss in zip(grid, losses, strict=True):
        want = 2 * float(masses @ law.sf(x - np.arange(size + 1)))
        if loss < kind.loss.supremum - 1e-6 and want > 1e-29:
            assert math.isclose(kind.loss.tail(loss), want, rel_tol=1e-8)
    assert kind.loss.tail(0.0) == 1
    assert kind.loss.tail(kind.loss.breaks[-1] * 1.0001) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_laplace_law_ends_with_the_outputs_beyond_all_counts(size):
    (kind,) = count(size, LaplaceNoise(epsilon=0.6)).loss_distribution(size).kinds
    masses = stats.binom.pmf(np.arange(size + 1), size, 0.5)
    beyond = stats.laplace(scale=1 / 0.6).sf(size - np.arange(size + 1))
    want = 2 * float(masses @ beyond)
    assert kind.loss.supremum == 0.6
    assert math.isclose(kind.loss.tail(0.6), want, rel_tol=1e-10)
    assert kind.loss.tail(0.6001) == 0


def mean_accuracy(loss):
    """1/2 plus the integral of the tail over dp, piece by piece."""

    def slope(t):
        return loss.tail(t) * special.expit(t) * special.expit(-t)

    pieces = [
        integrate.quad(slope, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
        for a, b in itertools.pairwise(sorted({0.0, *loss.breaks}))
    ]
    return 0.5 + sum(pieces)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("noise", SMOOTH, ids=str)
def test_the_mean_accuracy_is_half_plus_half_the_distance(size, noise):
    """1/2 + TV / 2, the distance of the two mixtures integrated by scipy."""
    density = by_scipy(noise).pdf
    others = np.arange(size)
    masses = stats.binom.pmf(others, size - 1, 0.5)

    def apart(x):
        return abs(
            float(masses @ density(x - others) - masses @ density(x - 1 - others))
        )

    total = sum(
        integrate.quad(apart, a, b, limit=400, epsabs=1e-12)[0]
        for a, b in itertools.pairwise(
            [-60.0, *np.arange(0, size + 0.5, 0.5), size + 60.0]
        )
    )
    (kind,) = count(size, noise).loss_distribution(size).kinds
    assert math.isclose(mean_accuracy(kind.loss), 0.5 + total / 4, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("size", "want"), [(1, 0.69146), (2, 0.67067), (4, 0.64499), (8, 0.61681)]
)
def test_gaussian_counts_have_the_efficacy_computed_elsewhere(size, want):
    (kind,) = count(size, GaussianNoise(sigma=1.0)).loss_distribution(size).kinds
    assert round(mean_accuracy(kind.loss), 5) == want


@pytest.mark.parametrize(
    ("noise", "size"),
    [
        (GeometricNoise(epsilon=0.5), 10),
        (GeometricNoise(epsilon=1.0), 151),
        (LaplaceNoise(epsilon=0.5), 10),
        (LaplaceNoise(epsilon=1.0), 151),
        (GaussianNoise(sigma=0.4), 10),
        (GaussianNoise(sigma=2.0), 151),
    ],
    ids=str,
)
def test_runs_have_the_losses_of_the_law(noise, size):
    """Fixed seed; 4 sizes of loss, each more than 5 deviations off once in 10^6."""
    sets, rng = 20_000, np.random.default_rng(9)
    mechanism = CountInSets(elements=sets * size, set_size=size, noise=noise)
    data = rng.integers(0, 2, sets * size, dtype=np.int8)
    losses = mechanism.log_odds(mechanism.run(data, rng)).reshape(sets, size)
    assert np.array_equal(losses.min(axis=1), losses.max(axis=1))
    sized = np.abs(losses[:, 0])
    (kind,) = mechanism.loss_distribution(sets * size).kinds
    assert (kind.groups, kind.size) == (sets, size)
    for quantile in np.quantile(sized, [0.1, 0.4, 0.8, 0.98]):
        at = max(0.0, quantile - 1e-9)
        want, seen = kind.loss.tail(at), np.mean(sized >= at)
        assert abs(seen - want) <= 5 * math.sqrt(want * (1 - want) / sets) + 1e-9


@pytest.mark.parametrize("size", [1000, 20_001])
@pytest.mark.parametrize(
    "noise",
    [
        NoNoise(),
        GeometricNoise(epsilon=1.0),
        LaplaceNoise(epsilon=1.0),
        LaplaceNoise(epsilon=0.01),
        GaussianNoise(sigma=1.0),
        GaussianNoise(sigma=100.0),
    ],
    ids=str,
)
def test_laws_of_large_counts_stay_sound(size, noise):
    """Without noise, |l| >= a is |O - s/2| >= s tanh(a/2) / 2 (the paper's lemma)."""
    (kind,) = count(size, noise).loss_distribution(size).kinds
    sizes = np.linspace(0, 0.2, 9)
    tails = np.array([kind.loss.tail(t) for t in sizes])
    assert tails[0] == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.diff(tails) <= 1e-12)
    assert np.all(np.isfinite(tails))
    edge = size * np.tanh(sizes[1:] / 2) / 2
    plain = 2 * stats.binom.sf(np.ceil(size / 2 + edge - 1e-9) - 1, size, 0.5)
    if noise == NoNoise():
        np.testing.assert_allclose(tails[1:], plain, rtol=1e-9)
    else:  # noise hides: the average loss is smaller
        accuracy = 0.5 + tail_average(kind.loss, lambda tail: tail) / 2
        assert accuracy < 0.5 + stats.binom(size, 0.5).std() / size


def test_the_largest_loss_is_not_lost_to_rounding():
    """All of 5000 coins alike has a chance of 2^-4999, which no float holds."""
    (plain,) = count(5000).loss_distribution(5000).kinds
    (noisy,) = count(5000, GeometricNoise(epsilon=2.0)).loss_distribution(5000).kinds
    assert (plain.loss.supremum, noisy.loss.supremum) == (math.inf, 2.0)


def test_a_little_noise_is_almost_none():
    plain, slight = count(6), count(6, GaussianNoise(sigma=0.02))
    (plain,), (slight,) = (each.loss_distribution(6).kinds for each in (plain, slight))
    for loss in (0.1, 0.5, 0.6, 0.8, 1.5, 1.7, 20.0):
        assert slight.loss.tail(loss) == pytest.approx(plain.loss.tail(loss), abs=1e-9)


@given(st.integers(1, 40), st.floats(0.05, 5.0))
def test_laws_fall_from_one_to_the_supremum(size, epsilon):
    for noise in (GeometricNoise(epsilon=epsilon), LaplaceNoise(epsilon=epsilon)):
        (kind,) = count(size, noise).loss_distribution(size).kinds
        assert kind.loss.supremum == pytest.approx(epsilon, rel=1e-9)
        tails = [kind.loss.tail(t) for t in np.linspace(0, epsilon, 30)]
        assert tails[0] == pytest.approx(1.0)
        assert np.all(np.diff(tails) <= 1e-11)


@given(st.floats(0.05, 5.0), st.floats(0.0, 1.0))
def test_one_element_with_laplace_noise_is_local_laplace(epsilon, part):
    """Scale 1/epsilon on {0, 1} is scale 2/epsilon on {-1, 1}."""
    (kind,) = count(1, LaplaceNoise(epsilon=epsilon)).loss_distribution(1).kinds
    edge = part * 0.999
    law = stats.laplace(1, 2 / epsilon)
    want = law.sf(edge) + law.cdf(-edge)
    assert math.isclose(kind.loss.tail(edge * epsilon), want, rel_tol=1e-9)


@given(st.floats(0.1, 5.0), st.floats(0.0, 8.0))
def test_one_element_with_gaussian_noise_is_local_gaussian(sigma, size):
    (kind,) = count(1, GaussianNoise(sigma=sigma)).loss_distribution(1).kinds
    half, t = 0.5 / sigma, size * sigma
    want = special.ndtr(half - t) + special.ndtr(-half - t)
    assert math.isclose(kind.loss.tail(size), want, rel_tol=1e-8, abs_tol=1e-28)


def test_sets_of_unequal_size_have_no_law_of_losses():
    with pytest.raises(InvalidInputError, match="multiple of set_size=3"):
        CountInSets(elements=8, set_size=3).loss_distribution(8)


def test_the_law_is_for_any_number_of_sets():
    law = CountInSets(elements=6, set_size=3).loss_distribution(3000)
    assert (law.elements, law.kinds[0].groups, law.kinds[0].size) == (3000, 1000, 3)


@pytest.mark.parametrize(
    ("elements", "set_size", "said"),
    [(0, 1, "elements must be"), (3, 0, "set_size must be"), (3, 4, "more than")],
)
def test_sets_that_cannot_be_are_refused(elements, set_size, said):
    with pytest.raises(InvalidInputError, match=said):
        CountInSets(elements=elements, set_size=set_size)


def test_data_of_another_size_are_refused():
    with pytest.raises(InvalidInputError, match="elements=3, got data of 4"):
        count(3).run(np.zeros(4, np.int8), np.random.default_rng(1))


def test_small_integers_do_not_overflow():
    data = np.ones(1000, np.int8)
    assert count(1000).run(data, np.random.default_rng(1)).tolist() == [1000]
