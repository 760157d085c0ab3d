"""What is kept of noisy sums, against likelihoods written out and planted faults."""

import numpy as np
import pytest

from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.training.likelihoods import SumsLikelihood

RATE, N = 0.3, 2000


def run(steps, sigma, *, seed=0, same_noise=False, background=0.0, coordinates=N):
    """Return coins and the noisy sums of each step; noise may differ by coordinate."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, coordinates)
    fixed = rng.normal(size=coordinates)
    shift = background * rng.standard_cauchy(coordinates)
    sums = []
    for _ in range(steps):
        noise = fixed if same_noise else rng.normal(size=coordinates)
        joined = coins * (rng.random(coordinates) < RATE)
        sums.append(joined + sigma * noise + shift)
    return coins, sums


def likelihood_of(sums, groups=None, sampling=None):
    likelihood = SumsLikelihood(
        coordinates=len(sums[0]),
        per_coordinate=1,
        sampling=Poisson(rate=RATE) if sampling is None else sampling,
        groups=groups,
    )
    for step in sums:
        likelihood.observe(step)
    return likelihood


def odds_of(likelihood):
    rows = likelihood.log_likelihood()
    return rows[:, 1] - rows[:, 0]


def right(odds, coins, best):
    """Return how many of the surest guesses are right."""
    surest = np.argsort(-np.abs(odds), kind="stable")[:best]
    return int(np.sum((odds[surest] > 0) == coins[surest]))


def test_it_is_the_likelihood_of_the_noise_that_was_measured():
    _, sums = run(30, 1.4)
    want = np.zeros(N)
    for x in sums:
        want += np.log(1 - RATE + RATE * np.exp((2 * x - 1) / (2 * 1.4**2)))
    got = odds_of(likelihood_of(sums))
    # The noise is measured to about one percent.
    np.testing.assert_allclose(got, want, atol=0.04 * np.abs(want).max())
    assert np.corrcoef(got, want)[0, 1] > 0.999


def test_noise_that_is_used_again_cancels():
    coins, sums = run(20, 5.0, same_noise=True)
    odds = odds_of(likelihood_of(sums))
    assert right(odds, coins, 500) >= 499


def test_noise_that_is_lacking_in_one_group_is_noticed_there():
    """A tenth of the coordinates has no noise; its coins are all but certain."""
    sigma = np.where(np.arange(N) % 10 == 0, 1e-3, 4.0)
    coins, sums = run(20, sigma)
    groups = np.arange(N) % 10
    told = odds_of(likelihood_of(sums, groups))
    blind = odds_of(likelihood_of(sums))
    assert right(told, coins, 200) >= 198
    assert right(blind, coins, 200) < 190


def test_small_groups_are_read_together():
    coins, sums = run(20, 0.3, coordinates=100)
    odds = odds_of(likelihood_of(sums, np.arange(100)))
    assert right(odds, coins, 50) >= 49


def test_a_background_costs_the_coordinates_it_is_in_and_not_the_others():
    """Half of the coordinates hold a heavy-tailed background as large as the noise."""
    coins, quiet = run(60, 1.0)
    _, loud = run(60, 1.0, background=0.5)
    half = np.arange(N) < N // 2
    sums = [np.where(half, q, x) for q, x in zip(quiet, loud, strict=True)]
    odds = odds_of(likelihood_of(sums, groups=half.astype(int)))
    surest = np.argsort(-np.abs(odds), kind="stable")[:200]
    assert np.mean(half[surest]) > 0.95
    # The quiet half alone, read as if there were nothing else.
    alone = odds_of(likelihood_of([x[: N // 2] for x in quiet]))
    together, best = right(odds, coins, 200), right(alone, coins[: N // 2], 200)
    assert together > best - 10


@pytest.mark.parametrize(
    ("rate", "steps", "sigma"),
    [(0.5, 60, 1.0), (1.0, 20, 1.0), (1.0, 6, 0.5), (0.1, 500, 1.0), (0.1, 100, 2.3)],
)
@pytest.mark.parametrize("seed", range(4))
def test_where_there_is_no_background_none_is_seen(rate, steps, sigma, seed):
    """However clearly coins show; a tolerance of three standard errors, fixed seeds."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, N)
    likelihood = SumsLikelihood(
        coordinates=N, per_coordinate=1, sampling=Poisson(rate=rate)
    )
    for _ in range(steps):
        joined = coins * (rng.random(N) < rate)
        likelihood.observe(joined + sigma * rng.normal(size=N))
    likelihood.log_likelihood()
    assert likelihood.evidence_share > 0.94


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("same_noise", [False, True])
def test_it_can_be_saved_anywhere_and_goes_on_the_same(steps, same_noise):
    _, sums = run(9, 1.0, same_noise=same_noise, coordinates=300)
    groups = np.arange(300) // 100
    whole = likelihood_of(sums[:steps], groups)
    state = whole.saved()
    assert all(array.dtype != object for array in state.values())
    for x in sums[steps:]:
        whole.observe(x)
    again = SumsLikelihood(
        coordinates=300, per_coordinate=1, sampling=Poisson(rate=RATE), groups=groups
    )
    again.restore({name: array.copy() for name, array in state.items()})
    for x in sums[steps:]:
        again.observe(x)
    assert again.steps == 9
    np.testing.assert_allclose(
        again.log_likelihood(), whole.log_likelihood(), rtol=1e-12, atol=1e-12
    )


def test_epochs_can_be_saved_in_their_midst():
    _, sums = run(7, 1.0, coordinates=50)
    sampling = Shuffling(batches=4)
    whole = likelihood_of(sums, sampling=sampling)
    begun = likelihood_of(sums[:3], sampling=sampling)
    again = SumsLikelihood(coordinates=50, per_coordinate=1, sampling=sampling)
    again.restore(begun.saved())
    for x in sums[3:]:
        again.observe(x)
    np.testing.assert_allclose(again.log_likelihood(), whole.log_likelihood())


def test_sums_that_are_no_numbers_speak_for_a_canary_and_are_counted():
    _, sums = run(10, 1.0, coordinates=200)
    sums[4][7], sums[5][8] = np.nan, np.inf
    sums[6][:] = np.nan  # a step that says nothing
    likelihood = likelihood_of(sums)
    odds = odds_of(likelihood)
    assert likelihood.odd == 202
    assert likelihood.steps == 10
    assert np.all(np.isfinite(odds))


def test_what_is_no_step_is_refused():
    likelihood = SumsLikelihood(
        coordinates=3, per_coordinate=1, sampling=Poisson(rate=1.0)
    )
    with pytest.raises(InvalidInputError, match="each of 3 coordinates"):
        likelihood.observe([1.0, 2.0])
    with pytest.raises(InvalidRunError, match="no step was seen"):
        likelihood.log_likelihood()
