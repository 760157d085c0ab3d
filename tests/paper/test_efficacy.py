"""Chapter "Efficacy": what the best guesser achieves, with and without abstentions."""

from fractions import Fraction
from itertools import product
from math import exp, inf, log

import numpy as np
import pytest
from scipy import optimize

from dpaudit import MostLikely
from dpaudit.game import Confident, Everyone
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.parity import Xor
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory.enumeration import Enumeration
from dpaudit.theory.levels import levels
from dpaudit.theory.simulation import efficacy

HALF = Fraction(1, 2)


def vectors(n, *, least):
    """All guesses of at least so many coins."""
    return [t for t in product((-1, 0, 1), repeat=n) if sum(map(abs, t)) >= least]


def best_by_search(mechanism, least):
    """The best efficacy of all guessers: a sum over outputs of the best vector."""
    total = Fraction(0)
    for o in mechanism.outputs:
        total += mechanism.chance(o) * max(
            sum(mechanism.posterior(i, g, o) for i, g in enumerate(t) if g)
            / sum(map(abs, t))
            for t in vectors(mechanism.n, least=least)
        )
    return total


def p_of(epsilon):
    return 1.0 if epsilon == inf else exp(epsilon) / (1 + exp(epsilon))


def test_sec_efficacy_levels_are_those_of_their_definitions(mechanisms):
    # DDP, AC-DDP, AE-AC-DDP and k-AE-AC-DDP, as probabilities, for every k.
    for mechanism in mechanisms:
        for k in range(1, mechanism.n + 1):
            found = levels(mechanism.table, elements=mechanism.n, guesses=k)
            computed = [
                p_of(found.worst_case_epsilon),
                p_of(found.distributional_epsilon.value),
                found.average_case_accuracy.value,
                found.average_element_accuracy.value,
                found.best_accuracy.value,
            ]
            defined = [
                mechanism.p_worst_case,
                mechanism.p_distributional,
                mechanism.average_case,
                mechanism.average_element,
                mechanism.best(k),
            ]
            assert computed == pytest.approx([float(c) for c in defined], abs=1e-12)


def test_sec_efficacy_guessers_name_the_likelier_coin(mechanisms):
    # Of the coins whose loss reaches the threshold, k at most, those that are known
    # best; or of all. Where a coin is as likely as the other, either may be named.
    threshold = 0.43
    for mechanism, o in ((m, o) for m in mechanisms for o in m.outputs):
        accuracy = [mechanism.accuracy(i, o) for i in mechanism.indexes]
        known = [i for i in mechanism.indexes if accuracy[i] > p_of(threshold)]
        every = {"mechanism": mechanism.table}
        for guesser, few in (
            (Everyone(**every), mechanism.n),
            (MostLikely(**every, guesses=2), min(2, mechanism.n)),
            (Confident(**every, threshold=threshold, guesses=3), len(known)),
            (Confident(**every, threshold=threshold, guesses=1), min(1, len(known))),
        ):
            made = guesser.guess(o)
            guessed = [accuracy[i] for i in made.index]
            assert sorted(guessed) == sorted(accuracy)[mechanism.n - few :]
            for i, guess in zip(made.index, made.guess, strict=True):
                assert mechanism.posterior(i, int(guess), o) >= accuracy[i]


def test_thm_optimal_efficacy_without_abstentions_chain_of_four(mechanisms):
    for mechanism in mechanisms:
        chain = [
            mechanism.average_element,
            mechanism.average_case,
            mechanism.p_distributional,
            mechanism.p_worst_case,
        ]
        assert HALF <= chain[0] <= chain[1] <= chain[2] <= chain[3] <= 1


def test_thm_optimal_efficacy_without_abstentions_is_that_of_the_most_likely(
    mechanisms,
):
    for mechanism in mechanisms:
        found = mechanism.efficacy(mechanism.most_likely(mechanism.n))
        assert found == mechanism.average_element


def test_thm_optimal_efficacy_without_abstentions_is_exceeded_by_none(mechanisms):
    for mechanism in mechanisms:
        assert best_by_search(mechanism, mechanism.n) == mechanism.average_element


def test_thm_optimal_efficacy_without_abstentions_by_trying_whole_guessers(mechanisms):
    # No splitting by outputs: every function from outputs to guesses, where there are
    # at most 512 of them.
    tried = 0
    for mechanism in mechanisms:
        if len(mechanism.outputs) * mechanism.n > 9:
            continue
        tried += 1
        every = product((-1, 1), repeat=mechanism.n)
        guessers = product(list(every), repeat=len(mechanism.outputs))
        assert max(map(mechanism.efficacy, guessers)) == mechanism.average_element
    assert tried > 60


@pytest.mark.parametrize(
    ("mechanism", "strict"),
    [
        (NameAndShame(elements=4), (True, False, False)),
        (AllOrNothing(elements=4, probability=0.2), (False, True, False)),
        (Xor(elements=4), (False, False, True)),
        (LocalRandomisedResponse(epsilon=1.0), (False, False, False)),
    ],
)
def test_thm_optimal_efficacy_without_abstentions_has_one_gap_per_inequality(
    mechanism, strict
):
    # Elements, outputs, interference: each example of the paper shows one of them.
    found = levels(mechanism, elements=4)
    exposed = found.worst_case_epsilon if hasattr(mechanism, "epsilon") else inf
    chain = [
        found.average_element_accuracy.value,
        found.average_case_accuracy.value,
        p_of(found.distributional_epsilon.value),
        p_of(exposed),
    ]
    assert tuple(bool(s) for s in np.diff(chain) > 1e-9) == strict


def test_thm_restated_optimal_efficacy_without_abstentions_in_simulated_games():
    # 4,000 games with local Laplace noise: the interval holds with 99 %.
    mechanism = LocalLaplace(epsilon=2.0)
    found = efficacy(
        mechanism,
        Everyone(mechanism=mechanism),
        mechanism.pairs,
        elements=20,
        runs=4000,
        rng=np.random.default_rng(1),
    )
    assert found.low <= 1 - exp(-1) / 2 <= found.high


def test_thm_optimal_efficacy_without_abstentions_needs_the_sign_of_the_likelier(
    exact,
):
    # Printed: l = ln P[o | S = -1] / P[o | S = +1] and T = sign(l). That names +1 where
    # -1 is the likelier, and is right with chance 1 - p(epsilon). It is a slip of sign;
    # the proofs use the likelier coin. (log_odds in this package is -l.)
    keep = Fraction(3, 4)
    table = exact([[keep, 1 - keep], [1 - keep, keep]])
    ratios = [table.given(0, -1, o) / table.given(0, 1, o) for o in table.outputs]
    printed = [[1 if ratio > 1 else -1] for ratio in ratios]
    meant = [[-1 if ratio > 1 else 1] for ratio in ratios]
    assert table.efficacy(printed) == 1 - keep
    assert table.efficacy(meant) == keep == table.average_element


def test_thm_optimal_efficacy_with_abstentions_chain_at_every_k(mechanisms):
    for mechanism in mechanisms:
        best = [mechanism.best(k) for k in range(1, mechanism.n + 1)]
        assert best == sorted(best, reverse=True)
        assert best[0] == mechanism.average_case
        assert best[-1] == mechanism.average_element
        for value in best:
            chain = [
                value,
                mechanism.average_case,
                mechanism.p_distributional,
                mechanism.p_worst_case,
            ]
            assert chain == sorted(chain)


def test_thm_optimal_efficacy_with_abstentions_is_attained_and_not_exceeded(mechanisms):
    # "At least k guesses": more than k never help, as only worse ones are added.
    for mechanism in mechanisms:
        for k in range(1, mechanism.n + 1):
            assert mechanism.efficacy(mechanism.most_likely(k)) == mechanism.best(k)
            assert best_by_search(mechanism, k) == mechanism.best(k)


def test_thm_optimal_efficacy_with_abstentions_by_the_law_of_losses(exact):
    # Counts of two sets of two: all coins and outputs, and the package's closed form.
    counts = [(r & 1) + (r >> 1 & 1) + 3 * ((r >> 2 & 1) + (r >> 3)) for r in range(16)]
    table = exact([[Fraction(count == o) for o in range(9)] for count in counts])
    for k in range(1, 5):
        found = levels(CountInSets(elements=4, set_size=2), elements=4, guesses=k)
        assert found.how == "closed form"
        assert found.best_accuracy.value == pytest.approx(
            float(table.best(k)), abs=1e-12
        )


def test_thm_restated_optimal_efficacy_with_abstentions_by_the_package_s_guesser(
    mechanisms,
):
    # The guesser that audits play, output by output, not the one of the oracle.
    for mechanism in mechanisms:
        for k in range(1, mechanism.n + 1):
            guesser = MostLikely(mechanism=mechanism.table, guesses=k)
            table = []
            for o in mechanism.outputs:
                made = guesser.guess(o)
                vector = [0] * mechanism.n
                for i, g in zip(made.index, made.guess, strict=True):
                    vector[i] = int(g)
                table.append(vector)
            assert mechanism.efficacy(table) == mechanism.best(k)


def test_thm_optimal_efficacy_with_abstentions_where_losses_tie():
    # Printed: set tau to the k-th largest |l| and guess all that reach it. With losses
    # 2, 1, 1 and k = 2 that makes three guesses, and (p(2) + 2 p(1)) / 3 is less than
    # (p(2) + p(1)) / 2: ties must be broken, so that k are guessed.
    levels_of = np.array([2.0, 1.0, 1.0])
    signs = 2 * ((np.arange(8)[:, None] >> np.arange(3)) & 1) - 1
    agree = signs[:, None, :] * signs[None, :, :]
    told = Enumeration(table=np.prod(1 / (1 + np.exp(-agree * levels_of)), axis=2))
    threshold = told.efficacy_of(np.sign(told.loss).astype(int))
    assert threshold == pytest.approx((p_of(2) + 2 * p_of(1)) / 3)
    assert told.best(2) == pytest.approx((p_of(2) + p_of(1)) / 2)
    assert threshold < told.best(2) - 0.02

    class ThreeLosses:
        def log_odds(self, output):
            return levels_of * output

    output = np.array([1, -1, 1])
    assert len(MostLikely(mechanism=ThreeLosses(), guesses=2).guess(output).index) == 2
    printed = Confident(mechanism=ThreeLosses(), threshold=1.0, guesses=3)
    assert len(printed.guess(output).index) == 3


# Total variation


def test_lem_log_likelihood_ratio_and_total_variation_distance(mechanisms):
    # p(|ln P/Q|) = max / (P + Q), and the two expectations add up to 1 + TV.
    for mechanism in mechanisms:
        found = Enumeration(table=np.array(mechanism.rows, float)).accuracy
        for i in mechanism.indexes:
            first = [mechanism.given(i, -1, o) for o in mechanism.outputs]
            second = [mechanism.given(i, 1, o) for o in mechanism.outputs]
            total = Fraction(0)
            for a, b in zip(first, second, strict=True):
                if not a + b:
                    continue
                at = max(a, b) / (a + b)
                if a and b:
                    assert p_of(abs(log(a / b))) == pytest.approx(float(at))
                else:
                    assert at == p_of(inf)
                total += (a + b) * at
            distance = sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2
            assert total == 1 + distance
            by_output = [float(mechanism.accuracy(i, o)) for o in mechanism.outputs]
            assert found[:, i] == pytest.approx(by_output)


def test_prop_optimal_efficacy_and_total_variation_distance(mechanisms):
    for mechanism in mechanisms:
        distances = [
            sum(
                abs(mechanism.given(i, -1, o) - mechanism.given(i, 1, o))
                for o in mechanism.outputs
            )
            / 2
            for i in mechanism.indexes
        ]
        printed = HALF + HALF * sum(distances) / mechanism.n
        assert mechanism.average_element == printed
        found = Enumeration(table=np.array(mechanism.rows, float))
        np.testing.assert_allclose(found.total_variation, np.array(distances, float))
        assert found.average_element == pytest.approx(float(printed))


# Perfect efficacy


def success(mechanism, guesser, i, r):
    """P[T_i = S_i] over the i-th coin, given that the others are those of row r."""
    total = Fraction(0)
    for row in (r, r ^ (1 << i)):
        for o in mechanism.outputs:
            hit = guesser[o][i] == mechanism.sign(row, i)
            total += HALF * mechanism.rows[row][o] * hit
    return total


def test_lem_efficacy_is_mean_of_success_probabilities(mechanisms):
    rng = np.random.default_rng(3)
    for mechanism in mechanisms:
        shape = (len(mechanism.outputs), mechanism.n)
        guesser = (2 * rng.integers(0, 2, shape) - 1).tolist()
        rows = range(len(mechanism.rows))
        mean = sum(
            success(mechanism, guesser, i, r) for i in mechanism.indexes for r in rows
        ) / (mechanism.n * len(rows))
        assert mechanism.efficacy(guesser) == mean
        found = Enumeration(table=np.array(mechanism.rows, float)).efficacy_of(guesser)
        assert found == pytest.approx(float(mean))


def test_lem_efficacy_is_mean_of_success_probabilities_without_abstentions_only(exact):
    # A passed coin is no success, but it is not counted either.
    table = exact([[Fraction(r == o) for o in range(4)] for r in range(4)])
    only_first = [[table.sign(o, 0), 0] for o in range(4)]
    assert table.efficacy(only_first) == 1
    mean = sum(success(table, only_first, i, r) for i in (0, 1) for r in range(4)) / 8
    assert mean == HALF


def private_laws(n, epsilon):
    """Constraints of all epsilon-DP A: {-1, 1}^n -> {-1, 1}^n, and their efficacy."""
    size = 1 << n
    unequal, equal = [], np.zeros((size, size * size))
    gain = np.zeros(size * size)
    for s, t in product(range(size), repeat=2):
        equal[s, s * size + t] = 1
        gain[s * size + t] = (n - (s ^ t).bit_count()) / n / size
        for i in range(n):
            row = np.zeros(size * size)
            row[s * size + t] = 1
            row[(s ^ (1 << i)) * size + t] = -exp(epsilon)
            unequal.append(row)
    return np.array(unequal), equal, gain


@pytest.mark.parametrize(("n", "epsilon"), [(1, 0.7), (2, 0.3), (2, 2.0), (3, 1.0)])
def test_lem_perfect_efficacy_iff_lrr_by_linear_programming(n, epsilon):
    # Among all epsilon-DP laws the best efficacy is p(epsilon), and the law that
    # attains it is unique: no chance can be moved away from that of LRR.
    unequal, equal, gain = private_laws(n, epsilon)
    size, keep = 1 << n, p_of(epsilon)
    zeros, ones = np.zeros(len(unequal)), np.ones(size)
    top = optimize.linprog(-gain, unequal, zeros, equal, ones, bounds=(0, 1))
    assert -top.fun == pytest.approx(keep, abs=1e-8)
    lrr = [
        keep ** (n - (s ^ t).bit_count()) * (1 - keep) ** (s ^ t).bit_count()
        for s, t in product(range(size), repeat=2)
    ]
    perfect = np.vstack([equal, gain])
    limits = np.append(ones, keep)
    rng = np.random.default_rng(0)
    for direction in [*rng.normal(size=(6, size * size)), *np.eye(size * size)[:4]]:
        for way in (direction, -direction):
            found = optimize.linprog(
                way, unequal, zeros + 1e-10, perfect, limits, bounds=(0, 1)
            )
            assert found.fun == pytest.approx(way @ lrr, abs=1e-5)


def test_lem_perfect_efficacy_iff_lrr_fails_at_epsilon_zero(exact):
    # A mechanism that says nothing has p(0) = 1/2, and a guesser that always says +1
    # attains it; but that is not LRR_0, whose output is a fair coin.
    silent = exact([[Fraction(1)], [Fraction(1)]])
    guesser = [[1]]
    assert silent.efficacy(guesser) == HALF == silent.p_worst_case
    for row in silent.rows:
        said_one = sum(row[o] for o in silent.outputs if guesser[o][0] == 1)
        assert said_one == 1  # and HALF for LRR_0


def post_processed(rows, n, epsilon):
    """Whether some randomised f turns the mechanism into LRR_epsilon."""
    size, outputs = 1 << n, len(rows[0])
    keep = p_of(epsilon)
    equal, right = [], []
    for s, t in product(range(size), repeat=2):
        row = np.zeros(outputs * size)
        for o in range(outputs):
            row[o * size + t] = rows[s][o]
        equal.append(row)
        flips = (s ^ t).bit_count()
        right.append(keep ** (n - flips) * (1 - keep) ** flips)
    for o in range(outputs):
        row = np.zeros(outputs * size)
        row[o * size : (o + 1) * size] = 1
        equal.append(row)
        right.append(1.0)
    found = optimize.linprog(
        np.zeros(outputs * size), A_eq=equal, b_eq=right, bounds=(0, 1)
    )
    return found.status == 0


def test_prop_ora_has_perfect_efficacy_iff_local_randomized_response(exact, mechanisms):
    # Random mechanisms, of which none is perfect unless it is silent or tells all, and
    # five that are perfect: randomised response with its outputs split and joined by
    # another that says nothing new, and the silent one (epsilon = 0), for which f adds
    # the noise.
    keep = Fraction(3, 4)
    response = [[keep, 1 - keep], [1 - keep, keep]]
    split = [[keep / 2, keep / 2, 1 - keep], [(1 - keep) / 2, (1 - keep) / 2, keep]]
    pair = [[a * b for a in response[r >> 1] for b in split[r & 1]] for r in range(4)]
    whole = [[Fraction(r == o) for o in range(4)] for r in range(4)]
    silent = [[Fraction(1)]] * 4
    perfect = [exact(rows) for rows in (response, split, pair, whole, silent)]
    for mechanism in [*perfect, *mechanisms[:40]]:
        top = mechanism.p_worst_case
        epsilon = log(top / (1 - top)) if top < 1 else inf
        attained = mechanism.average_element == top
        rows = np.array(mechanism.rows, float)
        assert post_processed(rows, mechanism.n, epsilon) == attained
    assert all(m.average_element == m.p_worst_case for m in perfect)
    assert sum(m.average_element == m.p_worst_case for m in mechanisms[:40]) < 20


def close_indexes(mechanism, guesser, chance, a):
    """How many indexes are (chance, a)-probably approximately RR."""
    rows = range(len(mechanism.rows))
    top = mechanism.p_worst_case
    found = 0
    for i in mechanism.indexes:
        good = sum(success(mechanism, guesser, i, r) >= top - a for r in rows)
        found += Fraction(good, len(rows)) >= chance
    return found


def test_lem_approaches_perfect_efficacy_iff_mostly_probably_approximately_rr(
    mechanisms,
):
    # The two inequalities of the proof, exactly. With a share m of indexes that are
    # (c, a)-close to RR: m c (p - a) <= E <= p - (1 - m) (1 - c) a. Hence E tends to p
    # if and only if m tends to 1 for all c < 1 and a > 0. (The factor at the end of the
    # first part is printed as "lesser than 1"; it is greater, as the step needs.)
    for mechanism in mechanisms:
        guesser = mechanism.most_likely(mechanism.n)
        top, found = mechanism.p_worst_case, mechanism.average_element
        for chance in (Fraction(1, 4), HALF, Fraction(9, 10)):
            for a in (Fraction(1, 50), Fraction(1, 10), Fraction(3, 10)):
                m = Fraction(close_indexes(mechanism, guesser, chance, a), mechanism.n)
                assert m * chance * (top - a) <= found
                assert found <= top - (1 - m) * (1 - chance) * a


def test_thm_condition_for_tightness_without_abstentions_is_of_private_sequences(exact):
    # The definition bounds success from below only. Publishing the data is right with
    # chance 1, which is at least p(epsilon) - a for every epsilon: it would approach
    # LRR of every level, if algorithms need not be epsilon-DP.
    published = exact([[Fraction(r == o) for o in range(4)] for r in range(4)])
    guesser = published.most_likely(2)
    assert {success(published, guesser, i, r) for i in (0, 1) for r in range(4)} == {1}
    # For an epsilon-DP one, a mean chance of p(epsilon) - a leaves each of the two, of
    # being right about +1 (x) and about -1 (y), at 2 a / (1 - exp(-epsilon)) of it or
    # nearer, and no nearer in general. At epsilon = 0 it says nothing of them.
    a = 0.01
    for epsilon in (0.2, 1.0, 3.0):
        odds, keep = exp(epsilon), p_of(epsilon)
        private = [[1.0, odds], [odds, 1.0], [-1.0, -1.0]]  # x <= e^eps (1 - y), ...
        limits = [odds, odds, -2 * (keep - a)]
        low = optimize.linprog([1.0, 0.0], private, limits, bounds=(0, 1)).fun
        high = -optimize.linprog([-1.0, 0.0], private, limits, bounds=(0, 1)).fun
        apart = 2 * a / (1 - exp(-epsilon))
        assert keep - low == pytest.approx(apart)
        assert high - keep == pytest.approx(apart * exp(-epsilon))


def test_thm_condition_for_tightness_without_abstentions_is_of_elements_one_by_one():
    # Randomised response on all but sqrt(n) elements, of which +1 is said: the share of
    # indexes that are RR tends to 1, so the sequence approaches LRR. As laws of whole
    # outputs the two are told apart ever more surely, by whether those are all +1.
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    distances = []
    for n in (4, 25, 100):
        silent = int(n**0.5)
        law = mechanism.distribution(np.ones(silent, np.int8))  # where LRR is nearest
        outputs = [tuple(each) for each in mechanism.outputs(silent)]
        said = np.array([each == (1,) * silent for each in outputs], float)
        distances.append(np.abs(law - said).sum() / 2)
    assert distances == pytest.approx([1 - p_of(1.0) ** k for k in (2, 5, 10)])
    assert distances[-1] > 0.95


def test_thm_condition_for_tightness_without_abstentions_on_sequences():
    # Randomised response on all but sqrt(n) elements, which stay hidden, approaches
    # LRR, and its efficacy p(epsilon). Local Laplace noise: no index ever does, as all
    # are right with chance 1 - exp(-epsilon / 2) / 2, and the efficacy stays there.
    epsilon = 1.0
    keep = p_of(epsilon)
    gaps = []
    for n in (10**2, 10**4, 10**6):
        hidden = int(n**0.5)
        spoken = levels(LocalRandomisedResponse(epsilon=epsilon), elements=n - hidden)
        share = (n - hidden) / n
        gaps.append(
            keep - (share * spoken.average_element_accuracy.value + (1 - share) / 2)
        )
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3
    for n in (10**2, 10**6):
        found = levels(
            LocalLaplace(epsilon=epsilon), elements=n
        ).average_element_accuracy.value
        assert found == pytest.approx(1 - exp(-epsilon / 2) / 2)
        assert found < keep - 0.03
