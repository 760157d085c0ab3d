"""Results as commands take them: a result's JSON, or evidence that holds one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dpaudit.cli import _library as lib
from dpaudit.cli._shared import naming_file, read_text
from dpaudit.errors import InvalidInputError

__all__ = [
    "ResultArgument",
    "check_folder",
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


def read_result(path: Path) -> "lib.Result":
    """Return the result that a file holds, by itself or in evidence, if it holds."""
    return read_checked(path)[0]


def read_checked(path: Path) -> "tuple[lib.Result, str]":
    """Return the result that a file holds, and why it was not checked ("" if it was).

    Evidence is verified. A result by itself has nothing behind its tally, but must
    follow from it.
    What does not hold is refused: a page of it would be believed.
    """
    text = read_text(path)
    with naming_file(path):
        if lib.is_sealed(text):
            evidence = read_evidence(text)
            unchecked = lib.check_before(evidence, files=folder_of(evidence, path))
            return evidence.result, _unchecked(unchecked)
        result = lib.Result.from_json(text)
        found = lib.check_result(result)
    for each in found:
        if each.outcome is lib.VerificationOutcome.FAILS:
            raise InvalidInputError(
                f"{path}: this result does not hold ({each.name}: {each.sentence}); "
                "it was changed, or made otherwise than by an audit"
            )
    return result, _unchecked(found)


def _unchecked(found: "Iterable[lib.VerificationCheck]") -> str:
    """Return why the numbers of a result are the word of whoever wrote it."""
    unchecked = {
        each.name: each.sentence for each in found if each.outcome == "not checked"
    }
    if "bound" in unchecked:
        return f"Not checked: {unchecked['bound']}."
    if "tally" in unchecked:
        return (
            f"Not checked: the tally ({unchecked['tally']}); bound and verdict follow "
            "from what it is stated to be."
        )
    return ""


def check_folder(files: Path | None) -> None:
    """Refuse a place for files of scores that is no folder."""
    if files is not None and not files.is_dir():
        raise InvalidInputError(f"--files must be a folder, got {files}")


def folder_of(evidence: "lib.Evidence", path: Path) -> Path | None:
    """Return the folder of evidence if the files of scores that it names are there.

    Others of the same name are files of another run, and as good as none. Evidence that
    was just made knows where its files are.
    """
    named = evidence.guesses
    if not isinstance(named, lib.ScoreFiles) or named.paths:
        return None
    folder = path.parent
    there = all(
        (folder / file.name).is_file()
        and lib.file_digest(folder / file.name) == file.sha256
        for file in named.files
    )
    return folder if there else None


def read_evidence(text: str) -> "lib.Evidence":
    """Return the evidence in an envelope; nothing in it is verified."""
    evidence, _ = lib.open_envelope(text)
    return evidence
