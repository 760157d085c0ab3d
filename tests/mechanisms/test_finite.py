"""Mechanisms with finitely many outputs, held against their definitions.

Each case is a mechanism and, written down independently, the chance of an output given
the data. Everything else follows by enumerating the coins.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable

KEEP = math.e**0.8 / (1 + math.e**0.8)
ROWS = np.random.default_rng(5).dirichlet([0.4, 0.4, 0.4], size=8)
ROWS[2] = [0.0, 0.25, 0.75]


def responses(data, output):
    same = (a == b for a, b in zip(data, output, strict=True))
    return math.prod(KEEP if kept else 1 - KEEP for kept in same)


def is_parity(data, output):
    return float(sum(data) % 2 == output)


def noisy_parity(data, output):
    return KEEP if sum(data) % 2 == output else 1 - KEEP


def pair_parities(data, output):
    sums = [a + b for a, b in zip(data[::2], data[1::2], strict=True)]
    return float([total % 2 for total in sums] == list(output))


def named(data, output):
    return sum(value == output for value in data) / len(data)


def counts_of_two(data, output):
    sums = [sum(data[i : i + 2]) for i in range(0, len(data), 2)]
    return float(sums == list(output))


def sum_of_all(data, output):
    return float(sum(data) == output[0])


def election(candidates):
    def chance(data, output):
        weights = [math.exp(0.7 * list(data).count(c) / 2) for c in range(candidates)]
        return weights[output] / sum(weights)

    return chance


def by_table(data, output):
    return ROWS[sum(int(bit) << i for i, bit in enumerate(data)), output]


def is_data(data, output):
    return float(list(data) == list(output))


def sometimes(chance, w):
    def scaled(data, output):
        return 1 - w if output is None else w * chance(data, output)

    return scaled


RESPONSE = LocalRandomisedResponse(epsilon=0.8)
CASES = {
    "randomised response": (RESPONSE, 3, responses),
    "xor": (Xor(elements=3), 3, is_parity),
    "xor of one": (Xor(elements=1), 1, is_parity),
    "noisy xor": (XorRandomisedResponse(elements=3, epsilon=0.8), 3, noisy_parity),
    "noisy xor of one": (
        XorRandomisedResponse(elements=1, epsilon=0.8),
        1,
        noisy_parity,
    ),
    "xor in pairs": (XorInPairs(elements=4), 4, pair_parities),
    "name and shame": (NameAndShame(elements=4), 4, named),
    "count": (count(4), 4, sum_of_all),
    "sets of two": (CountInSets(elements=4, set_size=2), 4, counts_of_two),
    "sets, the last smaller": (CountInSets(elements=3, set_size=2), 3, counts_of_two),
    "noisy max of two": (NoisyMax(elements=4, epsilon=0.7), 4, election(2)),
    "noisy max of four": (
        NoisyMax(elements=3, epsilon=0.7, candidates=4),
        3,
        election(4),
    ),
    "table": (FiniteTable(rows=ROWS), 3, by_table),
    "all or nothing": (
        AllOrNothing(elements=3, probability=0.3),
        3,
        sometimes(is_data, 0.3),
    ),
    "all or nothing of responses": (
        AllOrNothing(elements=3, probability=0.3, inner=RESPONSE),
        3,
        sometimes(responses, 0.3),
    ),
    "all or nothing of xor": (
        AllOrNothing(elements=2, probability=0.6, inner=Xor(elements=2)),
        2,
        sometimes(is_parity, 0.6),
    ),
    "all or nothing of a count": (
        AllOrNothing(elements=3, probability=0.9, inner=count(3)),
        3,
        sometimes(sum_of_all, 0.9),
    ),
}


def all_coins(n):
    return list(itertools.product((0, 1), repeat=n))


def likelihood(mechanism, chance, output):
    """The chance of an output as a function of the coins, by the pairs."""

    def of(bits):
        return chance(mechanism.pairs.choose(np.array(bits)).tolist(), output)

    return of


def possible(mechanism, n, chance):
    """The outputs that occur, each with its chance under fair coins."""
    for output in mechanism.outputs(n):
        of = likelihood(mechanism, chance, output)
        total = math.fsum(of(bits) for bits in all_coins(n)) / 2**n
        if total > 0:
            yield output, of, total


def test_the_law_is_that_of_the_definition(subtests):
    for name, (mechanism, n, chance) in CASES.items():
        with subtests.test(name=name):
            for bits in all_coins(n):
                data = mechanism.pairs.choose(np.array(bits))
                want = [
                    chance(data.tolist(), output) for output in mechanism.outputs(n)
                ]
                np.testing.assert_allclose(
                    mechanism.distribution(data), want, rtol=1e-12, atol=1e-15
                )
                assert math.isclose(sum(want), 1.0, rel_tol=1e-12)


def test_runs_follow_the_law(subtests):
    """Fixed seed; a chi-square test per case that fails by chance once in 10^6."""
    for name, (mechanism, n, chance) in CASES.items():
        with subtests.test(name=name):
            rng = np.random.default_rng(11)
            data = mechanism.pairs.choose(rng.integers(0, 2, n))

            def plain(output):
                return (
                    tuple(output.tolist()) if isinstance(output, np.ndarray) else output
                )

            seen = Counter(plain(mechanism.run(data, rng)) for _ in range(3000))
            outputs = {plain(o): chance(data.tolist(), o) for o in mechanism.outputs(n)}
            assert seen.keys() <= {o for o, p in outputs.items() if p > 0}
            drawn = [(seen[o], 3000 * p) for o, p in outputs.items() if p > 0]
            if len(drawn) > 1:
                assert stats.chisquare(*np.transpose(drawn)).pvalue > 1e-6


def test_log_odds_are_those_of_bayes(bayes, subtests):
    for name, (mechanism, n, chance) in CASES.items():
        with subtests.test(name=name):
            for output, of, _ in possible(mechanism, n, chance):
                want = list(bayes(of, n).values())
                found = mechanism.log_odds(output)
                np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-11)


def test_revealed_coins_count_as_bayes_says(play, subtests):
    for name, (mechanism, n, chance) in CASES.items():
        with subtests.test(name=name):
            rng = np.random.default_rng(3)
            for output, of, _ in possible(mechanism, n, chance):
                for bits in all_coins(n):
                    if of(bits) > 0:
                        play(mechanism.posterior(output), of, bits, rng.permutation(n))


def test_every_element_comes_in_one_batch(subtests):
    for name, (mechanism, n, chance) in CASES.items():
        with subtests.test(name=name):
            for output, _, _ in possible(mechanism, n, chance):
                batches = list(mechanism.posterior(output).batches())
                assert all(len(batch) for batch in batches)
                assert sorted(np.concatenate(batches).tolist()) == list(range(n))


def exposed_by_distribution(law, size):
    """The chance of each number of elements with a loss of ``size`` or more."""
    found = np.zeros(law.elements + 1)
    found[0] = 1 - sum(kind.probability for kind in law.kinds)
    for kind in law.kinds:
        groups = stats.binom.pmf(
            np.arange(kind.groups + 1), kind.groups, kind.loss.tail(size)
        )
        found[: kind.groups * kind.size + 1 : kind.size] += kind.probability * groups
    return found


def test_the_law_of_losses_counts_the_exposed_right(bayes, subtests):
    for name in [
        name for name in CASES if name not in {"table", "sets, the last smaller"}
    ]:
        with subtests.test(name=name):
            mechanism, n, chance = CASES[name]
            law = mechanism.loss_distribution(n)
            losses = [
                (total, np.abs(list(bayes(of, n).values())))
                for output, of, total in possible(mechanism, n, chance)
            ]
            sizes = sorted({round(x, 9) for _, each in losses for x in each} - {0.0})
            assert sizes or not law.kinds
            for size in sizes:
                want = np.zeros(n + 1)
                for total, sized in losses:
                    want[np.count_nonzero(sized >= size - 1e-8)] += total
                found = exposed_by_distribution(law, size - 1e-8)
                np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)
            for kind in law.kinds:
                assert kind.loss.tail(sizes[-1] + 1e-8) == 0 or math.isinf(sizes[-1])


def hockey_stick(mechanism, n, chance, epsilon):
    """The smallest delta at an epsilon, over all data and all changes of one coin."""
    worst = 0.0
    for bits, i in itertools.product(all_coins(n), range(n)):
        data = [mechanism.pairs.choose(np.array(b)) for b in (bits, flipped(bits, i))]
        there, here = (
            [chance(d.tolist(), o) for o in mechanism.outputs(n)] for d in data
        )
        excess = (a - math.exp(epsilon) * b for a, b in zip(there, here, strict=True))
        worst = max(worst, math.fsum(max(0.0, e) for e in excess))
    return worst


def flipped(bits, i):
    return tuple(1 - b if j == i else b for j, b in enumerate(bits))


EXACT = [
    "randomised response",
    "noisy xor",
    "name and shame",
    "all or nothing",
    "all or nothing of responses",
    "all or nothing of xor",
    "all or nothing of a count",
]


def test_the_guarantee_is_exact_at_every_epsilon(subtests):
    for name, epsilon in itertools.product(EXACT, [0.0, 0.3, 0.79999, 0.80001, 2.0]):
        with subtests.test(name=name, epsilon=epsilon):
            mechanism, n, chance = CASES[name]
            want = hockey_stick(mechanism, n, chance, epsilon)
            found = mechanism.guarantee.delta_at(epsilon)
            assert math.isclose(found, want, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("name", ["noisy max of two", "noisy max of four"])
def test_noisy_max_keeps_its_guarantee(name):
    mechanism, n, chance = CASES[name]
    assert hockey_stick(mechanism, n, chance, 0.7) == 0
    assert hockey_stick(mechanism, n, chance, 0.35) > 0


def test_the_guarantee_of_noisy_max_is_approached_as_votes_grow():
    votes = np.zeros(60, np.int64)
    mechanism = NoisyMax(elements=60, epsilon=1.5)
    before = mechanism.distribution(votes)[1]
    votes[0] = 1
    ratio = math.log(mechanism.distribution(votes)[1] / before)
    assert 1.499 < ratio <= 1.5


@pytest.mark.parametrize("name", ["xor", "xor in pairs", "count", "sets of two"])
def test_without_noise_nothing_is_guaranteed(name):
    mechanism, n, chance = CASES[name]
    assert mechanism.guarantee.delta_at(100.0) == 1
    assert hockey_stick(mechanism, n, chance, 100.0) == 1
