"""Verify somebody else's audit without running it again, and seal only what holds.

Everything in the evidence that follows from something else is recomputed: the
commitment from key and design, the coins from the key, the tally from guesses and
coins, the bound from the tally; guesses are compared with the rules. Each failure
states what is wrong. Whatever a file contains, verification ends with an answer and
does not raise.

What cannot be recomputed is listed as stated. This applies to guesses in part: that
they were made, and about which canary, is stated; that they obey the rules, that their
coins are the key's and that their tally is the reported one is checked. A column in
which changing one guess would change the tally is not listed.

A signature vouches for exact bytes. Signing a result that does not follow from its own
tally would vouch for a forgery. So evidence that ``verify`` would reject is not signed.
Parts that cannot be checked, as when score files are elsewhere or a bound is the user's
own, may be signed: ``verify`` lists them, and the signer learns of them before signing.
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

_DERIVED: Final = ("transcript", "family", "detectable")  # of a training record


def stated_fields(
    evidence: Evidence, *, files_given: bool, registration_given: bool
) -> tuple[str, ...]:
    """Return the names of fields that nothing in the evidence can show.

    Args:
        evidence: The evidence that was verified.
        files_given: Whether the score files were available.
        registration_given: Whether a copy of the registration was available.
    """
    training = evidence.result.training is not None
    names = ["versions", "result.not_exercised"]
    scored = isinstance(evidence.guesses, ScoreFiles)
    # For scores, whether guesses beat chance is recomputed from the tally, and with
    # the files also what ties decided.
    recomputed = {BETTER_THAN_CHANCE, TIES} if files_given else {BETTER_THAN_CHANCE}
    others = {each.code for each in evidence.result.sanity_checks} - recomputed
    if not scored or others:
        names += ["result.sanity_checks"]
    # Fixed by the commitment, but only the auditor's description.
    names += ["registration.design.setting", "registration.design.threat_model"]
    match evidence.guesses:
        case Transcript():
            at = "result.training.transcript" if training else "guesses"
            free = [f"{at}.{column}" for column in _free(evidence)]
            names += free if evidence.key else [at]
            names += ["result.scores"]
        case ScoreFiles():
            names += ["guesses.coins_were_independent", "guesses.columns"]
            if not files_given:
                names += ["guesses.files", "result.reading", "result.scores"]
        case None:
            names += ["result.reading"]
            # Nor that there was a training run: its whole record can be left out.
            names += ["result.training" if evidence.redacted else "result.scores"]
    if evidence.result.training is not None and not evidence.redacted:
        names += _stated_of_training(evidence.result.training)
    if evidence.key is None and not registration_given:
        names += ["registration"]
    return tuple(sorted(names))


def _stated_of_training(training: TrainingRecord) -> list[str]:
    """Return the fields of a training record that nothing recomputes.

    For the accountant that is its curve; the verdict on the curve is recomputed.
    """
    names = [each.name for each in fields(training) if each.name not in _DERIVED]
    present = [name for name in names if getattr(training, name) is not None]
    return [f"result.training.{name}" for name in present]


def _free(evidence: Evidence) -> list[str]:
    """Return the columns of a transcript that can change without changing the tally."""
    rules = evidence.registration.design.rules
    free = ["index"]
    if rules.fixed:
        free.append("guess")  # a wrong guess and one not made count the same
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
    """Check evidence that ``seal`` wrote.

    Args:
        text: The content of the file.
        registration: A copy of what was registered before the run, from someone you
            trust to have dated it.
        public_key: The public key of the expected signer.
        files: The folder with the score files, if the evidence names some.
        required: What must also be established: some of "registration", "signature",
            "tally". ``missing`` lists what was not.
        accept_unchecked_counts: Whether to accept evidence without the guesses, or
            score files, behind its counts. If not, the tally is required.

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
    checks = [
        *_origin(evidence, envelope, registration, public_key),
        *if_counts_hold(derived(evidence, envelope, folder)),
    ]
    # If the bound takes too long to recompute, the strength would take even longer.
    recomputed = ("bound", "claim test", ARITHMETIC)
    if any(each.name in recomputed and _holds(each) for each in checks):
        checks += _guarded("strength", lambda: check_strength(evidence))
    return Verification(
        checks=(*checks, *_never(evidence.registration)),
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

    Two pieces of evidence are of one output if they are for two observers of one run,
    judge one output by two designs from the same score files, or differ by redaction.

    Args:
        texts: The content of each file.
        registration: A copy of the registration; only for a single piece of evidence.
        public_key: As for ``verify``.
        files: The folder with the score files of all of them.
        required: What must be established for each.
        accept_unchecked_counts: As for ``verify``, for all of them.
    """
    if registration is not None and len(texts) != 1:
        raise InvalidInputError(
            "a registration is of one piece of evidence; verify each with its own"
        )
    verified = [
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
    if len(verified) == 1:
        return tuple(verified)
    held: list[Evidence | None] = [None] * len(verified)
    for place, text in enumerate(texts):
        with suppress(DpAuditError, MemoryError):  # verify reported it
            held[place] = open_envelope(text)[0]
    return tuple(
        each
        if evidence is None
        else replace(each, checks=(*each.checks, _check_key(evidence, held)))
        for each, evidence in zip(verified, held, strict=True)
    )


def _check_key(
    evidence: Evidence, others: Sequence[Evidence | None]
) -> VerificationCheck:
    """Check that no other evidence uses the same key for another output."""
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
        text = "the coins do not come from a key; nothing tells one run from another"
        return unchecked("key", text)
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
    """Return the checks of what evidence derives, whoever wrote and signed it."""
    checks = [
        *_guarded("subject", lambda: [check_subject(envelope)]),
        *_guarded("design", lambda: [check_designs(evidence)]),
        *_guarded("commitment", lambda: [check_commitment(evidence)]),
    ]
    if any(each.outcome is VerificationOutcome.FAILS for each in checks[1:]):
        text = "not checked, as it is not of the registered design and key"
        return [*checks, unchecked("result", text)]
    checks += _guarded("tally", lambda: check_guesses(evidence, folder))
    scored = isinstance(evidence.guesses, ScoreFiles)
    checks += _guarded(
        "bound",
        lambda: check_bound_follows(
            evidence.result, evidence.registration, scored=scored
        ),
    )
    return checks


def _holds(check: VerificationCheck) -> bool:
    return check.outcome is VerificationOutcome.HOLDS


def _never(registered: Registration) -> tuple[VerificationCheck, ...]:
    """Return as unchecked what no record can show."""
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
    """Return the checks of where the evidence comes from."""
    return [
        holds("form", "it is a statement in an envelope, and can be read in one way"),
        *_guarded("signature", lambda: [check_signature(envelope, public_key)]),
        *_guarded("registration", lambda: check_registration(evidence, registration)),
    ]


def _guarded(
    name: str, check: Callable[[], list[VerificationCheck]]
) -> list[VerificationCheck]:
    """Return the outcome of a check, also if the check raises."""
    try:
        return check()
    except MemoryError:
        return [unchecked(name, f"{_SHORT} to check it")]
    except Exception as error:
        text = f"checking it ended in an error ({type(error).__name__}: {error})"
        return [fails(name, text)]


_COULD_BE = ("tally", "bound", "result")


def seal(
    evidence: Evidence,
    signer: Signer | None = None,
    *,
    files: str | Path | None = None,
) -> str:
    """Return the text of the file ``evidence.json``.

    Args:
        evidence: The evidence to seal.
        signer: The signer; without one the envelope has no signature.
        files: The folder with the score files, if the evidence names some, so that the
            tally is checked before signing.

    Raises:
        InvalidInputError: A signer was given, and the evidence does not hold.
    """
    _validate.kind("evidence", evidence, Evidence)
    if signer is not None:
        check_before(evidence, files=files)
    return sealed(evidence, signer)


def check_before(
    evidence: Evidence, *, files: str | Path | None = None
) -> tuple[VerificationCheck, ...]:
    """Refuse evidence that does not hold; return the checks that could not be made.

    Call this before redacting: without key and guesses nobody can check it later.

    Args:
        evidence: The evidence to be signed or redacted.
        files: The folder with the score files, if the evidence names some.

    Raises:
        InvalidInputError: A check fails; the message names it.
    """
    _, envelope = open_envelope(sealed(evidence))
    checks = derived(evidence, envelope, None if files is None else Path(files))
    wrong = [each for each in checks if each.outcome is VerificationOutcome.FAILS]
    if wrong:
        raise InvalidInputError(
            f"this evidence does not hold ({wrong[0].name}: "
            f"{on_one_line(wrong[0].sentence)}); audit again and make it from that "
            "result, as nobody can vouch for this one"
        )
    return tuple(
        each
        for each in checks
        if each.outcome is VerificationOutcome.NOT_CHECKED and each.name in _COULD_BE
    )
