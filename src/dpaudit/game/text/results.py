"""A result in words, at one place: the first lines, how sure they are, facts in rows.

Every format begins with ``first_lines``, of which the first is the verdict: the word,
what it is worth, what nobody looked at. Below it printing, ``dpaudit audit`` and
notebooks have ``facts``; explanations, reports and model cards also say ``numbers`` and
how sure they are in sentences. There is one verdict; other claims and families are
rows. Nothing that says something about the claim is said of a void audit. Lower bounds
are rounded down and p-values up.

Elsewhere are the words of a test and of a bound by themselves (``bounds/bound``), of
several runs together (``game/combining``), of ``dpaudit bound``, which has no result
(``cli/bound``), and of what was derived again (``evidence/derivation``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, sqrt
from textwrap import fill
from typing import TYPE_CHECKING, Final, final

import numpy as np

from dpaudit.bounds.bound import ClaimTest, LowerBound, rounded_down
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.errors import on_one_line
from dpaudit.game.configuration import DetectableFault
from dpaudit.game.coverage import NEEDED, Check, Coverage
from dpaudit.game.findings import Finding, Stage, Status, noted
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.game.text.stages import (
    SENTENCES,
    STATUS,
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
    "after_verdict",
    "bound_sentence",
    "check_line",
    "claim_words",
    "confidence_phrase",
    "confidence_sentence",
    "coverage_facts",
    "facts",
    "fault_line",
    "first_lines",
    "html",
    "noise_detected",
    "not_exercised",
    "note_on_ranking",
    "note_on_strength",
    "notes",
    "numbers",
    "opening",
    "printed_result",
    "reason",
    "signal_sentence",
    "stage_findings_text",
    "stage_names",
    "stages_by_status",
    "status_text",
    "threat",
    "verdict",
]

_FAULT_FOUND: Final = capital(Verdict.FAULT_FOUND)
_UNPROVED: Final = "So what was proved of the claim does not apply to this run."
_WIDTH, _NAMES = 88, 22  # of a row in a terminal, and of its name
_LARGE_PRODUCT = 30.0  # of canaries and delta; docs/how-to/audit-a-large-table.md
_FAR = 4.0  # standard deviations, beyond which scores are said to be turned round


def opening(verdict: Verdict, reason: str) -> str:
    """Return the first sentence about an audit: the word, and why if it is no answer.

    Example:
        >>> opening(Verdict.INVALID_RUN, "no canary arrived")
        'Invalid run: no canary arrived. Nothing is said about the claim.'
    """
    said = capital(verdict) + f": {on_one_line(reason)}" * bool(reason)
    silent = " Nothing is said about the claim." * (verdict is Verdict.INVALID_RUN)
    return f"{said}.{silent}"


def reason(decision: Decision, unit: str | None = None) -> str:
    """Return why a run is invalid or inconclusive, or which faults; "" otherwise."""
    terms = terms_of(unit)
    return "; ".join(
        _uncovered(each, terms) if isinstance(each, Uncovered) else sentence(each, unit)
        for each in decision.because
    )


def _uncovered(missing: Uncovered, terms: Terms) -> str:
    """Return which stages were not checked though they must be, and what to do."""
    by_reason: dict[str, list[str]] = {}
    for check in missing.checks:
        name = stage_name(check.stage, terms)
        by_reason.setdefault(stage_findings_text(check, terms), []).append(name)
    said = "; ".join(f"{' and '.join(s)} ({why})" for why, s in by_reason.items())
    stages = {check.stage for check in missing.checks}
    names = [f'"{name}"' for name, stage in NEEDED.items() if stage in stages]
    listed = ", ".join(names) + "," * (len(names) == 1)
    run = "" if missing.run is None else f"run {missing.run}: "
    return (
        f"{run}not checked: {said}. To do without, open the audit with "
        f"unchecked=({listed})"
    )


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


def after_verdict(line: str, verdict: Verdict) -> str:
    """Return what stands behind the verdict in the first of the first lines."""
    return line.removeprefix(capital(verdict)).lstrip(".: ")


def claim_words(claim: Guarantee, delta: float) -> str:
    """Return a claim as words: its epsilon at delta, and whether it says more."""
    epsilon = f"epsilon = {claim.epsilon_at(delta):.4g}"
    if delta:
        epsilon += f" at delta = {delta:g}"
    if isinstance(claim, ApproxDP | PureDP):
        return epsilon
    return f"{epsilon} (a whole curve)"


# What is said beside a result


def notes(result: "Result", unseen: Iterable[str], *, registered: bool) -> list[str]:
    """Return what a result of scores rests on that nobody can see from it.

    Args:
        result: What was found.
        unseen: What the scores themselves do not show.
        registered: Whether its design was fixed before the run.
    """
    found = list(unseen)
    if not registered:
        found.append(
            "the verdict holds if claim, alpha and guesses were chosen without looking "
            "at the coins"
        )
    little = note_on_ranking(result.design)
    if little is not None:
        found.append(little)
    if _turned_round(result):
        found.append(
            "included canaries score lower than the others. Where a high score speaks "
            'for "excluded", as a loss does, give minus the scores next time; turning '
            "them round now, after a look, would double the chance of being wrong"
        )
    return found


def note_on_ranking(design: "Design") -> str | None:
    """Say that a ranking will show little, where delta is large for its canaries."""
    product = design.canaries * design.bound_delta
    if not design.rules.ordered or product <= _LARGE_PRODUCT:
        return None
    return (
        f"canaries times delta is {product:.3g}: so much delta leaves little to a "
        "ranking, and a number of guesses fixed before the run (--guesses) shows more"
    )


def note_on_strength(design: "Design") -> str | None:
    """Say that a design cannot refute its claim, if not even all right guesses do."""
    n, rules = design.canaries, design.rules
    perfect = rules.reading_from_counts(rules.class_ends(n), canaries=n)
    test = rules.bound().judge_claim(perfect, design.claim, alpha=design.alpha)
    if test.refuted:
        return None
    return (
        f"this design cannot refute its claim: even with every guess right p would be "
        f"{test.p_value:.2g}, above alpha = {design.alpha:g}. Use more canaries and "
        "guesses; an audit by it will be inconclusive"
    )


def _turned_round(result: "Result") -> bool:
    """Return whether included canaries score lower by more than chance explains."""
    seen = result.scores
    if seen is None:
        return False
    ones, zeros = sum(seen.included), sum(seen.excluded)
    if not ones or not zeros:
        return False
    area = float(np.trapezoid(seen.true_positive, seen.false_positive))
    # The area under the ROC curve of scores that say nothing (Mann and Whitney).
    return area < 0.5 - _FAR * sqrt((ones + zeros + 1) / (12 * ones * zeros))


# What printing says


def printed_result(result: "Result") -> str:
    """Return what a result says of itself: its first lines, then rows."""
    return "\n".join([*first_lines(result), *(_line(*row) for row in _rows(result))])


def _rows(result: "Result") -> Iterator[tuple[str, str]]:
    """Return the rows below the first lines, in a terminal and in a notebook."""
    invalid_run = result.verdict is Verdict.INVALID_RUN
    for each in coverage_facts(result) if invalid_run else facts(result):
        yield each.name, each.whole
    for check in result.sanity_checks:
        if check not in result.decision.because:
            yield "Looked at", sentence(check, result.design.setting.unit)


def _line(name: str, text: str) -> str:
    """Return a row of a table for terminals, its text beside the name."""
    beside = f"  {name:<{_NAMES}}  "
    above = f"  {name}\n" if len(name) > _NAMES else ""
    return above + fill(
        on_one_line(text),
        width=_WIDTH,
        initial_indent=" " * (_NAMES + 4) if above else beside,
        subsequent_indent=" " * (_NAMES + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def threat(result: "Result") -> str:
    """Return who is assumed to attack, in plain words."""
    terms = terms_of(_unit(result))
    model = result.design.threat_model
    return model.described(sees=terms.sees, record=terms.record)


def _adjacency(result: "Result") -> str:
    """Return what neighbours are, in plain words."""
    claim = result.claim_test.claim
    return claim.adjacency.described(terms_of(_unit(result)).record)


# The first lines, in every format


def first_lines(result: "Result", caught: str = "") -> tuple[str, ...]:
    """Return what is said first of an audit, in lines.

    In one line the word, what it is worth, and what nobody looked at. Below it, of a
    training, each fault, or what else is behind a refutation, and what was noticed;
    then the stages that were checked, by how.

    Args:
        result: Of any audit.
        caught: What would have been caught, as a sentence, where more is known than
            the result says.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(*first_lines(judge(counts, design=design, commitment=None)))
        Claim refuted. Epsilon is at least 1.630, where 1 is claimed.
    """
    verdict, faults, unit = result.verdict, list(result.faults), _unit(result)
    said = opening(verdict, result.reason)
    if verdict is Verdict.FAULT_FOUND:
        said = f"{opening(verdict, sentence(faults.pop(0), unit))} {_UNPROVED}"
    elif verdict is Verdict.CLAIM_REFUTED:
        said += f" {numbers(result)}"
    elif verdict is Verdict.NO_VIOLATION_DETECTED:
        said += f" {caught or _worth(result)}"
    lines = [f"{said}{_unseen(result)}"]
    lines += [fault_line(each, unit) for each in faults]
    training = result.training
    if training is not None:
        if verdict is Verdict.CLAIM_REFUTED and not result.faults:
            lines.append(_suspected(result))
        remarks = (sentence(each, unit) for each in training.remarks)
        lines += [f"Noticed: {each}." for each in remarks]
        lines += stages_by_status(training.coverage, verdict, unit=unit)
    return tuple(lines)


def fault_line(fault: Finding, unit: str | None) -> str:
    """Return a fault in a line of its own."""
    return f"{_FAULT_FOUND}: {sentence(fault, unit)}."


def _unit(result: "Result") -> str | None:
    return result.design.setting.unit


def _unseen(result: "Result") -> str:
    """Name what was not looked at, in a sentence, if it is known."""
    found: Iterable[str] = result.not_exercised
    accepted = ""
    if result.training is not None:
        coverage, terms = result.training.coverage, terms_of(_unit(result))
        found = stage_names(coverage, Status.NOT_CHECKED, terms)
        accepted = ", ".join(stage_names(coverage, Status.ACCEPTED, terms))
    said = on_one_line(", ".join(found))
    return (f" Not looked at: {said}." if said else "") + (
        f" {capital(STATUS[Status.ACCEPTED])}: {accepted}." if accepted else ""
    )


def not_exercised(result: "Result") -> tuple[str, ...]:
    """Return what the audit did not run through; of a training run, stages."""
    if result.training is None:
        return result.not_exercised
    coverage, terms = result.training.coverage, terms_of(_unit(result))
    return (
        *stage_names(coverage, Status.NOT_CHECKED, terms),
        *stage_names(coverage, Status.ACCEPTED, terms),
    )


def stage_names(coverage: Coverage, status: Status, terms: Terms) -> tuple[str, ...]:
    """Return the names of the stages that were checked in some way."""
    return tuple(stage_name(stage, terms) for stage in coverage.stages(status))


def stages_by_status(
    coverage: Coverage,
    verdict: Verdict,
    statuses: Iterable[Status] = (Status.TESTED, Status.INSPECTED),
    *,
    unit: str | None = None,
) -> Iterator[str]:
    """Return which stages were checked, in a line for each of some ways."""
    for status in statuses:
        found = stage_names(coverage, status, terms_of(unit))
        if found:
            yield f"{capital(status_text(status, verdict))}: {', '.join(found)}."


def status_text(status: Status, verdict: Verdict) -> str:
    """Return how a stage was checked: canaries of an invalid run tested nothing."""
    if verdict is Verdict.INVALID_RUN and status is Status.TESTED:
        return "audited in vain"
    return STATUS[status]


def numbers(result: "Result") -> str:
    """Return what was found beside what is claimed; "" of a void audit.

    Of a bound that this package does not have nothing is said in its own voice.
    """
    if result.verdict is Verdict.INVALID_RUN:
        return ""
    test, own = result.claim_test, result.is_foreign_bound
    alone = bool(result.faults) and not test.refuted
    said = bound_sentence(test, result.bound, alone=alone, silent=own)
    claimed = test.claim.epsilon_at(result.bound.delta)
    if own or not test.refuted or result.bound.epsilon_lower >= claimed:
        return said
    return f"{said} {_refuted_where(result)}"


def _refuted_where(result: "Result") -> str:
    """Say at which delta a claim is refuted, if not where the bound is stated."""
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
        test: Of the claim.
        found: The bound.
        alone: Whether faults were found, which guesses did not show.
        silent: Whether nothing is to be said of the bound.
    """
    claimed = test.claim.epsilon_at(found.delta)
    if silent or (test.refuted and found.epsilon_lower <= claimed):
        how = "is refuted" if test.refuted else "is not refuted, nor proved"
        return f"The claim {claim_words(test.claim, found.delta)} {how}."
    who = "From the guesses alone epsilon" if alone else "Epsilon"
    least = f"{who} is at least {found.text}"
    if test.refuted:
        return f"{least}, where {claimed:.4g} is claimed."
    return (
        f"{least} and may be anything above, which does not prove the {claimed:.4g} "
        "that is claimed."
    )


def _suspected(result: "Result") -> str:
    """Return the likeliest cause of a refutation where no fault was found."""
    assert result.training is not None
    signal, coverage = result.training.signal, result.training.coverage
    terms = terms_of(_unit(result))
    if signal is not None and signal.off:
        cause = "canaries are lost on the way, or sums are scaled"
        if signal.slope > 1:
            cause = f"{terms.record}s are not clipped, or are scaled once they are"
        return f"Likely cause: {cause}; {signal_sentence(signal)}."
    unseen = (
        *coverage.stages(Status.NOT_CHECKED),
        *coverage.stages(Status.ACCEPTED),
    )
    said = f"Likely cause: {stage_faults(Stage.ACCOUNTING, terms)}"
    if Stage.NOISE_INDEPENDENCE in unseen:  # the noise was not read
        said = (
            f"Likely cause: {stage_faults(Stage.NOISE_SCALE, terms)}; "
            f"{stage_faults(Stage.ACCOUNTING, terms)}"
        )
    if not unseen:
        return f"{said}; no fault was found on any road."
    return f"{said}; or a fault on a road that was not looked at."


def signal_sentence(signal: SignalRecovery) -> str:
    """Return how much of the canaries' signal was recovered."""
    return sentence(signal.check(refuted=False))


def _worth(result: "Result") -> str:
    """Return what would have been caught; what was found, if that is not known."""
    training = result.training
    if training is None:
        return f"{numbers(result)}{_accuracy(result)}"
    return f"{noise_detected(training.detectable)}."


def _accuracy(result: "Result") -> str:
    if result.detectable_accuracy is None:
        return ""
    return (
        f" Guesses right {ceil(1000 * result.detectable_accuracy) / 10:g} % of the "
        f"time would have refuted the claim with chance {POWER:g}."
    )


def _not_as_planned(result: "Result") -> str:
    """Return why what a plan forecast does not hold; "" if it does."""
    planned, training = result.design.setting.steps, result.training
    assert training is not None
    if training.hidden:
        return f"real gradients hid {1 - training.evidence_share:.0%} of the evidence"
    if planned not in (None, training.steps):
        return f"{planned} steps were planned, and {training.steps} seen"
    return ""


def noise_detected(found: DetectableFault | None) -> str:
    """Return which fault of the noise would have been detected; no full stop.

    Example:
        >>> noise_detected(DetectableFault(factor=1.731))
        'It would have caught noise 1.74 times too small with chance 0.9'
        >>> why = noted("forecast.no_steps")
        >>> noise_detected(DetectableFault(factor=None, why_not=why))
        'Which noise it would have caught is not known: no step was made'
    """
    if found is None:
        found = DetectableFault(factor=None, why_not=noted("forecast.not_stated"))
    if found.why_not is not None:
        return capital(detection_unknown(sentence(found.why_not)))
    if found.factor is None:
        return capital(str(SENTENCES["canaries.hardly"]))
    return capital(detects(found.factor))


# What is said below the first lines


def verdict(result: "Result") -> str:
    """Return the word, why it is no answer, and what was shown of the claim."""
    said = (
        opening(result.verdict, result.reason),
        numbers(result),
        confidence_sentence(result),
    )
    return " ".join(filter(None, said))


def confidence_sentence(result: "Result") -> str:
    """Return how sure ``numbers`` are, and against whom; "" of a void audit.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(confidence_sentence(judge(counts, design=design, commitment=None)))
        Shown against somebody who sees the output (p = 2.8e-05); the bound is wrong \
with chance at most 0.05, whatever the program does (method exact, tier A).
    """
    if result.verdict is Verdict.INVALID_RUN:
        return ""
    test, found = result.claim_test, result.bound
    at = f"at delta = {found.delta:g} " if found.delta else ""
    who = f"Shown {at}against {threat(result)}"
    p = f"p {test.p_text}"
    least = found.text
    if result.is_foreign_bound:
        said = (
            f"{who} ({p}). The method {found.method} says of itself that epsilon is "
            f"at least {least} (alpha = {found.alpha:g}); dpaudit does not have it, "
            f"and does not say so: {on_one_line(found.reference)}."
        )
    else:
        said = f"{who} ({p}); the bound is {confidence_phrase(found)}."
    return said + _other_test(result)


def _other_test(result: "Result") -> str:
    """Return how the plan's claim fared, where it fared otherwise."""
    test, own = result.claim_test, result.design_test
    if own is test or own.refuted == test.refuted:
        return ""
    claim = claim_words(own.claim, result.design.bound_delta)
    how = "is refuted" if own.refuted else "is not refuted"
    return (
        f" By itself the claim that the design names, {claim}, {how} (p {own.p_text})."
    )


def confidence_phrase(found: LowerBound) -> str:
    """Return how sure a bound is, and by which method."""
    return f"{found.confidence_text} (method {found.method}, tier {found.tier})"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row: a name, what it is, and a word on it.

    Attributes:
        name: Of the row.
        value: What it is.
        note: A word on it.
        key: What the row is about, for code that picks rows.
    """

    name: str
    value: str
    note: str = ""
    key: str = ""

    @property
    def whole(self) -> str:
        """Value and note in one."""
        return f"{self.value}: {self.note}" if self.note else self.value


def facts(result: "Result") -> tuple[Fact, ...]:
    """Return what a result says in rows, what the verdict turns on first.

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
        Shown: epsilon >= 1.630 at delta = 0
        p-value: p = 2.8e-05
    """
    right, made = result.reading.correct_and_guesses()
    share = f" ({right / made:.1%})" if made else ""
    invalid_run = result.verdict is Verdict.INVALID_RUN
    return (
        _claimed(result),
        *(() if invalid_run else _about_the_claim(result)),
        Fact(
            name="Right guesses",
            value=f"{right:,} of {made:,}{share}",
            note=f"with {result.design.canaries:,} canaries in all",
        ),
        *(() if invalid_run else _most(result)),
        Fact(key="threat_model", name="Watching", value=threat(result)),
        _coins(result),
        *_of_training(result, invalid_run=invalid_run),
    )


def _claimed(result: "Result") -> Fact:
    test, delta = result.claim_test, result.bound.delta
    curve = ""
    if result.training is not None and result.training.accountant is not None:
        curve = (
            "; what the accountant proves of the steps taken, and every other pair of "
            f"epsilon and delta that it promises is tested too. {_reported(result)}"
        )
    elif not isinstance(test.claim, PureDP | ApproxDP):
        curve = "; every pair of epsilon and delta that it promises is tested"
    return Fact(
        name="Claimed",
        value=f"epsilon = {test.claim.epsilon_at(delta):.4g} at delta = {delta:g}",
        note=f"{_adjacency(result)}{curve}",
    )


def _reported(result: "Result") -> str:
    """Say which number the framework itself reports, if it is another."""
    assert result.training is not None
    reported, delta = result.training.reported, result.bound.delta
    if reported is None:
        return "What a framework prints can be a little more, as it rounds up"
    proved = f"{result.claim_test.claim.epsilon_at(delta):.3g}"
    who = on_one_line(result.design.setting.framework or "the framework")
    if f"{reported:.3g}" == proved:
        return f"{capital(who)} reports the same"
    return (
        f"{capital(who)} reports {reported:.3g}; the steps it was told about prove "
        f"{proved}"
    )


def _about_the_claim(result: "Result") -> Iterator[Fact]:
    bound, test = result.bound, result.claim_test
    sure = confidence_phrase(bound)
    if result.is_foreign_bound:
        sure = (
            f"wrong with chance at most {bound.alpha:g}, as only the author of the "
            f"method {bound.method} says"
        )
    yield Fact(
        name="Shown",
        value=f"epsilon >= {bound.text} at delta = {bound.delta:g}",
        note=sure,
    )
    weak = "" if test.refuted else "no evidence against the claim, and none for it: "
    yield Fact(
        name="p-value",
        value=f"p {test.p_text}",
        note=f"{weak}at most the chance of so many right guesses if the claim is true; "
        f"{test.alpha:g} or less refutes it",
    )
    own = result.design_test
    if own is not test:
        how = "refuted" if own.refuted else "not refuted"
        yield Fact(
            name="Claim of the plan",
            value=str(own.claim),
            note=f"named in the design; by itself {how} (p {own.p_text})",
        )


def _most(result: "Result") -> Iterator[Fact]:
    """Say what the audit could have shown, had it been luckier or larger."""
    note, little = "what this audit would have shown", "too little to refute the claim"
    if result.reading.adaptive and not result.reading.tally:
        note, little = (
            "no audit with so many guesses shows more",
            f"as played, {little}",
        )
    if not result.could_refute:
        note = f"{note}; {little}"
    yield Fact(
        key="all_right",
        name="With all guesses right",
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
        plan = f"; the plan expected {rounded_down(planned)}"
        if why:
            plan = f"; what the plan expected does not hold: {why}"
    yield Fact(
        key="ceiling",
        name="Any audit, reliably",
        value=f"epsilon >= {rounded_down(reach)}",
        note="what one run reliably shows of a training that just keeps its claim"
        f"{plan}",
    )


def _coins(result: "Result") -> Fact:
    value = "not committed, so that nobody can check that they came first"
    if result.commitment is not None:
        value = "derived from a committed key; evidence lets others check it"
    return Fact(key="coins", name="Coins", value=value)


def _of_training(result: "Result", *, invalid_run: bool) -> Iterator[Fact]:
    training, terms = result.training, terms_of(_unit(result))
    if training is None:
        return
    yield from coverage_facts(result)
    if schedule := result.design.setting.schedule:
        when, noise = schedule
        yield Fact(name="Who joins when", value=when, note=noise)
    yield Fact(
        name="Training",
        value=f"{training.steps:,} {terms.steps_seen}",
        note=f"real {terms.record}s hid {1 - training.evidence_share:.0%} of what "
        "canaries show, as far as sums tell",
    )
    family = training.family
    if family is not None and not invalid_run:
        yield Fact(
            name="If noise is Gaussian",
            value=f"epsilon >= {rounded_down(family.model_epsilon)} at delta = "
            f"{family.delta:g}",
            note=f"which is assumed, not shown; {family.parameter} >= "
            f"{rounded_down(family.parameter_lower)} in {family.family}, wrong "
            f"with chance at most {family.alpha:g} (method {family.method}, tier "
            f"{family.tier})",
        )


def coverage_facts(result: "Result") -> Iterator[Fact]:
    """Return the coverage in rows: faults, then stages; nothing without a training."""
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
    yield Fact(key="coverage", name="Never seen from inside", value=never_seen(terms))


def _why(fault: Finding, parts: Iterable[str]) -> str:
    measured, expected, cause = parts
    chance = f"; by chance at most {fault.probability:.1g}" if fault.probability else ""
    return f"{measured}, where {expected} is claimed; likely {cause}{chance}"


# In a notebook: a small piece of HTML in the notebook's own colours, so that light and
# dark work alike. It loads nothing, and every text in it is escaped.

_BOX = (
    "border-left:4px solid {colour};padding:2px 0 2px 14px;margin:4px 0;max-width:46em"
)
_TABLE = "border-collapse:collapse;margin:0;color:inherit;font-size:inherit"
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"
_COLOURS: Final = {  # all stand out on white and on black
    Verdict.INVALID_RUN: "#808080",
    Verdict.CLAIM_REFUTED: "#d1495b",
    Verdict.FAULT_FOUND: "#d9662b",
    Verdict.INCONCLUSIVE: "#c28e0e",
    Verdict.NO_VIOLATION_DETECTED: "#3d85c6",
}


def html(result: "Result") -> str:
    """Return what a notebook shows of a result: the word first, then rows.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> result = judge(counts, design=design, commitment=None)
        >>> "<strong>Claim refuted</strong>." in html(result)
        True
    """
    said, *more = first_lines(result)
    label = capital(result.verdict)
    box = _BOX.format(colour=_COLOURS[result.verdict])
    return (
        f'<div style="{box}"><p style="margin:0 0 6px">'
        f"<strong>{escape(label)}</strong>{escape(said.removeprefix(label))}"
        f"{''.join(f'<br>{escape(line)}' for line in more)}</p>"
        f'<table style="{_TABLE}"><tbody>'
        + "".join(_row(name, value) for name, value in _rows(result))
        + "</tbody></table></div>"
    )


def _row(name: str, value: str) -> str:
    return (
        f'<tr style="background:none"><th scope="row" style="{_CELL};'
        f'font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
    )
