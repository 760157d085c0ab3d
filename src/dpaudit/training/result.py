"""What an audit of training shows: verdict, bound, and why the bound is not higher.

The claim that counts is the accountant's, and an accountant stands for a whole curve of
(epsilon, delta). All its points limit the same count of right guesses, so the curve is
tested at once, at no charge and without assuming anything of the mechanism (tier A).
Beside it stand the lower bound at the design's delta (tier A) and the parameter of
Gaussian privacy (tier B), which bounds the mechanism's only if it is of that family.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import final

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit.bounds.bound import ClaimTest, ParameterBound, rounded_down
from dpaudit.bounds.ceilings import mechanism_ceiling
from dpaudit.bounds.fdp import GaussianFamily
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.reads import Counts
from dpaudit.errors import on_one_line
from dpaudit.game.design import Commitment
from dpaudit.game.result import (
    AuditResult,
    conclude,
    in_notebook,
    opening,
)
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Control, Verdict, verdict_of
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.training.arrival import Arrival
from dpaudit.training.guessing import Played
from dpaudit.training.reading import SumsReading

__all__ = ["TrainingResult", "conclude_training", "judge_accountant"]

_NOT_SEEN = Control(
    said="nothing shows that any canary arrived",
    spoils=Verdict.INCONCLUSIVE,
)
_HIDDEN = 0.9  # of the evidence; with less a forecast does not hold


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult(Document):
    """What one audited training shows; printing it says all of it.

    Attributes:
        audit: The lower bound, and the verdict on the claim that the design names.
        accountant: The verdict on the accountant's whole curve; None if no curve was
            given, or if the rules test a claim at one point only.
        family: The parameter of Gaussian privacy (tier B); None unless guesses were
            counted.
        transcript: Every guess, for the record.
        arrival: How the noisy sums answered to the canaries; None if that was not
            seen, for example as none joined a step.
        steps: Steps that were seen.
        trusted: What share of the evidence real gradients left, on average.
        remarks: What was noticed without any statistics.
    """

    audit: AuditResult
    accountant: ClaimTest | None
    family: ParameterBound | None
    transcript: Transcript
    steps: int
    trusted: float
    arrival: Arrival | None = None
    remarks: tuple[str, ...] = ()

    form = "dpaudit.training-result.1"
    derived = ("verdict",)

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps)

    @property
    def claim_test(self) -> ClaimTest:
        """The verdict that counts: on the accountant's curve, or else the design's."""
        return self.accountant or self.audit.claim_test

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrongly so with chance at most alpha."""
        return self.verdict is Verdict.REFUTED

    @property
    def verdict(self) -> Verdict:
        """How the audit ended, in one word."""
        return self._ended()[0]

    @property
    def reason(self) -> str:
        """Why the audit is void or inconclusive; "" otherwise."""
        return self._ended()[1]

    def _ended(self) -> tuple[Verdict, str]:
        return verdict_of(
            refuted=self.claim_test.refuted,
            could=self._could_refute(),
            controls=self.audit.controls,
        )

    def _could_refute(self) -> bool:
        counts = self.audit.reading
        if self.accountant is None or not isinstance(counts, Counts):
            return self.audit.could_refute
        test = self.accountant
        return _all_right_refute(test.claim, counts, test.alpha)

    @property
    def hidden(self) -> bool:
        """Whether real gradients hid so much that no forecast of the audit holds."""
        return self.trusted < _HIDDEN

    @property
    def p_value(self) -> float:
        """Largest chance, if the claim is true, of evidence this strong."""
        return self.claim_test.p_value

    def __str__(self) -> str:
        lines = [opening(self.verdict, self.reason)]
        if self.verdict is not Verdict.VOID:
            lines += [self._verdict(), self.audit.details(), self._family()]
            lines += [self._reason()]
        lines += [
            f"Looked at: {on_one_line(each.said)}."
            for each in self.audit.controls
            if each.said not in self.reason
        ]
        lines += [f"Note: {on_one_line(remark)}." for remark in self.remarks]
        return "\n".join(line for line in lines if line)

    def _repr_html_(self) -> str:
        return in_notebook(
            self.audit, test=self.claim_test, verdict=self.verdict, reason=self.reason
        )

    def _verdict(self) -> str:
        if self.accountant is None:
            return ""
        delta = self.audit.design.bound_delta
        epsilon = self.accountant.claim.epsilon_at(delta)
        said = str(self.accountant).replace(
            str(self.accountant.claim),
            f"of the accountant (a whole curve: epsilon = {epsilon:.3f} at delta = "
            f"{delta:g})",
        )
        return f"{said[0].upper()}{said[1:]} at alpha = {self.accountant.alpha:g}."

    def _family(self) -> str:
        return "" if self.family is None else f"By the Gaussian family: {self.family}."

    def _reason(self) -> str:
        """Say what keeps the bound from being higher, and what would be caught."""
        design = self.audit.design
        right = f"its bound if every guess were right is {self.audit.ceiling:.3f}"
        if self.refuted:
            return f"Why not higher: {right}."
        reach = mechanism_ceiling(
            self.claim_test.claim, delta=design.bound_delta, alpha=design.alpha
        )
        return (
            "Why not higher: of a training that just keeps the claim, no one-run audit "
            f"with alpha = {design.alpha:g} reliably shows more than epsilon = "
            f"{reach:.3f}; {right}{self._forecast()}."
        )

    def _forecast(self) -> str:
        """Say what the plan expected, if there was one."""
        setting, said = self.audit.design.setting, ""
        if self.hidden:
            hidden = f"{1 - self.trusted:.0%}"
            return (
                f". Real gradients in the canaries' coordinates hid {hidden} of the "
                "evidence, so that the plan's forecast does not hold: larger faults "
                "than it says may go unseen"
            )
        expected, fault = setting.get("expected_epsilon"), setting.get("fault")
        if isinstance(expected, float):
            said += f"; the plan expected {rounded_down(expected)}"
        if isinstance(fault, float):
            said += (
                f". It would have caught noise {ceil(100 * fault) / 100:.2f} times too "
                "small with chance 0.9"
            )
        return said


def conclude_training(
    played: Played,
    *,
    reading: SumsReading,
    arrival: Arrival | None,
    commitment: Commitment,
    claim: Guarantee | None,
    not_exercised: tuple[str, ...],
    controls: tuple[Control, ...] = (),
    remarks: tuple[str, ...] = (),
) -> TrainingResult:
    """Judge a game of guesses about a training's canaries.

    Args:
        played: The game.
        reading: What the guesser made of the noisy sums.
        arrival: How the sums answered to canaries; None if that was not seen.
        commitment: The commitment that the game was opened with.
        claim: What the accountant stands for, as far as it is known.
        not_exercised: Parts of the training that the audit did not run through.
        controls: What else was looked at to see whether there was anything to see.
        remarks: What was noticed without any statistics.
    """
    audit = conclude(
        played.transcript,
        commitment=commitment,
        not_exercised=not_exercised,
        scores=played.scores,
    )
    if reading.odd:
        remarks = (f"{reading.odd} noisy sums were no finite numbers", *remarks)
    if claim is not None and not isinstance(audit.reading, Counts):
        said = "the accountant's whole curve was not tested, as that needs guesses that"
        remarks = (*remarks, f"{said} are counted: OneRun(guesses=...)")
    accountant, family = judge_accountant(audit, claim)
    refuted = (accountant or audit.claim_test).refuted
    arrived = _NOT_SEEN
    if arrival is not None:
        arrived = arrival.control(refuted=refuted)
    return TrainingResult(
        audit=replace(audit, controls=(arrived, played.promise(), *controls)),
        accountant=accountant,
        family=family,
        transcript=played.transcript,
        arrival=arrival,
        steps=reading.steps,
        trusted=reading.trusted,
        remarks=remarks,
    )


def judge_accountant(
    audit: AuditResult, claim: Guarantee | None
) -> tuple[ClaimTest | None, ParameterBound | None]:
    """Return the verdict on an accountant's curve, and the Gaussian parameter.

    Args:
        audit: Of the training; there is neither unless its guesses were counted.
        claim: What the accountant stands for; without it there is no verdict.
    """
    counts, design = audit.reading, audit.design
    if not isinstance(counts, Counts):
        return None, None
    family = _family(counts, design.bound_delta, design.alpha)
    if claim is None:
        return None, family
    return test_claim(claim, counts, alpha=design.alpha), family


@lru_cache(maxsize=64)  # the word of one result is asked for often
def _all_right_refute(claim: Guarantee, counts: Counts, alpha: float) -> bool:
    return test_claim(claim, counts.perfect(), alpha=alpha).refuted


@lru_cache(maxsize=1024)  # whoever audits or verifies often meets the same counts
def _family(counts: Counts, delta: float, alpha: float) -> ParameterBound:
    return GaussianFamily().parameter_lower(counts, delta=delta, alpha=alpha)
