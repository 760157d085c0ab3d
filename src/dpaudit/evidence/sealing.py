"""Evidence is checked before anybody signs it.

A signature is somebody's word for these very bytes. Whoever gives it for a result that
does not follow from its own tally vouches for a forgery, though all that was asked of
them was to sign a file. So what ``verify`` would call wrong is not signed. What cannot
be checked, as files of scores are elsewhere or a bound is the user's own, may be: those
who verify are told so, and the signer is told before.
"""

from pathlib import Path

from dpaudit.errors import InvalidInputError, on_one_line
from dpaudit.evidence.envelope import Signer, open_envelope, sealed
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.verification import Check, Finding
from dpaudit.evidence.verifying import derived

__all__ = ["check_before", "seal"]

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
    if signer is not None:
        check_before(evidence, files=files)
    return sealed(evidence, signer)


def check_before(
    evidence: Evidence, *, files: str | Path | None = None
) -> tuple[Check, ...]:
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
    wrong = [each for each in found if each.finding is Finding.FAILS]
    if wrong:
        raise InvalidInputError(
            f"this evidence does not hold ({wrong[0].name}: "
            f"{on_one_line(wrong[0].sentence)}); audit again and make it from that "
            "result, as nobody can vouch for this one"
        )
    return tuple(
        each
        for each in found
        if each.finding is Finding.NOT_CHECKED and each.name in _COULD_BE
    )
