"""Chapter "Preliminaries", and the two auditors of the appendix "Problem Setting"."""

from fractions import Fraction
from math import inf, log

import numpy as np
import pytest

from dpaudit import Design, Key, OneRun, Pairs, PureDP, SeparateRuns, audit_classic
from dpaudit.bounds import Counts
from dpaudit.bounds.exact import Pure
from dpaudit.game import Confident
from dpaudit.game.auditors import play_one_run
from dpaudit.game.coins import Coins
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.sets import count
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.theory.enumeration import Enumeration, enumerate_mechanism
from dpaudit.theory.levels import levels

CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def log_odds(p):
    return log(p / (1 - p)) if p < 1 else inf


def test_def_differential_privacy_is_the_largest_divergence_of_neighbours(mechanisms):
    for mechanism in mechanisms:
        found = levels(mechanism.table, elements=mechanism.n).worst_case
        assert found == pytest.approx(log_odds(mechanism.p_worst_case), abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_def_differential_privacy_of_randomised_response_is_epsilon(epsilon):
    mechanism = LocalRandomisedResponse(epsilon=epsilon)
    found = enumerate_mechanism(mechanism, mechanism.pairs, elements=3)
    assert found.worst_case() == pytest.approx(epsilon, abs=1e-12)
    assert mechanism.guarantee.epsilon == epsilon


def test_def_max_divergence_total_variation_distance_on_one_coin(mechanisms):
    for mechanism in mechanisms:
        found = Enumeration(table=np.array(mechanism.rows, float))
        for i in mechanism.indexes:
            given = [
                [mechanism.given(i, s, o) for o in mechanism.outputs] for s in (-1, 1)
            ]
            distance = sum(abs(p - q) for p, q in zip(*given, strict=True)) / 2
            assert found.total_variation[i] == pytest.approx(float(distance))


def test_def_max_divergence_total_variation_distance_where_chances_are_zero():
    # ln(P / Q) is infinite if only Q is 0 and minus infinity if only P is; where both
    # are 0 the printed footnote says minus infinity, which a maximum never sees.
    told = Enumeration(table=[[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]])
    np.testing.assert_array_equal(told.loss[:, 0], [-inf, 0.0, inf, 0.0])
    assert told.worst_case() == inf
    assert told.total_variation[0] == 0.5


def test_alg_one_run_auditing_auditor_counts_right_and_taken_guesses():
    n, key = 500, Key(bytes(range(32)))
    mechanism = LocalLaplace(epsilon=1.0)
    guesser = Confident(mechanism=mechanism, threshold=0.5, guesses=n)
    design = Design(canaries=n, rules=OneRun(guesses=n), claim=CLAIM)
    transcript = play_one_run(
        mechanism,
        guesser,
        pairs=mechanism.pairs,
        design=design,
        rng=np.random.default_rng(3),
        key=key,
    )
    # The algorithm as printed, with the same coins and the same randomness.
    s = [1 if bit else -1 for bit in Coins(key=key, count=n).bits()]
    d = np.array([{-1: -1, 1: 1}[sign] for sign in s])
    o = d + np.random.default_rng(3).laplace(scale=2.0, size=n)
    t = [0 if abs(x) < 0.5 else (1 if x > 0 else -1) for x in o]
    v = sum(guess == sign for guess, sign in zip(t, s, strict=True))
    r = sum(guess != 0 for guess in t)
    assert 0 < v < r < n
    assert np.count_nonzero(transcript.guess) == r
    assert np.count_nonzero(transcript.guess == transcript.truth) == v
    assert transcript.reading().correct == v


def test_alg_classic_auditor_counts_right_guesses_over_its_runs():
    runs, key = 40, Key(bytes(range(32)))
    base = np.array([1, 0, 1, 1])
    seen = []

    def guess(output):
        seen.append(int(output[0]))
        return {2: 0, 3: 1}[int(output[0])]  # passes where the element was a 0

    result = audit_classic(
        count(4),
        guess,
        base=base,
        place=2,
        pair=Pairs(x=0, y=1),
        design=Design(canaries=runs, rules=SeparateRuns(guesses=runs), claim=CLAIM),
        rng=np.random.default_rng(1),
        key=key,
    )
    bits = Coins(key=key, count=runs).bits()
    assert seen == [2 + int(bit) for bit in bits]
    assert result.reading.correct == int(bits.sum())


@pytest.mark.parametrize("beta", [0.01, 0.05, 0.3])
def test_def_clopper_pearson_lower_as_log_odds_is_the_lower_bound(binomial, beta):
    # The paper's epsilon'_beta(v, r), a supremum over epsilon >= 0; where no epsilon
    # is rejected the set is empty and the bound is 0.
    for r in (1, 2, 5, 20, 60):
        for v in range(r + 1):
            rate = binomial.cpl(r, v, beta)
            printed = max(0.0, log_odds(rate)) if rate > 0 else 0.0
            counts = Counts(canaries=r, guesses=r, correct=v)
            found = Pure().epsilon_lower(counts, delta=0.0, alpha=beta)
            assert found.epsilon_lower == pytest.approx(printed, abs=1e-6)
            assert found.epsilon_lower <= printed + 1e-12
            limit = log_odds_limit(v, r, log_alpha=log(beta))
            assert limit == pytest.approx(printed, abs=1e-6)


def test_def_clopper_pearson_lower_is_a_supremum_that_is_attained(binomial):
    # At it, and not above it, as many hits have a chance of at most beta.
    beta = Fraction(1, 20)
    for r, v in [(1, 1), (7, 5), (30, 30), (30, 16)]:
        rate = Fraction(binomial.cpl(r, v, float(beta)))
        step = Fraction(1, 10**9)
        assert (
            binomial.tail(v, r, rate - step) < beta < binomial.tail(v, r, rate + step)
        )
