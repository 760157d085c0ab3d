"""``dpaudit explain``: why a bound is what it is, and what could be done about it."""

import typer

from dpaudit import _canonical
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._results import ResultArgument, read_checked
from dpaudit.cli._shared import JsonOption, json_number

_FORMAT = "dpaudit.explanation.1"


def explain(result: ResultArgument, json: JsonOption = False) -> None:
    """Explain a result: the verdict, why the bound is below the claim, what would help.

    The result must follow from its tally, and evidence must hold; otherwise it is
    refused. What cannot be checked is stated first. The exit code is 0 whatever the
    verdict.
    """
    from dataclasses import replace  # noqa: PLC0415

    with progress_note("explaining the result"):
        read, unchecked = read_checked(result)
        found = replace(lib.explain(read), notice=unchecked)
    typer.echo(_json(found) if json else f"{found}")


def _json(found: "lib.Explanation") -> str:
    steps: list[_canonical.Json] = [
        {
            "name": step.name,
            "takes": json_number(step.takes),
            "leaves": json_number(step.leaves),
            "low": json_number(step.low),
            "high": json_number(step.high),
            "sentence": step.sentence,
            "advice": step.advice and _advice(step.advice),
        }
        for step in found.steps
    ]
    return _canonical.text(
        {
            "format": _FORMAT,
            "notice": found.notice,
            "outcome": str(found.outcome),
            "reason": found.reason,
            "screen": lib.encode(found.screen),
            "verdict": found.verdict,
            "sanity_checks": lib.described(found.sanity_checks, found.unit),
            "claimed": json_number(found.claimed),
            "found": json_number(found.found),
            "delta": found.delta,
            "alpha": found.alpha,
            "model": found.model,
            "steps": steps,
            "remainder": json_number(found.remainder),
            "power": found.power,
            "advice": [_advice(each) for each in found.advice],
            "checks": lib.encode(found.checks),
            "assumptions": list(found.assumptions),
            "not_exercised": list(found.not_exercised),
            "remarks": lib.described(found.remarks, found.unit),
            "limit": lib.encode(found.limit),
            "text": str(found),
        }
    )


def _advice(advice: "lib.Advice") -> dict[str, "_canonical.Json"]:
    return {
        "text": str(advice),
        "expected": json_number(advice.expected),
        "spread": json_number(advice.spread),
    }
