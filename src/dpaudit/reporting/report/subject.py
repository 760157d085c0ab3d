"""What a report is about: the result, whichever kind it is, and its transcript."""

from dataclasses import dataclass
from math import isfinite
from typing import Self, final

from dpaudit.bounds.bound import ClaimTest
from dpaudit.errors import InvalidInputError
from dpaudit.evidence.documents import Result, audit_of, transcript_of
from dpaudit.game.result import AuditResult
from dpaudit.game.transcript import Transcript
from dpaudit.training.result import TrainingResult

__all__ = ["Subject"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A result, taken apart.

    Attributes:
        audit: The lower bound, and the design's claim.
        claim_test: The verdict that counts.
        training: The whole result, if training was audited.
        transcript: Every guess, if it is at hand.
    """

    audit: AuditResult
    claim_test: ClaimTest
    training: TrainingResult | None
    transcript: Transcript | None

    @classmethod
    def of(cls, result: Result, transcript: Transcript | None) -> Self:
        """Take a result apart; refuse a transcript of another game."""
        audit = audit_of(result)
        found = transcript_of(result) if transcript is None else transcript
        if found is not None and found.design != audit.design:
            raise InvalidInputError(
                "the transcript was recorded under another design than the result's; "
                "pass the transcript of this audit, or none"
            )
        training = result if isinstance(result, TrainingResult) else None
        return cls(
            audit=audit,
            claim_test=training.claim_test if training else audit.claim_test,
            training=training,
            transcript=found,
        )

    @property
    def delta(self) -> float:
        """Where the bound is stated."""
        return self.audit.bound.delta

    @property
    def alpha(self) -> float:
        """Chance of being wrong."""
        return self.audit.bound.alpha

    @property
    def claimed(self) -> float:
        """The claim's epsilon at that delta; infinity if it has none."""
        return self.claim_test.claim.epsilon_at(self.delta)

    @property
    def found(self) -> float:
        """The lower bound on epsilon."""
        return self.audit.bound.epsilon_lower

    def reach(self, *others: float) -> float:
        """Return an end for an axis of epsilon that shows what can be shown.

        It takes in the claim, unless that is so far above all that was found that
        nothing else would be seen.
        """
        near = [v for v in (self.found, *others) if isfinite(v)]
        widest = 4 * max([*near, 0.25])
        claim = self.claimed if isfinite(self.claimed) else 0.0
        return 1.12 * max([*near, min(claim, widest), 0.1])
