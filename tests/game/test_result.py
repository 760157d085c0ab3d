"""A whole game on randomised response: valid, and useful, and it says what it did."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Key,
    OneRun,
    Ranking,
    Result,
    SeparateRuns,
    WeightClasses,
)
from dpaudit.bounds import Bets, Counts, Ranked, Weighted
from dpaudit.bounds.readings import BiasedCoinCounts
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Referee
from dpaudit.game.guessers import most_likely
from dpaudit.game.result import conclude, judge
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Verdict
from dpaudit.stats.binomial import rate_limits


def audit(claimed, true, seed, canaries=100):
    """Audit randomised response with ``true`` epsilon under a claim."""
    rng = np.random.default_rng(seed)
    key = Key(rng.bytes(32))
    claim = ApproxDP(epsilon=claimed, delta=0.0)
    design = Design(canaries=canaries, rules=OneRun(guesses=canaries), claim=claim)
    bits = Coins(key=key, count=canaries).bits()
    kept = rng.random(canaries) < special.expit(true)
    shown = np.where(kept, bits, 1 - bits)
    referee = Referee(design, key)
    index, guess = most_likely(true * (2.0 * shown - 1), guesses=canaries)
    referee.submit(index, guess)
    return conclude(referee.close(), commitment=referee.commitment)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_a_true_claim_is_refuted_no_more_often_than_alpha(epsilon):
    """Fixed seeds; a valid audit would fail this once in a million choices of them."""
    wrong = sum(
        result.claim_test.refuted or result.bound.epsilon_lower > epsilon
        for result in (audit(epsilon, epsilon, seed) for seed in range(500))
    )
    assert rate_limits(wrong, 500, alpha=2e-6)[0] <= 0.05


def test_a_false_claim_is_refuted():
    result = audit(claimed=1.0, true=3.0, seed=0)
    assert result.claim_test.refuted
    assert result.bound.epsilon_lower > 1.0


def test_the_sentence_says_everything():
    result = audit(claimed=1.0, true=1.0, seed=0)
    text = result.details()
    for part in (
        "NO VIOLATION DETECTED Claimed ε ≤ 1 Lower bound ε ≥ 0.299 (95 % confidence)",
        "This does not prove the claim.",
        # 81 of 100 refute epsilon = 1; Bin(100, 0.852) reaches them 9 times in 10
        "Guesses that are correct 85.2 % of the time would refute the claim with "
        "probability 0.9",
        "Lower bound epsilon >= 0.299 at delta = 0: 95 % confidence, for any mechanism "
        "(method exact)",
        f"{result.reading.correct} of 100 ({result.reading.correct}.0%): of 100 "
        "canaries",
        "Maximum for this design epsilon >= 3.492: if every guess were correct",
        "Threat model sees the output",
        "Coin flips derived from a committed key",
    ):
        assert part in " ".join(text.split())


def test_a_long_text_is_told_beside_its_name():
    _, rows = audit(claimed=1.0, true=1.0, seed=0).details().split("\n\n")
    lines = rows.splitlines()
    assert max(map(len, lines)) <= 88
    assert all(line.startswith("  ") for line in lines)
    names = [line[2:28].strip() for line in lines if line[2] != " "]
    assert names[:3] == ["Claimed", "Lower bound", "p-value"]


@pytest.mark.parametrize(
    "change",
    [
        {"design": 5},
        {"bound": {"x": 1}},
        {"bound": 5},
        {"ceiling": None},
        {"claim_test": {}},
        {"detectable_accuracy": "x"},
        {"not_exercised": "abc"},
        {"reading": "{}"},
    ],
)
def test_a_document_that_is_no_result_is_refused(change):
    plain = {**json.loads(audit(claimed=1.0, true=1.0, seed=0).to_json()), **change}
    with pytest.raises(InvalidInputError):
        Result.from_json(json.dumps(plain))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        (None, "ceiling", "much"),
        (None, "ceiling", -1.0),
        (None, "detectable_accuracy", "often"),
        (None, "detectable_accuracy", 1.5),
        (None, "not_exercised", "abc"),
        (None, "bound", 5),
        (None, "design_test", 5),
        ("bound", "epsilon_lower", "much"),
        ("bound", "delta", None),
        ("bound", "alpha", "x"),
        ("bound", "method", 3),
        ("bound", "reference", 3),
        ("design_test", "p_value", "small"),
        ("design_test", "p_value", 1.5),
        ("design_test", "alpha", "x"),
        ("design_test", "claim", 7),
    ],
)
def test_what_is_wrong_with_a_document_is_named(part, name, value):
    plain = json.loads(audit(claimed=1.0, true=1.0, seed=0).to_json())
    (plain if part is None else plain[part])[name] = value
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        Result.from_json(json.dumps(plain))


def test_the_ceiling_is_the_bound_if_all_were_right():
    """All of a hundred right has chance b + delta (1 - b), b = expit(epsilon)^100."""
    delta = 1e-3
    rate = ((0.05 - delta) / (1 - delta)) ** 0.01
    claim = ApproxDP(epsilon=1.0, delta=delta)
    seen = Counts(canaries=100, guesses=100, correct=60)
    plan = Design(canaries=100, rules=OneRun(guesses=100), claim=claim)
    found = judge(seen, design=plan, commitment=None)
    assert found.ceiling == pytest.approx(math.log(rate / (1 - rate)), abs=1e-6)
    rules = WeightClasses(weights=(1.0, 1.5), guesses=(40, 60))
    seen = Weighted(
        canaries=100,
        weights=(1.0, 1.5),
        guesses=(40, 60),
        correct=(20, 30),
        committed=True,
    )
    plan = Design(canaries=100, rules=rules, claim=claim)
    best = WeightedBound().epsilon_lower(
        replace(seen, correct=(40, 60)), delta=delta, alpha=0.05
    )
    found = judge(seen, design=plan, commitment=None)
    assert found.ceiling == best.epsilon_lower


def test_separate_runs_are_judged_as_independent_coins():
    claim = ApproxDP(epsilon=1.0, delta=0.01)
    plan = Design(canaries=100, rules=SeparateRuns(guesses=100), claim=claim)
    seen = Counts(canaries=100, guesses=100, correct=83)
    found = judge(seen, design=plan, commitment=None)
    chance = (math.e + 0.01) / (1 + math.e)
    tail = stats.binom.sf(82, 100, chance)
    assert found.claim_test.p_value == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize(
    ("reading", "correct_and_guesses"),
    [
        (Counts(canaries=9, guesses=7, correct=5), (5, 7)),
        (
            BiasedCoinCounts(
                canaries=9,
                inclusion=0.5,
                guesses_in=2,
                guesses_out=4,
                correct=5,
                committed=True,
            ),
            (5, 6),
        ),
        (Ranked(canaries=9, right=np.array([True, False, True])), (2, 3)),
        (
            Weighted(
                canaries=9,
                weights=(1.0, 2.0),
                guesses=(3, 4),
                correct=(1, 3),
                committed=True,
            ),
            (4, 7),
        ),
        (
            Bets(
                canaries=9,
                right=np.array([True, False]),
                stated_probabilities=np.ones(2),
            ),
            (1, 2),
        ),
    ],
)
def test_what_was_right_and_what_was_made_are_counted(reading, correct_and_guesses):
    assert reading.correct_and_guesses() == correct_and_guesses


def test_a_reading_of_another_game_is_refused():
    design = audit(claimed=1.0, true=1.0, seed=0).design
    for canaries, guesses in ((10, 10), (100, 10)):
        counts = Counts(canaries=canaries, guesses=guesses, correct=10)
        with pytest.raises(InvalidRunError, match="were not made by a design of 100"):
            judge(counts, design=design, commitment=None)


class Forwarding:
    """A bound of somebody else's that says what the slots' bound says."""

    def epsilon_lower(self, reading, *, delta, alpha):
        return AdaptiveWeightedBound().epsilon_lower(reading, delta=delta, alpha=alpha)


def test_a_claim_is_tested_by_the_rules_whatever_bound_is_brought():
    rules = AdaptiveClasses(weights=(2.0, 1.0), guesses=(100, 100))
    claim = ApproxDP(epsilon=0.9, delta=1e-4)
    design = Design(canaries=2000, rules=rules, claim=claim)
    reading = Weighted(
        canaries=2000,
        weights=rules.weights,
        guesses=rules.guesses,
        correct=(84, 82),
        committed=True,
        adaptive=True,
    )
    own = judge(reading, design=design, commitment=None)
    brought = judge(reading, design=design, commitment=None, bound=Forwarding())
    assert brought.claim_test == own.claim_test


def test_the_start_of_a_game_is_where_its_bound_starts():
    right = np.ones(2000, bool)
    bets = Bets(canaries=20_000, right=right, stated_probabilities=np.full(2000, 0.999))
    claim = ApproxDP(epsilon=3.0, delta=1e-5)
    design = Design(canaries=20_000, rules=AdaptiveBets(min_epsilon=2.0), claim=claim)
    result = judge(bets, design=design, commitment=None)
    assert 2.0 <= result.bound.epsilon_lower <= result.ceiling


def test_a_result_reads_back_as_itself():
    result = audit(claimed=1.0, true=1.0, seed=0)
    assert Result.from_json(result.to_json()) == result
    assert Result.from_json(result.to_json()).bound == result.bound


def test_a_result_with_scores_and_without_an_accuracy_reads_back_too():
    design = Design(
        canaries=40,
        rules=Ranking(guesses=40),
        claim=ApproxDP(epsilon=1.0, delta=0.0),
    )
    right = np.arange(40) < 30
    scores = ScoreSummary.of(np.linspace(-1, 1, 40), np.arange(40) % 2)
    result = judge(
        Ranked(canaries=40, right=right), design=design, commitment=None, scores=scores
    )
    assert result.scores == scores
    assert result.detectable_accuracy is None
    again = Result.from_json(result.to_json())
    assert again == result
    assert hash(again) == hash(result)
    assert again.scores == scores
    assert again.detectable_accuracy is None


def test_a_claim_that_no_outcome_could_refute_is_said_to_be_out_of_reach():
    result = audit(claimed=5.0, true=1.0, seed=0)
    said = " ".join(result.details().split())
    assert "3.492: if every guess were correct; not enough to refute" in said


def test_a_refuted_claim_needs_no_word_on_what_would_have_been_caught():
    assert "would refute" not in str(audit(claimed=1.0, true=3.0, seed=0))


@pytest.mark.parametrize(
    ("rules", "method"),
    [
        (OneRun(guesses=5), "exact"),
        (Ranking(guesses=5), "ranked"),
        (WeightClasses(weights=(1.0,), guesses=(5,)), "weighted"),
        (AdaptiveCount(guesses=5), "adaptive"),
        (AdaptiveClasses(weights=(1.0,), guesses=(5,)), "slots"),
        (AdaptiveRounds(round_weights=(1.0,)), "rounds"),
        (AdaptiveBets(), "betting"),
    ],
)
def test_every_rule_is_judged_by_the_bound_that_is_proved_for_it(rules, method):
    """Another bound would pay too little for delta once coins are revealed."""
    claim = ApproxDP(epsilon=1.0, delta=1e-6)
    design = Design(canaries=10, rules=rules, claim=claim)
    referee = Referee(design, Key(bytes(32)))
    result = conclude(referee.close(), commitment=referee.commitment)
    assert result.bound.method == method


def test_rounds_are_judged_by_what_was_fixed_beforehand():
    """Another jump would price delta otherwise; another order, more cheaply."""
    rules = AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=0.5, randomness_share=0.1)
    design = Design(canaries=100, rules=rules, claim=ApproxDP(epsilon=1.0, delta=1e-5))
    referee = Referee(design, Key(bytes(range(32))))
    referee.submit(np.arange(0, 100, 2), np.ones(50, int), np.full(50, 2.0))
    transcript = referee.close()
    reading = transcript.reading()
    assert judge(reading, design=design, commitment=None).bound.epsilon_lower == 0.0
    for other in (
        {"max_jump": 0.1},
        {"max_jump": None},
        {"randomness_share": 0.0},
        {"round_weights": (1, 0)},
    ):
        with pytest.raises(InvalidRunError, match="not those that were fixed"):
            judge(replace(reading, **other), design=design, commitment=None)
    text = transcript.to_json().replace('"index":[0,2,', '"index":[0,3,')
    with pytest.raises(InvalidInputError, match="canary i is played in round i"):
        Transcript.from_json(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epsilon_lower":', '"epsilon_lower":Infinity,"_":'),
        ('"epsilon_lower":', '"epsilon_lower":-1,"_":'),
        ('"p_value":', '"p_value":NaN,"_":'),
        ('"p_value":', '"p_value":2,"_":'),
        ('"scores":null', '"scores":0'),
        ('"ceiling":', '"ceiling":Infinity,"_":'),
    ],
)
def test_numbers_that_no_audit_gives_are_refused(old, new):
    text = audit(claimed=1.0, true=1.0, seed=0).to_json()
    assert old in text
    with pytest.raises(InvalidInputError):
        Result.from_json(text.replace(old, new))


@pytest.mark.parametrize("committed", [True, False])
def test_unequal_coins_are_refused_since_no_rules_fix_their_guesses(committed):
    reading = BiasedCoinCounts(
        canaries=100,
        inclusion=0.3,
        guesses_in=50,
        guesses_out=50,
        correct=90,
        committed=committed,
    )
    claim = ApproxDP(epsilon=1.0, delta=0.0)
    design = Design(canaries=100, rules=OneRun(guesses=100), claim=claim)
    for bound in (None, BiasedCoinsBound()):
        with pytest.raises(InvalidRunError, match=r"without any rules: its epsilon_lo"):
            judge(reading, design=design, commitment=None, bound=bound)


AT_ONCE = Counts(canaries=100, guesses=40, correct=30)
CLASSES = Weighted(
    canaries=100, weights=(2.0, 1.0), guesses=(20, 20), correct=(9, 9), committed=True
)
SLOTS = {"weights": (2.0, 1.0), "guesses": (20, 20)}


@pytest.mark.parametrize(
    ("rules", "reading", "said"),
    [
        (OneRun(guesses=40), replace(AT_ONCE, adaptive=True), "while coins were"),
        (AdaptiveCount(guesses=40), AT_ONCE, "of guesses made all at once"),
        (WeightClasses(**SLOTS), replace(CLASSES, adaptive=True), "while coins were"),
        (AdaptiveClasses(**SLOTS), CLASSES, "of guesses made all at once"),
        (OneRun(guesses=40), CLASSES, "read as Counts, and the result holds Weighted"),
        (
            WeightClasses(**SLOTS),
            AT_ONCE,
            "read as Weighted, and the result holds Counts",
        ),
        (AdaptiveBets(), AT_ONCE, "read as Bets, and the result holds Counts"),
        (
            WeightClasses(**SLOTS),
            replace(CLASSES, weights=(3.0, 1.0)),
            "classes are not those of the rules",
        ),
        (
            WeightClasses(**SLOTS),
            replace(CLASSES, committed=False),
            "classes are not those of the rules",
        ),
    ],
)
def test_a_reading_of_another_game_than_the_rules_is_refused(rules, reading, said):
    claim = ApproxDP(epsilon=1.0, delta=0.0)
    design = Design(canaries=100, rules=rules, claim=claim)
    with pytest.raises(InvalidRunError, match=said):
        judge(reading, design=design, commitment=None)


def some_made(rules, made, right, canaries=100):
    """Return the result of a game in which some guesses are made, the first right."""
    key = Key(bytes(32))
    claim = ApproxDP(epsilon=1.0, delta=0.0)
    design = Design(canaries=canaries, rules=rules, claim=claim)
    coins = 2 * Coins(key=key, count=canaries).bits().astype(np.int8) - 1
    guess = np.where(np.arange(canaries) < right, coins, -coins)
    guess[made:] = 0
    referee = Referee(design, key)
    referee.submit(np.arange(canaries), guess)
    return conclude(referee.close(), commitment=referee.commitment)


@pytest.mark.parametrize("rules", [AdaptiveCount, OneRun])
def test_guesses_that_were_not_made_are_named_and_test_nothing_if_too_many(rules):
    """21 of 100 right are p = 1 at any epsilon, however the 21 fell."""
    result = some_made(rules(guesses=100), made=21, right=21)
    assert result.verdict is Verdict.INCONCLUSIVE
    said = " ".join(str(result).split())
    assert "79 of the 100 guesses" in said
    assert "commit to fewer before the run" in said


def test_a_ranking_of_fewer_is_judged_by_its_best_as_ever():
    """21 of 21 right refute epsilon = 1 by themselves: p = 0.0014."""
    result = some_made(Ranking(guesses=100), made=21, right=21)
    assert result.verdict is Verdict.CLAIM_REFUTED
    assert not result.sanity_checks


@pytest.mark.parametrize(
    ("made", "right", "said"),
    [
        (100, 60, False),  # all were made
        (90, 60, True),  # 90 of 100 right refute epsilon = 1: a test, and lost
        (90, 90, True),
    ],
)
def test_a_few_guesses_not_made_are_named_and_the_word_stays(made, right, said):
    result = some_made(AdaptiveCount(guesses=100), made=made, right=right)
    refutes = stats.binom.sf(right - 1, 100, special.expit(1.0)) <= 0.05
    assert result.verdict is (
        Verdict.CLAIM_REFUTED if refutes else Verdict.NO_VIOLATION_DETECTED
    )
    assert ("10 of the 100 guesses" in result.details()) == said


def test_all_made_guesses_right_refute_from_the_number_on_that_a_binomial_says():
    tail = stats.binom.sf(np.arange(101) - 1, 100, special.expit(1.0))
    least = int(np.argmax(tail <= 0.05))
    short = some_made(AdaptiveCount(guesses=100), made=least - 1, right=0)
    enough = some_made(AdaptiveCount(guesses=100), made=least, right=0)
    assert short.verdict is Verdict.INCONCLUSIVE
    assert enough.verdict is Verdict.NO_VIOLATION_DETECTED
