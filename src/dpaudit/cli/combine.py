"""``dpaudit combine``: independent runs of one audit, judged together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _canonical
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._outputs import verdict_json
from dpaudit.cli._results import read_result
from dpaudit.cli._shared import JsonOption
from dpaudit.errors import InvalidRunError, on_one_line

_FORMAT = "dpaudit.combination.1"


def combine(
    results: Annotated[
        list[Path],
        typer.Argument(help="The result, or the evidence, of every run that was made."),
    ],
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Significance level of the combination; default: that of the runs."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Combine the results of independent runs that audit one claim.

    Give all runs that were made; their number must have been fixed before the first.
    Leaving out a run that showed nothing, or repeating runs until one shows something,
    invalidates the rest. P-values are combined, unless the designs state that counts
    are added up (`dpaudit register --pooled-runs`). The combination is invalid if one
    run is, or if two results are of the same run.
    """
    read = [read_result(path) for path in results]
    with progress_note("combining the runs"):
        found = lib.combine_runs(read, alpha=alpha, claim=_curve(read))
    notes = _notes(found)
    typer.echo(_json(found, results, notes) if json else _text(found, results, notes))
    raise typer.Exit(found.verdict.exit_code)


def _curve(results: "Sequence[lib.Result]") -> "lib.Guarantee | None":
    """Return the accountant's curve, if every run was compared with the same one."""
    tests = [each.training and each.training.accountant for each in results]
    claims = [test.claim for test in tests if test is not None]
    if not claims:
        return None
    first = lib.encode(claims[0])
    if len(claims) < len(tests) or any(lib.encode(claim) != first for claim in claims):
        raise InvalidRunError(
            "the runs were not all compared with one accountant's curve; runs of one "
            "claim can be combined"
        )
    return claims[0]


def _notes(found: "lib.CombinedResult") -> list[str]:
    notes = [
        "it holds if these are all the runs that were made, and independent ones, and "
        "if their number was fixed before the first"
    ]
    if found.pooled:
        notes.append(
            "it holds if it was fixed before the first of them that counts are added up"
        )
    if found.nameless:
        notes.append(
            f"{found.nameless} of {len(found.runs)} runs name no hash of their key, so "
            "that one run under two names or designs would not always be noticed"
        )
    return notes


def _text(
    found: "lib.CombinedResult", paths: Sequence[Path], notes: Sequence[str]
) -> str:
    lines, invalid_run = [str(found)], found.verdict is lib.Verdict.INVALID_RUN
    for path, run, p_value in zip(paths, found.runs, found.p_values, strict=True):
        shown = "" if invalid_run else f"; p = {p_value:.3g}; {run.bound}"
        lines.append(f"  {on_one_line(str(path))}: {run.verdict}{shown}")
    return "\n".join([*lines, *(f"Note: {note}." for note in notes)])


def _json(found: "lib.CombinedResult", paths: Sequence[Path], notes: list[str]) -> str:
    runs: list[_canonical.Json] = [
        {
            "file": str(path),
            "commitment": run.commitment and run.commitment.sha256,
            "verdict": str(run.verdict),
            "p_value": p_value,
            "epsilon_lower": run.bound.epsilon_lower,
        }
        for path, run, p_value in zip(paths, found.runs, found.p_values, strict=True)
    ]
    return _canonical.text(
        {
            "format": _FORMAT,
            **verdict_json(found, notes),
            "runs": runs,
        }
    )
