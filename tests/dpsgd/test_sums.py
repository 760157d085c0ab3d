"""The mechanism of noisy sums: its posterior by Monte Carlo, and audits of it."""

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
from dpaudit.dpsgd.sums import DiracSums, SeenSums, count_likelihood, simulate_sums
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
    likelihood = count_likelihood(coordinates=5000, per_coordinate=3, sampling=sampling)
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
    guesser = Extremes(score=SeenSums.canary_totals, top=50, bottom=50)
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
