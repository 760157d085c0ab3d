"""Independent runs judged together: the product of p-values, and when it is void."""

import contextlib
import math
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    ApproxDP,
    Design,
    GaussianDP,
    Key,
    OneRun,
    PureDP,
    Ranking,
    SeparateRuns,
)
from dpaudit.bounds import (
    Bets,
    Counts,
    IndependentRunsBound,
    PooledRunsBound,
    Ranked,
    Weighted,
)
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Commitment, Referee
from dpaudit.game.combining import combine_runs
from dpaudit.game.result import conclude, judge
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.setting import Setting

CLAIM = ApproxDP(epsilon=1.0, delta=0.0)
P = math.e / (1 + math.e)


def run(correct, *, number=0, canaries=40, claim=CLAIM, alpha=0.05, rules=OneRun):
    rules = rules(guesses=canaries)
    design = Design(canaries=canaries, rules=rules, claim=claim, alpha=alpha)
    counts = Counts(canaries=canaries, guesses=canaries, correct=correct)
    return judge(counts, design=design, commitment=commitment(number, design))


def commitment(number, design):
    return Commitment.to(Key(number.to_bytes(32, "big")), design)


def fisher(p_values):
    return stats.combine_pvalues(p_values, method="fisher").pvalue


def tail(correct, n, epsilon):
    return stats.binom.sf(correct - 1, n, 1 / (1 + math.exp(-epsilon)))


@pytest.mark.parametrize("corrects", [(35, 33), (31, 30, 36, 28), (40, 0)])
def test_counts_are_combined_by_fisher_s_product(corrects):
    found = combine_runs([run(v, number=i) for i, v in enumerate(corrects)])
    tails = [tail(v, 40, 1.0) for v in corrects]
    assert found.p_values == pytest.approx(tails, rel=1e-9)
    assert found.claim_test.p_value == pytest.approx(fisher(tails), rel=1e-9)
    epsilon = found.bound.epsilon_lower
    if epsilon:
        at = [
            fisher([tail(v, 40, epsilon + d) for v in corrects]) for d in (-1e-6, 1e-6)
        ]
        assert at[0] <= 0.05 <= at[1]


def test_a_true_claim_is_refuted_with_chance_alpha_at_most():
    """Exact: every pair of counts of two runs that attain the claim, 13 each."""
    law = stats.binom.pmf(range(13), 12, P)
    runs = [[run(v, number=i, canaries=12) for v in range(13)] for i in range(2)]
    refuted = sum(
        law[one] * law[two] * (1 if one == two else 2)
        for one, two in combinations_with_replacement(range(6, 13), 2)
        if combine_runs([runs[0][one], runs[1][two]]).claim_test.refuted
    )
    # Nobody refutes with half of the guesses right or fewer.
    assert not combine_runs([runs[0][5], runs[1][12]]).claim_test.refuted
    assert 0.01 < refuted <= 0.05


def test_two_weak_runs_refute_what_neither_does():
    one, two = run(34), run(34, number=1)
    assert not one.claim_test.refuted
    assert combine_runs([one, two]).claim_test.refuted


def test_a_silent_run_beside_another_shows_nothing_new():
    alone = run(36)
    found = combine_runs([alone, run(20, number=1)])
    assert found.bound.epsilon_lower < alone.bound.epsilon_lower


def ranked(number, right, delta=0.0):
    rules, claim = Ranking(guesses=len(right)), ApproxDP(epsilon=1.0, delta=delta)
    design = Design(canaries=len(right), rules=rules, claim=claim)
    reading = Ranked(canaries=len(right), right=np.array(right, bool))
    return judge(reading, design=design, commitment=commitment(number, design))


def test_rankings_are_combined_and_show_more_together():
    rights = [np.random.default_rng(seed).random(300) < 0.93 for seed in (1, 2)]
    runs = [ranked(i, right, delta=1e-5) for i, right in enumerate(rights)]
    found = combine_runs(runs)
    p_values = [each.claim_test.p_value for each in runs]
    # The largest of the products along the grid, and not the product of the largest.
    assert max(p_values) * 1e-3 < found.claim_test.p_value <= fisher(p_values)
    best = max(each.bound.epsilon_lower for each in runs)
    assert best < found.bound.epsilon_lower < 3.0
    assert found.bound.method == "independent runs"


def adaptive(number, correct, *, canaries=10_000, delta=1e-5):
    rules, claim = AdaptiveCount(guesses=200), ApproxDP(epsilon=1.0, delta=delta)
    design = Design(canaries=canaries, rules=rules, claim=claim)
    counts = Counts(canaries=canaries, guesses=200, correct=correct, adaptive=True)
    return judge(counts, design=design, commitment=commitment(number, design))


def slots(number, correct, *, canaries):
    rules = AdaptiveClasses(weights=(2.0, 1.0), guesses=(100, 100))
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=canaries, rules=rules, claim=claim)
    reading = Weighted(
        canaries=canaries,
        weights=(2.0, 1.0),
        guesses=(100, 100),
        correct=correct,
        committed=True,
        adaptive=True,
    )
    return judge(reading, design=design, commitment=commitment(number, design))


def test_where_delta_is_dear_at_small_epsilons_larger_ones_still_count():
    """At epsilon = 0 delta costs 20,000 * 1e-5 / 2 = 0.1: neither run rejects it.

    Fisher's product of 0.1 and 0.1 is 0.056, so that both together do not either.
    """
    runs = [slots(i, (98, 90), canaries=20_000) for i in range(2)]
    best = max(each.bound.epsilon_lower for each in runs)
    assert best > 1.5
    assert fisher([0.1, 0.1]) > 0.05
    assert combine_runs(runs).bound.epsilon_lower > best


def test_runs_of_different_rules_and_a_classic_audit_can_be_combined():
    one, two = adaptive(1, 180, canaries=200, delta=0.0), ranked(2, [True] * 60)
    three = run(30, number=3, canaries=40, rules=SeparateRuns)
    rules = AdaptiveClasses(weights=(2.0, 1.0), guesses=(20, 20))
    design = Design(canaries=100, rules=rules, claim=CLAIM)
    read = Weighted(
        canaries=100,
        weights=(2.0, 1.0),
        guesses=(20, 20),
        correct=(20, 15),
        committed=True,
        adaptive=True,
    )
    four = judge(read, design=design, commitment=commitment(4, design))
    runs = [one, two, three, four]
    found = combine_runs(runs)
    p_values = [each.claim_test.p_value for each in runs]
    assert found.p_values == pytest.approx(p_values, rel=1e-9)
    assert found.claim_test.p_value == pytest.approx(fisher(p_values), rel=1e-6)
    assert found.bound.epsilon_lower > 1.0


def test_bets_multiply_their_wealth():
    rules = AdaptiveBets()
    design = Design(canaries=30, rules=rules, claim=CLAIM)
    rights = [np.arange(30) % 10 > 0, np.arange(30) % 6 > 0]
    runs = [
        judge(
            Bets(canaries=30, right=right, stated_probabilities=np.full(30, 0.85)),
            design=design,
            commitment=commitment(i, design),
        )
        for i, right in enumerate(rights)
    ]
    wealth, most = 1.0, 1.0
    for right in np.concatenate(rights):
        wealth *= 0.85 / P if right else 0.15 / (1 - P)
        most = max(most, wealth)
    found = combine_runs(runs)
    assert found.claim_test.p_value == pytest.approx(1 / most, rel=1e-9)
    assert found.bound.method == "betting"


def test_a_curve_can_be_the_claim():
    runs = [run(35, number=i) for i in range(2)]
    found = combine_runs(runs, claim=GaussianDP(mu=0.5))
    assert str(found.claim_test.claim) == "(mu = 0.5)-GDP"
    assert found.claim_test.p_value < min(found.p_values) < 0.05


def test_alpha_may_be_named_for_all():
    runs = [run(34), run(34, number=1, alpha=0.01)]
    with pytest.raises(
        InvalidRunError, match=r"alpha = 0\.01, 0\.05; specify which holds"
    ):
        combine_runs(runs)
    found = combine_runs(runs, alpha=0.2)
    assert (found.claim_test.alpha, found.bound.alpha) == (0.2, 0.2)
    with pytest.raises(InvalidInputError, match=r"for confidence 0\.95 pass 0\.05"):
        combine_runs(runs, alpha=0.95)


def test_one_run_counts_once():
    with pytest.raises(InvalidRunError, match="results 1 and 3 are of one run"):
        combine_runs([run(30), run(31, number=1), run(29)])
    bare = replace(run(30), commitment=None)
    assert combine_runs([bare, replace(bare)]).nameless == 2  # counts may be equal
    scores = ScoreSummary.of([0.0, 1.0], [0, 1])
    seen = [replace(run(v), commitment=None, scores=scores) for v in (30, 31)]
    with pytest.raises(InvalidRunError, match="results 1 and 2 are of one run"):
        combine_runs(seen)
    other = replace(run(31), commitment=None)
    assert combine_runs([bare, other]).nameless == 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ApproxDP(epsilon=2.0, delta=0.0), "result 1 is about the claim"),
        (ApproxDP(epsilon=1.0, delta=1e-5), "result 1 is about the claim"),
    ],
)
def test_runs_about_different_claims_do_not_belong_together(other, said):
    with pytest.raises(InvalidRunError, match=said):
        combine_runs([run(30), run(30, number=1, claim=other)])


def test_bounds_at_different_deltas_cannot_be_combined():
    claim = GaussianDP(mu=1.0)
    designs = [
        Design(canaries=10, rules=OneRun(guesses=10), claim=claim, delta=delta)
        for delta in (1e-5, 1e-6)
    ]
    counts = Counts(canaries=10, guesses=10, correct=9)
    runs = [
        judge(counts, design=design, commitment=commitment(number, design))
        for number, design in enumerate(designs)
    ]
    with pytest.raises(InvalidRunError, match="at delta = 1e-06, 1e-05; only at one"):
        combine_runs(runs)


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_are_nothing_to_combine(number):
    with pytest.raises(InvalidInputError, match="two runs or more"):
        combine_runs([run(30)] * number)


def test_it_prints_the_word_and_all_it_rests_on():
    said = str(combine_runs([run(35), run(36, number=1)]))
    assert said.startswith("Claim refuted. Epsilon is at least 1.")
    assert "; 1 is claimed. By 2 independent runs together, at d" in said
    assert "against an adversary who sees the output (p = " in said
    assert "95 % confidence, for any mechanism in independent runs" in said
    assert "(method independent runs), " in said
    assert said.endswith("if the number of runs was fixed before the first of them.")


def test_runs_of_adaptive_games_are_combined_by_what_adaptive_games_pay():
    """Delta is dearer where coins are revealed; the p-values must say so."""
    claim = ApproxDP(epsilon=1.0, delta=1e-4)
    counts = Counts(canaries=200, guesses=100, correct=85)

    def played(rules, number):
        design = Design(canaries=200, rules=rules, claim=claim)
        read = replace(counts, adaptive=isinstance(rules, AdaptiveCount))
        return judge(read, design=design, commitment=commitment(number, design))

    adaptive = [played(AdaptiveCount(guesses=100), n) for n in (0, 1)]
    found = combine_runs(adaptive)
    want = math.exp(AdaptiveBound().log_p_value(counts, epsilon=1.0, delta=1e-4))
    assert found.p_values == pytest.approx([want, want])
    once = combine_runs([played(OneRun(guesses=100), n) for n in (2, 3)])
    assert max(once.p_values) < 0.9 * want


def test_one_ranking_counts_once_even_without_a_commitment():
    """Two runs may have equal counts, but hardly the same order of rights."""
    design = Design(canaries=40, rules=Ranking(guesses=40), claim=CLAIM)
    ranked = Ranked(canaries=40, right=np.arange(40) % 5 > 0)
    alone = judge(ranked, design=design, commitment=None)
    with pytest.raises(InvalidRunError, match=r"^results 1 and 2 are of one run"):
        combine_runs([alone, alone])
    counted = replace(run(30), commitment=None)
    assert len(combine_runs([counted, counted]).p_values) == 2


def silent_run(key, rng, claim):
    """Return the results of one run that shows nothing, under four designs."""
    canaries, found = 200, []
    guess = rng.integers(0, 2, canaries) * 2 - 1
    for guesses in (200, 199, 198, 197):
        rules = OneRun(guesses=guesses)
        referee = Referee(Design(canaries=canaries, rules=rules, claim=claim), key)
        referee.submit(np.arange(guesses), guess[:guesses])
        found.append(conclude(referee.close(), commitment=referee.commitment))
    return found


def test_one_run_under_several_designs_refutes_a_true_claim_no_more_often_than_alpha():
    """It did in 12 % of runs: the four results were taken for four runs.

    300 runs; a valid rule fails here with chance 1e-4.
    """
    rng, refuted = np.random.default_rng(0), 0
    for _ in range(300):
        results = silent_run(Key(rng.bytes(32)), rng, PureDP(epsilon=0.0))
        with contextlib.suppress(InvalidRunError):
            refuted += combine_runs(results).claim_test.refuted
    assert refuted <= stats.binom.isf(1e-4, 300, 0.05)


def test_one_run_under_two_designs_is_one_run():
    rng = np.random.default_rng(1)
    one, two, *_ = silent_run(Key(bytes(32)), rng, PureDP(epsilon=0.0))
    other, *_ = silent_run(Key(bytes([1] * 32)), rng, PureDP(epsilon=0.0))
    assert len(combine_runs([one, other]).runs) == 2
    with pytest.raises(InvalidRunError, match="results 2 and 3 are of one run"):
        combine_runs([other, one, two])


def test_one_key_is_one_run_whatever_the_number_of_canaries():
    with pytest.raises(InvalidRunError, match="results 1 and 2 are of one run"):
        combine_runs([run(30), run(30, canaries=41)])


def test_a_run_is_known_by_either_of_its_hashes():
    """One hash that was changed does not make two runs of one."""
    one = run(30)
    other = replace(one, commitment=replace(one.commitment, run_digest="0" * 64))
    for pair in ([other, one], [one, other]):
        with pytest.raises(InvalidRunError, match="results 1 and 2 are of one run"):
            combine_runs(pair)
    assert combine_runs([one, run(30, number=1)]).nameless == 0


def test_a_reading_that_the_design_does_not_give_is_not_combined():
    forged = replace(run(30), reading=ranked(0, [True] * 40).reading)
    with pytest.raises(InvalidRunError, match="read as Counts, and the result holds"):
        combine_runs([forged, run(30, number=1)])


# Counts that are added up, as the designs say


def pooled(correct, *, number=0, runs=2, canaries=1000, delta=1e-5, rules=OneRun):
    claim = ApproxDP(epsilon=1.0, delta=delta)
    rules = rules(guesses=canaries // 10)
    setting = Setting(pooled_runs=runs)
    design = Design(canaries=canaries, rules=rules, claim=claim, setting=setting)
    counts = Counts(
        canaries=canaries,
        guesses=canaries // 10,
        correct=correct,
        adaptive=rules.adaptive,
    )
    return judge(counts, design=design, commitment=commitment(number, design))


@pytest.mark.parametrize("rules", [OneRun, SeparateRuns, AdaptiveCount])
def test_counts_are_added_up_if_the_designs_said_so(rules):
    runs = [pooled(90, rules=rules), pooled(84, number=1, rules=rules)]
    found = combine_runs(runs)
    one = Counts(
        canaries=2000, guesses=200, correct=174, adaptive=rules is AdaptiveCount
    )
    bound = rules(guesses=1).bound()
    want = bound.epsilon_lower(one, delta=1e-5, alpha=0.05).epsilon_lower
    p_value = math.exp(bound.log_p_value(one, epsilon=1.0, delta=1e-5))
    assert found.bound.epsilon_lower == pytest.approx(want, rel=1e-12)
    assert found.claim_test.p_value == pytest.approx(p_value, rel=1e-9)
    assert found.bound.method == "pooled runs"
    assert "in independent runs" in str(found)
    assert "their counts added up as their designs state" in str(found)
    assert found.could_refute


@pytest.mark.parametrize(
    ("runs", "counts", "fisher_s", "added_up"),
    [
        (2, (1000, 100, 90), 1.724, 1.798),
        (10, (1000, 100, 75), 0.884, 0.976),
        (5, (10**7, 3000, 2960), 4.03, 3.18),
    ],
)
def test_neither_way_is_always_the_sharper(runs, counts, fisher_s, added_up):
    one = Counts(canaries=counts[0], guesses=counts[1], correct=counts[2])
    for bound, want in (
        (IndependentRunsBound(), fisher_s),
        (PooledRunsBound(), added_up),
    ):
        found = bound.epsilon_lower([one] * runs, delta=1e-5, alpha=0.05)
        assert found.epsilon_lower == pytest.approx(want, abs=6e-3)


@pytest.mark.parametrize(
    "said",
    [(2, None), (None, 2), (2, 3), (3, 3), (1, 1)],
)
def test_how_runs_are_combined_cannot_be_chosen_afterwards(said):
    runs = [pooled(90, number=i, runs=n) for i, n in enumerate(said)]
    with pytest.raises(InvalidRunError, match="it was fixed before the first"):
        combine_runs(runs)


def test_what_is_not_counted_by_one_kind_of_rules_is_not_added_up():
    runs = [pooled(90), pooled(90, number=1, rules=AdaptiveCount)]
    with pytest.raises(InvalidRunError, match="counted by one kind of rules"):
        combine_runs(runs)
    with pytest.raises(InvalidInputError, match="only counts of one kind"):
        PooledRunsBound().epsilon_lower(
            [each.reading for each in runs], delta=0.0, alpha=0.05
        )


def test_the_better_of_both_ways_would_be_wrong_too_often():
    """Exact: every pair of counts of two runs of 50 guesses that attain the claim."""
    law = stats.binom.pmf(range(51), 50, P)
    either = alone = 0.0
    for one in range(25, 51):
        for two in range(25, 51):
            chance = law[one] * law[two]
            by_product = fisher([tail(one, 50, 1.0), tail(two, 50, 1.0)]) <= 0.05
            added = tail(one + two, 100, 1.0) <= 0.05
            either += chance * (by_product or added)
            alone += chance * added
    assert alone <= 0.05 < either


def test_no_sum_of_two_runs_that_spend_all_of_delta_is_likelier_than_it_says():
    """Exact: each run attains the exact bound at some count, the sum is convolved."""
    n, epsilon, delta = 20, math.log(3), 4e-3
    base = stats.binom.pmf(range(n + 1), n, 0.75)
    shares = []
    for v in range(12, n + 1):
        slack = n * delta / (v * base[v])
        below = 1 - slack * base[v:].sum()
        law = base * np.where(np.arange(n + 1) < v, below, below + slack)
        for total in range(30, 2 * n + 1) if below >= 0 else ():
            halves = (total // 2, total - total // 2)
            runs = [Counts(canaries=n, guesses=n, correct=half) for half in halves]
            log_p = PooledRunsBound().log_p_value(runs, epsilon=epsilon, delta=delta)
            shares.append(np.convolve(law, law)[total:].sum() / math.exp(log_p))
    assert 0.9 < max(shares) <= 1 + 1e-12


def test_guesses_that_were_not_made_add_up_too():
    """They count as wrong, and a run that made none is one of the runs."""
    runs = [
        Counts(canaries=40, guesses=10, correct=7, abstained=3),
        Counts(canaries=40, guesses=10, correct=8, abstained=0),
    ]
    added = PooledRunsBound.added(runs)
    assert (added.guesses, added.correct, added.abstained) == (20, 15, 3)
    assert added.canaries == 80
