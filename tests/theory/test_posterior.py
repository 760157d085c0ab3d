"""Guessing in turns about any mechanism, against walks by hand and real games."""

from itertools import product
from math import inf, log

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import (
    AdaptiveCount,
    AdaptiveMostLikely,
    Coins,
    Design,
    PureDP,
    audit_adaptive,
)
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.theory.adaptive import adaptive_guesses
from dpaudit.theory.posterior import adaptive_guessing, plan_count, play

CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def by_hand(rows, threshold):
    """E[R], E[V], E[V / R] and P[R = 0]: Bayes' rule for every output and all coins."""
    n = len(rows).bit_length() - 1
    coins = list(product((0, 1), repeat=n))

    def chance(bits, output):
        return rows[sum(bit << i for i, bit in enumerate(bits))][output]

    made = right = share = silent = 0.0
    for bits, output in product(coins, range(len(rows[0]))):
        r = v = 0
        for i in range(n):
            like = [c for c in coins if c[:i] == bits[:i]]
            weight = [sum(chance(c, output) for c in like if c[i] == b) for b in (0, 1)]
            if not sum(weight):
                continue
            odds = inf if not min(weight) else log(max(weight) / min(weight))
            if odds >= threshold:
                r += 1
                v += (weight[1] >= weight[0]) == bits[i]
        mass = chance(bits, output) / 2**n
        made, right = made + mass * r, right + mass * v
        share += mass * v / r if r else 0.0
        silent += mass * (r == 0)
    return made, right, share / (1 - silent), silent


def random_table(seed, elements=4, outputs=3):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(outputs, 0.5), size=1 << elements)
    rows[rng.random(rows.shape) < 0.2] = 0.0
    rows += 1e-3 * (rows.sum(axis=1, keepdims=True) == 0)
    return rows / rows.sum(axis=1, keepdims=True)


def test_every_table_is_guessed_as_bayes_rule_says_by_hand(subtests):
    for seed, threshold in product(range(4), [0.0, 0.4, 1.0]):
        with subtests.test(seed=seed, threshold=threshold):
            rows = random_table(seed)
            found = adaptive_guessing(
                FiniteTable(rows=rows), elements=4, threshold=threshold
            )
            exact = (found.guesses, found.right, found.efficacy, found.silent)
            want = by_hand(rows, threshold)
            assert [each.value for each in exact] == pytest.approx(want, abs=1e-12)
            assert all(each.is_exact for each in exact)


class Halves:
    """A table of four elements, the upper two guessed together before the lower."""

    def __init__(self, rows):
        self._table = FiniteTable(rows=rows)
        self.pairs, self.distribution = self._table.pairs, self._table.distribution
        self.outputs, self.run = self._table.outputs, self._table.run

    def posterior(self, output):
        found = self._table.posterior(output)

        class InHalves:
            log_odds, reveal = found.log_odds, found.reveal

            def batches(self):
                return iter([np.array([2, 3]), np.array([0, 1])])

        return InHalves()


@pytest.mark.parametrize("threshold", [0.3, 1.0])
def test_batches_are_followed_and_a_batch_learns_nothing_of_itself(threshold):
    """Every output and all coins are played by the real posterior, one by one."""
    rows = random_table(9)
    mechanism = Halves(rows)
    made = right = 0.0
    for row, output in product(range(16), range(3)):
        bits = (row >> np.arange(4)) & 1
        guesses = play(mechanism.posterior(output), bits).reaching(threshold)
        made += rows[row, output] / 16 * len(guesses)
        right += rows[row, output] / 16 * guesses.sum()
    found = adaptive_guessing(mechanism, elements=4, threshold=threshold)
    assert found.guesses.value == pytest.approx(made, abs=1e-12)
    assert found.right.value == pytest.approx(right, abs=1e-12)
    other = adaptive_guessing(FiniteTable(rows=rows), elements=4, threshold=threshold)
    assert abs(other.right.value - right) > 1e-3


@pytest.mark.parametrize("threshold", [0.0, log(2), 1.5, inf])
def test_counts_in_sets_are_so_many_counts(threshold):
    found = adaptive_guessing(
        CountInSets(elements=9, set_size=3), elements=9, threshold=threshold
    )
    alone = adaptive_guesses(3, threshold)
    assert found.guesses.value == pytest.approx(3 * alone.expected_guesses)
    assert found.right.value == pytest.approx(3 * alone.expected_right)


def test_parities_have_their_closed_forms():
    xor = adaptive_guessing(Xor(elements=7), elements=7, threshold=inf)
    assert (xor.guesses.value, xor.efficacy.value, xor.silent.value) == (1, 1, 0)
    pairs = adaptive_guessing(XorInPairs(elements=8), elements=8, threshold=inf)
    assert (pairs.guesses.value, pairs.right.value) == (4, 4)
    noisy = XorRandomisedResponse(elements=5, epsilon=1.0)
    told = adaptive_guessing(noisy, elements=5, threshold=0.5)
    assert told.right.value == pytest.approx(special.expit(1.0))
    nobody = adaptive_guessing(noisy, elements=5, threshold=1.5)
    assert nobody.efficacy is None
    assert nobody.silent.value == pytest.approx(1.0)


@pytest.mark.parametrize("threshold", [0.5, inf])
@pytest.mark.parametrize(
    "mechanism",
    [
        CountInSets(elements=8, set_size=4),
        XorInPairs(elements=8),
        NameAndShame(elements=8),
        AllOrNothing(elements=8, probability=0.4),
        LocalRandomisedResponse(epsilon=1.0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_simulated_intervals_hold_the_exact_numbers(mechanism, threshold):
    class Played:
        run, posterior, pairs = mechanism.run, mechanism.posterior, mechanism.pairs

    exact = adaptive_guessing(mechanism, elements=8, threshold=threshold)
    rng = np.random.default_rng(3)
    seen = adaptive_guessing(Played, elements=8, threshold=threshold, rng=rng, runs=600)
    assert "simulation of 600 games" in seen.how
    for name in ("guesses", "right", "silent", "efficacy"):
        found, true = getattr(seen, name), getattr(exact, name)
        if true is None:
            assert found is None
        else:
            assert found.low - 1e-12 <= true.value <= found.high + 1e-12, name


def test_a_game_is_the_one_that_the_referee_sees():
    """The surest of a batch come first, so a committed number takes the same ones."""
    sets = CountInSets(elements=60, set_size=6, noise=GaussianNoise(sigma=0.8))
    for seed, number in product(range(5), (3, 10, 40)):
        key = fixed_key(bytes([seed] * 32))
        rules = AdaptiveCount(guesses=number)
        design = Design(canaries=60, rules=rules, claim=CLAIM)
        guesser = AdaptiveMostLikely(mechanism=sets, threshold=1.0, rules=rules)
        rng = np.random.default_rng(seed)
        result = audit_adaptive(
            sets, guesser, pairs=sets.pairs, design=design, rng=rng, key=key
        )
        bits = Coins(key=key, count=60).bits()
        again = sets.run(sets.pairs.choose(bits), np.random.default_rng(seed))
        right = play(sets.posterior(again), bits).reaching(1.0)
        assert result.reading.correct == right[:number].sum()


def exact_bounds(sets, size, number, alpha=0.05):
    """Bounds of certain guesses about counts, and their chances: R is a sum of runs."""
    law = np.ones(1)
    one = np.array([0.0, *(0.5**r for r in range(1, size)), 0.5 ** (size - 1)])
    for _ in range(sets):
        law = np.convolve(law, one)
    right = np.minimum(np.arange(len(law)), number)
    limit = stats.beta.ppf(alpha, np.maximum(right, 1), number - right + 1)
    return np.where(right > 0, np.maximum(0.0, special.logit(limit)), 0.0), law


def test_a_planned_number_shows_as_much_as_the_best():
    """Of 100 elements in sets of 10, guessed where certain, all is known exactly."""
    sets = CountInSets(elements=100, set_size=10)
    rng = np.random.default_rng(5)
    plan = plan_count(sets, elements=100, threshold=inf, rng=rng)
    means = [float(np.dot(*exact_bounds(10, 10, r))) for r in range(1, 60)]
    assert means[plan.guesses - 1] > max(means) - 0.01
    # committing to all 100 shows nothing at all
    assert np.dot(*exact_bounds(10, 10, 100)) < 1e-6
    bounds, law = exact_bounds(10, 10, plan.guesses)
    assert plan.expected.low <= bounds @ law <= plan.expected.high
    below = np.cumsum(law[np.argsort(bounds)])
    median = np.sort(bounds)[np.searchsorted(below, 0.5)]
    assert plan.median.low - 1e-9 <= median <= plan.median.high + 1e-9
    reached = np.minimum(np.arange(len(law)), plan.guesses)
    assert plan.made.low <= reached @ law <= plan.made.high
    assert plan.short.low <= law[: plan.guesses].sum() <= plan.short.high


@pytest.mark.nightly
def test_the_plan_is_kept_by_the_audits_that_follow_it():
    """300 real audits; the mean of their bounds is within five of its errors."""
    sets = CountInSets(elements=120, set_size=6, noise=GaussianNoise(sigma=0.5))
    plan = plan_count(
        sets, elements=120, delta=1e-5, rng=np.random.default_rng(1), runs=1200
    )
    guesser = AdaptiveMostLikely(
        mechanism=sets, threshold=plan.threshold, rules=plan.rules
    )
    design = Design(canaries=120, rules=plan.rules, claim=CLAIM)
    shown = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        result = audit_adaptive(
            sets,
            guesser,
            pairs=sets.pairs,
            design=design,
            rng=rng,
            key=fixed_key(rng.bytes(32)),
        )
        counts = result.reading
        assert isinstance(counts, Counts)
        found = AdaptiveBound().epsilon_lower(counts, delta=1e-5, alpha=0.05)
        shown.append(found.epsilon_lower)
    error = np.std(shown) / 300**0.5
    assert abs(np.mean(shown) - plan.expected.value) < 5 * error
    assert plan.expected.low > 0.5  # it is worth an audit


@pytest.mark.nightly
def test_a_threshold_that_is_found_is_no_worse_than_one_that_is_given():
    sets = CountInSets(elements=120, set_size=6, noise=GaussianNoise(sigma=0.5))

    def planned(threshold):
        rng = np.random.default_rng(2)
        return plan_count(
            sets, elements=120, rng=rng, runs=600, threshold=threshold
        ).expected

    best = planned(None)
    for threshold in (0.0, 1.0, 3.0, 6.0):
        assert planned(threshold).value < best.value + 0.1


def test_delta_is_paid_for():
    laplace = LocalLaplace(epsilon=3.0)
    pure, with_delta = (
        plan_count(
            laplace, elements=200, delta=d, rng=np.random.default_rng(4), runs=200
        )
        for d in (0.0, 1e-3)
    )
    assert with_delta.expected.value < pure.expected.value - 0.05


def test_what_cannot_be_played_is_refused_with_what_is_missing():
    with pytest.raises(InvalidInputError, match="give it run, posterior and pairs"):
        adaptive_guessing(object(), elements=4, threshold=0.0)
    with pytest.raises(InvalidInputError, match=r"rng=np\.random"):
        adaptive_guessing(LocalLaplace(epsilon=1.0), elements=4, threshold=0.0)
    with pytest.raises(InvalidInputError, match="no guess reached threshold=2"):
        plan_count(
            LocalLaplace(epsilon=1.0),
            elements=9,
            threshold=2.0,
            rng=np.random.default_rng(1),
            runs=20,
        )
    with pytest.raises(InvalidInputError, match="threshold must be 0 or more"):
        adaptive_guessing(count(3), elements=3, threshold=-1.0)
