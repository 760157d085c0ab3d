"""Asymptotic tightness: the paper's examples, and count-in-sets at its boundary."""

from fractions import Fraction
from itertools import product
from math import ceil, comb, exp, inf, log, log2

import numpy as np
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.parity import Xor
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.stats.binomial import log_tails
from dpaudit.theory.tightness import (
    SET_SIZES,
    Exposure,
    SetSize,
    Tightness,
    count_in_sets_tightness,
    exposure,
    tightness,
)

SIZES = [100, 1000, 10_000, 100_000]

TIGHT = {
    "constant": True,
    "log-log": True,
    "half-log": True,
    "log": True,
    "double-log": False,
    "sqrt": False,
    "all": False,
}


@pytest.mark.parametrize("name", SET_SIZES)
def test_count_in_sets_is_tight_up_to_sets_of_log2_n(name):
    found = count_in_sets_tightness(SET_SIZES[name])
    assert found.verdict is TIGHT[name]
    assert SET_SIZES[name].is_tight is TIGHT[name]
    assert ("so it is tight" in found.note) is TIGHT[name]


def test_every_rate_of_the_table_has_the_limit_it_states():
    for rate in SET_SIZES.values():
        share = Fraction(rate.at_power(4096), 4096)
        if rate.per_log2 == inf:
            assert share > 10**100
        else:
            assert float(share) == pytest.approx(rate.per_log2, abs=0.003)


def exact_expected(n, size, threshold):
    """n P[|ln((s - o) / o)| >= a], in rationals but for the comparison."""
    reached = [
        o
        for o in range(size + 1)
        if (log(max(o, size - o) / min(o, size - o)) if 0 < o < size else inf)
        >= threshold
    ]
    return Fraction(n * sum(comb(size, o) for o in reached), 2**size)


def test_expected_numbers_are_right_far_beyond_floats(subtests):
    for name, threshold in product(
        [n for n in SET_SIZES if n not in ("sqrt", "all")], [0.5, log(3), 2.0, 4.0, inf]
    ):
        with subtests.test(name=name, threshold=threshold):
            rate = SET_SIZES[name]
            powers = [4, 16, 64, 1024]
            found = count_in_sets_tightness(
                rate, thresholds=[threshold], log2_sizes=powers
            )
            for power, entry in zip(powers, found.table[0], strict=True):
                n = 1 << power
                expected = exact_expected(n, rate.at_power(power), threshold)
                logarithm = log2(expected.numerator) - log2(expected.denominator)
                assert entry.size == n
                assert entry.log2_expected == pytest.approx(
                    logarithm, rel=1e-10, abs=1e-9
                )


def test_half_of_log2_n_leaves_two_root_n_in_sets_that_agree():
    # what contradicts the printed condition s = o(log n)
    found = count_in_sets_tightness(
        SET_SIZES["half-log"], thresholds=[inf], log2_sizes=[16, 64, 256]
    )
    expected = [1 + power / 2 for power in (16, 64, 256)]
    np.testing.assert_allclose([e.log2_expected for e in found.table[0]], expected)


def test_huge_sets_follow_their_large_deviations():
    # The exact tail of a set of 2^40 and the exponent s D(a) of one of 2^41
    for a in (1.0, 4.0):
        p = 1 / (1 + exp(-a))
        rate = log(2) + p * log(p) + (1 - p) * log(1 - p)
        exact = log_tails(ceil(p * 2**40), 2**40, 0.0)[0]
        assert exact == pytest.approx(-(2**40) * rate, rel=1e-9)
        fixed = SetSize(formula="2^41", at_power=lambda m: 2**41, per_log2=0.0)
        found = count_in_sets_tightness(fixed, thresholds=[a], log2_sizes=[64, 65, 66])
        assert found.table[0][0].log2_expected == pytest.approx(
            64 - 2**41 * rate / log(2), rel=1e-9
        )


@pytest.mark.parametrize("power", [10, 12])
@pytest.mark.parametrize("threshold", [1.0, 2.0])
def test_the_chance_of_ten_is_that_of_the_law_of_losses(power, threshold):
    # two ways through the code that share no formula: log space, and the loss law
    rate = SetSize(formula="8", at_power=lambda m: 8, per_log2=0.0)
    sizes = [power, power + 1, power + 2]
    direct = count_in_sets_tightness(rate, thresholds=[threshold], log2_sizes=sizes)
    law = exposure(
        lambda n: CountInSets(elements=n, set_size=8).loss_distribution(n),
        threshold,
        [1 << m for m in sizes],
    )
    for a, b in zip(direct.table[0], law, strict=True):
        assert a.probability == pytest.approx(b.probability, abs=1e-12)
        assert a.log2_expected == pytest.approx(b.log2_expected)


def test_so_many_sets_are_counted_by_poisson_without_a_seam():
    # about 2 sets expected, just below and just above where the formula changes
    expected = []
    for power in (55, 56):
        rate = SetSize(formula="m", at_power=lambda m: m - 1, per_log2=1.0)
        sizes = [power, power + 1, power + 2]
        found = count_in_sets_tightness(rate, thresholds=[inf], log2_sizes=sizes)
        mean = 2.0**power // (power - 1) * 2.0 ** -(power - 2)
        assert found.table[0][0].probability == pytest.approx(1 - exp(-mean), rel=1e-9)
        expected.append(mean)
    assert expected[0] == pytest.approx(expected[1], rel=0.05)


@pytest.mark.parametrize(
    ("mechanism_at", "thresholds", "verdict"),
    [
        (lambda n: LocalRandomisedResponse(epsilon=1.0), [0.5, 0.999], True),
        (lambda n: LocalLaplace(epsilon=1.0), [0.5, 0.999], True),
        (lambda n: LocalGaussian(sigma=1.0), [1.0, 2.0, 3.0], True),
        (lambda n: AllOrNothing(elements=n, probability=0.3), [1.0], False),
        (lambda n: AllOrNothing(elements=n, probability=0.995), [1.0], False),
        (lambda n: NameAndShame(elements=n), [1.0], False),
        (lambda n: Xor(elements=n), [1.0], False),
        (count, [0.5, 1.0], False),
        (lambda n: CountInSets(elements=n, set_size=4), [1.0, 10.0], True),
    ],
)
def test_the_verdicts_are_those_of_the_paper(mechanism_at, thresholds, verdict):
    found = tightness(
        lambda n: mechanism_at(n).loss_distribution(n),
        thresholds=thresholds,
        sizes=SIZES,
    )
    assert found.verdict is verdict


def entry(size, expected, chance):
    return Exposure(size=size, log2_expected=log2(expected), probability=chance)


def test_a_trend_that_has_not_set_in_is_left_undecided():
    row = tuple(entry(10**j, 2 * j, 0.1 * j) for j in (1, 2, 3))
    found = Tightness(thresholds=(1.0,), sizes=(10, 100, 1000), table=(row,))
    assert found.verdict is None
    assert "does not tell" in str(found)
    flat = tuple(entry(10**j, 2, 0.1) for j in (1, 2, 3))
    both = Tightness(thresholds=(1.0, 2.0), sizes=(10, 100, 1000), table=(row, flat))
    assert both.verdict is False


def test_it_says_in_words_what_it_saw():
    text = str(count_in_sets_tightness(SET_SIZES["sqrt"], thresholds=[1.0]))
    assert "a loss of 1 or more" in text
    assert "0 at n = 2^4096; not growing" in text
    assert "s / log2 n tends to infinity" in text
    assert max(map(len, text.splitlines())) < 250


def test_tables_that_do_not_fit_are_refused():
    row = tuple(entry(10**j, 2, 0.1) for j in (1, 2, 3))
    with pytest.raises(InvalidInputError, match="three or more"):
        Tightness(thresholds=(1.0,), sizes=(10, 100), table=(row[:2],))
    with pytest.raises(InvalidInputError, match="rise"):
        Tightness(thresholds=(1.0,), sizes=(10, 100, 100), table=(row,))
    with pytest.raises(InvalidInputError, match="row for each threshold"):
        Tightness(thresholds=(1.0, 2.0), sizes=(10, 100, 1000), table=(row,))


def test_a_count_is_not_tight_even_where_its_chances_are_below_all_floats():
    """At a loss of 4.5 and 2^20 coins the chance is far below 10^-308."""
    found = tightness(
        lambda n: count(n).loss_distribution(n),
        thresholds=[4.5],
        sizes=[2**12, 2**16, 2**20],
    )
    assert found.verdict is False
