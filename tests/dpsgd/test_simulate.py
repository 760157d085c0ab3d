"""The simulator's law, and that any stretch of it can be drawn alone."""

import itertools
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpaudit.dpsgd.sampling import PlusMinus, Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.dpsgd.sums import simulate_sums
from dpaudit.errors import InvalidInputError

ALARM = 1e-4  # false-alarm rate of each test that draws; the seeds are fixed


def drawn(bits, sampling, *, seed, sigma=1.5, steps=3, first=0):
    sums = simulate_sums(
        np.asarray(bits),
        sampling=sampling,
        sigma=sigma,
        steps=steps,
        seed=np.random.SeedSequence(seed),
        first=first,
    )
    return np.array(list(sums))


def fits(seen, probabilities):
    """Say whether counts fit chances, by chi-square with small cells put together."""
    expected = np.asarray(probabilities) * np.sum(seen)
    enough = expected >= 5
    assert np.all(np.asarray(seen)[expected == 0] == 0)
    cells = [*np.asarray(seen)[enough], np.asarray(seen)[~enough].sum()]
    want = [*expected[enough], expected[~enough].sum()]
    keep = np.array(want) > 0
    if keep.sum() == 1:  # certain, and the assertion above has looked at it
        return True
    test = stats.chisquare(np.array(cells)[keep], np.array(want)[keep])
    return test.pvalue > ALARM


def coins_with(ones, size, coordinates):
    return np.tile(np.arange(size) < ones, (coordinates, 1))


def test_what_joins_is_binomial(subtests):
    for ones, rate in product([0, 1, 4, 7], [0.1, 0.6, 1.0]):
        with subtests.test(ones=ones, rate=rate):
            found = drawn(
                coins_with(ones, 7, 2000), Poisson(rate=rate), seed=1, sigma=0.0
            )
            counts = np.bincount(found.astype(int).ravel(), minlength=8)
            assert fits(counts, stats.binom.pmf(np.arange(8), ones, rate))


def test_what_joins_of_plus_and_minus_is_a_difference_of_binomials():
    sampling = PlusMinus(rate=0.3)
    found = drawn(coins_with(3, 5, 4000), sampling, seed=2, sigma=0.0)
    counts = np.bincount(found.astype(int).ravel() + 5, minlength=11)
    probabilities = np.zeros(11)
    for a, b in itertools.product(range(4), range(3)):
        probabilities[5 + a - b] += stats.binom.pmf(a, 3, 0.3) * stats.binom.pmf(
            b, 2, 0.3
        )
    assert fits(counts, probabilities)


@pytest.mark.parametrize("records", [np.inf, 2])
def test_an_epoch_puts_each_canary_into_one_batch(records):
    shuffling = Shuffling(batches=3, records_per_batch=records)
    found = drawn(coins_with(3, 4, 6000), shuffling, seed=3, sigma=0.0, steps=6).astype(
        int
    )
    seen, probabilities = [], []
    for held in itertools.product(range(4), repeat=3):
        if sum(held) == 3:
            epochs = found.reshape(2, 3, -1) == np.array(held)[:, np.newaxis]
            seen.append(epochs.all(axis=1).sum())
            if records == 2:
                probabilities.append(stats.multivariate_hypergeom.pmf(held, [2] * 3, 3))
            else:
                probabilities.append(stats.multinomial.pmf(held, 3, [1 / 3] * 3))
    assert sum(seen) == 12_000
    assert fits(seen, probabilities)


def test_epochs_are_shuffled_anew():
    """One canary, two batches: it joins the same batch in half of two epochs."""
    found = drawn([[1]] * 4000, Shuffling(batches=2), seed=4, sigma=0.0, steps=4)
    same = int(np.sum(found[0] == found[2]))
    assert stats.binomtest(same, 4000, 0.5).pvalue > ALARM


def test_sums_have_the_moments_of_the_model():
    """Mean Nq and variance Nq(1-q) + sigma^2, which steps do not share."""
    ones, rate, sigma, n = 6, 0.25, 2.0, 40_000
    found = drawn(
        coins_with(ones, 8, n // 4), Poisson(rate=rate), seed=5, sigma=sigma, steps=4
    )
    variance = ones * rate * (1 - rate) + sigma**2
    reach = stats.norm.isf(ALARM / 2)
    assert abs(found.mean() - ones * rate) < reach * np.sqrt(variance / n)
    # The fourth moment of the sum is below that of a normal law and a bit.
    spread = variance * np.sqrt(2.2 / n)
    assert abs(found.var() - variance) < reach * spread
    together = np.corrcoef(found[0], found[1])[0, 1]
    assert abs(together) < reach / np.sqrt(n / 4)


def test_noise_is_normal():
    found = drawn(np.zeros((20_000, 1)), Poisson(rate=0.5), seed=6, sigma=3.0, steps=1)
    assert stats.kstest(found[0] / 3.0, "norm").pvalue > ALARM


@pytest.mark.parametrize(
    "sampling",
    [Poisson(rate=0.3), PlusMinus(rate=0.3), Shuffling(batches=2)],
)
@pytest.mark.parametrize("first", [0, 700, 10**10 + 5])
def test_any_stretch_alone_is_the_same_stretch_of_the_whole(sampling, first):
    bits = np.random.default_rng(7).integers(0, 2, (3000, 3))
    whole = drawn(bits, sampling, seed=8, first=first)
    for start, stop in [(0, 1), (0, 1024), (1000, 1100), (1023, 3000), (2999, 3000)]:
        part = drawn(bits[start:stop], sampling, seed=8, first=first + start)
        np.testing.assert_array_equal(part, whole[:, start:stop])


def test_more_steps_begin_with_the_same_steps():
    bits = np.random.default_rng(9).integers(0, 2, (50, 3))
    few = drawn(bits, Poisson(rate=0.3), seed=10, steps=2)
    np.testing.assert_array_equal(
        drawn(bits, Poisson(rate=0.3), seed=10, steps=5)[:2], few
    )


def test_blocks_and_seeds_do_not_repeat_each_other():
    bits = np.zeros((4096, 1))
    found = drawn(bits, Poisson(rate=0.5), seed=11, steps=2)
    other = drawn(bits, Poisson(rate=0.5), seed=12, steps=2)
    far = drawn(bits, Poisson(rate=0.5), seed=11, steps=2, first=2**32 * 1024)
    values = np.concatenate([found.ravel(), other.ravel(), far.ravel()])
    assert len(np.unique(values)) == len(values)


def test_a_coin_changes_its_own_coordinate_only():
    bits = np.zeros((20, 2), int)
    changed = bits.copy()
    changed[4, 1] = 1
    one = drawn(bits, Poisson(rate=1.0), seed=13)
    two = drawn(changed, Poisson(rate=1.0), seed=13)
    want = np.zeros((3, 20))
    want[:, 4] = 1.0
    np.testing.assert_allclose(two - one, want, atol=1e-12)


@pytest.mark.parametrize("bits", [[1, 0], [[]], np.zeros((2, 2, 2))])
def test_coins_come_in_rows(bits):
    with pytest.raises(InvalidInputError, match="bits"):
        drawn(bits, Poisson(rate=0.5), seed=0)


@pytest.mark.parametrize(("name", "value"), [("sigma", -1.0), ("steps", -1)])
def test_what_is_wrong_is_said_before_the_first_step(name, value):
    with pytest.raises(InvalidInputError, match=name):
        drawn([[1]], Poisson(rate=0.5), seed=0, **{name: value})
