"""Chapter "Preliminaries", and the two auditors of the appendix "Problem Setting"."""

from fractions import Fraction
from math import inf, log

import numpy as np
import pytest
from scipy import optimize, special

from dpaudit import Design, OneRun, Pairs, PureDP, SeparateRuns
from dpaudit.bounds import Counts, CountsAsMade
from dpaudit.bounds.exact import AsMadeBound, ExactBound, PureBound
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.game import Confident
from dpaudit.game.auditors import audit_classic, play_one_run
from dpaudit.game.coins import Coins
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.sets import count
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.testing import fixed_key
from dpaudit.theory.enumeration import Enumeration, enumerate_mechanism
from dpaudit.theory.levels import levels

CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def log_odds(p):
    return log(p / (1 - p)) if p < 1 else inf


def test_def_differential_privacy_is_the_largest_divergence_of_neighbours(mechanisms):
    for mechanism in mechanisms:
        found = levels(mechanism.table, elements=mechanism.n).worst_case_epsilon
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


def test_alg_one_run_auditing_auditor_counts_right_and_taken_guesses(binomial):
    n, key = 500, fixed_key(bytes(range(32)))
    mechanism = LocalLaplace(epsilon=1.0)
    guesser = Confident(mechanism=mechanism, threshold=0.5, guesses=n)
    as_made, fixed = (
        play_one_run(
            mechanism,
            guesser,
            pairs=mechanism.pairs,
            design=Design(canaries=n, rules=OneRun(guesses=guesses), claim=CLAIM),
            rng=np.random.default_rng(3),
            key=key,
        )
        for guesses in (None, n)
    )
    # The algorithm as printed, with the same coins and the same randomness.
    s = [1 if bit else -1 for bit in Coins(key=key, count=n).bits()]
    d = np.array([{-1: -1, 1: 1}[sign] for sign in s])
    o = d + np.random.default_rng(3).laplace(scale=2.0, size=n)
    t = [0 if abs(x) < 0.5 else (1 if x > 0 else -1) for x in o]
    v = sum(guess == sign for guess, sign in zip(t, s, strict=True))
    r = sum(guess != 0 for guess in t)
    assert 0 < v < r < n
    assert as_made.reading() == CountsAsMade(canaries=n, guesses=r, correct=v)
    bound = AsMadeBound().epsilon_lower(as_made.reading(), delta=0.0, alpha=0.05)
    assert bound.epsilon_lower == pytest.approx(binomial.bound(r, v, 0.05), abs=1e-6)
    # With a number that was fixed, a guess not made counts as wrong.
    assert fixed.reading() == Counts(canaries=n, guesses=n, correct=v, abstained=n - r)


def least_rejected(bound, m, r, epsilon, delta):
    """The fewest of r guesses that must be right for a p-value of at most 5 %."""

    def rejects(v):
        counts = Counts(canaries=m, guesses=r, correct=v)
        return bound.log_p_value(counts, epsilon=epsilon, delta=delta) <= log(0.05)

    low, high = r // 2, r + 1  # p-values fall from the mean on; r + 1: none rejects
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rejects(middle) else (middle, high)
    return high


@pytest.mark.parametrize("bound", [SteinkeBound(), ExactBound()])
def test_alg_one_run_auditing_auditor_at_positive_delta_fixes_its_guesses(bound):
    # 20,000 coins, epsilon = 0, delta = 1e-5. With chance 1/60 the mechanism publishes
    # twelve coins, else nothing: a coin is published with chance delta, so it is
    # (0, delta)-DP. The guesser names the twelve, or else all coins at random.
    m, shown, chance = 20_000, 12, Fraction(1, 60)
    delta = chance * shown / m
    assert delta == Fraction(1, 10**5)

    def tail(r):
        least = least_rejected(bound, m, r, 0.0, float(delta))
        return least, special.betainc(least, r - least + 1, 0.5) if least <= r else 0.0

    few, all_coins = tail(shown), tail(m)
    assert few[0] <= shown  # all twelve are right, and that rejects
    assert all_coins[1] < 0.05
    wrong = float(chance) + float(1 - chance) * all_coins[1]
    assert round(100 * wrong, 2) == 6.41
    # With 20,000 guesses fixed beforehand twelve right ones show nothing.
    assert float(1 - chance) * all_coins[1] < 0.05


def most_rejected(bound, m, sizes, epsilon, delta):
    """The largest chance to be refuted of all (epsilon, delta)-DP mechanisms.

    By a linear program over the joint law of numbers of guesses and of right ones. By
    symmetry in coins and signs it is all that matters: flipping a coin that was guessed
    turns k right ones into k - 1 or k + 1, and one that was not changes nothing.
    """
    cells = [(r, k) for r in sizes for k in range(r + 1)]
    place = {cell: number for number, cell in enumerate(cells)}
    rows = []
    for r, k in cells:  # what one coin exempts: right in (r, k), and wrong in it
        for share, other, back in (
            (k / m, k - 1, (r - k + 1) / m),
            ((r - k) / m, k + 1, (k + 1) / m),
        ):
            row = np.zeros(len(cells))
            row[place[r, k]] = share
            if (r, other) in place:
                row[place[r, other]] -= np.exp(epsilon) * back
            rows.append(row)
    size = len(cells)
    exempt = np.hstack([np.array(rows), -np.eye(len(rows))])
    total = np.append(np.zeros(size), np.ones(len(rows)))
    least = {r: least_rejected(bound, m, r, epsilon, delta) for r in sizes}
    gain = np.append([-float(k >= least[r]) for r, k in cells], np.zeros(len(rows)))
    found = optimize.linprog(
        gain,
        np.vstack([exempt, total]),
        np.append(np.zeros(len(rows)), delta),
        np.append(np.ones(size), np.zeros(len(rows)))[np.newaxis],
        [1.0],
    )
    return -found.fun


@pytest.mark.parametrize(
    ("epsilon", "delta", "percent"), [(0.5, 0.005, 5.35), (1.0, 0.01, 5.28)]
)
def test_alg_one_run_auditing_auditor_at_positive_delta_by_linear_programming(
    epsilon, delta, percent
):
    # It is no matter of epsilon = 0. With 20 coins some mechanism is refuted so often
    # by the exact bound at the number made, and with no more than 5 % at any number
    # that was fixed. At delta = 0 an output may choose the number.
    m = 20
    free = most_rejected(ExactBound(), m, range(m + 1), epsilon, delta)
    assert round(100 * free, 2) == percent
    fixed = [
        most_rejected(ExactBound(), m, [r], epsilon, delta) for r in range(1, m + 1)
    ]
    assert max(fixed) <= 0.05 + 1e-9
    assert most_rejected(PureBound(), m, range(m + 1), epsilon, 0.0) <= 0.05 + 1e-9


def test_alg_classic_auditor_counts_right_guesses_over_its_runs():
    runs, key = 40, fixed_key(bytes(range(32)))
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
    # The paper's r is the number of guesses taken; here it is fixed, and a pass wrong.
    assert result.reading.guesses == runs
    assert result.reading.abstained == runs - int(bits.sum())


@pytest.mark.parametrize("beta", [0.01, 0.05, 0.3])
def test_def_clopper_pearson_lower_as_log_odds_is_the_lower_bound(binomial, beta):
    # The paper's epsilon'_beta(v, r), a supremum over epsilon >= 0; where no epsilon
    # is rejected the set is empty and the bound is 0.
    for r in (1, 2, 5, 20, 60):
        for v in range(r + 1):
            rate = binomial.cpl(r, v, beta)
            printed = max(0.0, log_odds(rate)) if rate > 0 else 0.0
            counts = Counts(canaries=r, guesses=r, correct=v)
            found = PureBound().epsilon_lower(counts, delta=0.0, alpha=beta)
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
