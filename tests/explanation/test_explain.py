"""The explanation of an audit: levels against closed forms, sentences against facts."""

import re
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, logit

from dpaudit import (
    AdaptiveBets,
    ApproxDP,
    Coins,
    Design,
    GaussianDP,
    Key,
    OneRun,
    PureDP,
    Ranking,
    SeparateRuns,
    ThreatModel,
    WeightClasses,
)
from dpaudit.bounds import Bets, Counts, ExactBound, Ranked, Weighted, judge_claim
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.dpsgd.planning.forecasts import noise_fault
from dpaudit.dpsgd.planning.plan import rehearse
from dpaudit.errors import InvalidInputError
from dpaudit.explanation import explain, verdict
from dpaudit.explanation.accuracy import accuracy_of
from dpaudit.explanation.advice import unmodelled_advice
from dpaudit.explanation.ladder import law_of, modelled
from dpaudit.explanation.model import Model
from dpaudit.game.configuration import Participation, RunConfiguration, StepSegment
from dpaudit.game.coverage import Coverage
from dpaudit.game.findings import Stage, fault, inspected, not_checked
from dpaudit.game.result import TrainingRecord, judge
from dpaudit.game.scores import audit_scores
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import SignalRecovery, Verdict
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.testing import fixed_key
from dpaudit.theory.gaps import gaps

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
FULL = TrainingSetup(steps=1, rate=1.0, noise=2.15)


def counted(correct, *, canaries=200, guesses=100, claim=CLAIM):
    design = Design(canaries=canaries, rules=OneRun(guesses=guesses), claim=claim)
    counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
    return judge(counts, design=design, commitment=None)


def setting(**change):
    said = {"steps": 1, "rate": 1.0, "noise": 2.15, "per_coordinate": 1, **change}
    return Setting(**said)


def trained(*, per_coordinate=1, guesses=100, louder=1.0, seed=1, coordinates=1000):
    design = Design(
        canaries=coordinates * per_coordinate,
        rules=OneRun(guesses=guesses),
        claim=CLAIM,
        threat_model=ThreatModel.ALL_ITERATES,
        setting=setting(per_coordinate=per_coordinate),
    )
    return rehearse(
        design,
        FULL.with_noise_divided_by(louder),
        per_coordinate=per_coordinate,
        rng=np.random.default_rng(seed),
        key=fixed_key(bytes([seed] * 32)),
    )


def ladder(result):
    """The levels of a result, without the advice, which takes seconds."""
    model, at = Model.of(result), result.bound.epsilon_lower
    seen = accuracy_of(result, at)
    found = modelled(result, CLAIM, model, law_of(model), seen, at)
    assert found.remainder == result.bound.epsilon_lower - seen.typical
    return found


@pytest.fixture(scope="module")
def one():
    return ladder(trained())


@pytest.fixture(scope="module")
def two():
    return explain(trained(per_coordinate=2, guesses=200))


def gap_level(gaps, name):
    return next(each for each in gaps.levels if each.name == name)


def level(explained, name):
    return next(step for step in explained.steps if step.name == name)


@pytest.mark.parametrize("correct", [50, 63, 80, 100])
def test_the_typical_bound_of_counts_is_the_mean_over_their_binomial_law(correct):
    result = counted(correct)
    law = stats.binom(100, correct / 100).pmf(np.arange(101))
    bounds = [
        ExactBound()
        .epsilon_lower(
            Counts(canaries=200, guesses=100, correct=v), delta=1e-5, alpha=0.05
        )
        .epsilon_lower
        for v in range(101)
    ]
    seen = accuracy_of(result, 0.0)
    assert seen.typical == pytest.approx(law @ bounds, abs=0.01)
    limits = stats.binomtest(correct, 100).proportion_ci(0.95, method="exact")
    assert (seen.accuracy.low, seen.accuracy.high) == pytest.approx(tuple(limits))


def test_without_a_model_three_steps_lead_from_the_claim_to_the_bound():
    explained = explain(counted(80))
    assert [step.name for step in explained.steps] == [
        "confidence",
        "exposure",
        "statistics",
    ]
    assert level(explained, "exposure").leaves == pytest.approx(logit(0.8))
    whole = explained.claimed - sum(step.takes for step in explained.steps)
    assert whole + explained.remainder == pytest.approx(explained.found)
    assert "only the guesses are known" in str(explained)


def test_confidence_is_the_guarantee_at_delta_over_alpha(one):
    expected = GaussianDP(mu=1 / 2.15).epsilon_at(1e-5 / 0.05)
    assert gap_level(one, "confidence").epsilon == pytest.approx(expected)
    assert one.drops["interference"] == 0


def losses(draws, seed):
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, draws)
    seen = coins + 2.15 * rng.normal(size=draws)
    return np.abs(2 * seen - 1) / (2 * 2.15**2)


def test_outputs_and_elements_are_the_means_of_the_surest(one):
    chances = np.sort(expit(losses((2000, 1000), 5)), axis=1)
    # 2,000 drawn runs against 100,000 drawn coordinates: four standard errors.
    surest, best = chances[:, -1], chances[:, -100:].mean(axis=1)
    for name, drawn in (("outputs", surest), ("elements", best)):
        low, high = logit(drawn.mean() + np.array([-4, 4]) * drawn.std() / 2000**0.5)
        assert low - 0.02 < gap_level(one, name).epsilon < high + 0.02


@pytest.mark.nightly
def test_a_hidden_canary_has_the_level_of_two_mixtures(two):
    """Of two canaries at a coordinate, one unknown: mixtures of two normals."""

    def delta(epsilon):
        def density(x, means):
            return np.mean([stats.norm.pdf(x, m, 2.15) for m in means])

        def over(x):
            return max(0.0, density(x, (1, 2)) - exp(epsilon) * density(x, (0, 1)))

        return quad(over, -5, 30, limit=200)[0]

    exact = brentq(lambda e: delta(e) - 2e-4, 0.1, 3)
    step = level(two, "interference")
    assert step.leaves == pytest.approx(exact, abs=0.05)
    assert step.leaves < level(two, "confidence").leaves


def test_levels_and_remainder_add_up_and_advice_has_numbers(two):
    left = two.claimed - sum(step.takes for step in two.steps)
    assert left + two.remainder == pytest.approx(two.found)
    assert abs(two.remainder) < 0.05 * (two.claimed - two.found)
    more = level(two, "statistics").advice
    assert more.expected > two.found - 0.3
    assert f"expect a bound of {more.expected:.2f}" in str(two)
    assert "reveal coins" in level(two, "interference").advice.text


def test_a_fault_is_named_where_guesses_are_too_good():
    explained = explain(trained(louder=16.0))
    assert explained.outcome is Verdict.CLAIM_REFUTED
    assert level(explained, "guessing").takes < -1
    assert "search for a fault" in level(explained, "guessing").advice.text
    assert explained.power == ""
    assert "gainst an adversary who sees" in explained.verdict


def test_an_audit_that_could_not_refute_says_so():
    weak = explain(counted(10, canaries=10, guesses=10, claim=PureDP(epsilon=4.0)))
    assert weak.outcome is Verdict.INCONCLUSIVE
    assert "no power" in weak.power
    strong = explain(counted(50))
    assert strong.outcome is Verdict.NO_VIOLATION_DETECTED
    assert "would refute" in strong.power
    assert "This does not prove the" in strong.verdict


def test_the_strength_of_a_ranking_is_a_leak_that_it_catches():
    n, rng = 2000, np.random.default_rng(1)
    coins = Coins(key=Key(bytes(32)), count=n)
    design = Design(canaries=n, rules=Ranking(guesses=n), claim=PureDP(epsilon=1.0))
    result = audit_scores(np.arange(n), coins, rng.normal(size=n), design=design)
    said = explain(result).power
    epsilon = float(said.split("epsilon = ")[1].split(" ")[0])
    caught = 0
    for _ in range(50):
        right = rng.random(n) < expit(epsilon)
        ranked = Ranked(canaries=n, right=right)
        caught += judge(ranked, design=design, commitment=None).claim_test.refuted
    # At a chance of 0.85 fewer than 35 of 50 come once in a thousand times.
    assert caught >= 35
    assert 1.0 < epsilon < 1.6


def test_a_ranking_and_bets_leave_little_unexplained():
    n, rng = 4000, np.random.default_rng(2)
    coins = Coins(key=Key(bytes(32)), count=n)
    scores = 2 * coins.bits() + rng.normal(size=n)
    design = Design(canaries=n, rules=Ranking(guesses=n), claim=PureDP(epsilon=6.0))
    ranked = explain(audit_scores(np.arange(n), coins, scores, design=design))
    assert abs(ranked.remainder) < 0.05 * (6.0 - ranked.found)
    design = Design(canaries=n, rules=AdaptiveBets(), claim=PureDP(epsilon=6.0))
    odds = np.abs(scores - 1) * 2
    right = rng.random(n) < expit(odds)
    bets = Bets(canaries=n, right=right, stated_probabilities=expit(odds))
    staked = explain(judge(bets, design=design, commitment=None))
    assert abs(staked.remainder) < 0.05 * (6.0 - staked.found)


@pytest.mark.nightly
def test_rounds_are_explained_where_nothing_hides_the_last_canary():
    plan = plan_audit(FULL, claim=CLAIM, coordinates=300, per_coordinate=4)
    result = plan.rehearse(rng=np.random.default_rng(3), key=fixed_key(bytes(32)))
    explained = ladder(result)
    assert explained.drops["interference"] == 0
    assert abs(explained.remainder) < 0.1 * (2.0 - result.bound.epsilon_lower)


@pytest.mark.parametrize(
    "change",
    [
        {"noise": None},
        {"noise": 0.0},
        {"steps": None},
        {"steps": 10**6},
        {"per_coordinate": 3},
        {"per_coordinate": None},
        {"insertion": CanaryInsertion(point=InsertionPoint.GRADIENT, norm=0.5)},
        {"insertion": CanaryInsertion(point=InsertionPoint.GRADIENT, spread=4)},
        {"participation": Participation(every=2)},
    ],
)
def test_what_does_not_describe_a_training_is_no_model(change):
    def model(said, seen=ThreatModel.ALL_ITERATES):
        design = Design(
            canaries=100,
            rules=OneRun(guesses=10),
            claim=CLAIM,
            threat_model=seen,
            setting=said,
        )
        counts = Counts(canaries=100, guesses=10, correct=5)
        return Model.of(judge(counts, design=design, commitment=None))

    assert model(setting()).training == FULL
    assert model(setting(), ThreatModel.FINAL_MODEL) is None
    assert model(setting(**change)) is None


def test_a_given_mechanism_explains_its_own_gaps():
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    result = counted(70, canaries=100, claim=PureDP(epsilon=1.0))
    explained = explain(result, mechanism=mechanism)
    alone = gaps(mechanism, elements=100, guesses=100, claim=PureDP(epsilon=1.0))
    for name in ("interference", "outputs", "elements"):
        assert level(explained, name).leaves == pytest.approx(
            next(level.epsilon for level in alone.levels if level.name == name)
        )
    design = Design(canaries=9, rules=Ranking(guesses=9), claim=PureDP(epsilon=1.0))
    ranked = Ranked(canaries=9, right=np.ones(9, bool))
    other = judge(ranked, design=design, commitment=None)
    with pytest.raises(InvalidInputError, match="counted"):
        explain(other, mechanism=mechanism)


def test_the_verdict_never_rounds_a_bound_up():
    result = counted(90, claim=PureDP(epsilon=1.0))
    said = float(verdict(result).split("at least ")[1].split(";")[0])
    assert 0 <= result.bound.epsilon_lower - said < 1e-3
    assert said > log(2)


def trained_result(*, claim, accountant, correct=97, evidence_share=1.0):
    """A result of training whose two claims may differ."""
    design = Design(
        canaries=1000,
        rules=OneRun(guesses=100),
        claim=claim,
        threat_model=ThreatModel.ALL_ITERATES,
        setting=setting(),
    )
    counts = Counts(canaries=1000, guesses=100, correct=correct)
    index = np.arange(100)
    truth = np.where(index < correct, 1, -1).astype(np.int8)
    transcript = Transcript(
        design=design,
        index=index,
        guess=np.ones(100, np.int8),
        truth=truth,
        stake=np.ones(100),
        turn=np.zeros(100, np.int64),
        uniforms=np.zeros(0),
    )
    training = TrainingRecord(
        accountant=judge_claim(accountant, counts, alpha=0.05),
        family=None,
        transcript=transcript,
        steps=1,
        evidence_share=evidence_share,
        coverage=Coverage.of(()),
        configuration=RunConfiguration(
            schedule=(StepSegment(steps=1, noise=2.15, clip=None, rate=1.0),),
            coordinates=1000,
        ),
    )
    return replace(judge(counts, design=design, commitment=None), training=training)


def test_a_claim_that_the_design_names_is_not_passed_over():
    weaker = trained_result(
        claim=ApproxDP(epsilon=1.0, delta=1e-5), accountant=GaussianDP(mu=3.0)
    )
    assert not weaker.refuted
    said = verdict(weaker)
    assert said.startswith("Inconclusive: the audit had no power")
    assert (
        "The registered claim by itself, epsilon = 1 at delta = 1e-05, is refuted"
        in said
    )


def test_the_strength_is_of_the_claim_that_was_tested():
    """97 of 100 right did not refute it, so no smaller share can be said to."""
    result = trained_result(
        claim=ApproxDP(epsilon=1.0, delta=1e-5),
        accountant=GaussianDP(mu=3.0),
        evidence_share=0.5,
    )
    said = explain(result).power
    share = re.search(r"correct ([\d.]+) %", said)
    assert share is None or float(share[1]) > 97
    assert "were worse than" in said


def test_what_a_model_forecasts_is_not_promised_where_guesses_fell_short():
    explained = explain(trained(louder=0.05))  # twenty times the noise
    assert explained.outcome is not Verdict.CLAIM_REFUTED
    assert "x too small" not in explained.power
    assert "were worse than" in explained.power
    advised = [s.advice for s in explained.steps if s.advice is not None]
    assert all(advice.expected is None for advice in advised)


def test_only_an_accuracy_beyond_the_claim_is_called_more_than_it_allows():
    """The claim allows 73 %, and 70 % were right; the level before is lower."""
    claim = ApproxDP(epsilon=1.0, delta=1e-2)
    within = explain(counted(700, canaries=1000, guesses=1000, claim=claim))
    assert level(within, "exposure").takes < 0
    assert "than the claim allows" not in level(within, "exposure").sentence
    beyond = explain(counted(900, canaries=1000, guesses=1000, claim=claim))
    assert "more often than the claim allows" in level(beyond, "exposure").sentence


def test_the_interval_of_a_ranking_pays_for_the_number_that_looked_best():
    n, rng = 200, np.random.default_rng(7)
    design = Design(canaries=n, rules=Ranking(guesses=n), claim=PureDP(epsilon=1.0))
    rankings = rng.random((100, n)) < expit(1.0)
    # Without paying, the best number of them all puts the limit too high in these.
    hits, made = np.cumsum(rankings, axis=1), np.arange(1, n + 1)
    unpaid = np.nan_to_num(stats.beta.ppf(0.025, hits, made - hits + 1)).max(axis=1)
    lucky = rankings[unpaid > expit(1.0)]
    above = 0
    for right in lucky:
        result = judge(Ranked(canaries=n, right=right), design=design, commitment=None)
        above += accuracy_of(result, 0.0).accuracy.low > expit(1.0)
    # At 2.5 % more than 8 of 100 come less than once in a thousand times.
    assert above <= 8 < len(lucky)


def test_a_classic_audit_is_explained_by_its_own_bound():
    claim = GaussianDP(mu=1.0)
    rules = SeparateRuns(guesses=400)
    design = Design(canaries=400, rules=rules, claim=claim, delta=0.01)
    counts = Counts(canaries=400, guesses=400, correct=276)
    result = judge(counts, design=design, commitment=None)
    explained = explain(result)
    assert level(explained, "confidence").leaves > explained.found
    assert abs(explained.remainder) < 0.02
    assert level(explained, "statistics").advice.expected > explained.found
    assert level(explained, "confidence").advice is None or (
        "two independent runs" not in level(explained, "confidence").advice.text
    )


def test_guesses_that_may_be_chance_promise_nothing():
    unsure = explain(counted(14, canaries=20, guesses=20))
    assert level(unsure, "statistics").advice.expected is None
    claim = PureDP(epsilon=8.0)
    sure = explain(counted(100, canaries=100, guesses=100, claim=claim))
    more = level(sure, "exposure").advice
    assert more.spread > 0  # that all were right is not known to last


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_no_way_goes_to_infinity_and_back(epsilon):
    """All guesses were right: as an epsilon that is infinite, and then it is not."""
    claim = PureDP(epsilon=epsilon)
    result = counted(100, canaries=100, guesses=100, claim=claim)
    explained = explain(result)
    levels = [step.leaves for step in explained.steps]
    assert np.isfinite(levels).all()
    takes = sum(step.takes for step in explained.steps)
    found = result.bound.epsilon_lower
    assert epsilon - takes + explained.remainder == pytest.approx(found)
    assert "infinity" not in str(explained)
    assert "every guess was correct" in explained.steps[-1].sentence


def test_what_more_canaries_show_is_foretold_on_average():
    """Runs are quantiles of the law of right guesses, where three in four are right."""
    promised, followed = [], []
    for q in (np.arange(6) + 0.5) / 6:
        result = counted(int(stats.binom.ppf(q, 300, 0.75)), canaries=300, guesses=300)
        advice = unmodelled_advice(result, CLAIM, accuracy_of(result, 0.0))
        promised.append(advice["statistics"].expected)
        more = int(stats.binom.ppf(q, 1200, 0.75))
        followed.append(counted(more, canaries=1200, guesses=1200).bound.epsilon_lower)
    assert np.mean(promised) == pytest.approx(np.mean(followed), rel=0.03)


def test_classes_that_could_not_refute_say_so():
    design = Design(
        canaries=6,
        rules=WeightClasses(weights=(2.0, 1.0), guesses=(3, 3)),
        claim=PureDP(epsilon=10.0),
    )
    weighted = Weighted(
        canaries=6, weights=(2.0, 1.0), guesses=(3, 3), correct=(3, 3), committed=True
    )
    explained = explain(judge(weighted, design=design, commitment=None))
    assert explained.outcome is Verdict.INCONCLUSIVE


def test_any_number_of_guesses_has_a_strength():
    """Of canaries that come by eights, 23 can be guessed about as well as 24."""
    claim = PureDP(epsilon=1.0)
    faults = [
        noise_fault(FULL, OneRun(guesses=r), 8, 2000, claim, 0.05) for r in (23, 24)
    ]
    assert None not in faults
    assert 1 <= faults[0] / faults[1] < 1.3


# What to do next, and what is behind a refutation

LOOSE, TIGHT = GaussianDP(mu=3.0), GaussianDP(mu=0.5)
REPEATED = fault(
    Stage.NOISE_INDEPENDENCE,
    "noise.steps_repeated",
    later=2,
    earlier=1,
    reversed=False,
    cosine=1.0,
    places=100,
    repeated=9,
    steps=10,
    cause="every_step",
)
SMALL = fault(
    Stage.NOISE_SCALE,
    "noise.scale",
    ("fc.weight",),
    least=0.005,
    most=0.005,
    everywhere=True,
    multiplier=1.0,
    ratio=0.005,
    error=0.00001,
    cause="everywhere",
)


def with_coverage(unseen=(), faults=(), *, accountant=LOOSE, signal=None):
    """A training all of whose stages were inspected, but for some with what would."""
    claim = ApproxDP(epsilon=20.0, delta=1e-5)
    result = trained_result(claim=claim, accountant=accountant, correct=90)
    unseen = dict(unseen)
    checks = [
        not_checked(stage, "custom", text=unseen[stage])
        if stage in unseen
        else inspected(stage, "custom", text="seen")
        for stage in Stage
    ]
    coverage = Coverage.of(checks, faults)
    training = replace(result.training, coverage=coverage, signal=signal)
    return replace(result, training=training)


def test_a_road_not_looked_at_is_advised_before_a_larger_epsilon():
    """The worse its faults the earlier; one line of code is one piece of advice."""
    unseen = {
        Stage.SAMPLING: "watch the loader",
        Stage.CLIPPING: "audit.probe(step)",
        Stage.GRADIENTS: "audit.probe(step)",
        Stage.SIDE_PATHS: "model=model",
    }
    first, second, third, *rest = explain(with_coverage(unseen)).advice
    assert first.text == "check paths around the noise: model=model"
    assert "a second optimizer" in first.detects
    assert second.text.endswith("gradients and clipping: audit.probe(step)")
    assert "mixup" in second.detects
    assert "not clipped" in second.detects
    assert third.text == "check batch sampling: watch the loader"
    assert len(rest) == 1
    assert rest[0].expected is not None
    assert "of noise" in rest[0].detects


def test_every_road_names_faults_that_it_would_catch():
    unseen = {road: f"by {road}" for road in Stage}
    advice = explain(with_coverage(unseen)).advice[: len(Stage)]
    assert len({each.detects for each in advice}) == len(Stage)
    assert all(each.expected is None for each in advice)


@pytest.mark.parametrize("accountant", [LOOSE, TIGHT])
def test_what_was_found_is_mended_before_anything_else(accountant):
    result = with_coverage(
        {Stage.AGGREGATION: "records"}, [SMALL], accountant=accountant
    )
    explained = explain(result)
    assert [each.text[:4] for each in explained.advice] == ["fix ", "chec"]
    assert all(step.advice is None for step in explained.steps)


def test_no_noise_and_a_seed_in_every_step_read_differently():
    small, repeated = (
        explain(with_coverage((), [fault], accountant=TIGHT))
        for fault in (SMALL, REPEATED)
    )
    assert small.screen.sentences == repeated.screen.sentences
    assert small.screen.claim.startswith("Claimed ε ≤ 1.993")
    (scale,), (again,) = small.screen.faults, repeated.screen.faults
    assert "0.00500 ± 0.00001 of configured; expected: 1" in scale
    assert scale.endswith("Likely cause: a bug that scales all noise.")
    assert "correlation 1.000 of 100 coordinates" in again
    assert again.endswith("Likely cause: the generator is seeded in every step.")


@pytest.mark.parametrize(
    ("unseen", "slope", "cause"),
    [
        ((), 10.0, "records are not clipped, or are scaled after clipping; canary"),
        ((), 1.0, "missing from the accountant."),
        (
            {Stage.CLIPPING: "probe"},
            1.0,
            "or a fault at a stage that was not checked.",
        ),
        ({Stage.NOISE_INDEPENDENCE: "noise="}, 1.0, "cause: noise that is too small"),
    ],
)
def test_a_refutation_without_a_fault_names_what_is_likeliest(unseen, slope, cause):
    signal = SignalRecovery(slope=slope, error=0.01, steps=10, by_program=True)
    result = with_coverage(unseen, accountant=TIGHT, signal=signal)
    assert result.refuted
    said = " ".join(str(result).split())
    assert "Likely cause: " in said
    assert cause in said


def test_a_training_has_one_list_of_what_was_not_looked_at():
    result = replace(with_coverage({Stage.CLIPPING: "x"}), not_exercised=("clipping",))
    explained = explain(result)
    assert explained.not_exercised == ()
    assert "Not exercised" not in str(explained)
    assert "- clipping, not checked: x" in str(explained)


def test_the_last_line_of_a_training_is_the_limit(two):
    """Of the full batch nothing is simulated; no audit shows more than confidence."""
    assert two.limit.is_exact
    assert two.found < two.limit.value < level(two, "confidence").leaves
    said = f"is at most epsilon = {two.limit}."
    assert said in " ".join(str(two).split())
