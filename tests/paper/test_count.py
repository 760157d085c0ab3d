"""Appendix "DP-SGD", theory: count, symmetric algorithms and count-in-sets."""

from fractions import Fraction
from itertools import product
from math import comb, exp, inf, log, log2, sqrt

import numpy as np
import pytest
from scipy import special

from dpaudit import Design, MostLikely, OneRun, PureDP
from dpaudit.game.auditors import play_one_run
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.theory import levels_from_loss
from dpaudit.theory.levels import levels
from dpaudit.theory.tightness import SET_SIZES, count_in_sets_tightness

HALF = Fraction(1, 2)
BOTH = np.array([[a, b] for a, b in product((0, 1), repeat=2)])


def deviation(n, p):
    """E |O - n p| for O ~ Bin(n, p)."""
    return sum(
        comb(n, o) * p**o * (1 - p) ** (n - o) * abs(o - n * p) for o in range(n + 1)
    )


def counting(n):
    """The exact table of count."""
    return [[Fraction(r.bit_count() == o) for o in range(n + 1)] for r in range(1 << n)]


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 10), HALF, Fraction(9, 10)])
def test_lem_bound_of_the_mad_of_a_binomial(p):
    for n in range(1, 60):
        assert deviation(n, p) ** 2 <= n * p * (1 - p)


def test_lem_bound_of_the_mad_of_a_binomial_is_attained_by_one_fair_coin():
    assert deviation(1, HALF) ** 2 == HALF * HALF


def test_subsec_symmetric_algorithms_on_01_count_is_the_number_of_ones():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5):
        for data in product((0, 1), repeat=n):
            assert count(n).run(np.array(data), rng).tolist() == [sum(data)]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_prop_ora_efficacy_for_count_approaches_half_by_enumeration(exact, n):
    # 1/2 + E|O - n/2| / n for every number of guesses: all elements share their loss.
    table = exact(counting(n))
    for k in range(1, n + 1):
        assert table.best(k) == HALF + deviation(n, HALF) / n


@pytest.mark.parametrize("n", [1, 2, 5, 30, 200])
def test_prop_ora_efficacy_for_count_approaches_half_with_its_bound(n):
    printed = HALF + deviation(n, HALF) / n
    for k in {1, (n + 1) // 2, n}:
        found = levels(count(n), elements=n, guesses=k).best_accuracy.value
        assert found == pytest.approx(float(printed), abs=1e-11)
    assert (printed - HALF) ** 2 <= Fraction(1, 4 * n)  # 1/2 + 1 / (2 sqrt n)


def test_prop_ora_efficacy_for_count_approaches_half_at_large_sizes():
    # E|O - n/2| is sqrt(n / (2 pi)) up to a share of 1 / (4 n).
    for n in (10**4, 10**6):
        found = levels(count(n), elements=n).average_element_accuracy.value
        assert found - 0.5 == pytest.approx(1 / sqrt(2 * np.pi * n), rel=1 / n)
        assert found <= 0.5 + 1 / (2 * sqrt(n))


def test_prop_ora_efficacy_for_count_approaches_half_in_games():
    # 2,000 games of 5 guesses among 10; V / R has a deviation of at most 0.5, so the
    # mean strays by 0.05, more than four of its deviations, with chance below 1e-4.
    mechanism = count(10)
    claim = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    design = Design(canaries=10, rules=OneRun(guesses=5), claim=claim)
    shares = []
    for number in range(2000):
        transcript = play_one_run(
            mechanism,
            MostLikely(mechanism=mechanism, guesses=5),
            pairs=mechanism.pairs,
            design=design,
            rng=np.random.default_rng(0),
            key=fixed_key(number.to_bytes(32, "little")),
        )
        shares.append(transcript.reading().correct / 5)
    assert abs(np.mean(shares) - float(HALF + deviation(10, HALF) / 10)) < 0.05


def test_cor_symmetric_algorithms_are_audited_no_better_than_count(exact):
    # Random symmetric mechanisms: a row depends on the number of ones only.
    rng = np.random.default_rng(8)
    for _ in range(40):
        n, outputs = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        weights = rng.integers(1, 9, (n + 1, outputs))
        laws = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
        table = exact([laws[r.bit_count()] for r in range(1 << n)])
        limit = HALF + deviation(n, HALF) / n
        for k in range(1, n + 1):
            assert HALF <= table.best(k) <= limit
            found = levels(table.table, elements=n, guesses=k).best_accuracy.value
            assert found == pytest.approx(float(table.best(k)))


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_lemma_privacy_loss_of_count_is_ln_of_n_minus_o_over_o(n):
    mechanism = count(n)
    for o in range(n + 1):
        size = abs(log((n - o) / o)) if 0 < o < n else inf
        found = np.abs(mechanism.log_odds(np.array([o])))
        np.testing.assert_allclose(found, size, atol=1e-12)
        # from P[O = o | D_i = 0] = P[C = o] and P[O = o | D_i = 1] = P[C = o - 1]
        zero = comb(n - 1, o)
        one = comb(n - 1, o - 1) if o else 0
        assert (inf if not zero * one else abs(log(zero / one))) == pytest.approx(size)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 41])
@pytest.mark.parametrize("a", [0.1, 1.0, 2.5, 6.0])
def test_lemma_privacy_loss_of_count_has_the_printed_tail(n, a):
    printed = (
        sum(
            comb(n, o)
            for o in range(n + 1)
            if abs(o - n / 2) >= (exp(a) - 1) / (2 * (exp(a) + 1)) * n - 1e-12
        )
        / 2**n
    )
    found = levels_from_loss.exposed(count(n).loss_distribution(n), a) / n
    assert found == pytest.approx(printed)


def test_def_count_in_sets_counts_the_ones_of_each_set():
    rng = np.random.default_rng(0)
    for n, s in [(6, 2), (7, 3), (5, 5), (4, 1)]:
        mechanism = CountInSets(elements=n, set_size=s)
        for data in product((0, 1), repeat=n):
            printed = [sum(data[i : i + s]) for i in range(0, n, s)]
            assert len(printed) == -(-n // s)
            assert mechanism.run(np.array(data), rng).tolist() == printed


def test_def_count_in_sets_of_a_constant_size_is_not_local():
    # Printed: for s = c it is a local algorithm. A local algorithm, whatever it is,
    # leaves coins independent given its output; a count of 1 of 2 leaves one of each.
    counted = FiniteTable(
        rows=[CountInSets(elements=2, set_size=2).distribution(d) for d in BOTH]
    )
    rng = np.random.default_rng(3)
    apart = [rng.dirichlet(np.ones(3), 2) for _ in range(20)]  # sub-algorithms
    local = [
        FiniteTable(rows=[np.kron(sub[b], sub[a]) for a, b in BOTH]) for sub in apart
    ]
    for table, independent in [(counted, False), *((each, True) for each in local)]:
        weight = np.array(table.rows)
        both = (weight / weight.sum(axis=0)).reshape(2, 2, -1)  # coin 0, coin 1
        product_of = both.sum(axis=1)[:, None] * both.sum(axis=0)[None]
        assert np.allclose(both, product_of) == independent
    # It is audited tightly, as a constant is o(log n) and not as a local algorithm:
    # sets of 2 that are not all alike say nothing about their elements.
    found = levels(CountInSets(elements=10**6, set_size=2), elements=10**6, guesses=100)
    assert found.best_accuracy.value == pytest.approx(1.0)
    assert found.average_element_accuracy.value == pytest.approx(0.75)


# Tightness for count-in-sets


def q(s, a):
    """The chance that a count of s has a loss of at least a, from the definition."""
    loud = [
        comb(s, o)
        for o in range(s + 1)
        if min(o, s - o) == 0 or log(max(o, s - o) / min(o, s - o)) >= a
    ]
    return Fraction(sum(loud), 2**s)


def log2_of(chance):
    """The logarithm of a fraction that may be too small for a float."""
    return log2(chance.numerator) - log2(chance.denominator)


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_bounds_of_q():
    # The printed bounds on q(n) hold: 2^-(s-1) <= q <= 2 exp(-c s).
    for s, a in product(range(1, 40), (0.5, 1.0, 2.0, 4.0)):
        c = ((exp(a) - 1) / (exp(a) + 1)) ** 2 / 2
        assert Fraction(1, 2 ** (s - 1)) <= q(s, a) <= 2 * exp(-c * s) * (1 + 1e-12)


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_half_log_is_tight():
    # s = log2(n) / 2 is not o(log n). The sets whose coins all fell alike hold
    # n 2^-(s-1) = 2 sqrt(n) elements on average, and their number grows without limit.
    for m in (8, 16, 24, 32):
        n, s = 2**m, m // 2
        assert Fraction(n, 2 ** (s - 1)) == 2 * 2 ** (m // 2)
        law = CountInSets(elements=n, set_size=s).loss_distribution(n // s * s)
        assert levels_from_loss.exposed(law, 50.0) == pytest.approx(
            2 * sqrt(n) * (n // s * s) / n
        )
    assert levels_from_loss.probability_exposed(law, 50.0, at_least=1000) > 1 - 1e-12
    # So the efficacy of ever more guesses, all certain, is 1 = p(infinity).
    n = 12 * 2**20
    found = levels(CountInSets(elements=n, set_size=12), elements=n, guesses=24)
    assert found.best_accuracy.value == pytest.approx(1.0)
    assert SET_SIZES["half-log"].is_tight
    assert count_in_sets_tightness(SET_SIZES["half-log"]).verdict is True


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_double_log_is_not():
    # s = 2 log2 n: at a loss of 4 the expected number of exposed elements vanishes.
    numbers = [2**m * q(2 * m, 4.0) for m in (4, 8, 16, 32)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] < 1e-6
    assert not SET_SIZES["double-log"].is_tight
    assert count_in_sets_tightness(SET_SIZES["double-log"]).verdict is False


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_if_direction():
    # s = o(log n) is enough, as printed: log2 log2 n, and a constant.
    for name in ("log-log", "constant"):
        assert count_in_sets_tightness(SET_SIZES[name]).verdict is True
    numbers = [2**m * q(m.bit_length() - 1, 4.0) for m in (4, 16, 64)]
    assert numbers == sorted(numbers)


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_sharp_condition():
    # -log2 q(s, a) / s tends to 1 - H2(p(a)), which is below 1 for every finite a and
    # rises to 1. So n q grows for every a if and only if limsup s / log2 n <= 1. The
    # printed step from -log q = Theta(s) to q ~ 2^-s loses that factor.
    for a in (1.0, 2.0, 4.0):
        rate = 1 / (1 + exp(-a))
        limit = 1 + rate * log2(rate) + (1 - rate) * log2(1 - rate)
        rates = [-log2_of(q(s, a)) / s for s in (1000, 4000)]
        assert limit < 1
        assert rates[1] == pytest.approx(limit, abs=3e-3)
        assert abs(rates[1] - limit) < abs(rates[0] - limit)
    # At s = log2 n itself: a constant number of fully exposed elements, 2 on average,
    # but ever more at any finite loss.
    assert all(2**m * q(m, 1e9) == 2 for m in (8, 64, 512))
    numbers = [m + log2_of(q(m, 2.0)) for m in (64, 512, 2048)]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 1000
    assert SET_SIZES["log"].is_tight
    assert not SET_SIZES["sqrt"].is_tight


def test_prop_condition_for_tightness_of_ora_for_count_in_sets_needs_many_sets():
    # Another step of the proof: s Bin(n / s, q) grows in probability if and only if
    # n q does. What must grow is the number of sets, n q / s. With n / s = 1 / q sets,
    # n q = s grows, and no set is exposed with chance (1 - q)^(1 / q), about 1 / e.
    # (The result is not touched: it asks for all a, and then n q / s grows with n q.)
    for s in (10, 20, 40):
        chance = q(s, 2.0)
        sets = int(1 / chance)
        assert s * sets * chance > 0.9 * s
        assert special.xlog1py(sets, -float(chance)) == pytest.approx(-1, abs=0.2)
