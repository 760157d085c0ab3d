"""``dpaudit nightly``: the evidence that tests of functions keep from run to run."""

from math import exp, log
from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _canonical
from dpaudit.cli import _library as lib
from dpaudit.cli._shared import JsonOption, json_number
from dpaudit.errors import InvalidInputError

_FORM = "dpaudit.nightly_list.1"


def nightly(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of --dp-audit-state, or of one test.", metavar="DIR"
        ),
    ],
    reset: Annotated[
        str | None,
        typer.Option(
            metavar="TEST",
            help="Begin a new epoch of this test, after a fix: its folder's name.",
        ),
    ] = None,
    why: Annotated[str, typer.Option(help="Reason of --reset.")] = "a fix",
    json: JsonOption = False,
) -> None:
    """Show the evidence that nightly tests have collected.

    Each test has its own significance level over all runs. A claim that was refuted
    stays refuted until it is reset.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder}")
    if reset is not None:
        lib.reset(_chosen(folder, reset), why=f"it was reset: {why}")
    found = {path.name: epochs for path, epochs in _tests(folder)}
    if not found:
        raise InvalidInputError(f"there is no evidence of nightly tests in {folder}")
    refuted = any(epochs[-1].refuted for epochs in found.values())
    typer.echo(_json(found) if json else _table(found))
    raise typer.Exit(1 if refuted else 0)


def _tests(folder: Path) -> list[tuple[Path, list["lib.Epoch"]]]:
    """Return the folders of tests, and their epochs."""
    paths = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [(path, epochs) for path in paths if (epochs := lib.epochs(path))]


def _chosen(folder: Path, name: str) -> Path:
    paths = [path for path, _ in _tests(folder) if path.name == name]
    if not paths:
        raise InvalidInputError(
            f"--reset takes the name of a test as it is listed, got {name!r}"
        )
    return paths[0]


def _table(found: dict[str, list["lib.Epoch"]]) -> str:
    return "\n".join(line for item in found.items() for line in _lines(*item))


def _lines(name: str, epochs: list["lib.Epoch"]) -> list[str]:
    last = epochs[-1]
    status = "REFUTED" if last.refuted else "not refuted"
    needed = 1 / last.alpha
    reached = f"{exp(last.log_e_value):.3g}" if last.log_e_value < log(1e9) else "> 1e9"
    lines = [
        name,
        f"    {status}: e-value {reached}; {needed:.4g} refutes "
        f"(level {last.alpha:.3g})",
        f"    epoch {last.number}: {last.runs} runs, {last.calls} calls; "
        f"it began because: {last.why}",
    ]
    past = [each for each in epochs[:-1] if each.refuted]
    return lines + [
        f"    epoch {each.number}: refuted after {each.runs} runs" for each in past
    ]


def _json(found: dict[str, list["lib.Epoch"]]) -> str:
    tests: dict[str, _canonical.Json] = {
        name: [
            {
                "number": each.number,
                "alpha": each.alpha,
                "why": each.why,
                "runs": each.runs,
                "calls": each.calls,
                "log_e_value": json_number(each.log_e_value),
                "refuted": each.refuted,
            }
            for each in epochs
        ]
        for name, epochs in found.items()
    }
    return _canonical.text({"format": _FORM, "tests": tests})
