"""Results as files: whichever kind of audit made one, it is read and asked alike."""

from typing import TypeAlias

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit.game.result import AuditResult
from dpaudit.game.transcript import Transcript
from dpaudit.training.result import TrainingResult

__all__ = ["Result", "audit_of", "result_from_json", "transcript_of"]

Result: TypeAlias = AuditResult | TrainingResult


def result_from_json(text: str) -> Result:
    """Return the result that a JSON document holds; nothing in it is re-derived.

    Example:
        >>> result_from_json('{"format": "other.1"}')
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: expected the JSON of a result, as its \
to_json() returns it, got the format 'other.1'
    """
    plain = _canonical.parsed(text)
    form = plain.get("format", "") if isinstance(plain, dict) else ""
    for kind in (AuditResult, TrainingResult):
        if form == kind.form:
            return kind.of_plain(plain)
    raise InvalidInputError(
        f"expected the JSON of a result, as its to_json() returns it, got the format "
        f"{form!r:.60}"
    )


def audit_of(result: Result) -> AuditResult:
    """Return the audit in a result: bound, reading and design."""
    return result.audit if isinstance(result, TrainingResult) else result


def transcript_of(result: Result) -> Transcript | None:
    """Return every guess, if the result keeps them."""
    return result.transcript if isinstance(result, TrainingResult) else None
