"""From the guesses about a training's canaries to its result."""

from dataclasses import replace
from functools import lru_cache

from dpaudit.bounds.bound import ClaimTest, ParameterBound
from dpaudit.bounds.fdp import GaussianFamily
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.reads import Counts
from dpaudit.game.design import Commitment
from dpaudit.game.result import Result, TrainingRecord, conclude
from dpaudit.game.verdict import Arrival, Control, Verdict
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.training.guessing import Played
from dpaudit.training.reading import SumsReading

__all__ = ["conclude_training", "judge_accountant"]

_NOT_SEEN = Control(
    said="nothing shows that any canary arrived",
    spoils=Verdict.INCONCLUSIVE,
)


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
) -> Result:
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
    refuted = (accountant or audit.design_test).refuted
    arrived = _NOT_SEEN
    if arrival is not None:
        arrived = arrival.control(refuted=refuted)
    training = TrainingRecord(
        accountant=accountant,
        family=family,
        transcript=played.transcript,
        steps=reading.steps,
        trusted=reading.trusted,
        arrival=arrival,
        remarks=remarks,
    )
    controls = (arrived, played.promise(), *controls)
    return replace(audit, controls=controls, training=training)


def judge_accountant(
    audit: Result, claim: Guarantee | None
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


@lru_cache(maxsize=1024)  # whoever audits or verifies often meets the same counts
def _family(counts: Counts, delta: float, alpha: float) -> ParameterBound:
    return GaussianFamily().parameter_lower(counts, delta=delta, alpha=alpha)
