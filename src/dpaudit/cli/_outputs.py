"""What a command may write beside what it prints: result, report, evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, final

import typer

from dpaudit import _canonical, _files
from dpaudit.cli import _library as lib
from dpaudit.cli._output_files import Output

__all__ = [
    "NotExercisedOption",
    "Outputs",
    "ReportOption",
    "SaveOption",
    "audit_json",
    "audit_text",
    "check_outputs",
    "write_outputs",
]

_FORMAT = "dpaudit.audit.1"

SaveOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--save", help="Write the result to this .json file."),
    Output(suffixes=(".json",)),
]
ReportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--report", help="Write a report to this .html file."),
    Output(suffixes=(".html", ".htm")),
]
NotExercisedOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--not-exercised",
        help="A part of the program that was not run through.",
        metavar="<text>",
    ),
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files to be written; None for none.

    Attributes:
        save: The result.
        report: A page about it.
        evidence: What others can check.
    """

    save: Path | None = None
    report: Path | None = None
    evidence: Path | None = None


def check_outputs(outputs: Outputs) -> None:
    """Refuse, before anything is computed, what could not be written in the end."""
    if outputs.report is not None:
        lib.check_extra()


def write_outputs(
    outputs: Outputs,
    result: "lib.Result",
    *,
    key: "lib.Key | None",
    scores: "Sequence[Path]" = (),
    columns: "lib.ColumnNames | None" = None,
    coins_were_independent: bool,
) -> list[str]:
    """Write what was asked for; return a line about each file."""
    written = []
    if outputs.save is not None:
        _files.write(outputs.save, result.to_json() + "\n")
        written.append(f"Result: {outputs.save}")
    if outputs.report is not None:
        lib.report(result, outputs.report)
        written.append(f"Report: {outputs.report}")
    if outputs.evidence is not None:
        files = None
        if scores and columns is not None:
            files = lib.score_files(
                scores, coins_were_independent=coins_were_independent, columns=columns
            )
        sealed = lib.seal(lib.evidence_of(result, key=key, files=files))
        _files.write(outputs.evidence, sealed + "\n")
        written.append(f"Evidence: {outputs.evidence}")
    return written


def audit_text(result: "lib.Result", notes: list[str], written: list[str]) -> str:
    """Return what a command says of an audit."""
    lines = [str(result), *(f"Note: {note}." for note in notes)]
    return "\n".join([*lines, *written])


def audit_json(result: "lib.Result", notes: list[str]) -> str:
    """Return what a command says of an audit, as JSON."""
    right, made = result.reading.right_and_made()
    return _canonical.text(
        {
            "format": _FORMAT,
            "verdict": str(result.verdict),
            "reason": result.reason,
            "controls": lib.encode(result.controls),
            "epsilon_lower": result.bound.epsilon_lower,
            "refuted": result.verdict is lib.Verdict.REFUTED,
            "claim_test": lib.encode(result.claim_test),
            "bound": lib.encode(result.bound),
            "ceiling": result.ceiling,
            "canaries": result.design.canaries,
            "guesses": made,
            "correct": right,
            "commitment": result.commitment and result.commitment.sha256,
            "threat_model": str(result.design.threat_model),
            "not_exercised": list(result.not_exercised),
            "notes": notes,
            "text": str(result),
        }
    )
