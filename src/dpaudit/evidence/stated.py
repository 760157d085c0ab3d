"""Which fields of evidence are the auditor's word, and stay so after every check.

Guesses are in part. That they were made, and about which canary, is stated; that they
obey the rules, that their coins are the key's and that their tally is the one reported
is checked. Where a change of one guess would change the tally, it is not listed.
"""

from dpaudit.evidence.files import ScoreFiles
from dpaudit.evidence.record import Evidence
from dpaudit.game.rules import Slots
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import speaks_of_chance

__all__ = ["stated_fields"]


def stated_fields(
    evidence: Evidence, *, files_given: bool, registration_given: bool
) -> tuple[str, ...]:
    """Return the names of fields that nothing in the evidence can show.

    Args:
        evidence: What was verified.
        files_given: Whether the score files were there to be read.
        registration_given: Whether a copy of the registration was there to compare.
    """
    training = evidence.result.training is not None
    found = ["versions", "result.not_exercised"]
    scored = isinstance(evidence.guesses, ScoreFiles)
    # Of scores, what was looked at follows from the tally, and is made anew.
    if not scored or not all(map(speaks_of_chance, evidence.result.controls)):
        found += ["result.controls"]
    # Fixed by the commitment, and yet no more than the auditor's description.
    found += ["registration.design.setting", "registration.design.threat_model"]
    match evidence.guesses:
        case Transcript():
            at = "result.training.transcript" if training else "guesses"
            free = [f"{at}.{column}" for column in _free(evidence)]
            found += free if evidence.key else [at]
            found += ["result.scores"]
        case ScoreFiles():
            found += ["guesses.coins_were_independent"]
            if not files_given:
                found += ["guesses.files", "result.reading", "result.scores"]
        case None:
            found += ["result.reading"]
            if not evidence.redacted:
                found += ["result.scores"]
    if training:
        # Of the accountant: which curve it stands for; the verdict on it is re-derived.
        own = ("accountant", "arrival", "steps", "trusted", "remarks")
        found += [f"result.training.{name}" for name in own]
    if evidence.key is None and not registration_given:
        found += ["registration"]
    return tuple(sorted(found))


def _free(evidence: Evidence) -> list[str]:
    """Return the columns of a transcript in which a change may leave the tally."""
    rules = evidence.registration.design.rules
    free = ["index"]
    if rules.fixed:
        free.append("guess")  # a wrong one and one not made count the same
    if isinstance(rules, Slots):
        free.append("stake")
    if rules.free_turns:
        free.append("turn")
    return free
