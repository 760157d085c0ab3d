"""Checking somebody else's audit, without running it again.

The evidence is taken apart, and everything in it that follows from something else is
made anew: the commitment from key and design, the coins from the key, the tally from
guesses and coins, the bound from the tally; guesses are held against the rules. What
follows from nothing is listed as stated. Each failure says what is wrong. Whatever a
file holds, verification ends with an answer and does not raise.
"""

from collections.abc import Callable
from pathlib import Path

from dpaudit.evidence.envelope import Envelope, open_envelope
from dpaudit.evidence.files import ScoreFiles
from dpaudit.evidence.following import check_bound, check_guesses, check_strength
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

__all__ = ["derived", "verify"]

_NEVER = (
    open_question(
        "peeking",
        "that the guesser saw nothing but the output; one who saw the coins leaves the "
        "same record",
    ),
    open_question(
        "other runs",
        "that this was the only run, and these the only guesses or scores, under this "
        "registration; the best of many leaves the same record",
    ),
)
_REGISTRATIONS = (
    "that this was the only registration: whoever makes many and shows the one whose "
    "coins were lucky leaves the same record"
)
_SHORT = "this machine has too little memory"
_KEY = open_question(
    "the key",
    "that it was drawn at random and used once; one that was chosen leaves the same "
    "record",
)


def verify(
    text: str | bytes,
    *,
    registration: Registration | None = None,
    public_key: Verifier | None = None,
    files: str | Path | None = None,
    required: tuple[str, ...] = (),
) -> Verification:
    """Check evidence, as ``seal`` wrote it.

    Args:
        text: What the file holds.
        registration: A copy of what was registered before the run, from someone you
            trust to have dated it.
        public_key: Of whoever should have signed.
        files: The folder with the score files, if the evidence names some.
        required: What must have been established besides: some of "registration",
            "signature", "tally". ``missing`` says what was not.

    Example:
        >>> print(verify("{}"))
        This evidence does not hold.
        <BLANKLINE>
        What is wrong:
        - form: it cannot be read: an envelope lacks the field 'payload'
    """
    try:
        evidence, envelope = open_envelope(text)
    except MemoryError:
        unread = open_question("form", f"{_SHORT} to read it")
        return Verification(checks=(unread,), required=required)
    except Exception as error:
        unread = fails("form", f"it cannot be read: {error}")
        return Verification(checks=(unread,), required=required)
    folder = None if files is None else Path(files)
    found = [
        *_origin(evidence, envelope, registration, public_key),
        *derived(evidence, envelope, folder),
    ]
    # Whatever takes too long to find again would take longer to find the strength of.
    if any(each.name in ("bound", "claim test") and _holds(each) for each in found):
        found += _guarded("strength", lambda: check_strength(evidence))
    return Verification(
        checks=(*found, *_never(evidence.registration)),
        stated=stated_fields(
            evidence,
            files_given=folder is not None,
            registration_given=registration is not None,
        ),
        required=required,
    )


def derived(
    evidence: Evidence, envelope: Envelope, folder: Path | None = None
) -> list[Check]:
    """Return what follows from what within evidence, whoever wrote and signed it."""
    found = [
        *_guarded("subject", lambda: [check_subject(envelope)]),
        *_guarded("design", lambda: [check_designs(evidence)]),
        *_guarded("commitment", lambda: [check_commitment(evidence)]),
    ]
    if any(each.finding is Finding.FAILS for each in found[1:]):
        said = "not looked at, as it is not of the design and the key registered"
        return [*found, open_question("result", said)]
    found += _guarded("tally", lambda: check_guesses(evidence, folder))
    scored = isinstance(evidence.guesses, ScoreFiles)
    found += _guarded(
        "bound",
        lambda: check_bound(evidence.result, evidence.registration, scored=scored),
    )
    return found


def _holds(check: Check) -> bool:
    return check.finding is Finding.HOLDS


def _never(registered: Registration) -> tuple[Check, ...]:
    """Return what no record can show, as far as this one does not show it."""
    program, nonce = registered.program, registered.nonce
    run = "that the program named was run, and that the output was its output"
    only = _REGISTRATIONS
    if program is None:
        run = (
            "which program was run: no digest of one was registered; and that the "
            "output was its output"
        )
    else:
        run = f"{run}; the one registered has the SHA-256 {program}"
    if nonce is None:
        only = f"{only}. A nonce of the verifier's, registered too, would leave less "
        only += "time for that"
    else:
        only = f"{only}. It holds the nonce {nonce!r}: if you gave it, it was made "
        only += "after you did"
    return (
        *_NEVER,
        open_question("the run", run),
        open_question("other registrations", only),
        *((_KEY,) if registered.commitment is not None else ()),
    )


def _origin(
    evidence: Evidence,
    envelope: Envelope,
    registration: Registration | None,
    public_key: Verifier | None,
) -> list[Check]:
    """Return where the evidence comes from."""
    return [
        holds("form", "it is a statement in an envelope, and can be read in one way"),
        *_guarded("signature", lambda: [check_signature(envelope, public_key)]),
        *_guarded("registration", lambda: check_registration(evidence, registration)),
    ]


def _guarded(name: str, check: Callable[[], list[Check]]) -> list[Check]:
    """Return what a check finds; whatever the evidence holds, there is an answer."""
    try:
        return check()
    except MemoryError:
        return [open_question(name, f"{_SHORT} to check it")]
    except Exception as error:
        said = f"checking it ended in an error ({type(error).__name__}: {error})"
        return [fails(name, said)]
