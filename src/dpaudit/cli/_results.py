"""Results as commands take them: a result's JSON, or evidence that holds one."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dpaudit.cli._shared import read_text
from dpaudit.errors import DpAuditError, InvalidInputError

if TYPE_CHECKING:
    from dpaudit.evidence import Check, Evidence
    from dpaudit.game.result import Result

__all__ = [
    "ResultArgument",
    "folder_of",
    "read_checked",
    "read_evidence",
    "read_result",
]

ResultArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="A result (result.to_json(), or `dpaudit audit --save`), or evidence that "
        "holds one; - for stdin."
    ),
]


def read_result(path: Path) -> "Result":
    """Return the result that a file holds, by itself or in evidence, if it holds."""
    return read_checked(path)[0]


def read_checked(path: Path) -> "tuple[Result, str]":
    """Return the result that a file holds, and why it was not checked ("" if it was).

    Evidence is verified. A result by itself has nothing behind its tally, but must
    follow from it.
    What does not hold is refused: a page of it would be believed.
    """
    from dpaudit.evidence.derivation import check_result  # noqa: PLC0415
    from dpaudit.evidence.envelope import is_sealed  # noqa: PLC0415
    from dpaudit.evidence.verification import Finding  # noqa: PLC0415
    from dpaudit.evidence.verify import check_before  # noqa: PLC0415
    from dpaudit.game.result import Result  # noqa: PLC0415 (numpy)

    text = read_text(path)
    try:
        if is_sealed(text):
            evidence = read_evidence(text)
            found = list(check_before(evidence, files=folder_of(evidence, path)))
            return evidence.result, _unchecked(found)
        result = Result.from_json(text)
        found = check_result(result)
    except DpAuditError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    for each in found:
        if each.finding is Finding.FAILS:
            raise InvalidInputError(
                f"{path}: this result does not hold ({each.name}: {each.sentence}); "
                "it was changed, or made otherwise than by an audit"
            )
    return result, _unchecked(found)


def _unchecked(found: "Iterable[Check]") -> str:
    """Say why the numbers of a result are the word of whoever wrote it."""
    said = {each.name: each.sentence for each in found if each.finding == "not checked"}
    if "bound" in said:
        return f"Not checked: {said['bound']}."
    if "tally" in said:
        return (
            f"Not checked: the tally ({said['tally']}); bound and verdict follow from "
            "what it is stated to be."
        )
    return ""


def folder_of(evidence: "Evidence", path: Path) -> Path | None:
    """Return the folder of evidence if the files of scores that it names are there.

    Others of the same name are files of another run, and as good as none. Evidence that
    was just made knows where its files are.
    """
    from dpaudit.evidence import ScoreFiles  # noqa: PLC0415 (numpy)
    from dpaudit.evidence.files import file_digest  # noqa: PLC0415

    named = evidence.guesses
    if not isinstance(named, ScoreFiles) or named.paths:
        return None
    folder = path.parent
    there = all(
        (folder / file.name).is_file()
        and file_digest(folder / file.name) == file.sha256
        for file in named.files
    )
    return folder if there else None


def read_evidence(text: str) -> "Evidence":
    """Return the evidence in an envelope; nothing in it is verified."""
    from dpaudit.evidence import open_envelope  # noqa: PLC0415

    evidence, _ = open_envelope(text)
    return evidence
