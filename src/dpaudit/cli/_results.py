"""Results as commands take them: a result's JSON, or evidence that holds one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dpaudit.cli._shared import read_text
from dpaudit.errors import DpAuditError, InvalidInputError

if TYPE_CHECKING:
    from dpaudit.evidence import Evidence
    from dpaudit.evidence.documents import Result

__all__ = ["ResultArgument", "is_sealed", "read_evidence", "read_result"]

ResultArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="A result (result.to_json(), or `dpaudit audit --save`), or evidence that "
        "holds one; - for stdin."
    ),
]


def read_result(path: Path) -> "Result":
    """Return the result that a file holds, by itself or in evidence."""
    from dpaudit.evidence.documents import result_from_json  # noqa: PLC0415 (numpy)

    text = read_text(path)
    try:
        if is_sealed(text):
            return read_evidence(text).result
        return result_from_json(text)
    except DpAuditError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def is_sealed(text: str) -> bool:
    """Return whether a text is the envelope of evidence, as far as one can see."""
    return '"payloadType"' in text


def read_evidence(text: str) -> "Evidence":
    """Return the evidence in an envelope; nothing in it is verified."""
    from dpaudit.evidence import open_envelope  # noqa: PLC0415

    evidence, _ = open_envelope(text)
    return evidence
