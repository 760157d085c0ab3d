"""Chapter and appendix "Gaps": randomised response, and the three examples."""

from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest

from dpaudit import Design, MostLikely, OneRun, PureDP, audit_one_run
from dpaudit.game import Everyone
from dpaudit.game.auditors import play_one_run
from dpaudit.game.guessers import Echo
from dpaudit.mechanisms.exposure import AllOrNothing, Identity, NameAndShame
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.parity import Xor
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.theory.enumeration import enumerate_mechanism
from dpaudit.theory.levels import levels
from dpaudit.theory.tightness import tightness

HALF = Fraction(1, 2)
CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def audit(mechanism, guesser, *, canaries, guesses, number=0):
    return audit_one_run(
        mechanism,
        guesser,
        pairs=mechanism.pairs,
        design=Design(canaries=canaries, rules=OneRun(guesses=guesses), claim=CLAIM),
        rng=np.random.default_rng(number),
        key=fixed_key(number.to_bytes(32, "little")),
    )


def all_guessers(outputs, n, *, least=1):
    """Every way to guess at least so many coins for each output."""
    vectors = [t for t in product((-1, 0, 1), repeat=n) if sum(map(abs, t)) >= least]
    return product(vectors, repeat=outputs)


# Local randomised response


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_def_local_randomized_response_keeps_each_element_with_chance_p(
    check_runs, epsilon
):
    mechanism = LocalRandomisedResponse(epsilon=epsilon)
    keep = exp(epsilon) / (1 + exp(epsilon))
    outputs = [tuple(output) for output in mechanism.outputs(3)]
    for data in product((-1, 1), repeat=3):
        kept = [sum(np.equal(data, output)) for output in outputs]
        printed = [keep**k * (1 - keep) ** (3 - k) for k in kept]
        assert mechanism.distribution(np.array(data)) == pytest.approx(printed)
        check_runs(mechanism, data, dict(zip(outputs, printed, strict=True)))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 10, 100_000])
def test_prop_ora_is_tight_for_local_randomized_response_efficacy(epsilon, n):
    keep = exp(epsilon) / (1 + exp(epsilon))
    found = levels(LocalRandomisedResponse(epsilon=epsilon), elements=n)
    assert found.average_element_accuracy.value == pytest.approx(keep, abs=1e-12)
    assert found.worst_case_epsilon == epsilon


def test_prop_ora_is_tight_for_local_randomized_response_without_privacy():
    # The case epsilon = infinity publishes the data.
    assert levels(Identity(), elements=50).average_element_accuracy.value == 1.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_prop_ora_is_tight_for_local_randomized_response_in_whole_audits(epsilon):
    # The share of right guesses strays by 4 deviations with chance below 1e-4.
    mechanism = LocalRandomisedResponse(epsilon=epsilon)
    keep = exp(epsilon) / (1 + exp(epsilon))
    bounds = []
    for n in (1000, 1_000_000):
        result = audit(mechanism, Echo(), canaries=n, guesses=n)
        spread = (keep * (1 - keep) / n) ** 0.5
        assert abs(result.reading.correct / n - keep) < 4 * spread
        bounds.append(result.bound.epsilon_lower)
    assert abs(bounds[1] - epsilon) < 0.03


# Name and shame


def test_def_name_and_shame_publishes_one_element_at_random(check_runs):
    mechanism = NameAndShame(elements=4)
    data = mechanism.pairs.choose(np.array([1, 0, 0, 1]))
    law = dict(zip(mechanism.outputs(4), mechanism.distribution(data), strict=True))
    assert {o: c for o, c in law.items() if c} == {o: 0.25 for o in data.tolist()}
    check_runs(mechanism, data, {(o,): 0.25 for o in data.tolist()})


def shamed(n, *, named):
    """The exact table of name-and-shame; pairs are one's own, or 0 and 1 for all."""
    rows = []
    for r in range(1 << n):
        row = [Fraction(0)] * (2 * n if named else 2)
        for i in range(n):
            bit = r >> i & 1
            row[i + n * bit if named else bit] += Fraction(1, n)
        rows.append(row)
    return rows


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_prop_ora_efficacy_for_nas_with_k_guesses(exact, n):
    # The named element is known, all others are coins: 1/2 + 1 / (2 k).
    mechanism = NameAndShame(elements=n)
    table = exact(shamed(n, named=True))
    for k in range(1, n + 1):
        assert table.best(k) == HALF + Fraction(1, 2 * k)
        found = levels(mechanism, elements=n, guesses=k).best_accuracy.value
        assert found == pytest.approx(0.5 + 0.5 / k)
    enumerated = enumerate_mechanism(mechanism, mechanism.pairs, elements=n)
    np.testing.assert_allclose(enumerated.table, np.array(table.rows, float))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_prop_ora_efficacy_for_nas_where_the_output_does_not_name_its_element(exact, n):
    # The proof speaks of the element that was exposed. If all pairs are 0 and 1, no
    # element is singled out; every coin is known a little: 1/2 + 1 / (2 n) for each k.
    table = exact(shamed(n, named=False))
    for k in range(1, n + 1):
        assert table.best(k) == HALF + Fraction(1, 2 * n)


@pytest.mark.parametrize("named", [True, False])
def test_prop_ora_efficacy_for_nas_of_every_guesser(exact, named):
    # |E - 1/2| <= 1 / (2 r) for every guesser of at least r coins: so for every
    # strategy with unlimited guesses the efficacy tends to 1/2, as printed.
    table = exact(shamed(3, named=named))
    vectors = list(product((-1, 0, 1), repeat=3))
    rng = np.random.default_rng(2)
    for least in (1, 2, 3):
        allowed = [t for t in vectors if sum(map(abs, t)) >= least]
        for _ in range(300):
            picks = rng.integers(len(allowed), size=len(table.outputs))
            efficacy = table.efficacy([allowed[pick] for pick in picks])
            assert abs(efficacy - HALF) <= Fraction(1, 2 * least)


def test_prop_ora_efficacy_for_nas_tends_to_one_half():
    for n in (10**2, 10**4, 10**6):
        found = levels(NameAndShame(elements=n), elements=n, guesses=int(n**0.5))
        assert found.best_accuracy.value == pytest.approx(0.5 + 0.5 / int(n**0.5))


def test_cor_ora_is_not_tight_for_nas():
    evidence = tightness(
        lambda n: NameAndShame(elements=n).loss_distribution(n),
        thresholds=[1.0],
        sizes=[10**2, 10**4, 10**6],
    )
    assert evidence.verdict is False
    n = 10_000
    mechanism = NameAndShame(elements=n)
    guesser = MostLikely(mechanism=mechanism, guesses=n)
    # One guess is certain, 9,999 are coins: 5,300 right has chance below 1e-8.
    result = audit(mechanism, guesser, canaries=n, guesses=n)
    assert result.bound.epsilon_lower < 0.15


# All or nothing


def test_def_all_or_nothing_publishes_all_or_null(check_runs):
    mechanism = AllOrNothing(elements=2, probability=0.3)
    law = mechanism.distribution(np.array([1, 0]))
    outputs = mechanism.outputs(2)
    assert outputs[-1] is None
    assert law[-1] == pytest.approx(0.7)
    shown = [
        o.tolist() for o, c in zip(outputs, law, strict=True) if c and o is not None
    ]
    assert shown == [[1, 0]]
    check_runs(mechanism, [1, 0], {(1, 0): 0.3, None: 0.7})


def all_or_nothing(n, chance):
    size = 1 << n
    return [
        [chance if o == r else Fraction(0) for o in range(size)] + [1 - chance]
        for r in range(size)
    ]


@pytest.mark.parametrize("chance", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_prop_ora_efficacy_for_aon(exact, chance):
    # 1/2 + p/2 for every n and every number of guesses; in fractions and as computed.
    for n in (1, 2, 3):
        table = exact(all_or_nothing(n, chance))
        for k in range(1, n + 1):
            assert table.best(k) == HALF + chance / 2
    for n in (3, 1000):
        mechanism = AllOrNothing(elements=n, probability=float(chance))
        for k in (1, n):
            found = levels(mechanism, elements=n, guesses=k).best_accuracy.value
            assert found == pytest.approx(float(HALF + chance / 2))


def test_prop_ora_efficacy_for_aon_is_exceeded_by_no_guesser(exact):
    # All guessers of one coin, and of two (an efficacy is a sum over outputs, so the
    # best is found output by output). The proof of the corollary prints "=" for every
    # strategy where "<=" is meant.
    chance = Fraction(2, 5)
    table = exact(all_or_nothing(1, chance))
    found = {table.efficacy(guesser) for guesser in all_guessers(3, 1)}
    assert max(found) == HALF + chance / 2
    assert min(found) == HALF - chance / 2
    table = exact(all_or_nothing(2, chance))
    silent = [(1, 0)] * 5  # some guess, to be replaced at one output
    best = table.efficacy(silent)
    for o in table.outputs:
        others = [
            table.efficacy([*silent[:o], t, *silent[o + 1 :]])
            for (t,) in all_guessers(1, 2)
        ]
        best += max(others) - table.efficacy(silent)
    assert best == HALF + chance / 2


def test_cor_ora_is_not_tight_for_aon():
    # The bounds are those of all right with chance p and of coins otherwise.
    n, chance = 2000, 0.3
    mechanism = AllOrNothing(elements=n, probability=chance)
    bounds = [
        audit(
            mechanism, Everyone(mechanism=mechanism), canaries=n, guesses=n, number=i
        ).bound.epsilon_lower
        for i in range(60)
    ]
    high = sum(bound > 5 for bound in bounds)
    # Of 60 runs 18 show all on average; outside 5 to 33 with chance below 1e-4.
    assert 5 <= high <= 33
    assert sum(bound < 0.2 for bound in bounds) == 60 - high
    evidence = tightness(
        lambda n: AllOrNothing(elements=n, probability=chance).loss_distribution(n),
        thresholds=[1.0],
        sizes=[10**2, 10**4, 10**6],
    )
    assert evidence.verdict is False


# Exclusive or


def xor(n):
    return [[Fraction(r.bit_count() % 2 == o) for o in (0, 1)] for r in range(1 << n)]


def test_def_xor_is_the_parity():
    rng = np.random.default_rng(0)
    for data in product((0, 1), repeat=5):
        parity = 0
        for bit in data:
            parity ^= bit
        assert Xor(elements=5).run(np.array(data), rng) == parity


@pytest.mark.parametrize("n", [2, 3])
def test_prop_ora_efficacy_for_xor_is_one_half_for_every_guesser(exact, n):
    table = exact(xor(n))
    for guesser in all_guessers(2, n):
        assert table.efficacy(guesser) == HALF


@pytest.mark.parametrize("n", [2, 3, 10, 100_000])
def test_prop_ora_efficacy_for_xor_at_any_size(n):
    for k in (1, n):
        found = levels(Xor(elements=n), elements=n, guesses=k)
        assert found.best_accuracy.value == found.average_case_accuracy.value == 0.5
        assert found.distributional_epsilon.value == 0.0


def test_prop_ora_efficacy_for_xor_of_one_element_is_one(exact):
    # Why n >= 2 is asked for.
    assert exact(xor(1)).best(1) == 1
    assert levels(Xor(elements=1), elements=1).best_accuracy.value == 1.0


def test_cor_ora_is_not_tight_for_xor():
    n = 10_000
    mechanism = Xor(elements=n)
    design = Design(canaries=n, rules=OneRun(guesses=n), claim=CLAIM)
    transcript = play_one_run(
        mechanism,
        Everyone(mechanism=mechanism),
        pairs=mechanism.pairs,
        design=design,
        rng=np.random.default_rng(0),
        key=fixed_key(bytes(32)),
    )
    # 5,000 right on average; 200 off, four deviations, has chance below 1e-4.
    assert abs(transcript.reading().correct - n / 2) < 200
    evidence = tightness(
        lambda n: Xor(elements=n).loss_distribution(n),
        thresholds=[0.1],
        sizes=[10, 100, 1000],
    )
    assert evidence.verdict is False
