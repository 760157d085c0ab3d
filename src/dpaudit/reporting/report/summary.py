"""The executive summary: what a decision needs from a result, on half a page.

It answers five questions: what was claimed, what was found, what could still be wrong,
what to do, and what to ask. Everything in it follows from the result by rules; an audit
never proves a claim, so the best advice it can give is to accept a claim as far as
other evidence supports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from dpaudit.bounds.bound import confidence_text
from dpaudit.errors import on_one_line
from dpaudit.game.design import ThreatModel
from dpaudit.game.findings import Status
from dpaudit.game.result import Result
from dpaudit.game.text.results import Fact, power_text, threat
from dpaudit.game.text.stages import never_seen, stage_name
from dpaudit.game.text.terms import Terms, counted, terms_of
from dpaudit.game.verdict import Verdict

__all__ = ["Summary", "summary_of"]

_WEAKER: Final = (ThreatModel.FINAL_MODEL, ThreatModel.ALL_ITERATES)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a result for a decision.

    Attributes:
        claims: Every number that is called epsilon, and why they differ.
        found: What the audit found.
        doubts: What could still be wrong.
        action: Accept, ask or reject.
        because: What to do, in sentences.
        questions: What to ask the author of the claim.
    """

    claims: tuple[Fact, ...]
    found: str
    doubts: tuple[str, ...]
    action: str
    because: str
    questions: tuple[str, ...]


def summary_of(result: Result) -> Summary:
    """Return the summary of a result."""
    terms = terms_of(result.design.setting.unit)
    action, because = _action(result, terms)
    return Summary(
        claims=tuple(_claims(result)),
        found=_found(result),
        doubts=tuple(_doubts(result, terms)),
        action=action,
        because=because,
        questions=tuple(_questions(result, terms)),
    )


def _claims(result: Result) -> Iterator[Fact]:
    delta, training = result.bound.delta, result.training
    tested = result.claim_test.claim.epsilon_at(delta)
    measured = training is not None and training.accountant is not None
    yield Fact(
        name="Claim that was tested",
        value=f"ε ≤ {tested:.4g}",
        note="computed by dp-accounting for the steps that were made"
        if measured
        else "as stated in the design of the audit",
    )
    registered = result.design_test.claim.epsilon_at(result.design.bound_delta)
    if measured and f"{registered:.4g}" != f"{tested:.4g}":
        yield Fact(
            name="Claim in the design",
            value=f"ε ≤ {registered:.4g}",
            note="stated before the run, for the steps that were planned then",
        )
    if training is not None and training.reported is not None:
        who = on_one_line(result.design.setting.framework or "the framework")
        if f"{training.reported:.3g}" != f"{tested:.3g}":
            yield Fact(
                name=f"Reported by {who}",
                value=f"ε = {training.reported:.4g}",
                note="its own figure for the same steps",
            )
    if result.verdict is not Verdict.INVALID_RUN:
        yield Fact(
            name="Lower bound of this audit",
            value=f"ε ≥ {result.bound.text}",
            note="not an estimate: the true ε may be anything above, also above the "
            "claim",
        )
    yield Fact(
        name="True ε",
        value="not known",
        note="an audit bounds it from below only; a proof bounds it from above",
    )


def _found(result: Result) -> str:
    bound, faults = _bound(result), counted(len(result.faults), "fault")
    match result.verdict:
        case Verdict.CLAIM_REFUTED:
            also = f" Besides, {faults} found in the run." if result.faults else ""
            return f"The program leaks more than is claimed: {bound}.{also}"
        case Verdict.FAULT_FOUND:
            return (
                f"{faults} found: the run does not do what its privacy "
                "accounting assumes, so the claimed ε is not proved for it."
            )
        case Verdict.INCONCLUSIVE:
            return f"The audit cannot tell: {result.reason}."
        case Verdict.INVALID_RUN:
            return f"The audit did not work: {result.reason}. Nothing follows from it."
    return (
        "No violation was detected, which does not prove the claim. The audit shows: "
        f"{bound}."
    )


def _bound(result: Result) -> str:
    least = f"ε is at least {result.bound.text}"
    if result.is_foreign_bound:
        method = result.bound.method
        return f"{least} by the method {method}, which dpaudit cannot check"
    return f"{least}, with {confidence_text(result.bound.alpha)}"


def _doubts(result: Result, terms: Terms) -> Iterator[str]:
    if result.verdict in (Verdict.NO_VIOLATION_DETECTED, Verdict.INCONCLUSIVE):
        yield f"A violation too small for this audit. {power_text(result)}".strip()
    open_stages = _open_stages(result, terms)
    if open_stages:
        yield f"A fault at a stage that was not checked: {', '.join(open_stages)}."
    if result.not_exercised:
        parts = ", ".join(map(on_one_line, result.not_exercised))
        yield f"A fault in what the audit did not run: {parts}."
    if result.design.threat_model in _WEAKER:
        yield f"An adversary who sees more than the one tested, who {threat(result)}."
    if result.training is not None:
        yield f"What no audit of a run can see: {never_seen(terms)}."
    if result.commitment is None:
        yield "Nothing shows that the coin flips were drawn before the run."


def _open_stages(result: Result, terms: Terms) -> list[str]:
    if result.training is None:
        return []
    coverage = result.training.coverage
    return [
        stage_name(stage, terms)
        for status in (Status.NOT_CHECKED, Status.ACCEPTED)
        for stage in coverage.stages(status)
    ]


def _action(result: Result, terms: Terms) -> tuple[str, str]:
    """Return what to do, as a word and in sentences."""
    again = "correct the cause, train again, and audit the new run with a new key"
    match result.verdict:
        case Verdict.CLAIM_REFUTED:
            return "Reject", f"Do not release anything under this claim: {again}."
        case Verdict.FAULT_FOUND:
            return "Reject", f"Do not rely on the claim for this run: {again}."
        case Verdict.INVALID_RUN:
            return "Ask", (
                "Ask for another audit, and how many came before it: repeating runs "
                "until one is valid inflates the false-positive rate."
            )
        case Verdict.INCONCLUSIVE:
            return "Ask", "Ask for an audit that can tell; see the next steps below."
    if _open_stages(result, terms) or result.commitment is None:
        return "Ask", (
            "Nothing speaks against the claim, but this audit leaves open what is "
            "listed above. Ask before accepting it."
        )
    return "Accept on conditions", (
        "This audit found nothing against the claim, and is no certificate. Accept the "
        "claim only if the privacy accountant's proof and the answers to the questions "
        "below support it."
    )


def _questions(result: Result, terms: Terms) -> Iterator[str]:
    many = f"{terms.record}s"
    yield (
        f"Does each person have only one {terms.record}? For a person with k {many}, "
        "ε is about k times as large."
    )
    if result.bound.delta:
        yield f"Is δ = {result.bound.delta:g} well below 1/n, if there are n {many}?"
    if result.training is not None:
        yield (
            "Were the data prepared, hyperparameters tuned or the released model "
            f"chosen by looking at the {many}, and is that in the accounting?"
        )
        yield "Is the released model the audited one? Compare its digest."
    yield "How many audits were made of this program, and what did the others show?"
    if result.commitment is None:
        yield "How can you show that the coin flips were drawn before the run?"
    else:
        yield (
            "Where and when was the commitment published? dpaudit verify "
            "--registration checks it."
        )
