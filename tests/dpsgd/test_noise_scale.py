"""The noise that is read off quartiles, against quantiles of known laws."""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.dpsgd.noise_scale import NoiseScale, quartile_distance
from dpaudit.dpsgd.sampling import Differences, Poisson


def exact_quantiles(joined, probabilities, scale, levels):
    """Quantiles of whole numbers plus noise, on a fine grid of the sum of laws."""
    grid = np.linspace(min(joined) - 9 * scale, max(joined) + 9 * scale, 400_001)
    distribution = sum(
        c * stats.norm.cdf(grid, j, scale)
        for j, c in zip(joined, probabilities, strict=True)
    )
    return np.interp(levels, distribution, grid)


def test_the_noise_is_found_beneath_fair_coins(subtests):
    for per_coordinate, rate, scale in product(
        [1, 3, 20], [0.01, 0.1, 1.0], [2.26, 30.0]
    ):
        with subtests.test(per_coordinate=per_coordinate, rate=rate, scale=scale):
            joined = np.arange(per_coordinate + 1)
            probabilities = stats.binom.pmf(joined, per_coordinate, rate / 2)
            levels = (np.arange(20_000) + 0.5) / 20_000
            sums = exact_quantiles(joined, probabilities, scale, levels)
            width = float(np.subtract(*np.quantile(sums, (0.75, 0.25))))
            found = NoiseScale.of_distribution(
                Poisson(rate=rate).distribution(per_coordinate)
            ).of(width)
            assert found == pytest.approx(scale, rel=2e-3)


def test_little_noise_is_found_as_well_as_whole_numbers_let_it():
    """With fair coins of 20 canaries they are five times as wide as the noise."""
    joined = np.arange(21)
    low, high = exact_quantiles(
        joined, stats.binom.pmf(joined, 20, 0.5), 0.4, (0.25, 0.75)
    )
    found = NoiseScale.of_distribution(Poisson(rate=1.0).distribution(20)).of(
        high - low
    )
    assert 0.4 * 0.99 < found < 1.2


def test_it_is_found_beneath_differences():
    joined = [-1, 0, 1]
    found = NoiseScale.of_distribution(
        Differences(of=Poisson(rate=0.5)).distribution(1)
    )
    distribution = np.exp(
        Differences(of=Poisson(rate=0.5)).distribution(1).log_probabilities
    ).mean(axis=0)
    np.testing.assert_allclose(distribution, [0.125, 0.75, 0.125])
    low, high = exact_quantiles(joined, [0.125, 0.75, 0.125], 1.3, (0.25, 0.75))
    assert found.of(high - low) == pytest.approx(1.3, rel=2e-3)


def test_a_few_coordinates_that_hold_anything_else_matter_little():
    sums = 0.6 * special.ndtri((np.arange(1000) + 0.5) / 1000)
    sums[::20] += 1e6
    found = NoiseScale.of_distribution(Poisson(rate=1e-9).distribution(1)).of(
        quartile_distance(sums)
    )
    assert found == pytest.approx(0.6, rel=0.08)


def test_no_noise_and_any_noise_give_finite_numbers():
    scale = NoiseScale.of_distribution(Poisson(rate=0.1).distribution(1))
    assert 0 < scale.of(0.0) < 2e-3
    assert scale.of(1e9) == pytest.approx(1e3)


@pytest.mark.parametrize("many", [1, 2, 3, 6, 50, 1003, 4096])
def test_the_distance_is_that_of_interpolated_quartiles(many):
    sums = np.random.default_rng(many).normal(size=many)
    want = np.subtract(*np.quantile(sums, (0.75, 0.25)))
    assert quartile_distance(sums) == pytest.approx(want, abs=1e-12)
