"""The result of an audit: what was found, about which claim, and what it rests on."""

from dataclasses import dataclass
from typing import final

from dpaudit.bounds.bound import ClaimTest, LowerBound
from dpaudit.bounds.ceilings import design_ceiling
from dpaudit.bounds.claims import test_claim
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts
from dpaudit.game.design import Commitment, Design
from dpaudit.game.transcript import Transcript

__all__ = ["AuditResult", "conclude"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What one audit shows; printing it gives one sentence.

    Attributes:
        design: What was fixed beforehand.
        commitment: The hash that was published beforehand.
        counts: What was guessed.
        bound: Lower bound on epsilon at the claim's delta.
        ceiling: The bound if every guess had been right: no audit of this design
            can show more.
        claim_test: Verdict on the claim.
        not_exercised: Parts of the mechanism that this audit did not run through.
    """

    design: Design
    commitment: Commitment
    counts: Counts
    bound: LowerBound
    ceiling: float
    claim_test: ClaimTest
    not_exercised: tuple[str, ...]

    def __str__(self) -> str:
        said = (
            f"{self.claim_test}: {self.bound}, from {self.counts.correct} of "
            f"{self.counts.guesses} guesses right about {self.counts.canaries} "
            f"canaries (all right would have shown {self.ceiling:.3g}), "
            f"against {self.design.threat_model}; not exercised: "
            f"{', '.join(self.not_exercised) or 'nothing'}."
        )
        return said[0].upper() + said[1:]


def conclude(
    transcript: Transcript,
    *,
    commitment: Commitment,
    not_exercised: tuple[str, ...] = (),
) -> AuditResult:
    """Judge a transcript by the exact bound.

    Args:
        transcript: What the referee recorded.
        commitment: The commitment that the game was opened with.
        not_exercised: Parts of the mechanism that the audit did not run through.
    """
    design, counts = transcript.design, transcript.counts()
    delta, alpha = design.claim.delta, design.alpha
    # Bound and claim test read one tail of one transcript: both are wrong only if
    # that tail was hit, so alpha is spent once.
    return AuditResult(
        design=design,
        commitment=commitment,
        counts=counts,
        bound=Exact().epsilon_lower(counts, delta=delta, alpha=alpha),
        ceiling=design_ceiling(counts, delta=delta, alpha=alpha),
        claim_test=test_claim(design.claim, counts, alpha=alpha),
        not_exercised=not_exercised,
    )
