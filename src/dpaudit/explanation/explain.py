"""Explain a result: what was found, what stands between it and the claim, what to do.

An audit that refuted nothing is worth what it could have refuted. With a model of the
training that is by how much the noise would have had to be too small; without one, how
well guesses would have had to do (``dpaudit.game.detectable``).
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
        audit: Of any mechanism.
        claim: What is judged.
        model: Of its training, if that is known.
        short: Whether guesses did worse than the model says, so that no forecast holds.
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
    then = "" if epsilon is None else f" (such a run would have ε of {epsilon:.2g})"
    return f"{noise_detected(found)}{then}; smaller faults may go undetected."


def _by_guesses(audit: Result, claim: Guarantee) -> str:
    found = detectable_by_guesses(audit, claim)
    return "" if found is None else f"{capital(sentence(found))}."


def _noise(
    audit: Result, claim: Guarantee, model: Model | None
) -> DetectableFault | None:
    """Return which fault of the noise would have been detected, if it is a training."""
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


def _look_for_a_fault(unit: str | None) -> dict[str, Advice]:
    """Return what to do about guesses that no model explains."""
    record = terms_of(unit).record
    advice = Advice(
        text=f"look for a fault: too little noise, {record}s that are not clipped, "
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

    Where the result says which training it was made of, every gap is computed by itself
    and advice comes with the bound to expect; that takes some seconds. So is it where
    the mechanism is given and guesses were counted. Otherwise only confidence,
    statistics and the rest are told apart. Of a void audit only is said why it is void:
    a way from the claim to its bound would say something about the claim.

    Args:
        result: Of any audit.
        mechanism: What was audited, as ``dpaudit.theory.gaps`` takes it.
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
    # Of a mechanism as claimed, no guess would be sure enough to count up there.
    at = 0.0 if refuted else result.bound.epsilon_lower
    seen, model = accuracy_of(result, at), Model.of(result)
    told, short = _told(model, mechanism), False
    if mechanism is not None:
        model, gaps = None, known(result, claim, mechanism, seen, rng)
        advice = unmodelled_advice(result, claim, seen)
    elif model is None:
        gaps = unmodelled(result, claim, seen)
        advice = {} if result.faults else unmodelled_advice(result, claim, seen)
    else:
        law = law_of(model)
        gaps = modelled(result, claim, model, law, seen, at)
        short = not refuted and _fell_short(result, gaps)
        if refuted or result.faults:
            advice = {}
        elif short:
            # What the model forecasts did not come true; it must not be promised.
            model, advice = None, {"guessing": guessing_advice(gaps)}
        else:
            advice = modelled_advice(result, claim, model, law, gaps)
    detected = "" if refuted else power(result, claim, model, short=short)
    if short:
        detected = f"{detected} {_SHORT}".strip()
    if refuted:  # a fault names its own cause
        unit = result.design.setting.unit
        advice = {} if result.faults else _look_for_a_fault(unit)
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
        model=told,
        steps=steps,
        remainder=gaps.remainder or 0.0,
        power=detected,
        advice=next_steps(result, (step.advice for step in steps)),
        assumptions=_assumptions(result),
        limit=model and model.limit(result.design),
    )


def _bare(result: Result) -> Explanation:
    """Return what is told of every audit, even one that says nothing of its claim."""
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
    """Return whether guesses did worse than the model says, beyond luck."""
    levels = {level.name: level for level in gaps.levels}
    hidden = result.training is not None and result.training.hidden
    made, best = levels["guessing"], levels["elements"].epsilon
    # 1.6 times the 95 % interval: luck alone does it once in a thousand audits.
    return hidden or made.epsilon + 1.6 * (made.high - made.epsilon) < best


def _told(model: Model | None, mechanism: object | None) -> str:
    if mechanism is not None:
        return f"the law of {type(mechanism).__name__}"
    return "only the guesses are known" if model is None else str(model)


def _steps(gaps: Gaps, advice: dict[str, Advice]) -> tuple[Step, ...]:
    """Return the way from the claim to the bound, which has no detour to infinity."""
    drops, found = gaps.drops, list[Step]()
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
        if step.takes == inf and found and found[-1].takes == -inf:
            up = found.pop()
            above = found[-1].leaves if found else gaps.levels[0].epsilon
            step = _together(up, step, above)
        found.append(step)
    return tuple(found)


def _together(up: Step, down: Step, above: float) -> Step:
    """Return a step to infinity and the one back as one: all guesses were right."""
    rise = down.leaves - above
    does = f"add {rise:.3f} and give" if rise > 0 else f"take {-rise:.3f} and leave"
    return Step(
        name=up.name,
        takes=-rise,
        leaves=down.leaves,
        low=down.low,
        high=down.high,
        sentence=f"{capital(up.name)} and {down.name} together {does} "
        f"{down.leaves:.3f}: every guess was right, by luck or because the program "
        "leaks more than is claimed, and so many guesses show no more.",
        advice=down.advice or up.advice,
    )


def _with_usual(
    result: Result, gaps: Gaps, advice: dict[str, Advice]
) -> dict[str, Advice]:
    """Return advice with what usually helps where a step takes something."""
    usual = {
        name: Advice(text=gaps.advice(name))
        for name, drop in gaps.drops.items()
        if drop > _VISIBLE
    }
    if "exposure" in usual and result.reading.counted is None:
        # Models of mechanisms are known where guesses are counted.
        usual["exposure"] = Advice(text="use the best guesser there is")
    return usual | advice


def _assumptions(audit: Result) -> tuple[str, ...]:
    """Return what the bound and the verdict rest on."""
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
