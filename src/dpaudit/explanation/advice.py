"""Advice on what to do next: about stages that were not checked, and about each gap.

A larger epsilon detects smaller faults of the noise and the accounting, and none at
another stage. So next steps are ranked by the faults that they would detect: stages
that were not checked come first, those at which a fault can reveal a whole record
before those at which it costs some epsilon (docs/explanation/bug-zoo.md).

With a model of the training run, the bound of another design is forecast as for plans,
from the exact posterior. Without one, it is the bound of independent guesses with the
observed accuracy; this accuracy is known from one run only, and the spread reflects
that.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.planning.candidates import most_shown
from dpaudit.dpsgd.planning.expected_one_run import (
    Expected,
    OneRunForecast,
    best_one_run,
    forecast_one_run,
)
from dpaudit.dpsgd.planning.forecasts import (
    FINAL,
    best_forecast,
    forecast_bound,
    simulated_distribution,
)
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.dpsgd.planning.rounds_search import best_rounds
from dpaudit.explanation.accuracy import (
    GuessAccuracy,
    expected_bound,
    likely_accuracies,
)
from dpaudit.explanation.ladder import reach
from dpaudit.explanation.model import Model
from dpaudit.explanation.values import Advice
from dpaudit.game.design import Design
from dpaudit.game.findings import Stage, Status
from dpaudit.game.result import Result
from dpaudit.game.rules import OneRun
from dpaudit.game.text.results import stage_findings_text
from dpaudit.game.text.stages import stage_faults, stage_name
from dpaudit.game.text.terms import terms_of
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.theory.gap_levels import Gaps

__all__ = ["guessing_advice", "modelled_advice", "next_steps", "unmodelled_advice"]

_MIN_GAIN = 1.02  # factor over the bound expected now; less is not worth mentioning
_MORE = 4  # times as many canaries
_MIN_DIFFERENCE = 0.01  # epsilon
_PAIR_QUANTILES = 6  # of each of two runs
_WORST_FIRST = (  # by what the worst fault of each stage reveals
    Stage.SIDE_PATHS,
    Stage.RELEASED_MODEL,
    Stage.GRADIENTS,
    Stage.CLIPPING,
    Stage.NOISE_INDEPENDENCE,
    Stage.NOISE_SCALE,
    Stage.ACCOUNTING,
    Stage.AGGREGATION,
    Stage.SAMPLING,
)
_FIX = Advice(
    text="fix what was found, and audit again with a new key",
    detects="other faults, which this one may hide",
)
_SMALLER = "smaller faults of noise and accounting, and no others"


def next_steps(result: Result, of_gaps: Iterable[Advice | None]) -> tuple[Advice, ...]:
    """Return the next steps after auditing a training run, worst fault first.

    Args:
        result: The result of any audit; only a training run has stages.
        of_gaps: The advice about each gap; the one with the largest expected bound
            comes last, unless something was found, which is to be fixed first.
    """
    if result.training is None:
        return ()
    terms = terms_of(result.design.setting.unit)
    by_stage = {check.stage: check for check in result.training.coverage.checks}
    unseen: dict[str, list[Stage]] = {}
    for stage in _WORST_FIRST:
        if by_stage[stage].status in (Status.NOT_CHECKED, Status.ACCEPTED):
            unseen.setdefault(stage_findings_text(by_stage[stage], terms), []).append(
                stage
            )
    stages = [
        Advice(
            text=f"check {' and '.join(stage_name(s, terms) for s in stages)}: {how}",
            detects="; ".join(stage_faults(stage, terms) for stage in stages),
        )
        for how, stages in unseen.items()
    ]
    if result.faults or result.claim_test.refuted:
        return _FIX, *stages
    larger = [each for each in of_gaps if each and each.expected is not None]
    best = max(larger, key=lambda each: each.expected or 0.0, default=None)
    return (*stages, *([replace(best, detects=_SMALLER)] if best else []))


def modelled_advice(
    audit: Result, claim: Guarantee, model: Model, law: GuessDistribution, gaps: Gaps
) -> dict[str, Advice]:
    """Return the advice about each gap of an audit whose training run is modelled."""
    design = audit.design
    now = _now(design, model, law)
    by_gap = {
        "confidence": _two_runs(audit, claim, model, law),
        "interference": _in_rounds(design, model, law, now),
        "elements": _other_number(design, model, law, now),
        "guessing": guessing_advice(gaps),
        "statistics": _other_size(design, model, law, now),
    }
    return {name: advice for name, advice in by_gap.items() if advice is not None}


def unmodelled_advice(
    audit: Result, claim: Guarantee, seen: GuessAccuracy
) -> dict[str, Advice]:
    """Return the advice about each gap if only the guesses are known."""
    by_gap = {
        "confidence": _two_runs(audit, claim, None, None),
        "statistics": _more_like_these(audit, seen),
    }
    return {name: advice for name, advice in by_gap.items() if advice is not None}


def _is_counted(design: Design) -> bool:
    """Return whether a fixed number of guesses is made at once."""
    return isinstance(design.rules, OneRun) and design.rules.fixed


def _now(design: Design, model: Model, law: GuessDistribution) -> Expected:
    """Return the expected bound of the audit as it was made."""
    delta, alpha = design.bound_delta, design.alpha
    if _is_counted(design):
        whole = max(1, round(design.guesses / model.per_coordinate))
        (forecast,) = forecast_one_run(law, model.coordinates, np.array([whole]))
        return forecast.expected(delta=delta, alpha=alpha)
    best = best_forecast(law, model.coordinates, delta, alpha)
    return forecast_bound(best, delta, alpha)


def _two_runs(
    audit: Result, claim: Guarantee, model: Model | None, law: GuessDistribution | None
) -> Advice | None:
    """Return the advice to combine two runs, with the expected bound."""
    design = audit.design
    if not design.bound_delta or design.runs > 1:
        return None
    guarantee = model.guarantee if model and model.guarantee else claim
    one, two = (reach(guarantee, audit, times=times) for times in (1, 2))
    if two - one < _MIN_DIFFERENCE:
        return None
    text = (
        "combine two independent runs, which together can show up to "
        f"{two:.2f} instead of {one:.2f}; fix their number before the first"
    )
    if model is None or law is None or not _is_counted(design):
        return Advice(text=text)
    whole = max(1, round(design.guesses / model.per_coordinate))
    (forecast,) = forecast_one_run(law, model.coordinates, np.array([whole]))
    return _expecting(text, _pairs(design, *_quantiles(forecast, design.guesses)))


def _quantiles(
    forecast: OneRunForecast, guesses: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return quantiles of the forecast number of correct guesses, and their weights."""
    middle = (np.arange(_PAIR_QUANTILES) + 0.5) / _PAIR_QUANTILES
    below = forecast.at_most(np.arange(guesses + 1))
    numbers = np.searchsorted(np.maximum.accumulate(below), middle)
    weights = np.full(_PAIR_QUANTILES, 1 / _PAIR_QUANTILES)
    return np.minimum(numbers, guesses), weights


def _pairs(
    design: Design, numbers: NDArray[np.int64], weights: NDArray[np.float64]
) -> Expected:
    counts = [
        Counts(canaries=design.canaries, guesses=design.guesses, correct=int(v))
        for v in numbers
    ]
    known: dict[tuple[int, int], float] = {}
    mean = square = 0.0
    for (a, p), (b, q) in product(zip(counts, weights, strict=True), repeat=2):
        pair = (min(a.correct, b.correct), max(a.correct, b.correct))
        if pair not in known:
            known[pair] = (
                IndependentRunsBound()
                .epsilon_lower([a, b], delta=design.bound_delta, alpha=design.alpha)
                .epsilon_lower
            )
        mean += float(p * q) * known[pair]
        square += float(p * q) * known[pair] ** 2
    return Expected(mean=mean, spread=max(0.0, square - mean**2) ** 0.5)


def _in_rounds(
    design: Design, model: Model, law: GuessDistribution, now: Expected
) -> Advice | None:
    """Return the advice to reveal coins in rounds, with the expected bound."""
    if not _is_counted(design) or model.per_coordinate == 1:
        return None
    best = best_rounds(
        law,
        coordinates=model.coordinates,
        delta=design.bound_delta,
        alpha=design.alpha,
    )
    if best is None or best.expected().mean < _MIN_GAIN * now.mean:
        return None
    return _expecting(
        "reveal coins on the way: play the same canaries in rounds, as dpaudit plan "
        "lays them out",
        best.expected(),
    )


def _other_number(
    design: Design, model: Model, law: GuessDistribution, now: Expected
) -> Advice | None:
    """Return the advice to make another number of guesses."""
    if not _is_counted(design):
        return None
    delta, alpha = design.bound_delta, design.alpha
    best = best_one_run(law, coordinates=model.coordinates, delta=delta, alpha=alpha)
    expected = best.expected(delta=delta, alpha=alpha)
    if expected.mean < _MIN_GAIN * now.mean:
        return Advice(
            text=f"nothing: {design.guesses} guesses are about the best number"
        )
    return _expecting(
        f"make {best.guesses} guesses instead of {design.guesses}", expected
    )


def guessing_advice(gaps: Gaps) -> Advice:
    """Return the advice about the guesser, from its accuracy and the best possible."""
    levels = {level.name: level for level in gaps.levels}
    best, made = levels["elements"].epsilon, levels["guessing"]
    if made.low <= best <= made.high:
        return Advice(
            text="nothing: the guesses were as accurate as the best can be, within luck"
        )
    if made.epsilon > best:
        return Advice(text="check again: they were luckier than is usual")
    return Advice(
        text="let the guesser know what real records add to the sums "
        "(knows_real_sums=True), or give the audit coordinates that they leave alone"
    )


def _other_size(
    design: Design, model: Model, law: GuessDistribution, now: Expected
) -> Advice | None:
    """Return the advice to use another number of canaries, with the expected bound."""
    delta, alpha, d = design.bound_delta, design.alpha, model.coordinates
    s = most_shown(
        model.training, coordinates=d, delta=delta, alpha=alpha
    ).per_coordinate
    if s != model.per_coordinate:
        other = simulated_distribution(model.training, s, FINAL, seed=13)
        best = best_forecast(other, d, delta, alpha)
        expected = forecast_bound(best, delta, alpha)
        if expected.mean > _MIN_GAIN * now.mean:
            how = "in rounds" if best.rules.adaptive else "guessed at once"
            instead = (
                f"use {s} canaries per coordinate instead of {model.per_coordinate}"
            )
            return _expecting(
                f"{instead}, {how}, as dpaudit plan lays them out", expected
            )
    more = best_forecast(
        law, _MORE * d, delta, alpha, in_rounds=not _is_counted(design)
    )
    return _expecting(
        f"use {_MORE} times as many coordinates", forecast_bound(more, delta, alpha)
    )


def _more_like_these(audit: Result, seen: GuessAccuracy) -> Advice | None:
    """Return the advice to use more canaries, if they are guessed equally well."""
    counts = audit.reading.counted
    if counts is None or seen.accuracy.low <= 0.5:
        return None  # guesses that may be no better than chance promise nothing
    more = replace(
        counts,
        canaries=_MORE * counts.canaries,
        guesses=_MORE * counts.guesses,
        correct=_MORE * counts.correct,
    )
    return _expecting(
        f"use {_MORE} times as many canaries and guesses, if they are guessed as well",
        expected_bound(audit, more, likely_accuracies(counts)),
    )


def _expecting(text: str, expected: Expected) -> Advice:
    return Advice(text=text, expected=expected.mean, spread=expected.spread)
