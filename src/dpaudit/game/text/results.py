"""A result as text: sentences about claim and bound, and facts in rows.

Every format begins with the first screen (``game/text/screen``), which is composed of
the parts here; ``result.details()`` adds the facts as rows. For an invalid run nothing
is stated about the claim. Lower bounds are rounded down and p-values up.

Other texts are elsewhere: of a test and a bound by themselves (``bounds/bound``), of
combined runs (``game/combining``), of ``dpaudit bound``, which has no result
(``cli/bound``), and of what was recomputed (``evidence/derivation``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from textwrap import fill
from typing import TYPE_CHECKING, Final, final

import numpy as np

from dpaudit.bounds.bound import (
    ClaimTest,
    LowerBound,
    confidence_text,
    rounded_down,
)
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.errors import on_one_line
from dpaudit.game.configuration import DetectableFault
from dpaudit.game.coverage import NEEDED, Check, Coverage
from dpaudit.game.findings import Finding, Stage, Status, noted
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.game.text.stages import (
    SENTENCES,
    detection_unknown,
    detects,
    never_seen,
    stage_faults,
    stage_name,
)
from dpaudit.game.text.terms import Terms, capital, terms_of
from dpaudit.game.verdict import POWER, Decision, SignalRecovery, Uncovered, Verdict
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP

if TYPE_CHECKING:
    from dpaudit.game.design import Design
    from dpaudit.game.result import Result

__all__ = [
    "Fact",
    "adjacency",
    "bound_sentence",
    "check_line",
    "claim_words",
    "confidence_phrase",
    "confidence_sentence",
    "coverage_facts",
    "fact_lines",
    "facts",
    "fault_line",
    "likely_cause",
    "noise_detected",
    "not_exercised",
    "note_on_power",
    "note_on_ranking",
    "notes",
    "numbers",
    "opening",
    "power_text",
    "reason",
    "refuted_elsewhere",
    "rows",
    "signal_sentence",
    "stage_findings_text",
    "stages_by_status",
    "status_text",
    "threat",
    "uncovered_short",
    "verdict",
]

_FAULT_FOUND: Final = capital(Verdict.FAULT_FOUND)
_WIDTH, _NAMES = 88, 26  # of a row in a terminal, and of its name
_LARGE_PRODUCT = 30.0  # of canaries and delta; docs/how-to/audit-scores.md
_FAR = 4.0  # standard deviations beyond which scores are reported as reversed


def opening(verdict: Verdict, reason: str) -> str:
    """Return the first sentence about an audit: the verdict, and its reason if any.

    Example:
        >>> opening(Verdict.INVALID_RUN, "no canary arrived")
        'Invalid run: no canary arrived. Nothing follows about the claim.'
    """
    first = capital(verdict) + f": {on_one_line(reason)}" * bool(reason)
    nothing = " Nothing follows about the claim." * (verdict is Verdict.INVALID_RUN)
    return f"{first}.{nothing}"


def reason(decision: Decision, unit: str | None = None) -> str:
    """Return why a run is invalid or inconclusive, or which faults; "" otherwise."""
    terms = terms_of(unit)
    return "; ".join(
        _uncovered(each, terms) if isinstance(each, Uncovered) else sentence(each, unit)
        for each in decision.because
    )


def _uncovered(missing: Uncovered, terms: Terms) -> str:
    """Return which required stages were not checked, and what to do."""
    by_reason: dict[str, list[str]] = {}
    for check in missing.checks:
        name = stage_name(check.stage, terms)
        by_reason.setdefault(stage_findings_text(check, terms), []).append(name)
    listed = "; ".join(f"{' and '.join(s)} ({why})" for why, s in by_reason.items())
    run = "" if missing.run is None else f"run {missing.run}: "
    return f"{run}not checked: {listed}. {_without(missing)}"


def uncovered_short(missing: Uncovered, unit: str | None) -> tuple[str, str]:
    """Return which required stages were not checked, and how to accept that."""
    terms = terms_of(unit)
    names = ", ".join(stage_name(check.stage, terms) for check in missing.checks)
    return f"Not checked, and needed for any claim: {names}", _without(missing)


def _without(missing: Uncovered) -> str:
    stages = {check.stage for check in missing.checks}
    names = [f'"{name}"' for name, stage in NEEDED.items() if stage in stages]
    accepted = ", ".join(names) + "," * (len(names) == 1)
    return f"To conclude without, open the audit with unchecked=({accepted})"


def stage_findings_text(check: Check, terms: Terms) -> str:
    """Return what was measured at a stage, or what would check it."""
    return sentences(check.findings, terms.unit)


def check_line(check: Check, verdict: Verdict, unit: str | None) -> str:
    """Return a stage, how it was checked, and what was measured."""
    terms = terms_of(unit)
    how = status_text(check.status, verdict)
    return (
        f"{stage_name(check.stage, terms)}, {how}: {stage_findings_text(check, terms)}"
    )


def claim_words(claim: Guarantee, delta: float) -> str:
    """Return a claim in words: its epsilon at delta, and whether it is a curve."""
    epsilon = f"epsilon = {claim.epsilon_at(delta):.4g}"
    if delta:
        epsilon += f" at delta = {delta:g}"
    if isinstance(claim, ApproxDP | PureDP):
        return epsilon
    return f"{epsilon} (a whole curve)"


# Remarks beside a result


def notes(result: "Result", unseen: Iterable[str], *, registered: bool) -> list[str]:
    """Return the assumptions of a result of scores that cannot be checked from it.

    Args:
        result: The result.
        unseen: Assumptions that the scores themselves do not show.
        registered: Whether the design was fixed before the run.
    """
    found = list(unseen)
    if not registered:
        found.append(
            "the verdict holds if claim, alpha and guesses were chosen without "
            "knowledge of the coin flips"
        )
    little = note_on_ranking(result.design)
    if little is not None:
        found.append(little)
    if _reversed(result):
        found.append(
            "included canaries score lower than excluded ones. If a high score means "
            '"excluded", as with a loss, negate the scores next time; negating them '
            "now would double the false-positive rate"
        )
    return found


def note_on_ranking(design: "Design") -> str | None:
    """Return a warning if a ranking has little power, as delta is large for it."""
    product = design.canaries * design.bound_delta
    if not design.rules.ordered or product <= _LARGE_PRODUCT:
        return None
    return (
        f"canaries times delta is {product:.3g}, for which a ranking has little power; "
        "fix the number of guesses before the run (--guesses)"
    )


def note_on_power(design: "Design") -> str | None:
    """Return a warning if even correct guesses would not refute the design's claim."""
    n, rules = design.canaries, design.rules
    perfect = rules.reading_from_counts(rules.class_ends(n), canaries=n)
    test = rules.bound().judge_claim(perfect, design.claim, alpha=design.alpha)
    if test.refuted:
        return None
    return (
        f"this design cannot refute its claim: even if every guess is correct, p = "
        f"{test.p_value:.2g}, above alpha = {design.alpha:g}, so the audit will be "
        "inconclusive. Use more canaries and guesses"
    )


def _reversed(result: "Result") -> bool:
    """Return whether included canaries score lower by more than chance explains."""
    seen = result.scores
    if seen is None:
        return False
    ones, zeros = sum(seen.included), sum(seen.excluded)
    if not ones or not zeros:
        return False
    area = float(np.trapezoid(seen.true_positive, seen.false_positive))
    # The area under the ROC curve of uninformative scores (Mann and Whitney).
    return area < 0.5 - _FAR * sqrt((ones + zeros + 1) / (12 * ones * zeros))


def threat(result: "Result") -> str:
    """Return what the adversary sees."""
    terms = terms_of(_unit(result))
    model = result.design.threat_model
    return model.described(sees=terms.sees, record=terms.record)


def adjacency(result: "Result") -> str:
    """Return how neighbouring data sets differ."""
    claim = result.claim_test.claim
    return claim.adjacency.described(terms_of(_unit(result)).record)


def fault_line(fault: Finding, unit: str | None) -> str:
    """Return a fault as one line."""
    return f"{_FAULT_FOUND}: {sentence(fault, unit)}."


def _unit(result: "Result") -> str | None:
    return result.design.setting.unit


def not_exercised(result: "Result") -> tuple[str, ...]:
    """Return what the audit did not exercise; for a training run, stages."""
    if result.training is None:
        return result.not_exercised
    coverage, terms = result.training.coverage, terms_of(_unit(result))
    return (
        *_stage_names(coverage, Status.NOT_CHECKED, terms),
        *_stage_names(coverage, Status.ACCEPTED, terms),
    )


def _stage_names(coverage: Coverage, status: Status, terms: Terms) -> tuple[str, ...]:
    """Return the names of the stages with a status."""
    return tuple(stage_name(stage, terms) for stage in coverage.stages(status))


def stages_by_status(
    coverage: Coverage,
    verdict: Verdict,
    statuses: Iterable[Status],
    *,
    unit: str | None = None,
) -> Iterator[str]:
    """Return the stages of each of some statuses, one line per status."""
    for status in statuses:
        found = _stage_names(coverage, status, terms_of(unit))
        if found:
            yield f"{capital(status_text(status, verdict))}: {', '.join(found)}."


def status_text(status: Status, verdict: Verdict) -> str:
    """Return a stage's status as text: canaries of an invalid run tested nothing."""
    if verdict is Verdict.INVALID_RUN and status is Status.TESTED:
        return "not tested, as the run is invalid"
    return str(status)


def numbers(result: "Result") -> str:
    """Return the lower bound beside the claim; "" for an invalid run.

    A bound by a method that is not in this package is omitted.
    """
    if result.verdict is Verdict.INVALID_RUN:
        return ""
    test, own = result.claim_test, result.is_foreign_bound
    alone = bool(result.faults) and not test.refuted
    first = bound_sentence(test, result.bound, alone=alone, silent=own)
    return f"{first} {refuted_elsewhere(result)}".strip()


def refuted_elsewhere(result: "Result") -> str:
    """Return at which delta the claim is refuted, if not at that of the bound."""
    test, bound = result.claim_test, result.bound
    above = bound.epsilon_lower >= test.claim.epsilon_at(bound.delta)
    if not test.refuted or above or result.is_foreign_bound:
        return ""
    point = result.refuted_at
    if point is None:
        return (
            "None of its pairs of epsilon and delta is refuted by itself: all of them "
            "together are."
        )
    claim, found = point
    return (
        f"At delta = {claim.delta:.3g} epsilon is at least {found.text}, where "
        f"{claim.epsilon:.4g} is claimed."
    )


def bound_sentence(
    test: ClaimTest, found: LowerBound, *, alone: bool = False, silent: bool = False
) -> str:
    """Return a bound beside the claim, in a sentence.

    Args:
        test: The test of the claim.
        found: The bound.
        alone: Whether faults were found that the guesses do not show.
        silent: Whether the bound is omitted.
    """
    claimed = test.claim.epsilon_at(found.delta)
    if silent or (test.refuted and found.epsilon_lower <= claimed):
        how = "is refuted" if test.refuted else "is neither refuted nor proved"
        return f"The claim {claim_words(test.claim, found.delta)} {how}."
    by = "By the guesses alone, epsilon" if alone else "Epsilon"
    least = f"{by} is at least {found.text}"
    if test.refuted:
        return f"{least}; {claimed:.4g} is claimed."
    return f"{least}. This does not prove the claim of {claimed:.4g}."


def likely_cause(result: "Result") -> str:
    """Return the most likely cause of a refutation in training without a fault."""
    if result.training is None:
        return ""
    signal, coverage = result.training.signal, result.training.coverage
    terms = terms_of(_unit(result))
    if signal is not None and signal.off:
        cause = "canaries are lost before the sum, or sums are scaled"
        if signal.slope > 1:
            cause = f"{terms.record}s are not clipped, or are scaled after clipping"
        return f"Likely cause: {cause}; {signal_sentence(signal)}."
    unseen = (
        *coverage.stages(Status.NOT_CHECKED),
        *coverage.stages(Status.ACCEPTED),
    )
    causes = [stage_faults(Stage.ACCOUNTING, terms)]
    if Stage.NOISE_INDEPENDENCE in unseen:  # the noise was not inspected
        causes.insert(0, stage_faults(Stage.NOISE_SCALE, terms))
    if unseen:
        causes.append("a fault at a stage that was not checked")
    return f"Likely cause: {'; or '.join(causes)}."


def signal_sentence(signal: SignalRecovery) -> str:
    """Return how much of the canaries' signal was recovered."""
    return sentence(signal.check(refuted=False))


def power_text(result: "Result") -> str:
    """Return the power of an audit in a sentence; "" if not known."""
    if result.training is not None:
        return f"{noise_detected(result.training.detectable)}."
    if result.detectable_accuracy is None:
        return "Its power is computed by dpaudit explain."
    correct = ceil(1000 * result.detectable_accuracy) / 10
    return (
        f"Guesses that are correct {correct:g} % of the time would refute the claim "
        f"with probability {POWER:g}."
    )


def _not_as_planned(result: "Result") -> str:
    """Return why the plan's forecast does not hold, if so; "" otherwise."""
    planned, training = result.design.setting.steps, result.training
    assert training is not None
    if training.hidden:
        hidden = 1 - training.evidence_share
        return f"real gradients masked {hidden:.0%} of the evidence"
    if planned not in (None, training.steps):
        return f"{planned} steps were planned and {training.steps} made"
    return ""


def noise_detected(found: DetectableFault | None) -> str:
    """Return the power to detect noise that is too small, without a full stop.

    Example:
        >>> noise_detected(DetectableFault(factor=1.731))
        'The canaries alone have 90 % power to detect noise 1.74x too small'
        >>> why = noted("forecast.no_steps")
        >>> noise_detected(DetectableFault(factor=None, why_not=why))
        'The power to detect noise that is too small is not known: no step was made'
    """
    if found is None:
        found = DetectableFault(factor=None, why_not=noted("forecast.not_stated"))
    if found.why_not is not None:
        return capital(detection_unknown(sentence(found.why_not)))
    if found.factor is None:
        return capital(str(SENTENCES["canaries.hardly"]))
    return f"The canaries alone have {detects(found.factor)}"


# Sentences below the first screen


def verdict(result: "Result") -> str:
    """Return the verdict, its reason, the bound and its confidence, as sentences."""
    parts = (
        opening(result.verdict, result.reason),
        numbers(result),
        confidence_sentence(result),
    )
    return " ".join(filter(None, parts))


def confidence_sentence(result: "Result") -> str:
    """Return the confidence of ``numbers``, and the adversary; "" for an invalid run.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(confidence_sentence(judge(counts, design=design, commitment=None)))
        Against an adversary who sees the output: p = 2.8e-05 (evidence against the \
claim); the lower bound holds with 95 % confidence, for any mechanism (method exact).
    """
    if result.verdict is Verdict.INVALID_RUN:
        return ""
    test, found = result.claim_test, result.bound
    at = f"at delta = {found.delta:g} " if found.delta else ""
    who = f"{at}against an adversary who {threat(result)}"
    strength = "evidence" if test.refuted else "no sufficient evidence"
    against = f"{capital(who)}: p {test.p_text} ({strength} against the claim)"
    if result.is_foreign_bound:
        found_text = (
            f"{against}. The method {found.method} states epsilon >= {found.text} "
            f"(alpha = {found.alpha:g}); dpaudit does not have this method and cannot "
            f"check it: {on_one_line(found.reference)}."
        )
    else:
        found_text = (
            f"{against}; the lower bound holds with {confidence_phrase(found)}."
        )
    return found_text + _other_test(result)


def _other_test(result: "Result") -> str:
    """Return the test of the registered claim if its outcome differs; else ""."""
    test, own = result.claim_test, result.design_test
    if own is test or own.refuted == test.refuted:
        return ""
    claim = claim_words(own.claim, result.design.bound_delta)
    how = "is refuted" if own.refuted else "is not refuted"
    return f" The registered claim by itself, {claim}, {how} (p {own.p_text})."


def confidence_phrase(found: LowerBound) -> str:
    """Return the confidence of a bound, its assumptions and its method."""
    return f"{found.confidence_text} (method {found.method})"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row of the details.

    Attributes:
        name: The name of the row.
        value: Its value.
        note: A remark on the value.
        key: A stable identifier, for code that selects rows.
    """

    name: str
    value: str
    note: str = ""
    key: str = ""

    @property
    def whole(self) -> str:
        """Value and note as one text."""
        return f"{self.value}: {self.note}" if self.note else self.value


def facts(result: "Result") -> tuple[Fact, ...]:
    """Return the rows of a result's details, starting with the basis of the verdict.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> for fact in facts(judge(counts, design=design, commitment=None))[:3]:
        ...     print(f"{fact.name}: {fact.value}")
        Claimed: epsilon = 1 at delta = 0
        Lower bound: epsilon >= 1.630 at delta = 0
        p-value: p = 2.8e-05
    """
    right, made = result.reading.correct_and_guesses()
    share = f" ({right / made:.1%})" if made else ""
    invalid_run = result.verdict is Verdict.INVALID_RUN
    return (
        _claimed(result),
        *(() if invalid_run else _about_the_claim(result)),
        Fact(
            name="Correct guesses",
            value=f"{right:,} of {made:,}{share}",
            note=f"of {result.design.canaries:,} canaries",
        ),
        *(() if invalid_run else _most(result)),
        Fact(key="threat_model", name="Threat model", value=threat(result)),
        _coins(result),
        *_of_training(result, invalid_run=invalid_run),
    )


def _claimed(result: "Result") -> Fact:
    test, delta = result.claim_test, result.bound.delta
    curve = ""
    if result.training is not None and result.training.accountant is not None:
        curve = (
            "; what the accountant proves of the steps made; the test covers every "
            f"(epsilon, delta) of its curve. {_reported(result)}"
        )
    elif not isinstance(test.claim, PureDP | ApproxDP):
        curve = "; the test covers every (epsilon, delta) of the curve"
    return Fact(
        name="Claimed",
        value=f"epsilon = {test.claim.epsilon_at(delta):.4g} at delta = {delta:g}",
        note=f"{adjacency(result)}{curve}",
    )


def _reported(result: "Result") -> str:
    """Return the epsilon that the framework itself reports, if it differs."""
    assert result.training is not None
    reported, delta = result.training.reported, result.bound.delta
    if reported is None:
        return "The number a framework prints can be slightly larger, as it rounds up"
    proved = f"{result.claim_test.claim.epsilon_at(delta):.3g}"
    who = on_one_line(result.design.setting.framework or "the framework")
    if f"{reported:.3g}" == proved:
        return f"{capital(who)} reports the same"
    return (
        f"{capital(who)} reports {reported:.3g}; the steps in its history prove "
        f"{proved}"
    )


def _about_the_claim(result: "Result") -> Iterator[Fact]:
    bound, test = result.bound, result.claim_test
    sure = confidence_phrase(bound)
    if result.is_foreign_bound:
        sure = f"alpha = {bound.alpha:g} by the author of the method {bound.method}"
    yield Fact(
        name="Lower bound",
        value=f"epsilon >= {bound.text} at delta = {bound.delta:g}",
        note=sure,
    )
    yield Fact(
        name="p-value",
        value=f"p {test.p_text}",
        note="the largest probability of so many correct guesses if the claim is true; "
        f"{test.alpha:g} or less refutes it, more is no evidence for it",
    )
    own = result.design_test
    if own is not test:
        how = "refuted" if own.refuted else "not refuted"
        yield Fact(
            name="Registered claim",
            value=str(own.claim),
            note=f"of the design; by itself {how} (p {own.p_text})",
        )


def _most(result: "Result") -> Iterator[Fact]:
    """Return what the audit could have shown with more luck, or under any rules."""
    note, little = "if every guess were correct", "not enough to refute the claim"
    if result.reading.adaptive and not result.reading.tally:
        note, little = (
            "of any audit with as many guesses",
            f"as played, {little}",
        )
    if not result.could_refute:
        note = f"{note}; {little}"
    yield Fact(
        key="all_right",
        name="Maximum for this design",
        value=f"epsilon >= {result.bound.rounded(result.ceiling)}",
        note=note,
    )
    if result.refuted or result.training is None:
        return
    design, planned = result.design, result.design.setting.expected_epsilon
    reach = mechanism_ceiling(
        result.claim_test.claim, delta=design.bound_delta, alpha=design.alpha
    )
    plan = ""
    if planned is not None:
        why = _not_as_planned(result)
        plan = f"; the plan's forecast was {rounded_down(planned)}"
        if why:
            plan = f"; the plan's forecast does not hold: {why}"
    yield Fact(
        key="ceiling",
        name="Ceiling for one-run audits",
        value=f"epsilon >= {rounded_down(reach)}",
        note="the most that any one-run audit reliably shows of a training run whose "
        f"claim is just true{plan}",
    )


def _coins(result: "Result") -> Fact:
    value = "not committed, so nobody can check that they were drawn before the run"
    if result.commitment is not None:
        value = "derived from a committed key; evidence lets others check it"
    return Fact(key="coins", name="Coin flips", value=value)


def _of_training(result: "Result", *, invalid_run: bool) -> Iterator[Fact]:
    training, terms = result.training, terms_of(_unit(result))
    if training is None:
        return
    yield from coverage_facts(result)
    if schedule := result.design.setting.schedule:
        when, noise = schedule
        yield Fact(name="Participation", value=when, note=noise)
    yield Fact(
        name="Training",
        value=f"{training.steps:,} {terms.steps_seen}",
        note=_masked(training.evidence_share, terms),
    )
    family = training.family
    if family is not None and not invalid_run:
        yield Fact(
            name="Model-based bound",
            value=f"epsilon >= {rounded_down(family.model_epsilon)} at delta = "
            f"{family.delta:g}",
            note=f"assumes {family.family}, which is not tested; {family.parameter} >= "
            f"{rounded_down(family.parameter_lower)} with "
            f"{confidence_text(family.alpha)} (method {family.method})",
        )


def _masked(share: float, terms: Terms) -> str:
    """Return how much of the canaries' signal real gradients masked."""
    hidden = f"{1 - share:.0%}"
    if hidden == "0%":
        return f"real {terms.record}s did not mask the canaries"
    return f"real {terms.record}s masked {hidden} of the canaries' evidence"


def coverage_facts(result: "Result") -> Iterator[Fact]:
    """Return the coverage of a training run as rows: faults, then stages."""
    if result.training is None:
        return
    terms = terms_of(_unit(result))
    for fault in result.faults:
        what, *why = fault_parts(fault, terms.unit)
        yield Fact(key="coverage", name=_FAULT_FOUND, value=what, note=_why(fault, why))
    for check in result.training.coverage.checks:
        how = status_text(check.status, result.verdict)
        name = capital(stage_name(check.stage, terms))
        note = stage_findings_text(check, terms)
        yield Fact(key="coverage", name=name, value=how, note=note)
    yield Fact(key="coverage", name="Out of scope", value=never_seen(terms))


def _why(fault: Finding, parts: Iterable[str]) -> str:
    measured, expected, cause = parts
    p = f"; p <= {fault.probability:.1g}" if fault.probability else ""
    return f"{measured}; expected: {expected}; likely cause: {cause}{p}"


# The details, as rows


def rows(result: "Result") -> Iterator[tuple[str, str]]:
    """Return the rows of the details, for terminal and notebook."""
    invalid_run = result.verdict is Verdict.INVALID_RUN
    if result.reason and result.verdict is not Verdict.FAULT_FOUND:
        yield "Reason", result.reason
    for each in coverage_facts(result) if invalid_run else facts(result):
        yield each.name, each.whole
    for check in result.sanity_checks:
        if check not in result.decision.because:
            yield "Sanity check", sentence(check, _unit(result))
    if result.training is not None:
        for remark in result.training.remarks:
            yield "Note", sentence(remark, _unit(result))


def fact_lines(result: "Result") -> Iterator[str]:
    """Return the rows of the details as lines of text."""
    for name, text in rows(result):
        beside = f"  {name:<{_NAMES}}  "
        above = f"  {name}\n" if len(name) > _NAMES else ""
        yield above + fill(
            on_one_line(text),
            width=_WIDTH,
            initial_indent=" " * (_NAMES + 4) if above else beside,
            subsequent_indent=" " * (_NAMES + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
