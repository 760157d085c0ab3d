"""Noisy sums: as they are simulated, their posterior by Monte Carlo, and audits."""

import itertools
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import (
    AdaptiveCount,
    AdaptiveMostLikely,
    ApproxDP,
    Design,
    Extremes,
    MostLikely,
    OneRun,
    audit_adaptive,
    audit_one_run,
)
from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.sampling import Differences, PlusMinus, Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.dpsgd.sums import DiracSums, likelihood_for_sampling, simulate_sums
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key

SAMPLINGS = [
    Poisson(rate=0.2),
    Poisson(rate=1.0),
    PlusMinus(rate=0.2),
    Shuffling(batches=10),
    Shuffling(batches=5, records_per_batch=4),
]


def test_twenty_canaries_and_a_hundred_steps_agree_with_drawn_batches():
    """Averages over drawn batches are unbiased for L(N), as steps are independent.

    With W1 and W0 the estimates of the two sums whose ratio is the odds, the mean of
    W1 - e^l W0 is 0 if and only if l is right. 40 replicates, Student's 99.9 %
    interval: two checks, so false alarms 0.2 %; the seed is fixed.
    """
    size, steps, rate, sigma = 20, 100, 0.1, 2.4224
    draws, replicates = 400, 40
    rng = np.random.default_rng(1)
    x = rng.binomial(12, rate, steps) + sigma * rng.normal(size=steps)
    likelihood = CountLikelihood(
        coordinates=1, per_coordinate=size, sampling=Poisson(rate=rate)
    )
    for value in x:
        likelihood.observe(np.array([value]), sigma)
    weight = np.empty((replicates, size + 1))
    for n in range(size + 1):
        joined = rng.binomial(n, rate, (replicates, steps, draws))
        far = (x[:, np.newaxis] - joined) / sigma
        each = np.exp(-0.5 * far**2).mean(axis=2)
        weight[:, n] = np.exp(np.log(each).sum(axis=1) + 0.5 * np.sum((x / sigma) ** 2))
    for known, ones in [(0, 0), (10, 7)]:
        posterior = ExchangeablePosterior(likelihood.log_likelihood)
        coins = np.where(np.arange(known) < ones, 1, -1).astype(np.int8)
        posterior.reveal(np.arange(known), coins)
        odds = np.exp(posterior.log_odds(np.array([known]))[0])
        free = size - known - 1
        ways = special.comb(free, np.arange(free + 1))
        one = weight[:, ones + 1 : ones + 2 + free] @ ways
        zero = weight[:, ones : ones + 1 + free] @ ways
        gap = one - odds * zero
        reach = stats.t.isf(0.0005, replicates - 1) / np.sqrt(replicates)
        assert abs(gap.mean()) < reach * gap.std(ddof=1)
        # And the check is sharp: a tenth more or less would be seen.
        assert reach * gap.std(ddof=1) < 0.1 * one.mean()


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_chances_are_as_they_say(sampling):
    """Coins less their chances have mean 0, also weighted by the chance.

    Coordinates are independent; two normal tests at 3.89 deviations for each way of
    joining, so false alarms 1e-4 each; the seeds are fixed.
    """
    d, s = 4000, 5
    mechanism = DiracSums(
        coordinates=d,
        per_coordinate=s,
        sampling=sampling,
        sigma=0.9,
        steps=10,
    )
    bits = np.random.default_rng(2).integers(0, 2, d * s)
    data = mechanism.pairs.choose(bits.astype(np.uint8))
    seen = mechanism.run(data, np.random.default_rng(3))
    probability = special.expit(mechanism.log_odds(seen))
    for weight in (np.ones(d * s), probability):
        gaps = ((bits - probability) * weight).reshape(d, s).sum(axis=1)
        assert abs(gaps.mean()) < 3.89 * gaps.std() / np.sqrt(d)
    assert np.mean((probability > 0.5) == bits) > 0.55


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_output_is_what_the_simulated_steps_say(sampling):
    mechanism = DiracSums(
        coordinates=5000,
        per_coordinate=3,
        sampling=sampling,
        sigma=1.1,
        steps=7,
    )
    data = np.random.default_rng(4).integers(0, 2, 15_000)
    seen = mechanism.run(data, np.random.default_rng(5))
    words = np.random.default_rng(5).integers(2**32, size=8)
    steps = list(
        simulate_sums(
            data.reshape(5000, 3),
            sampling=sampling,
            sigma=1.1,
            steps=7,
            seed=np.random.SeedSequence(words.tolist()),
        )
    )
    likelihood = likelihood_for_sampling(
        coordinates=5000, per_coordinate=3, sampling=sampling
    )
    for sums in steps:
        likelihood.observe(sums, 1.1)
    np.testing.assert_allclose(seen.total, np.sum(steps, axis=0), atol=1e-12)
    np.testing.assert_allclose(
        seen.log_likelihood, likelihood.log_likelihood, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("first", [0, 10**10 + 77])
def test_shards_are_the_whole(first):
    def run(start, stop):
        mechanism = DiracSums(
            coordinates=stop - start,
            per_coordinate=2,
            sampling=Poisson(rate=0.2),
            sigma=1.0,
            steps=5,
            first=first + start,
        )
        data = bits[2 * start : 2 * stop]
        return mechanism.run(data, np.random.default_rng(6))

    bits = np.random.default_rng(7).integers(0, 2, 10_000)
    whole = run(0, 5000)
    parts = [run(0, 1), run(1, 1500), run(1500, 5000)]
    np.testing.assert_array_equal(
        np.concatenate([part.total for part in parts]), whole.total
    )
    np.testing.assert_allclose(
        np.concatenate([part.log_likelihood for part in parts]),
        whole.log_likelihood,
        rtol=1e-12,
        atol=1e-12,
    )


def design(mechanism, rules, epsilon):
    claim = ApproxDP(epsilon=epsilon, delta=1e-5, adjacency=mechanism.pairs.adjacency)
    canaries = mechanism.coordinates * mechanism.per_coordinate
    return Design(canaries=canaries, rules=rules, claim=claim)


PAPER = DiracSums(
    coordinates=1000,
    per_coordinate=8,
    sampling=Poisson(rate=0.1),
    sigma=2.4224,
    steps=100,
)


def test_the_papers_guesser_is_extremes_of_the_sum_over_steps():
    """Its setting: (2, 1e-5)-DP, of which about 0.6 shows, with 8 per coordinate."""
    guesser = Extremes(
        score=lambda seen: np.repeat(seen.total, PAPER.per_coordinate),
        top=50,
        bottom=50,
    )
    result = audit_one_run(
        PAPER,
        guesser,
        pairs=PAPER.pairs,
        design=design(PAPER, OneRun(guesses=100), 2.0),
        rng=np.random.default_rng(8),
        key=fixed_key(bytes(32)),
    )
    assert not result.claim_test.refuted
    assert 60 <= result.reading.correct <= 90


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_one_run_audits_work_unchanged(sampling):
    mechanism = DiracSums(
        coordinates=500,
        per_coordinate=2,
        sampling=sampling,
        sigma=0.5,
        steps=10,
    )
    result = audit_one_run(
        mechanism,
        MostLikely(mechanism=mechanism, guesses=100),
        pairs=mechanism.pairs,
        design=design(mechanism, OneRun(guesses=100), 0.1),
        rng=np.random.default_rng(9),
        key=fixed_key(bytes(32)),
    )
    assert result.claim_test.refuted


def test_adaptive_audits_work_unchanged():
    """Without noise to speak of, the last coin of each coordinate is known."""
    mechanism = DiracSums(
        coordinates=200,
        per_coordinate=4,
        sampling=Poisson(rate=1.0),
        sigma=0.05,
        steps=1,
    )
    rules = AdaptiveCount(guesses=150)
    result = audit_adaptive(
        mechanism,
        AdaptiveMostLikely(mechanism=mechanism, threshold=20.0, rules=rules),
        pairs=mechanism.pairs,
        design=design(mechanism, rules, 1.0),
        rng=np.random.default_rng(10),
        key=fixed_key(bytes(32)),
    )
    assert (result.reading.guesses, result.reading.correct) == (150, 150)
    assert result.claim_test.refuted


def test_differences_see_noise_that_is_used_again():
    """The noise of a coordinate is the same in all steps, and large."""
    d, s, rate, sigma = 300, 2, 0.1, 20.0
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2, (d, s))
    noise = sigma * rng.normal(size=d)
    steps = [
        sums + noise
        for sums in simulate_sums(
            bits,
            sampling=Poisson(rate=rate),
            sigma=0.01,
            steps=60,
            seed=np.random.SeedSequence(12),
        )
    ]
    differs = CountLikelihood(
        coordinates=d, per_coordinate=s, sampling=Differences(of=Poisson(rate=rate))
    )
    plain = CountLikelihood(
        coordinates=d, per_coordinate=s, sampling=Poisson(rate=rate)
    )
    for early, late in zip(steps[::2], steps[1::2], strict=True):
        differs.observe(late - early, 0.01 * np.sqrt(2))
    for sums in steps:
        plain.observe(sums, sigma)
    ones = bits.sum(axis=1)
    none = ones == 0
    found = differs.log_likelihood.argmax(axis=1)
    assert np.mean((found == 0) == none) > 0.98
    assert np.mean((plain.log_likelihood.argmax(axis=1) == 0) == none) < 0.9


def test_pairs_name_what_a_coin_does():
    plus_minus = DiracSums(
        coordinates=1,
        per_coordinate=1,
        sampling=PlusMinus(rate=0.5),
        sigma=1.0,
        steps=1,
    )
    assert plus_minus.pairs.adjacency is Adjacency.REPLACE_ONE
    assert (plus_minus.pairs.x, plus_minus.pairs.y) == (-1, 1)
    assert PAPER.pairs.adjacency is Adjacency.ADD_REMOVE
    assert (PAPER.pairs.x, PAPER.pairs.y) == (0, 1)


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf])
def test_a_mechanism_needs_noise(sigma):
    with pytest.raises(InvalidInputError, match="sigma"):
        DiracSums(
            coordinates=1,
            per_coordinate=1,
            sampling=Poisson(rate=0.5),
            sigma=sigma,
            steps=1,
        )


def test_data_of_another_size_are_refused():
    with pytest.raises(InvalidInputError, match="8000 canaries"):
        PAPER.run(np.zeros(7999), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["coordinates", "per_coordinate", "steps"])
def test_a_game_of_nothing_is_refused(name):
    fixed = {"coordinates": 2, "per_coordinate": 3, "steps": 4, "sigma": 1.0}
    with pytest.raises(InvalidInputError, match=f"^{name} must be a whole number >= 1"):
        DiracSums(sampling=Poisson(rate=0.5), **fixed | {name: 0})


# The simulator's law, and that any stretch of it can be drawn alone.


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
