"""Explanation of a result: the bound, its gaps to the claim, and what to do next.

An audit that refuted nothing is worth as much as its power. With a model of the
training run, the power is stated as the factor by which the noise would have had to be
too small; without one, as the accuracy that guesses would have needed
(``dpaudit.game.detectable``).
"""

from dataclasses import replace
from math import inf

import numpy as np

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.dpsgd.planning.as_run import detectable
from dpaudit.explanation.accuracy import accuracy_of
from dpaudit.explanation.advice import (
    guessing_advice,
    modelled_advice,
    next_steps,
    unmodelled_advice,
)
from dpaudit.explanation.ladder import known, law_of, modelled, unmodelled
from dpaudit.explanation.model import Model
from dpaudit.explanation.values import Advice, Explanation, Step
from dpaudit.game.configuration import DetectableFault
from dpaudit.game.design import ThreatModel
from dpaudit.game.detectable import detectable_by_guesses
from dpaudit.game.result import Result
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import confidence_sentence, noise_detected, numbers
from dpaudit.game.text.screen import screen_of
from dpaudit.game.text.terms import capital, terms_of
from dpaudit.game.verdict import Verdict
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.theory.gap_levels import Gaps

__all__ = [
    "explain",
    "power",
]


def power(
    audit: Result, claim: Guarantee, model: Model | None, *, short: bool = False
) -> str:
    """Return what an audit would have detected; "" if that was not computed.

    Args:
        audit: The audit of any mechanism.
        claim: The claim tested.
        model: The model of its training run, if known.
        short: Whether guesses did worse than the model predicts, so that no forecast
            holds.
    """
    found = None if short else _noise(audit, claim, model)
    if found is None:
        return _by_guesses(audit, claim)
    text = f"{noise_detected(found)}."
    if found.why_not is not None:
        return f"{text} {_by_guesses(audit, claim)}".strip()
    if found.factor is None:
        return text
    delta = audit.design.bound_delta
    epsilon = model and model.epsilon_at(delta, found.factor)
    then = "" if epsilon is None else f" (ε would then be {epsilon:.2g})"
    return f"{noise_detected(found)}{then}; smaller faults may go undetected."


def _by_guesses(audit: Result, claim: Guarantee) -> str:
    found = detectable_by_guesses(audit, claim)
    return "" if found is None else f"{capital(sentence(found))}."


def _noise(
    audit: Result, claim: Guarantee, model: Model | None
) -> DetectableFault | None:
    """Return the noise fault that would have been detected in a training run."""
    if audit.training is not None:
        return audit.training.detectable
    rules = audit.design.rules
    if model is None or not isinstance(rules, OneRun | AdaptiveRounds):
        return None
    tested = audit.design.claim if rules.adaptive else claim
    return detectable(
        model.configuration, rules=rules, claim=tested, alpha=audit.design.alpha
    )


_VISIBLE = 5e-4
_SHORT = (
    "The guesses were worse than the model of the training run predicts, so its "
    "forecasts do not hold: larger faults may go undetected."
)


def _search_for_a_fault(unit: str | None) -> dict[str, Advice]:
    """Return the advice for guesses that no model explains."""
    record = terms_of(unit).record
    advice = Advice(
        text=f"search for a fault: too little noise, {record}s that are not clipped, "
        "other sampling, or outputs that the claim does not cover"
    )
    return {"guessing": advice, "exposure": advice}


@progress_note("explaining the result")
def explain(
    result: Result,
    *,
    mechanism: object | None = None,
    rng: np.random.Generator | None = None,
) -> Explanation:
    """Return what an audit shows, why not more, and what could be done about it.

    If the result contains the configuration of its training run, every gap is computed
    by itself and advice comes with the expected bound; that takes some seconds. The
    same holds if the mechanism is given and guesses were counted. Otherwise only
    confidence, statistics and the rest are distinguished. For an invalid run only the
    reason is given: the steps from the claim to its bound would imply something about
    the claim.

    Args:
        result: The result of any audit.
        mechanism: The audited mechanism, as accepted by ``dpaudit.theory.gaps``.
        rng: For a mechanism whose levels must be simulated.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> design = Design(
        ...     canaries=1000, rules=OneRun(guesses=1000), claim=PureDP(epsilon=1.0)
        ... )
        >>> counts = Counts(canaries=1000, guesses=1000, correct=650)
        >>> explained = explain(judge(counts, design=design, commitment=None))
        >>> [(step.name, round(step.leaves, 2)) for step in explained.steps]
        [('confidence', 1.0), ('exposure', 0.62), ('statistics', 0.51)]
    """
    _validate.kind("result", result, Result)
    if result.verdict is Verdict.INVALID_RUN:
        return _bare(result)
    claim = result.claim_test.claim
    refuted = result.claim_test.refuted
    # If refuted: under the claim no guess is confident enough to count at the bound.
    at = 0.0 if refuted else result.bound.epsilon_lower
    seen, model = accuracy_of(result, at), Model.of(result)
    basis, short = _basis(model, mechanism), False
    if mechanism is not None:
        model, gaps = None, known(result, claim, mechanism, seen, rng)
        advice = unmodelled_advice(result, claim, seen)
    elif model is None:
        gaps = unmodelled(result, claim, seen)
        advice = {} if result.faults else unmodelled_advice(result, claim, seen)
    else:
        distribution = law_of(model)
        gaps = modelled(result, claim, model, distribution, seen, at)
        short = not refuted and _fell_short(result, gaps)
        if refuted or result.faults:
            advice = {}
        elif short:
            # The model's forecasts did not hold, so none must be promised.
            model, advice = None, {"guessing": guessing_advice(gaps)}
        else:
            advice = modelled_advice(result, claim, model, distribution, gaps)
    detected = "" if refuted else power(result, claim, model, short=short)
    if short:
        detected = f"{detected} {_SHORT}".strip()
    if refuted:  # a fault names its own cause
        unit = result.design.setting.unit
        advice = {} if result.faults else _search_for_a_fault(unit)
    elif not result.faults:
        advice = _with_usual(result, gaps, advice)
    steps = _steps(gaps, advice)
    return replace(
        _bare(result),
        screen=screen_of(result, detected),
        numbers=numbers(result),
        confidence_sentence=confidence_sentence(result),
        claimed=gaps.levels[0].epsilon,
        found=result.bound.epsilon_lower,
        model=basis,
        steps=steps,
        remainder=gaps.remainder or 0.0,
        power=detected,
        advice=next_steps(result, (step.advice for step in steps)),
        assumptions=_assumptions(result),
        limit=model and model.limit(result.design),
    )


def _bare(result: Result) -> Explanation:
    """Return the parts of an explanation that even an invalid run has."""
    delta, training = result.design.bound_delta, result.training
    return Explanation(
        outcome=result.verdict,
        reason=result.reason,
        screen=screen_of(result),
        numbers="",
        confidence_sentence="",
        sanity_checks=result.sanity_checks,
        claimed=result.claim_test.claim.epsilon_at(delta),
        found=0.0,
        delta=delta,
        alpha=result.design.alpha,
        model="",
        steps=(),
        remainder=0.0,
        power="",
        advice=(),
        checks=() if training is None else training.coverage.checks,
        assumptions=(),
        not_exercised=() if training else result.not_exercised,
        remarks=() if training is None else training.remarks,
        unit=result.design.setting.unit,
    )


def _fell_short(result: Result, gaps: Gaps) -> bool:
    """Return whether guesses did worse than the model predicts, beyond chance."""
    levels = {level.name: level for level in gaps.levels}
    hidden = result.training is not None and result.training.hidden
    made, best = levels["guessing"], levels["elements"].epsilon
    # 1.6 times the 95 % interval: exceeded by chance once in a thousand audits.
    return hidden or made.epsilon + 1.6 * (made.high - made.epsilon) < best


def _basis(model: Model | None, mechanism: object | None) -> str:
    if mechanism is not None:
        return f"the law of {type(mechanism).__name__}"
    return "only the guesses are known" if model is None else str(model)


def _steps(gaps: Gaps, advice: dict[str, Advice]) -> tuple[Step, ...]:
    """Return the steps from the claim to the bound, without detours to infinity."""
    drops, steps = gaps.drops, list[Step]()
    for level in gaps.levels[1:]:
        step = Step(
            name=level.name,
            takes=drops[level.name],
            leaves=level.epsilon,
            low=level.low,
            high=level.high,
            sentence=gaps.sentence(level.name),
            advice=advice.get(level.name),
        )
        if step.takes == inf and steps and steps[-1].takes == -inf:
            up = steps.pop()
            above = steps[-1].leaves if steps else gaps.levels[0].epsilon
            step = _together(up, step, above)
        steps.append(step)
    return tuple(steps)


def _together(up: Step, down: Step, above: float) -> Step:
    """Return a step to infinity merged with the one back: all guesses were correct."""
    rise = down.leaves - above
    does = f"add {rise:.3f} and give" if rise > 0 else f"take {-rise:.3f} and leave"
    return Step(
        name=up.name,
        takes=-rise,
        leaves=down.leaves,
        low=down.low,
        high=down.high,
        sentence=f"{capital(up.name)} and {down.name} together {does} "
        f"{down.leaves:.3f}: every guess was correct, by luck or because the program "
        "leaks more than is claimed, and so many guesses show no more.",
        advice=down.advice or up.advice,
    )


def _with_usual(
    result: Result, gaps: Gaps, advice: dict[str, Advice]
) -> dict[str, Advice]:
    """Return advice, completed by the usual advice for steps that cost something."""
    usual = {
        name: Advice(text=gaps.advice(name))
        for name, drop in gaps.drops.items()
        if drop > _VISIBLE
    }
    if "exposure" in usual and result.reading.counted is None:
        # The usual advice asks for a mechanism's model, which needs counted guesses.
        usual["exposure"] = Advice(text="use the best guesser there is")
    return usual | advice


def _assumptions(audit: Result) -> tuple[str, ...]:
    """Return the assumptions of the bound and the verdict."""
    design, record = audit.design, terms_of(audit.design.setting.unit).record
    found = [
        (
            "coin flips are fair, independent and unknown to program and guesser"
            if design.rules.independent_coins
            else "a uniformly random half of the canaries was included, unknown to "
            "program and guesser"
        )
        + (" (derived from the committed key)" if audit.commitment else ""),
        "the design was fixed before the run"
        + (
            ""
            if audit.commitment
            else "; nothing was committed, so nobody can check it"
        ),
        f"the method {audit.bound.method} is valid, for which its author answers"
        if audit.is_foreign_bound
        else "none about the program: the bound holds for any mechanism",
    ]
    if design.threat_model is ThreatModel.KNOWN_RECORDS:
        found.append(
            f"the claim is about an adversary who knows all other {record}s, as an "
            "accountant's is"
        )
    return tuple(found)
