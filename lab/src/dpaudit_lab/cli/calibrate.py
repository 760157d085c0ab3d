"""``dpaudit-lab calibrate``: which audit can you believe?"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit import _files
from dpaudit._progress import progress_note
from dpaudit.cli._engines import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
)
from dpaudit.cli._outputs import Output
from dpaudit.cli._shared import JsonOption, read_text
from dpaudit.errors import InvalidInputError
from dpaudit_lab.cli.sweeping import (
    StoreOption,
    Where,
    filled,
    table_console,
)

if TYPE_CHECKING:
    from dpaudit_lab.calibration.table import Plan, Row

_FORMAT = "dpaudit.calibration.3"


class Only(StrEnum):
    """Which part of the table is wanted."""

    RULES = "rules"
    WHOLE = "whole"
    PIPELINE = "pipeline"


def calibrate(
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            help="Audits of each simulated row, at least: more that the store holds "
            "count too; if not given, 100,000 where verdicts are looked up, 10,000 "
            "elsewhere, and 200 to 1,000 in the pipeline.",
        ),
    ] = None,
    store: StoreOption = Path("calibration.sqlite"),
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
    small: Annotated[
        bool,
        typer.Option(
            "--small",
            help="100 canaries, alpha 0.05; of whole audits DP-SGD; of the pipeline "
            "equal scores.",
        ),
    ] = False,
    only: Annotated[
        Only | None, typer.Option("--only", help="One part of the table.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Every row, not the worst of each rule.")
    ] = False,
    json: JsonOption = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Write every row to this .csv file too; the pipeline and the rest "
            "are tables apart, and one leaves the other's rows as they are."
        ),
        Output(suffixes=(".csv",)),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write what the rows come to into this .md page."),
        Output(suffixes=(".md",)),
    ] = None,
) -> None:
    """Measure how often each rule and each whole audit refutes a true claim.

    Ours stand beside those of other tools. The pipeline is every way from scores,
    counts, lists, tables, tallies and training to a verdict, with ties, few canaries
    and seeds that designs fix. Exits with 1 if one of dpaudit's is shown to be wrong
    more often than it promises, with 2 if something is misused, or else 0.
    """
    if page is not None:
        _check_whole("a page shows", f"--page={page}", small=small, only=only)
    if csv is not None:
        _check_whole("a file of rows is", f"--csv={csv}", small=small, only=only)
    planned, template = _plan(trials, small=small, only=only), _read(page)
    held = _read_rows(csv)
    where = Where(
        command="dpaudit-lab calibrate",
        store=store,
        engine=engine,
        address=address,
        workers=workers,
    )
    rows = _rows(planned, where)
    if csv is not None:
        _write_rows(csv, held, rows)
    if page is not None:
        _write(page, template, rows)
    if json:
        typer.echo(_json(rows, planned))
    else:
        _print(rows, every=every)
    if any(row.fails for row in rows if row.ours):
        raise typer.Exit(1)


def _plan(trials: int | None, *, small: bool, only: Only | None) -> "Plan":
    from dpaudit_lab.calibration import table  # noqa: PLC0415

    part = None if only is None else table.Part(only)
    return table.plan(small=small, only=part, audits=trials)


def _check_whole(what: str, output: str, *, small: bool, only: Only | None) -> None:
    """Refuse to write a part of a table; the pipeline is a table of its own."""
    if small or only in (Only.RULES, Only.WHOLE):
        given = "--small" if small else f"--only={only}"
        raise InvalidInputError(
            f"{what} the whole table, and {given} leaves rows out; leave out {given}, "
            f"or {output}"
        )


def _rows(planned: "Plan", where: Where) -> "list[Row]":
    from dpaudit_lab.calibration import table  # noqa: PLC0415

    rows: list[Row] = []
    with filled(where, table.sweeps(planned)) as held, progress_note("summing"):
        rows += table.table(planned, held)
    return rows


def _read(page: Path | None) -> str:
    """Return a page, if its tables can be written, before anything is simulated."""
    if page is None:
        return ""
    from dpaudit_lab.calibration.page import fill  # noqa: PLC0415

    text = read_text(page)
    fill(text, [])
    return text


def _write(page: Path, template: str, rows: "Sequence[Row]") -> None:
    from dpaudit_lab.calibration.page import fill  # noqa: PLC0415

    _files.write(page, fill(template, rows))


def _read_rows(csv: Path | None) -> "list[Row]":
    """Return the rows that a file holds, before anything is simulated."""
    if csv is None or not csv.exists():
        return []
    from dpaudit_lab.calibration.results import read_csv  # noqa: PLC0415

    return read_csv(read_text(csv))


def _write_rows(csv: Path, held: "Sequence[Row]", rows: "Sequence[Row]") -> None:
    from dpaudit_lab.calibration.results import csv_text, replaced  # noqa: PLC0415

    _files.write(csv, csv_text(replaced(held, rows)))


def _json(rows: "Sequence[Row]", planned: "Plan") -> str:
    from dataclasses import asdict  # noqa: PLC0415

    from dpaudit import _canonical  # noqa: PLC0415
    from dpaudit_lab.calibration.table import FALSE_ALARM  # noqa: PLC0415

    return _canonical.text(
        {
            "format": _FORMAT,
            "audits": planned.audits,
            "false_alarm": FALSE_ALARM,
            "rows": [asdict(row) | {"fails": row.fails} for row in rows],
        }
    )


def _print(rows: "Sequence[Row]", *, every: bool) -> None:
    from rich.table import Table  # noqa: PLC0415

    from dpaudit_lab.calibration.page import worst  # noqa: PLC0415
    from dpaudit_lab.calibration.table import FALSE_ALARM  # noqa: PLC0415

    console = table_console()
    shown = Table("rule", "null" if every else "its worst null")
    for heading in ("canaries", "alpha", "how", "rate", "low", "high"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("verdict")
    for row in rows if every else worst(rows):
        shown.add_row(
            row.rule,
            row.null,
            f"{row.canaries}",
            f"{row.alpha:g}",
            row.how,
            *(f"{value:.5f}" for value in (row.rate, row.low, row.high)),
            row.verdict,
        )
    console.print(shown)
    for whose, theirs in _sides(rows).items():
        failing = sum(row.fails for row in theirs)
        console.print(f"{whose}: {failing} of {len(theirs)} rows fail")
    console.print(
        "a row fails if its lower limit exceeds alpha; some row of valid rules does "
        f"so with a chance of at most {FALSE_ALARM:g}"
    )


def _sides(rows: "Sequence[Row]") -> "dict[str, list[Row]]":
    """Return the rows by whose they are; of the pipeline others' are ours of once."""
    from dpaudit_lab.calibration.table import Part  # noqa: PLC0415

    found: dict[str, list[Row]] = {"dpaudit's": []}
    for row in rows:
        was = "dpaudit's as it was" if row.part is Part.PIPELINE else "others'"
        found.setdefault("dpaudit's" if row.ours else was, []).append(row)
    return found
