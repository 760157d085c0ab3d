"""Appendix "Adaptive ORA": what revealing coins allows, and what it does not."""

from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import comb, exp, inf, log

import numpy as np
import pytest
from scipy import special

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    Design,
    OneRun,
    Pairs,
    PureDP,
    audit_adaptive,
    audit_one_run,
)
from dpaudit.bounds import Counts, judge_claim
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import PureBound
from dpaudit.game import Confident, Everyone, Submission
from dpaudit.game.auditors import play_adaptive, play_one_run
from dpaudit.mechanisms.parity import XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.theory.adaptive import (
    adaptive_guesses,
    one_run_guesses,
    stopping_distribution,
    stopping_probability,
)
from dpaudit.theory.levels import levels
from dpaudit.theory.posterior import adaptive_guessing

HALF = Fraction(1, 2)


def claim(epsilon):
    return PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)


def key(number):
    return fixed_key(number.to_bytes(32, "little"))


# Full knowledge


def xor_response(n, keep):
    """The exact table of XRR."""
    return [
        [keep if r.bit_count() % 2 == o else 1 - keep for o in (0, 1)]
        for r in range(1 << n)
    ]


def test_def_xor_randomized_response_is_the_parity_by_randomised_response(
    exact, check_runs
):
    mechanism = XorRandomisedResponse(elements=3, epsilon=log(3))
    table = exact(xor_response(3, Fraction(3, 4)))
    for r in range(8):
        data = (r >> np.arange(3)) & 1
        law = [float(chance) for chance in table.rows[r]]
        np.testing.assert_allclose(mechanism.distribution(data), law)
        check_runs(mechanism, data, {(o,): chance for o, chance in enumerate(law)})
    assert table.p_worst_case == Fraction(3, 4)  # it is epsilon-DP, exactly


def full_knowledge(n, *, epsilon, rng):
    """How many of n guesses about XRR are right if each knows all other coins.

    The guesser is the paper's: the parity of the other coins, and the output.
    """
    bits = rng.integers(0, 2, n)
    output = XorRandomisedResponse(elements=n, epsilon=epsilon).run(bits, rng)
    guesses = (bits.sum() - bits + output) % 2
    return int(np.sum(guesses == bits))


def test_prop_full_knowledge_of_xrr_is_right_about_all_or_none():
    n, runs, epsilon = 50, 1000, 1.0
    rng = np.random.default_rng(0)
    found = [full_knowledge(n, epsilon=epsilon, rng=rng) for _ in range(runs)]
    assert set(found) == {0, n}
    keep = exp(epsilon) / (1 + exp(epsilon))
    # Four deviations: a false alarm has chance below 1e-4.
    assert abs(np.mean(found) / n - keep) < 4 * (keep * (1 - keep) / runs) ** 0.5


def test_prop_full_knowledge_of_xrr_is_not_valid(binomial):
    # n right guesses of n have chance p(epsilon) = 3/4, not (3/4)^n, and then the bound
    # is above epsilon = ln 3 from n = 11 on at beta = 0.05.
    keep = Fraction(3, 4)
    wrong = [keep if keep**n <= Fraction(1, 20) else 0 for n in (10, 11, 100)]
    assert wrong == [0, keep, keep]
    assert binomial.bound(11, 11, 0.05) > log(3) > binomial.bound(10, 10, 0.05)
    # As played, 400 times: 300 are expected, with a deviation of 9.
    rng = np.random.default_rng(2)
    above = 0
    for _ in range(400):
        correct = full_knowledge(11, epsilon=log(3), rng=rng)
        counts = Counts(canaries=11, guesses=11, correct=correct)
        bound = PureBound().epsilon_lower(counts, delta=0.0, alpha=0.05)
        above += bound.epsilon_lower > log(3)
    assert 255 <= above <= 345


def test_prop_full_knowledge_of_xrr_is_not_valid_as_it_is_not_dominated(binomial):
    # The lemma says that dominance is enough for validity, not that it is needed. For a
    # fixed number of guesses it is: if P[V >= t] exceeds that of Bin(r, p), then at any
    # beta between the two t right guesses put the bound above epsilon.
    keep, r = Fraction(3, 4), 5
    between = (keep + binomial.tail(r, r, keep)) / 2
    assert binomial.tail(r, r, keep) < between < keep
    assert binomial.bound(r, r, float(between)) > log(3)


def test_prop_full_knowledge_of_xrr_leaves_nothing_to_show(mechanisms):
    # What holds for every mechanism is E V <= r p(epsilon), so P[V >= v] <= r p / v,
    # and XRR attains it at v = r. It is 1/2 or more for every epsilon: no rule to which
    # more right guesses are more evidence shows anything at beta < 1/2.
    for mechanism in (each for each in mechanisms if each.is_private):
        top = mechanism.p_worst_case
        right = Fraction(0)
        for r, row in enumerate(mechanism.rows):
            for (o, chance), i in product(enumerate(row), mechanism.indexes):
                other = mechanism.rows[r ^ (1 << i)][o]
                right += (chance > other) * chance + (chance == other) * chance / 2
        assert right / len(mechanism.rows) <= mechanism.n * top
    rng = np.random.default_rng(3)
    found = [full_knowledge(30, epsilon=0.0, rng=rng) for _ in range(400)]
    # At epsilon = 0 all 30 are right in half of the games; 10 is the deviation.
    assert set(found) == {0, 30}
    assert 160 <= found.count(30) <= 240


def test_prop_full_knowledge_of_xrr_does_not_dominate_the_binomial(binomial):
    # Printed: V dominates Bin(n, p(epsilon)). Both have the mean n p, so neither can
    # dominate the other unless their laws are equal. All right is likelier for V, and
    # so is none: 1 - p is more than (1 - p)^n. What the argument needs is the former.
    keep, n = Fraction(3, 4), 5
    assert keep > binomial.tail(n, n, keep)
    assert keep < binomial.tail(1, n, keep)  # P[V >= 1] = p is less


# Dominance of sums


def dominated(first, second):
    """Whether each tail of a law, a dict, is at most that of another."""
    return all(
        sum(c for x, c in first.items() if x > t)
        <= sum(c for x, c in second.items() if x > t)
        for t in (*first, *second)
    )


def added(law):
    """The law of the sum from a joint law."""
    found = {}
    for (a, b), chance in law.items():
        found[a + b] = found.get(a + b, 0) + chance
    return found


def test_lem_stochastic_dominance_of_sum_with_independent_terms():
    # Two thousand random laws of X1 on {0, 1, 2} and of X2 given X1 on {0, 1}; Y1 and
    # Y2 are independent, Y2 the largest of the conditional laws.
    rng = np.random.default_rng(4)
    for _ in range(2000):
        weights = [Fraction(int(w)) for w in rng.integers(1, 9, 3)]
        first = [w / sum(weights) for w in weights]
        second = [Fraction(int(w), 10) for w in rng.integers(0, 11, 3)]
        joint = {
            (x, b): first[x] * (second[x] if b else 1 - second[x])
            for x, b in product(range(3), (0, 1))
        }
        shift = Fraction(int(rng.integers(0, 5)), 4)
        larger = [first[0] * (1 - shift), first[1], first[2] + first[0] * shift]
        most = max(second)
        assert dominated(dict(enumerate(first)), dict(enumerate(larger)))
        independent = {
            (y, b): larger[y] * (most if b else 1 - most)
            for y, b in product(range(3), (0, 1))
        }
        assert dominated(added(joint), added(independent))


def test_lem_stochastic_dominance_of_sum_fails_without_independence():
    # Printed for every Y1, Y2. Let X1, X2 be independent fair coins, Y1 another and
    # Y2 = 1 - Y1. X1 is dominated by Y1, and X2 given X1 by Y2, as all are fair; but
    # X1 + X2 is 2 with chance 1/4, and Y1 + Y2 is always 1.
    coins = {(a, b): HALF * HALF for a, b in product((0, 1), repeat=2)}
    mirrored = {(0, 1): HALF, (1, 0): HALF}
    fair = {0: HALF, 1: HALF}
    assert dominated(fair, fair)
    assert not dominated(added(coins), added(mirrored))


# Validity


def test_def_adaptive_ora_reveals_a_coin_after_its_turn_guessed_or_passed():
    seen = []

    class Watching:
        def play(self, output):
            for index, guess in ((3, 1), (0, 0), (2, -1)):
                truth = yield Submission(
                    index=np.array([index]), guess=np.array([guess], np.int8)
                )
                seen.append((index, int(truth[0])))

    mechanism = count(4)
    transcript = play_adaptive(
        mechanism,
        Watching(),
        pairs=mechanism.pairs,
        design=Design(canaries=4, rules=AdaptiveCount(guesses=2), claim=claim(1.0)),
        rng=np.random.default_rng(0),
        key=key(1),
    )
    assert [index for index, _ in seen] == [3, 0, 2]
    assert [truth for _, truth in seen] == transcript.truth.tolist()
    assert transcript.guess.tolist() == [1, 0, -1]


def test_subsec_adaptive_ora_guesser_learns_from_revealed_coins(mechanisms):
    # Twenty mechanisms of three coins, all coins and outputs: by Bayes' rule over the
    # coins that agree with those revealed, in fractions.
    threshold = 0.43
    for mechanism in [m for m in mechanisms if m.n == 3][:20]:
        guesser = AdaptiveMostLikely(
            mechanism=mechanism.table,
            threshold=threshold,
            rules=AdaptiveCount(guesses=3),
        )
        for r, o in product(range(8), mechanism.outputs):
            if not mechanism.rows[r][o]:
                continue
            play, hidden = guesser.play(o), {0, 1, 2}
            turn = next(play)
            while hidden:
                (i,), (guess,) = turn.index.tolist(), turn.guess.tolist()
                agree = [
                    (mechanism.sign(s, i), row[o])
                    for s, row in enumerate(mechanism.rows)
                    if all((r ^ s) >> j & 1 == 0 for j in {0, 1, 2} - hidden)
                ]
                total = sum(weight for _, weight in agree)
                one = sum(weight for sign, weight in agree if sign == 1) / total
                best = max(one, 1 - one)
                assert (guess != 0) == (best > 1 / (1 + exp(-threshold)))
                if guess:
                    assert {1: one, -1: 1 - one}[guess] == best
                hidden.remove(i)
                if hidden:
                    turn = play.send(np.array([mechanism.sign(r, i)], np.int8))


def best_chance(mechanism, o, guesses, needed):
    """The most that any adaptive guesser can make of P[V >= needed | O = o].

    It chooses indexes, guesses or passes, all from the output and the coins revealed,
    and makes at most so many guesses: backward induction over what is revealed.
    """
    weights = [row[o] for row in mechanism.rows]

    @cache
    def best(known, values, left, need):
        if need <= 0:
            return Fraction(1)
        hidden = [i for i in mechanism.indexes if not known >> i & 1]
        if left == 0 or not hidden:
            return Fraction(0)
        total = sum(w for r, w in enumerate(weights) if r & known == values)
        found = Fraction(0)
        for i in hidden:
            bit = 1 << i
            one = sum(
                w for r, w in enumerate(weights) if r & known == values and r & bit
            )
            chance = {1: one / total, 0: 1 - one / total}
            for guess in (None, 0, 1):
                made = guess is not None
                value = sum(
                    chance[b]
                    * best(
                        known | bit,
                        values | bit * b,
                        left - made,
                        need - (made and guess == b),
                    )
                    for b in (0, 1)
                    if chance[b]
                )
                found = max(found, value)
        return found

    return best(0, 0, guesses, needed)


def test_prop_adaptive_ora_is_valid_with_a_fixed_number_of_guesses(
    binomial, mechanisms
):
    # Over all adaptive guessers of at most r coins, all outputs and all private
    # mechanisms: P[V >= v] <= P[Bin(r, p(epsilon)) >= v], exactly.
    private = [m for m in mechanisms if m.is_private]
    assert len(private) == 55
    for mechanism in private:
        top = mechanism.p_worst_case
        for r in range(1, mechanism.n + 1):
            for v in range(1, r + 1):
                found = sum(
                    mechanism.chance(o) * best_chance(mechanism, o, r, v)
                    for o in mechanism.outputs
                )
                assert found <= binomial.tail(v, r, top)


def test_prop_adaptive_ora_is_valid_and_attains_the_binomial(binomial, exact):
    # For randomised response the optimum is the binomial: nothing is given away. The
    # package's p-value is that optimum.
    keep = Fraction(3, 4)
    response = [
        [
            keep ** (2 - (r ^ o).bit_count()) * (1 - keep) ** (r ^ o).bit_count()
            for o in range(4)
        ]
        for r in range(4)
    ]
    table = exact(response)
    for v in (1, 2):
        found = sum(table.chance(o) * best_chance(table, o, 2, v) for o in range(4))
        assert found == binomial.tail(v, 2, keep)
        counts = Counts(canaries=2, guesses=2, correct=v)
        log_p = AdaptiveBound().log_p_value(counts, epsilon=log(3), delta=0.0)
        assert exp(log_p) == pytest.approx(float(found))


class AheadOfTwo:
    """Guesses the first coin; guesses the second only if the first was wrong."""

    def play(self, output):
        truth = yield Submission(index=np.array([0]), guess=np.array([1], np.int8))
        more = int(truth[0] != 1)
        yield Submission(index=np.array([1]), guess=np.array([more], np.int8))


class Silent:
    def run(self, data, rng):
        return len(data)


def test_prop_adaptive_ora_is_valid_not_with_the_realised_number_of_two(binomial):
    # n = 2 and a mechanism that says nothing, so epsilon = 0. The proof bounds V given
    # T = t; but T = (1, 0) happens only if the first guess was right.
    given = {}
    for number in range(400):
        transcript = play_adaptive(
            Silent(),
            AheadOfTwo(),
            pairs=Pairs(x=0, y=1),
            design=Design(canaries=2, rules=AdaptiveCount(guesses=2), claim=claim(0.0)),
            rng=np.random.default_rng(0),
            key=key(number),
        )
        right = int(np.sum(transcript.guess == transcript.truth))
        given.setdefault(tuple(transcript.guess.tolist()), set()).add(right)
    assert given == {(1, 0): {1}, (1, 1): {0, 1}}
    # Printed: V given T = (1, 0) is dominated by Bin(1, 1/2). It is always 1.
    assert binomial.tail(1, 1, HALF) == HALF
    # Nor is V dominated by Bin(R, 1/2): P[V >= 1] is 3/4, and 5/8 for the binomial.
    realised = HALF + HALF * HALF
    mixed = HALF * binomial.tail(1, 1, HALF) + HALF * binomial.tail(1, 2, HALF)
    assert (realised, mixed) == (Fraction(3, 4), Fraction(5, 8))
    # Counted as two guesses, a missing one wrong, it is: 3/4 and 1/4.
    assert realised == binomial.tail(1, 2, HALF)


def naive_chance(n, p, beta):
    """How often guessing till the tail is beta or less succeeds, by exact paths.

    Guesses are right with chance p each. An integer or fraction at every step.
    """
    alive, crossed = {0: Fraction(1)}, Fraction(0)
    for k in range(1, n + 1):
        after = {}
        for v, chance in alive.items():
            for step, weight in ((1, p), (0, 1 - p)):
                after[v + step] = after.get(v + step, 0) + chance * weight
        tail, limit = Fraction(0), k + 1
        while (
            limit and tail + comb(k, limit) * p**limit * (1 - p) ** (k - limit) <= beta
        ):
            tail += comb(k, limit) * p**limit * (1 - p) ** (k - limit)
            limit -= 1
        crossed += sum(c for v, c in after.items() if v > limit)
        alive = {v: c for v, c in after.items() if v <= limit}
    return crossed


def test_prop_adaptive_ora_is_valid_not_with_the_realised_number_at_five_percent():
    # At beta = 0.05 and epsilon = 0, eight coins are enough to be wrong more often.
    beta = Fraction(1, 20)
    assert naive_chance(7, HALF, beta) == Fraction(1, 32)
    assert naive_chance(8, HALF, beta) == Fraction(13, 256)
    assert Fraction(13, 256) > beta
    # It is no matter of epsilon = 0: randomised response at epsilon = ln 3.
    assert naive_chance(100, Fraction(3, 4), beta) > 3 * beta


@cache
def walk(n, alpha):
    """The laws of V for a fair coin and large n: where stopped, and where not."""
    going, stopped, limit = np.array([1.0]), np.zeros(n + 1), 1
    for k in range(1, n + 1):
        while limit <= k and special.bdtrc(limit - 1, k, 0.5) > alpha:
            limit += 1
        going = (np.append(going, 0.0) + np.append(0.0, going)) / 2
        stopped[limit : k + 1] += going[limit:]
        going[limit:] = 0.0
    return stopped, going


@pytest.mark.parametrize(("n", "percent"), [(100, 20.2), (1000, 33.9), (10_000, 45.5)])
def test_prop_adaptive_ora_is_valid_not_with_the_realised_number_of_many(n, percent):
    # A silent mechanism is certified to have epsilon > 0 in so many runs.
    found = walk(n, 0.05)[0].sum()
    assert round(100 * found, 1) == percent
    assert stopping_probability(n, 0.05) == pytest.approx(found, abs=1e-9)
    assert stopping_distribution(n, 0.05)[0].sum() == pytest.approx(found, abs=1e-9)
    if n == 100:
        assert float(naive_chance(n, HALF, Fraction(1, 20))) == pytest.approx(found)


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_prop_adaptive_ora_is_valid_with_missing_guesses_counted_as_wrong(n):
    # The same guesser by the rule AdaptiveCount(guesses=n): V stays where it stopped,
    # R is n. Summed over the law of V, it is wrong in at most 5 % of runs.
    law = np.sum(walk(n, 0.05), axis=0)
    assert law.sum() == pytest.approx(1.0)
    wrong = 0.0
    for v in np.flatnonzero(law > 1e-12):
        counts = Counts(canaries=n, guesses=n, correct=int(v))
        log_p = AdaptiveBound().log_p_value(counts, epsilon=0.0, delta=0.0)
        wrong += law[v] * (log_p <= log(0.05))
    assert wrong <= 0.05


def test_prop_adaptive_ora_is_valid_not_with_the_realised_number_in_played_games():
    # 300 games with 100 coins: 61 are expected above the boundary; fewer than 35 or
    # more than 90 with chance below 1e-3.
    rng = np.random.default_rng(6)
    certified = 0
    for _ in range(300):
        correct = np.cumsum(rng.integers(0, 2, 100))
        tails = special.bdtrc(correct - 1, np.arange(1, 101), 0.5)
        certified += np.any(tails <= 0.05)  # guesses stop at the first of these
    assert 35 <= certified <= 90


class Stopping:
    """Guesses +1 and stops once the binomial tail is at most 5 %."""

    def __init__(self, stake):
        self.stake = stake

    def play(self, n):
        right = 0
        for k in range(1, n + 1):
            stake = self.stake and np.array([self.stake(k, n)])
            truth = yield Submission(
                index=np.array([k - 1]), guess=np.array([1], np.int8), stake=stake
            )
            right += int(truth[0] == 1)
            if special.bdtrc(right - 1, k, 0.5) <= 0.05:
                return


@pytest.mark.parametrize(
    ("rules", "n", "stake"),
    [
        (AdaptiveCount(guesses=100), 100, None),
        pytest.param(
            AdaptiveClasses(weights=(1.0, 2.0), guesses=(30, 30)),
            60,
            lambda k, n: 2.0 if 2 * k <= n else 1.0,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            AdaptiveRounds(round_weights=(1.0,) * 20),
            20,
            None,
            marks=pytest.mark.nightly,
        ),
        pytest.param(AdaptiveBets(), 100, lambda k, n: 0.7, marks=pytest.mark.nightly),
    ],
)
def test_prop_adaptive_ora_is_valid_by_every_rule_of_the_referee(rules, n, stake):
    # 300 games each with the stopping guesser on a silent mechanism. If the chance to
    # be wrong is 5 %, more than 29 are with chance below 1e-3.
    design = Design(canaries=n, rules=rules, claim=claim(0.0))
    wrong = 0
    for number in range(300):
        transcript = play_adaptive(
            Silent(),
            Stopping(stake),
            pairs=Pairs(x=0, y=1),
            design=design,
            rng=np.random.default_rng(0),
            key=key(number),
        )
        verdict = judge_claim(design.claim, transcript.reading(), alpha=0.05)
        wrong += verdict.refuted
    assert wrong <= 29


# Xor in pairs


def test_def_xor_in_pairs_is_the_parity_of_each_two():
    rng = np.random.default_rng(0)
    for data in product((0, 1), repeat=6):
        printed = [data[2 * j] ^ data[2 * j + 1] for j in range(3)]
        assert XorInPairs(elements=6).run(np.array(data), rng).tolist() == printed


def test_prop_xor_in_pairs_one_run_is_one_half_for_every_guesser(exact):
    rows = [
        [
            Fraction(
                (r & 1) ^ (r >> 1 & 1) == o & 1 and (r >> 2 & 1) ^ r >> 3 == o >> 1
            )
            for o in range(4)
        ]
        for r in range(16)
    ]
    table = exact(rows)
    for o, i in product(range(4), range(4)):
        assert table.posterior(i, 1, o) == HALF  # so every guess is a coin
    assert table.best(1) == table.best(4) == HALF
    assert (
        levels(XorInPairs(elements=1000), elements=1000, guesses=1).best_accuracy.value
        == 0.5
    )


@pytest.mark.parametrize("n", [2, 100, 2000])
def test_prop_xor_in_pairs_adaptively_gets_every_second_coin_right(n):
    mechanism = XorInPairs(elements=n)
    rules = AdaptiveCount(guesses=n // 2)
    result = audit_adaptive(
        mechanism,
        AdaptiveMostLikely(mechanism=mechanism, threshold=inf, rules=rules),
        pairs=mechanism.pairs,
        design=Design(canaries=n, rules=rules, claim=claim(1.0)),
        rng=np.random.default_rng(0),
        key=key(3),
    )
    assert result.reading.guesses == result.reading.correct == n // 2
    # All r right: beta^(1 / r) as log-odds, which grows like ln(r / 3): tight.
    expected = max(0.0, special.logit(0.05 ** (2 / n)))
    assert result.bound.epsilon_lower == pytest.approx(expected, abs=1e-6)


def test_prop_xor_in_pairs_in_one_run_shows_nothing():
    # Its 2,000 guesses are coins; a bound above 0.3 has chance below 1e-4.
    mechanism = XorInPairs(elements=2000)
    result = audit_one_run(
        mechanism,
        Everyone(mechanism=mechanism),
        pairs=mechanism.pairs,
        design=Design(canaries=2000, rules=OneRun(guesses=2000), claim=claim(1.0)),
        rng=np.random.default_rng(0),
        key=key(3),
    )
    assert result.bound.epsilon_lower < 0.3


# Count, guessed only where it is certain


def certain_guesses(bits, *, adaptive):
    """Guesses about a count, from the last element to the first, if certain."""
    made = 0
    for i in range(len(bits), 0, -1):
        known = bits[:i] if adaptive else bits
        made += sum(known) in (0, len(known))
    return made


@pytest.mark.parametrize("n", range(1, 11))
def test_subsec_aora_count_in_sets_adaptively_expects_two_guesses_less_a_little(n):
    made = [certain_guesses(b, adaptive=True) for b in product((0, 1), repeat=n)]
    mean = Fraction(sum(made), 2**n)
    assert mean == 2 - Fraction(1, 2 ** (n - 1))
    # R ~ min(Geometric(1/2), n), as printed
    law = [Fraction(1, 2**i) for i in range(1, n)] + [Fraction(1, 2 ** (n - 1))]
    assert [Fraction(made.count(i), 2**n) for i in range(1, n + 1)] == law
    assert adaptive_guesses(n, inf).expected_guesses == pytest.approx(float(mean))
    found = adaptive_guessing(count(n), elements=n, threshold=inf)
    assert found.guesses.value == pytest.approx(float(mean))


@pytest.mark.parametrize("n", range(1, 11))
def test_subsec_aora_count_in_sets_in_one_run_expects_n_times_the_printed_number(n):
    # Printed: E[R] = P[o in {0, n}] = 2^-(n-1). That is the chance that anything is
    # guessed; then all n elements are, so that n 2^-(n-1) are expected.
    made = [certain_guesses(b, adaptive=False) for b in product((0, 1), repeat=n)]
    chance = Fraction(sum(m > 0 for m in made), 2**n)
    mean = Fraction(sum(made), 2**n)
    assert chance == Fraction(1, 2 ** (n - 1))
    assert mean == n * chance
    found = one_run_guesses(n, inf)
    assert found.expected_guesses == pytest.approx(float(mean))
    assert 1 - found.guesses[0] == pytest.approx(float(chance))


def test_subsec_aora_count_in_sets_of_ten_per_set():
    # Printed: 1.998 adaptively, and 0.002 in one run, which is the chance; the number
    # is 0.0195. Adaptive guessing makes 102 times as many guesses, not 1,000 times.
    assert round(adaptive_guesses(10, inf).expected_guesses, 3) == 1.998
    assert round(1 - one_run_guesses(10, inf).guesses[0], 3) == 0.002
    assert round(one_run_guesses(10, inf).expected_guesses, 4) == 0.0195
    # One guess per set at s = 1 for both, as printed; the number in one run does not
    # fall from s = 1 to s = 2, and falls from there on.
    once = [one_run_guesses(s, inf).expected_guesses for s in range(1, 9)]
    assert once[0] == once[1] == 1.0
    assert all(a > b for a, b in pairwise(once[1:]))


def test_subsec_aora_count_in_sets_guesses_are_those_of_played_games():
    # A hundred sets of ten, ten games each: 1998 adaptive guesses on average with a
    # deviation of 45, and 19.5 with a deviation of 14 in one run. All are right. A
    # false alarm (five deviations) has chance below 1e-3.
    n = 1000
    mechanism = CountInSets(elements=n, set_size=10)
    rules, once = AdaptiveCount(guesses=n), OneRun(guesses=n)
    made = np.zeros(2, int)
    for number in range(10):
        arguments = {
            "pairs": mechanism.pairs,
            "rng": np.random.default_rng(0),
            "key": key(number),
        }
        adaptive = play_adaptive(
            mechanism,
            AdaptiveMostLikely(mechanism=mechanism, threshold=inf, rules=rules),
            design=Design(canaries=n, rules=rules, claim=claim(1.0)),
            **arguments,
        )
        one_run = play_one_run(
            mechanism,
            Confident(mechanism=mechanism, threshold=inf, guesses=n),
            design=Design(canaries=n, rules=once, claim=claim(1.0)),
            **arguments,
        )
        for which, played in enumerate((adaptive, one_run)):
            guessed = played.guess != 0
            assert np.array_equal(played.guess[guessed], played.truth[guessed])
            made[which] += guessed.sum()
    assert abs(made[0] - 1998) < 225
    assert abs(made[1] - 19.5) < 70


def test_subsec_aora_count_in_sets_adaptive_auditing_outperforms_one_run():
    # As in the paper's figure, with numbers of guesses that are fixed: 150 adaptive
    # guesses in a hundred sets of ten, against 10 in one run.
    n = 1000
    mechanism = CountInSets(elements=n, set_size=10)
    rules = AdaptiveCount(guesses=150)
    adaptive = audit_adaptive(
        mechanism,
        AdaptiveMostLikely(mechanism=mechanism, threshold=inf, rules=rules),
        pairs=mechanism.pairs,
        design=Design(canaries=n, rules=rules, claim=claim(1.0)),
        rng=np.random.default_rng(0),
        key=key(0),
    )
    one_run = audit_one_run(
        mechanism,
        Confident(mechanism=mechanism, threshold=inf, guesses=10),
        pairs=mechanism.pairs,
        design=Design(canaries=n, rules=OneRun(guesses=10), claim=claim(1.0)),
        rng=np.random.default_rng(0),
        key=key(0),
    )
    assert adaptive.reading.correct == 150
    assert adaptive.bound.epsilon_lower > 3.5
    assert adaptive.bound.epsilon_lower > one_run.bound.epsilon_lower + 2
