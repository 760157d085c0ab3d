"""What a run would detect: from its configuration, with every input or not at all."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from dpaudit import AdaptiveRounds, ApproxDP, OneRun, Ranking
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import TrainingSetup
from dpaudit.dpsgd.planning.as_run import configured, detectable, training_of
from dpaudit.dpsgd.strategy import Independent, Matrix, Toeplitz
from dpaudit.errors import InvalidInputError
from dpaudit.game.configuration import (
    DetectableFault,
    RunConfiguration,
    StepSegment,
    StrategyColumns,
    merged_segments,
)
from dpaudit.game.findings import noted
from dpaudit.game.text.findings import sentence

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
RULES = OneRun(guesses=40)


def steps(number, noise=2.0, rate=0.2):
    return StepSegment(steps=number, noise=noise, clip=1.0, rate=rate)


def run(*schedule, coordinates=300, **more):
    return configured(schedule, coordinates=coordinates, per_coordinate=1, **more)


def factor(configuration, rules=RULES, claim=CLAIM):
    found = detectable(configuration, rules=rules, claim=claim, alpha=0.05)
    assert not found.why_not
    return found.factor


def test_each_input_decides_what_is_detected():
    usual = factor(run(steps(20)))
    assert factor(run(steps(10))) > 1.05 * usual
    assert factor(run(steps(20, noise=3.0))) > 1.2 * usual
    assert factor(run(steps(20, rate=0.1))) > 1.1 * usual
    assert factor(run(steps(20), coordinates=100)) > 1.05 * usual
    assert (
        factor(run(steps(20), participation=Participation(every=2, cohorts=2)))
        > 1.05 * usual
    )
    assert factor(run(steps(20)), claim=replace(CLAIM, epsilon=1.0)) < 0.9 * usual


def test_steps_of_other_noise_are_each_counted_with_their_own():
    """Half of the steps at twice the noise lie between all at one and all at two."""
    one, both = factor(run(steps(20))), run(steps(10), steps(10, noise=4.0))
    assert factor(run(steps(10))) > factor(both) > one
    assert factor(run(steps(10), steps(10))) == one


def test_without_sampling_steps_come_to_the_sum_of_their_precisions():
    (only,) = training_of(run(steps(4, 1.0, 1.0), steps(9, 3.0, 1.0)))
    assert only == TrainingSetup(steps=1, noise=1 / sqrt(5))


def test_many_multipliers_are_rounded_up_to_a_few():
    schedule = [steps(1, noise=0.5 + 0.03 * i) for i in range(200)]
    parts = training_of(run(*schedule))
    assert len(parts) <= 13
    assert sum(each.steps for each in parts) == 200
    rounded = sorted(n for each in parts for n in [each.noise] * each.steps)
    told = sorted(each.noise for each in schedule)
    assert all(r >= t for r, t in zip(rounded, told, strict=True))
    assert all(r < 1.25 * t for r, t in zip(rounded, told, strict=True))


def test_cohorts_that_the_end_cuts_short_stand_for_all():
    participation = Participation(every=10, cohorts=10)
    (only,) = training_of(run(steps(25), participation=participation))
    assert only.steps == 2  # the first five have three turns
    short = training_of(run(steps(5), participation=participation))
    assert short.code == "forecast.never_participated"


@pytest.mark.parametrize(
    "strategy",
    [
        Toeplitz(coefficients=(1.0, 0.5, 0.25), steps=12),
        Toeplitz(coefficients=(1.0, 0.5, 0.25), steps=12, normalized=True),
        Matrix(rows=np.tril(np.arange(144.0).reshape(12, 12) / 100 + 0.1)),
        Independent(),
    ],
)
def test_a_strategy_is_recorded_with_all_its_columns(strategy):
    """And is the same to canaries, read from the record."""
    participation = Participation(every=3, cohorts=3)
    recorded = run(steps(12, 8.0, 1.0), participation=participation, strategy=strategy)
    (only,) = training_of(recorded)
    whole = TrainingSetup(
        steps=12, noise=8.0, participation=participation, strategy=strategy
    )
    np.testing.assert_allclose(only.signals(), whole.signals(), rtol=1e-12)
    assert sum(each.steps for each in recorded.strategy) == 12


def test_sampled_turns_of_correlated_noise_count_by_their_columns():
    strategy = Toeplitz(coefficients=(1.0, 0.75), steps=20)
    participation = Participation(every=2, cohorts=2)
    (only,) = training_of(
        run(steps(20), participation=participation, strategy=strategy)
    )
    lengths = [1.5625] * 9 + [1.0]  # squared; the last column is cut off
    assert (only.steps, only.rate) == (10, 0.2)
    assert only.noise == pytest.approx(2.0 / sqrt(np.mean(lengths)))


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        (run(steps(20, noise=None)), "noise multiplier that was configured was not"),
        (run(steps(19), steps(1, noise=None)), "noise multiplier"),
        (run(steps(20, rate=None)), "not sampled independently"),
        (run(steps(20, noise=0.0)), "without noise"),
        (
            run(steps(20), unmodelled=noted("custom", text="canaries are odd")),
            "canaries are odd",
        ),
        (run(), "no step"),
        (run(steps(30_000)), "take long"),
        (
            run(steps(5), strategy=Toeplitz(coefficients=(1.0, 0.5), steps=9)),
            "for 9 steps, and 5 were made",
        ),
        (
            run(
                steps(5),
                steps(5, noise=3.0),
                participation=Participation(every=5, cohorts=5),
            ),
            "changed between steps",
        ),
    ],
)
def test_an_input_that_is_not_known_is_named(unknown, words):
    found = detectable(unknown, rules=RULES, claim=CLAIM, alpha=0.05)
    assert found.factor is None
    assert words in sentence(found.why_not)


def test_rules_without_a_forecast_are_named():
    rules = Ranking(guesses=40)
    found = detectable(run(steps(20)), rules=rules, claim=CLAIM, alpha=0.05)
    assert found.why_not.numbers == {"rules": "Ranking"}


def test_rounds_have_a_forecast_wherever_the_search_begins():
    rules = AdaptiveRounds(round_weights=(0.6, 1.0), min_epsilon=0.3, max_jump=0.5)
    found = detectable(
        configured((steps(20),), coordinates=300, per_coordinate=2),
        rules=rules,
        claim=CLAIM,
        alpha=0.05,
    )
    assert 2 < found.factor < 8


def test_a_claim_that_no_guesses_refute_has_no_fault_that_is_detected():
    hopeless = ApproxDP(epsilon=9.0, delta=1e-5)
    found = detectable(run(steps(20)), rules=RULES, claim=hopeless, alpha=0.05)
    assert found == DetectableFault(factor=None)


def test_a_schedule_is_short_where_nothing_changes():
    clip = replace(steps(1), clip=0.5)
    found = merged_segments([steps(1), steps(1), clip, clip, steps(3)])
    assert [each.steps for each in found] == [2, 2, 3]


def test_a_strategy_of_other_steps_is_refused():
    columns = (StrategyColumns(steps=3, entries=(1.0,)),)
    with pytest.raises(InvalidInputError, match="as many columns"):
        RunConfiguration(schedule=(steps(2),), coordinates=1, strategy=columns)
