"""Verify somebody else's audit without running it again, and seal only what holds.

The evidence is taken apart, and everything in it that follows from something else is
made anew: the commitment from key and design, the coins from the key, the tally from
guesses and coins, the bound from the tally; guesses are held against the rules. Each
failure says what is wrong. Whatever a file holds, verification ends with an answer and
does not raise.

What follows from nothing is listed as stated. Guesses are in part: that they were made,
and about which canary, is stated; that they obey the rules, that their coins are the
key's and that their tally is the one reported is checked. Where a change of one guess
would change the tally, it is not listed.

A signature is somebody's word for these very bytes. Whoever gives it for a result that
does not follow from its own tally vouches for a forgery, though all that was asked of
them was to sign a file. So what ``verify`` would call wrong is not signed. What cannot
be checked, as files of scores are elsewhere or a bound is the user's own, may be: those
who verify are told so, and the signer is told before.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from dpaudit import _validate
from dpaudit.errors import DpAuditError, InvalidInputError, on_one_line
from dpaudit.evidence.derivation import (
    check_bound_follows,
    check_guesses,
    check_strength,
)
from dpaudit.evidence.envelope import Envelope, Signer, open_envelope, sealed
from dpaudit.evidence.files import ScoreFiles
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
from dpaudit.evidence.verification import (
    ARITHMETIC,
    Verification,
    VerificationCheck,
    VerificationOutcome,
    fails,
    holds,
    if_counts_hold,
    required_with,
    unchecked,
)
from dpaudit.game.key_use import same_observer, same_output
from dpaudit.game.result import TrainingRecord
from dpaudit.game.rules import Slots
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import BETTER_THAN_CHANCE, TIES

__all__ = [
    "check_before",
    "derived",
    "seal",
    "stated_fields",
    "verify",
    "verify_together",
]

_DERIVED: Final = ("transcript", "family", "detectable")  # of a training's record


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
    # Of scores, sanity checks follow from the tally, and are made anew; with the
    # files at hand so does what ties decided.
    made_anew = {BETTER_THAN_CHANCE, TIES} if files_given else {BETTER_THAN_CHANCE}
    others = {each.code for each in evidence.result.sanity_checks} - made_anew
    if not scored or others:
        found += ["result.sanity_checks"]
    # Fixed by the commitment, and yet no more than the auditor's description.
    found += ["registration.design.setting", "registration.design.threat_model"]
    match evidence.guesses:
        case Transcript():
            at = "result.training.transcript" if training else "guesses"
            free = [f"{at}.{column}" for column in _free(evidence)]
            found += free if evidence.key else [at]
            found += ["result.scores"]
        case ScoreFiles():
            found += ["guesses.coins_were_independent", "guesses.columns"]
            if not files_given:
                found += ["guesses.files", "result.reading", "result.scores"]
        case None:
            found += ["result.reading"]
            # Nor that there was a training: its record can be left out as a whole.
            found += ["result.training" if evidence.redacted else "result.scores"]
    if evidence.result.training is not None and not evidence.redacted:
        found += _stated_of_training(evidence.result.training)
    if evidence.key is None and not registration_given:
        found += ["registration"]
    return tuple(sorted(found))


def _stated_of_training(training: TrainingRecord) -> list[str]:
    """Return what a training's record holds and nothing is re-derived of.

    Of the accountant: which curve it stands for; the verdict on it is re-derived.
    """
    names = [each.name for each in fields(training) if each.name not in _DERIVED]
    held = [name for name in names if getattr(training, name) is not None]
    return [f"result.training.{name}" for name in held]


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


_NEVER = (
    unchecked(
        "peeking",
        "nothing shows that the guesser saw nothing but the output; one who saw the "
        "coins leaves the same record",
    ),
    unchecked(
        "other runs",
        "nothing shows that this was the only run, and these the only guesses or "
        "scores, under this registration; the best of many leaves the same record",
    ),
)
_REGISTRATIONS = (
    "nothing shows that this was the only registration: whoever makes many and shows "
    "the one whose coins were lucky leaves the same record"
)
_SHORT = "this machine has too little memory"
_KEY = unchecked(
    "the key",
    "nothing shows that it was drawn at random and used once; one that was chosen "
    "leaves the same record",
)


def verify(
    text: str | bytes,
    *,
    registration: Registration | None = None,
    public_key: Verifier | None = None,
    files: str | Path | None = None,
    required: tuple[str, ...] = (),
    accept_unchecked_counts: bool = False,
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
        accept_unchecked_counts: Whether evidence will do without the guesses, or files
            of scores, that its counts were made from. If not, the tally is required.

    Example:
        >>> print(verify("{}"))
        This evidence does not hold.
        <BLANKLINE>
        What is wrong:
        - form: it cannot be read: an envelope lacks the field 'payload'
    """
    if not isinstance(text, str | bytes):
        raise InvalidInputError(
            "text must be what the file of evidence holds: Path(...).read_text(), got "
            f"text={text!r:.60}"
        )
    required = required_with(required, accept_unchecked_counts=accept_unchecked_counts)
    try:
        evidence, envelope = open_envelope(text)
    except MemoryError:
        unread = unchecked("form", f"{_SHORT} to read it")
        return Verification(checks=(unread,), required=required)
    except Exception as error:
        unread = fails("form", f"it cannot be read: {error}")
        return Verification(checks=(unread,), required=required)
    folder = None if files is None else Path(files)
    found = [
        *_origin(evidence, envelope, registration, public_key),
        *if_counts_hold(derived(evidence, envelope, folder)),
    ]
    # Whatever takes too long to find again would take longer to find the strength of.
    again = ("bound", "claim test", ARITHMETIC)
    if any(each.name in again and _holds(each) for each in found):
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


def verify_together(
    texts: Sequence[str | bytes],
    *,
    registration: Registration | None = None,
    public_key: Verifier | None = None,
    files: str | Path | None = None,
    required: tuple[str, ...] = (),
    accept_unchecked_counts: bool = False,
) -> tuple[Verification, ...]:
    """Check several pieces of evidence, and that no key was used for two outputs.

    Evidence for two observers of one run, of one output judged by two designs from the
    same files of scores, or with and without what was redacted, is of one output.

    Args:
        texts: What each file holds.
        registration: If it is one, a copy of what was registered for it.
        public_key: As of ``verify``.
        files: The folder with the score files of all of them.
        required: What must have been established of each.
        accept_unchecked_counts: Whether all will do without their guesses.
    """
    if registration is not None and len(texts) != 1:
        raise InvalidInputError(
            "a registration is of one piece of evidence; verify each with its own"
        )
    found = [
        verify(
            text,
            registration=registration,
            public_key=public_key,
            files=files,
            required=required,
            accept_unchecked_counts=accept_unchecked_counts,
        )
        for text in texts
    ]
    if len(found) == 1:
        return tuple(found)
    held: list[Evidence | None] = [None] * len(found)
    for place, text in enumerate(texts):
        with suppress(DpAuditError, MemoryError):  # verify said so
            held[place] = open_envelope(text)[0]
    return tuple(
        each
        if evidence is None
        else replace(each, checks=(*each.checks, _check_key(evidence, held)))
        for each, evidence in zip(found, held, strict=True)
    )


def _check_key(
    evidence: Evidence, others: Sequence[Evidence | None]
) -> VerificationCheck:
    """Check that no other evidence is of another output by the same key."""
    used = [
        number
        for number, other in enumerate(others, 1)
        if other is not None and _one_key(evidence, other)
        if not _one_output(evidence, other)
    ]
    if used:
        return fails(
            "key",
            f"its key was used for another output too, that of evidence {used[0]}: the "
            "coins of both are the same, and whoever judged one knew those of the "
            "other. If both are of one output, nothing in them shows it",
        )
    if evidence.registration.commitment is None:
        said = "the coins do not come from a key; nothing tells one run from another"
        return unchecked("key", said)
    return holds("key", "none of the evidence given is of another output by its key")


def _one_key(one: Evidence, other: Evidence) -> bool:
    first, second = one.registration.commitment, other.registration.commitment
    return first is not None and second is not None and first.is_of_run(second)


def _one_output(one: Evidence, other: Evidence) -> bool:
    named = one.guesses, other.guesses
    match named:
        case ScoreFiles(files=first), ScoreFiles(files=second) if first == second:
            return True
        case Transcript(), Transcript() if named[0] != named[1]:
            return not same_observer(one.result.design, other.result.design)
    return same_output(one.result, other.result)


def derived(
    evidence: Evidence, envelope: Envelope, folder: Path | None = None
) -> list[VerificationCheck]:
    """Return what follows from what within evidence, whoever wrote and signed it."""
    found = [
        *_guarded("subject", lambda: [check_subject(envelope)]),
        *_guarded("design", lambda: [check_designs(evidence)]),
        *_guarded("commitment", lambda: [check_commitment(evidence)]),
    ]
    if any(each.outcome is VerificationOutcome.FAILS for each in found[1:]):
        said = "not looked at, as it is not of the design and the key registered"
        return [*found, unchecked("result", said)]
    found += _guarded("tally", lambda: check_guesses(evidence, folder))
    scored = isinstance(evidence.guesses, ScoreFiles)
    found += _guarded(
        "bound",
        lambda: check_bound_follows(
            evidence.result, evidence.registration, scored=scored
        ),
    )
    return found


def _holds(check: VerificationCheck) -> bool:
    return check.outcome is VerificationOutcome.HOLDS


def _never(registered: Registration) -> tuple[VerificationCheck, ...]:
    """Return what no record can show, as far as this one does not show it."""
    program, nonce = registered.program, registered.nonce
    run = "nothing shows that the program named was run, and made this output"
    only = _REGISTRATIONS
    if program is None:
        run = (
            "nothing shows which program was run, as no digest of one was registered, "
            "and that it made this output"
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
        unchecked("the run", run),
        unchecked("other registrations", only),
        *((_KEY,) if registered.commitment is not None else ()),
    )


def _origin(
    evidence: Evidence,
    envelope: Envelope,
    registration: Registration | None,
    public_key: Verifier | None,
) -> list[VerificationCheck]:
    """Return where the evidence comes from."""
    return [
        holds("form", "it is a statement in an envelope, and can be read in one way"),
        *_guarded("signature", lambda: [check_signature(envelope, public_key)]),
        *_guarded("registration", lambda: check_registration(evidence, registration)),
    ]


def _guarded(
    name: str, check: Callable[[], list[VerificationCheck]]
) -> list[VerificationCheck]:
    """Return what a check finds; whatever the evidence holds, there is an answer."""
    try:
        return check()
    except MemoryError:
        return [unchecked(name, f"{_SHORT} to check it")]
    except Exception as error:
        said = f"checking it ended in an error ({type(error).__name__}: {error})"
        return [fails(name, said)]


_COULD_BE = ("tally", "bound", "result")


def seal(
    evidence: Evidence,
    signer: Signer | None = None,
    *,
    files: str | Path | None = None,
) -> str:
    """Return the text of the file ``evidence.json``.

    Args:
        evidence: What to seal.
        signer: Who signs; without one the envelope has no signature.
        files: The folder with the score files, if the evidence names some, so that the
            tally is checked before it is signed.

    Raises:
        InvalidInputError: It was to be signed, and does not hold.
    """
    _validate.kind("evidence", evidence, Evidence)
    if signer is not None:
        check_before(evidence, files=files)
    return sealed(evidence, signer)


def check_before(
    evidence: Evidence, *, files: str | Path | None = None
) -> tuple[VerificationCheck, ...]:
    """Refuse evidence that does not hold; return what could not be checked of it.

    Whoever redacts asks for this first: without key and guesses nobody can later.

    Args:
        evidence: What is to be signed or redacted.
        files: The folder with the score files, if the evidence names some.

    Raises:
        InvalidInputError: A check fails; the message says which.
    """
    _, envelope = open_envelope(sealed(evidence))
    found = derived(evidence, envelope, None if files is None else Path(files))
    wrong = [each for each in found if each.outcome is VerificationOutcome.FAILS]
    if wrong:
        raise InvalidInputError(
            f"this evidence does not hold ({wrong[0].name}: "
            f"{on_one_line(wrong[0].sentence)}); audit again and make it from that "
            "result, as nobody can vouch for this one"
        )
    return tuple(
        each
        for each in found
        if each.outcome is VerificationOutcome.NOT_CHECKED and each.name in _COULD_BE
    )
