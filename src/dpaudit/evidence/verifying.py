"""Checking somebody else's audit, without running it again.

The evidence is taken apart, and everything in it that follows from something else is
made anew: the commitment from key and design, the coins from the key, the rules by
handing the guesses to a referee once more, the tally from guesses and coins, the bound
from the tally. What follows from nothing is listed as stated. Each failure says what is
wrong. Whatever a file holds, verification ends with an answer and does not raise.
"""

from pathlib import Path

from dpaudit.evidence.envelope import Envelope, open_envelope
from dpaudit.evidence.following import check_bound, check_guesses
from dpaudit.evidence.origin import (
    Verifier,
    check_commitment,
    check_designs,
    check_registration,
    check_signature,
    check_subject,
)
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration
from dpaudit.evidence.stated import stated_fields
from dpaudit.evidence.verification import (
    Check,
    Finding,
    Verification,
    fails,
    holds,
    open_question,
)

__all__ = ["verify"]

_NEVER = (
    open_question(
        "peeking",
        "that the guesser saw nothing but the output; one who saw the coins leaves the "
        "same record",
    ),
    open_question(
        "the run", "that the program named was run, and that the output was its output"
    ),
)


def verify(
    text: str | bytes,
    *,
    registration: Registration | None = None,
    public_key: Verifier | None = None,
    files: str | Path | None = None,
) -> Verification:
    """Check evidence, as ``seal`` wrote it.

    Args:
        text: What the file holds.
        registration: A copy of what was registered before the run, from someone you
            trust to have dated it.
        public_key: Of whoever should have signed.
        files: The folder with the score files, if the evidence names some.

    Example:
        >>> print(verify("{}"))
        This evidence does not hold.
        <BLANKLINE>
        What is wrong:
        - form: it cannot be read: an envelope lacks the field 'payload'
    """
    try:
        evidence, envelope = open_envelope(text)
    except Exception as error:
        return Verification(checks=(fails("form", f"it cannot be read: {error}"),))
    folder = None if files is None else Path(files)
    found = _origin(evidence, envelope, registration, public_key)
    bound_to = [each for each in found if each.name in ("design", "commitment")]
    if any(each.finding is Finding.FAILS for each in bound_to):
        said = "not looked at, as it is not of the design and the key registered"
        found.append(open_question("result", said))
    else:
        found += _following(evidence, folder)
    return Verification(
        checks=(*found, *_NEVER),
        stated=stated_fields(
            evidence,
            files_given=folder is not None,
            registration_given=registration is not None,
        ),
    )


def _following(evidence: Evidence, folder: Path | None) -> list[Check]:
    try:
        return [*check_guesses(evidence, folder), *check_bound(evidence)]
    except Exception as error:
        said = f"making it anew ended in an error ({type(error).__name__}: {error})"
        return [fails("result", said)]


def _origin(
    evidence: Evidence,
    envelope: Envelope,
    registration: Registration | None,
    public_key: Verifier | None,
) -> list[Check]:
    return [
        holds("form", "it is a statement in an envelope, and can be read in one way"),
        check_signature(envelope, public_key),
        check_subject(evidence, envelope),
        *check_registration(evidence, registration),
        check_designs(evidence),
        check_commitment(evidence),
    ]
