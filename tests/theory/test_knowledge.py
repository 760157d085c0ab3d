"""What knowing other coins is worth, against recursion by hand and closed forms."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalGaussian, LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.theory.adaptive import adaptive_guesses
from dpaudit.theory.enumeration import Enumeration, enumerate_mechanism
from dpaudit.theory.knowledge import knowledge
from dpaudit.theory.levels import levels


def random_rows(seed, elements=3, outputs=3):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(outputs, 0.4), size=1 << elements)
    rows[rng.random(rows.shape) < 0.2] = 0.0
    rows += rows.sum(axis=1, keepdims=True) == 0
    return rows / rows.sum(axis=1, keepdims=True)


def full_by_hand(rows, guesses):
    n, total = len(rows).bit_length() - 1, 0.0
    for row, output in product(range(len(rows)), range(len(rows[0]))):
        found = []
        for i in range(n):
            pair = rows[row][output], rows[row ^ (1 << i)][output]
            found.append(max(pair) / sum(pair) if sum(pair) else 0.5)
        total += rows[row][output] * sum(sorted(found)[n - guesses :]) / guesses
    return total / len(rows)


def in_turn_by_hand(rows, guesses, *, any_order):
    """The best guesser, by recursion over what it has seen; it may choose the order."""
    n = len(rows).bit_length() - 1

    def weight(output, seen):
        return sum(
            rows[row][output]
            for row in range(len(rows))
            if all(row >> i & 1 == bit for i, bit in seen)
        )

    @cache
    def most(output, seen, left):
        hidden = [i for i in range(n) if i not in dict(seen)]
        if not hidden or not left:
            return 0.0
        best = 0.0
        for i in hidden if any_order else hidden[:1]:
            after = [tuple(sorted((*seen, (i, bit)))) for bit in (0, 1)]
            passed = sum(most(output, each, left) for each in after)
            gained = max(weight(output, each) for each in after)
            guessed = gained + sum(most(output, each, left - 1) for each in after)
            best = max(best, passed, guessed)
        return best

    total = sum(most(output, (), guesses) for output in range(len(rows[0])))
    return total / len(rows) / guesses


def test_tables_are_what_recursion_finds_and_fall_in_order(subtests):
    for seed, guesses in product(range(5), [1, 2, 3]):
        with subtests.test(seed=seed, guesses=guesses):
            rows = random_rows(seed)
            table = Enumeration(table=rows)
            full, in_turn = table.full_knowledge(guesses), table.in_turn(guesses)
            plain = rows.tolist()
            assert full == pytest.approx(full_by_hand(plain, guesses), abs=1e-12)
            in_order = in_turn_by_hand(plain, guesses, any_order=False)
            assert in_turn == pytest.approx(in_order, abs=1e-12)
            free = in_turn_by_hand(plain, guesses, any_order=True)
            assert special.expit(table.worst_case()) >= full - 1e-12
            assert full >= free - 1e-12
            assert free >= in_turn - 1e-12
            assert in_turn >= table.best(guesses) - 1e-12


def test_the_order_can_matter():
    """So what is found in the given order is not the best of all adaptive guessers."""
    rows = random_rows(0).tolist()
    given, free = (in_turn_by_hand(rows, 1, any_order=each) for each in (False, True))
    assert free > given + 1e-3


@pytest.mark.parametrize("guesses", [1, 3, 6])
def test_parities_have_their_closed_forms(guesses):
    """All coins but one must be told before the last is known."""
    found = knowledge(Xor(elements=6), elements=6, guesses=guesses)
    assert found.full.value == 1
    assert found.in_turn.value == pytest.approx((guesses + 1) / (2 * guesses))
    noisy = XorRandomisedResponse(elements=6, epsilon=1.5)
    told = knowledge(noisy, elements=6, guesses=guesses)
    right = special.expit(1.5)
    assert told.full.value == pytest.approx(right)
    last = ((guesses - 1) / 2 + right) / guesses
    assert told.in_turn.value == pytest.approx(last)
    pairs = knowledge(XorInPairs(elements=6), elements=6, guesses=guesses)
    known = min(guesses, 3)
    want = (known + (guesses - known) / 2) / guesses
    assert pairs.in_turn.value == pytest.approx(want)


@pytest.mark.parametrize("size", [1, 2, 5, 10])
def test_counts_have_their_closed_forms(size):
    found = knowledge(count(size), elements=size, guesses=size)
    assert found.full.value == pytest.approx(1.0)
    right = adaptive_guesses(size, 0.0).expected_right
    assert found.in_turn.value == pytest.approx(right / size)


def test_full_knowledge_of_noisy_counts_is_that_of_one_noisy_coin():
    """However many share a count: Phi(1 / (2 sigma)), of two normal laws 1 apart."""
    mechanism = CountInSets(elements=60, set_size=6, noise=GaussianNoise(sigma=0.8))
    rng = np.random.default_rng(1)
    found = knowledge(mechanism, elements=60, guesses=60, rng=rng)
    assert found.full.low <= stats.norm.cdf(1 / 1.6) <= found.full.high
    one_run = levels(mechanism, elements=60).best_accuracy.value
    assert one_run < found.in_turn.low
    assert found.in_turn.high < found.full.low


class Played:
    """A mechanism that does not say its law, and whose posterior knows only turns."""

    def __init__(self, mechanism, *, at_once):
        self.run, self.pairs = mechanism.run, mechanism.pairs
        self._told, self._at_once = mechanism.posterior, at_once

    def posterior(self, output):
        told = self._told(output)
        if self._at_once:
            return told

        class Turns:
            batches, log_odds, reveal = told.batches, told.log_odds, told.reveal

        return Turns()


ELEMENTS = 7
MECHANISMS = [
    CountInSets(elements=ELEMENTS, set_size=3),
    XorRandomisedResponse(elements=ELEMENTS, epsilon=1.0),
    NameAndShame(elements=ELEMENTS),
    AllOrNothing(elements=ELEMENTS, probability=0.5),
    LocalRandomisedResponse(epsilon=1.0),
    NoisyMax(elements=ELEMENTS, epsilon=2.0, candidates=3),
    FiniteTable(rows=random_rows(7, elements=ELEMENTS, outputs=4)),
]


@pytest.mark.nightly
def test_games_give_what_enumeration_does(subtests):
    """In turn they may fall short of the best guesser, and never exceed it."""
    for guesses, mechanism in product([2, ELEMENTS], MECHANISMS):
        with subtests.test(guesses=guesses, mechanism=mechanism):
            exact = knowledge(mechanism, elements=ELEMENTS, guesses=guesses)
            table = enumerate_mechanism(mechanism, mechanism.pairs, elements=ELEMENTS)
            one_run = table.best(guesses)
            seen = [
                knowledge(
                    Played(mechanism, at_once=at_once),
                    elements=ELEMENTS,
                    guesses=guesses,
                    rng=np.random.default_rng(2),
                )
                for at_once in (True, False)
            ]
            for found in seen:
                assert (
                    found.full.low - 1e-9 <= exact.full.value <= found.full.high + 1e-9
                )
                assert found.in_turn.low - 1e-9 <= exact.in_turn.value
                assert found.in_turn.high + 1e-9 >= one_run
                if guesses == 9:
                    assert exact.in_turn.value <= found.in_turn.high + 1e-9
            assert seen[0].full.value == pytest.approx(seen[1].full.value, abs=1e-12)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_knowing_all_others_at_once_is_revealing_them(mechanism):
    rng = np.random.default_rng(4)
    for _ in range(20):
        bits = rng.integers(0, 2, ELEMENTS)
        output = mechanism.run(mechanism.pairs.choose(bits), rng)
        truth = (2 * bits - 1).astype(np.int8)
        at_once = mechanism.posterior(output).knowing_others(truth)
        for i in range(ELEMENTS):
            others = np.delete(np.arange(ELEMENTS), i)
            posterior = mechanism.posterior(output)
            posterior.reveal(others, truth[others])
            (alone,) = posterior.log_odds(np.array([i]))
            assert at_once[i] == pytest.approx(alone, abs=1e-9)


def test_local_mechanisms_have_no_interference():
    found = knowledge(
        LocalGaussian(sigma=1.0),
        elements=50,
        guesses=10,
        rng=np.random.default_rng(3),
        runs=200,
    )
    best = levels(LocalGaussian(sigma=1.0), elements=50, guesses=10).best_accuracy.value
    assert found.full.low <= best <= found.full.high
    assert found.in_turn.low <= best <= found.in_turn.high


def test_what_cannot_be_played_or_takes_too_long_is_left_out():
    rng = np.random.default_rng(1)
    assert knowledge(object(), elements=4, guesses=4, rng=rng) is None
    assert knowledge(LocalGaussian(sigma=1.0), elements=4, guesses=4) is None
    assert knowledge(count(5000), elements=5000, guesses=9, rng=rng) is None
    with pytest.raises(InvalidInputError, match="guesses must be at most"):
        knowledge(count(3), elements=3, guesses=4)
    with pytest.raises(InvalidInputError, match="guesses must be at most"):
        knowledge(LocalGaussian(sigma=1.0), elements=3, guesses=4, rng=rng)
