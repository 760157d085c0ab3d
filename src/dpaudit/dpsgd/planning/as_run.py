"""Forecasts which fault the audit of a finished run would have detected.

A plan forecasts the detectable fault for the planned training. A run may differ: it
stops early, samples at another rate, adds other noise, or another claim is judged. So
the forecast is recomputed from the run's configuration, in the same way as for plans
(``forecasts.noise_fault``): the guesser measures the noise, and the judged claim is
tested by the design's rules. The fault is the same in every step: noise ``k`` times
smaller than configured.

If the noise multiplier changes from step to step, the log-likelihoods of a coordinate's
coins are added up, each step with its own noise. Many different multipliers are reduced
to a few, each rounded up: more noise is a post-processing of less noise, so the real
run detects at least as much. The clipping norm cancels, as canaries have that norm.

If records are sampled within cohorts that alternate, cohorts that are cut short by the
end of training participate less often: the cohort with the fewest steps stands for all.

If an input is unknown, or no valid forecast is known, the reason is returned instead.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from math import inf, sqrt
from typing import Final

import numpy as np

from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning.forecasts import MOST_IN_ROUNDS, Effort, noise_fault
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.dpsgd.strategy import Matrix, Strategy, Toeplitz, length
from dpaudit.game.configuration import (
    DetectableFault,
    RunConfiguration,
    StepSegment,
    StrategyColumns,
)
from dpaudit.game.findings import Finding, noted
from dpaudit.game.rules import AdaptiveRounds, OneRun, Rules
from dpaudit.privacy.guarantees import Guarantee

__all__ = ["LONGEST", "MOST_SHARING", "configured", "detectable", "training_of"]

_MOST_ENTRIES: Final = 20_000  # of a strategy that is recorded
_MOST_DENSE: Final = 1 << 12  # steps of a strategy whose columns differ
_MOST_BANDS: Final = 2_000_000  # bands times steps of a strategy that is simulated
_MOST_PARTS: Final = 12  # distinct noise multipliers
LONGEST: Final = 20_000  # steps; simulating more would take long
MOST_SHARING: Final = 100  # canaries at a coordinate, likewise
_TIMES: Final = 50  # simulated coordinates for each of the audit
_FEWER: Final = 20  # the same with unknown participation, which takes longer
_MOST_DRAWS: Final = 2_000_000  # coordinates times steps, with unknown participation


def configured(
    schedule: tuple[StepSegment, ...],
    *,
    coordinates: int,
    per_coordinate: int,
    participation: Participation | None = None,
    strategy: Strategy | None = None,
    unmodelled: Finding | None = None,
) -> RunConfiguration:
    """Return the configuration of a run, with participation and strategy.

    Example:
        >>> step = StepSegment(steps=4, noise=1.0, clip=None, rate=1.0)
        >>> run = configured(
        ...     (step,),
        ...     coordinates=8,
        ...     per_coordinate=1,
        ...     strategy=Toeplitz(coefficients=(1.0, 0.5), steps=4),
        ... )
        >>> run.strategy
        (StrategyColumns(steps=4, entries=(1.0, 0.5)),)
    """
    steps = sum(each.steps for each in schedule)
    columns: tuple[StrategyColumns, ...] = ()
    if strategy is not None:
        if strategy.steps not in (None, steps):
            made, meant = steps, strategy.steps
            unmodelled = unmodelled or noted(
                "forecast.strategy_steps", strategy_steps=meant, steps=made
            )
        elif (found := _columns(strategy, steps)) is None:
            unmodelled = unmodelled or noted("forecast.strategy_not_recorded")
        else:
            columns = found
    return RunConfiguration(
        schedule=schedule,
        coordinates=coordinates,
        per_coordinate=per_coordinate,
        participation=participation or Participation(),
        strategy=columns,
        unmodelled=unmodelled,
    )


def _columns(strategy: Strategy, steps: int) -> tuple[StrategyColumns, ...] | None:
    """Return a strategy's columns, equal ones merged; None if it is too large."""
    columns: list[StrategyColumns] = []
    size = 0
    for step in range(steps):
        entries = tuple(strategy.column(step)[: steps - step].tolist())
        last = columns[-1] if columns else None
        if last and entries == last.entries[: steps - step]:
            columns[-1] = replace(last, steps=last.steps + 1)
            continue
        size += len(entries)
        if size > _MOST_ENTRIES:
            return None
        columns.append(StrategyColumns(steps=1, entries=entries))
    return tuple(columns)


def _strategy(run: RunConfiguration) -> Strategy | None:
    if not run.strategy:
        return None
    if len(run.strategy) == 1:
        return Toeplitz(coefficients=run.strategy[0].entries, steps=run.steps)
    rows = np.zeros((run.steps, run.steps))
    columns = (each.entries for each in run.strategy for _ in range(each.steps))
    for step, entries in enumerate(columns):
        shown = entries[: run.steps - step]
        rows[step : step + len(shown), step] = shown
    return Matrix(rows=rows)


def training_of(run: RunConfiguration) -> tuple[TrainingSetup, ...] | Finding:
    """Return an equivalent training setup for a run, or why none is known.

    Returns:
        The setup's parts, which differ in noise or rate; each has the same canaries.

    Example:
        >>> run = RunConfiguration(
        ...     schedule=(
        ...         StepSegment(steps=9, noise=1.0, clip=None, rate=0.1),
        ...         StepSegment(steps=9, noise=2.0, clip=None, rate=0.1),
        ...     ),
        ...     coordinates=100,
        ... )
        >>> [(each.steps, each.noise) for each in training_of(run)]
        [(9, 2.0), (9, 1.0)]
        >>> training_of(replace(run, unmodelled=noted("forecast.spread"))).code
        'forecast.spread'
    """
    why = _unknown(run)
    if why is not None:
        return why
    if run.participation == Participation() and not run.strategy:
        return _independent(run.schedule)
    (noise, rate), *others = {(each.noise, each.rate) for each in run.schedule}
    if others:
        return noted("forecast.changed")
    assert noise is not None  # checked by _unknown
    assert rate is not None
    return _in_turns(run.steps, rate, noise, run.participation, _strategy(run))


def _unknown(run: RunConfiguration) -> Finding | None:
    """Return why no forecast is possible; None if all inputs are known."""
    if run.unmodelled is not None:
        return run.unmodelled
    noises = [each.noise for each in run.schedule]
    bands = max((len(each.entries) for each in run.strategy), default=0)
    dense = len(run.strategy) > 1 and run.steps > _MOST_DENSE
    reasons = (
        (not run.schedule, "forecast.no_steps"),
        (None in noises, "forecast.noise_not_stated"),
        (any(each.rate is None for each in run.schedule), "forecast.not_sampled"),
        (0 in noises, "forecast.without_noise"),
        (
            run.steps > LONGEST or run.per_coordinate > MOST_SHARING,
            "forecast.too_long",
        ),
        (dense or bands * run.steps > _MOST_BANDS, "forecast.strategy_too_large"),
    )
    return next((noted(code) for holds, code in reasons if holds), None)


def _independent(schedule: tuple[StepSegment, ...]) -> tuple[TrainingSetup, ...]:
    """Return steps with independent noise, in parts of about equal noise."""
    if len(schedule) == 1:
        (only,) = schedule
        assert only.rate is not None
        return (TrainingSetup(steps=only.steps, rate=only.rate, noise=_noise(only)),)
    # Without sampling the sum over steps, weighted by inverse variance, is sufficient.
    whole = [each for each in schedule if each.rate == 1]
    precision = sum(each.steps / _noise(each) ** 2 for each in whole)
    parts = [TrainingSetup(steps=1, noise=1 / sqrt(precision))] if whole else []
    sampled = sorted(
        (each for each in schedule if each.rate != 1),
        key=lambda each: (each.rate, -_noise(each)),
    )
    for rate, alike in groupby(sampled, key=lambda each: each.rate):
        assert rate is not None
        steps = list(alike)
        ratio = (_noise(steps[0]) / _noise(steps[-1])) ** (1 / _MOST_PARTS)
        least = inf
        for each in steps:  # the most noise first
            if parts and parts[-1].rate == rate and _noise(each) >= least:
                parts[-1] = replace(parts[-1], steps=parts[-1].steps + each.steps)
                continue
            least = _noise(each) / max(ratio, 1.0)
            parts.append(TrainingSetup(steps=each.steps, rate=rate, noise=_noise(each)))
    return tuple(parts)


def _noise(steps: StepSegment) -> float:
    assert steps.noise is not None  # checked by _unknown
    return steps.noise


def _in_turns(
    steps: int,
    rate: float,
    noise: float,
    participation: Participation,
    strategy: Strategy | None,
) -> tuple[TrainingSetup, ...] | Finding:
    whole = TrainingSetup(
        steps=steps,
        rate=rate,
        noise=noise,
        participation=participation,
        strategy=strategy,
    )
    if rate == 1:
        return (whole,)
    if (whole.own_strategy.bands <= participation.every) and participation.most is None:
        last = range(
            participation.first + participation.cohorts - 1, steps, participation.every
        )
        if not last:
            return noted("forecast.never_participated")
        own = whole.own_strategy
        squares = [length(own.column(step)[: steps - step]) ** 2 for step in last]
        typical = sqrt(sum(squares) / len(squares))
        return (TrainingSetup(steps=len(last), rate=rate, noise=noise / typical),)
    return (whole,)


def detectable(
    run: RunConfiguration, *, rules: Rules, claim: Guarantee, alpha: float
) -> DetectableFault:
    """Return the smallest noise fault that a run's audit would have detected.

    Args:
        run: The run's configuration.
        rules: The rules of the audit.
        claim: The judged claim: one point, or a whole curve if guesses are counted.
        alpha: Significance level.

    Example:
        >>> from dpaudit.privacy.guarantees import ApproxDP
        >>> run = RunConfiguration(
        ...     schedule=(StepSegment(steps=1, noise=2.0, clip=None, rate=1.0),),
        ...     coordinates=1000,
        ... )
        >>> claim = ApproxDP(epsilon=2.0, delta=1e-5)
        >>> found = detectable(run, rules=OneRun(guesses=100), claim=claim, alpha=0.05)
        >>> 1.5 < found.factor < 3
        True
        >>> unknown = replace(run, schedule=(replace(run.schedule[0], noise=None),))
        >>> rules = OneRun(guesses=100)
        >>> found = detectable(unknown, rules=rules, claim=claim, alpha=0.05)
        >>> print(found.why_not.code)
        forecast.noise_not_stated
    """
    training = training_of(run)
    if isinstance(training, Finding):
        return DetectableFault(factor=None, why_not=training)
    counted = isinstance(rules, OneRun) and rules.fixed
    if not (counted or isinstance(rules, AdaptiveRounds)):
        why = noted("forecast.rules", rules=type(rules).__name__)
        return DetectableFault(factor=None, why_not=why)
    most = min(max(_TIMES * run.coordinates, 20_000), 150_000)
    if any(part.sufficient().takes_turns for part in training if part.rate < 1):
        most = min(max(_FEWER * run.coordinates, 8_000), _MOST_DRAWS // run.steps)
        if run.per_coordinate > 1 or most < _FEWER * run.coordinates / 2:
            why = noted("forecast.too_many_patterns")
            return DetectableFault(factor=None, why_not=why)
    if rules.adaptive and run.coordinates > MOST_IN_ROUNDS:
        why = noted("forecast.rounds_too_large")
        return DetectableFault(factor=None, why_not=why)
    return _detectable(
        training, rules, run.per_coordinate, run.coordinates, claim, alpha, most
    )


@lru_cache(maxsize=256)  # repeated audits of one configuration
def _detectable(
    training: tuple[TrainingSetup, ...],
    rules: OneRun | AdaptiveRounds,
    per_coordinate: int,
    coordinates: int,
    claim: Guarantee,
    alpha: float,
    simulated: int,
) -> DetectableFault:
    effort = Effort(nanoseconds=1.5e8, coordinates=simulated, blocks=10_000)
    factor = noise_fault(
        training, rules, per_coordinate, coordinates, claim, alpha, effort=effort
    )
    return DetectableFault(factor=factor)
