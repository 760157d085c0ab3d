"""``dpaudit calibrate``: how often each rule is wrong when it should not be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from dpaudit.experiments.calibration import Case, Row

_FORMAT = "dpaudit.calibration.1"


def calibrate(
    runs: Annotated[int, typer.Option(help="Audits of each simulated row.")] = 20_000,
    store: Annotated[
        Path,
        typer.Option(
            help="Where simulations are kept and gone on from; name a new file when "
            "the code of a bound has changed."
        ),
    ] = Path("calibration.sqlite"),
    workers: Annotated[int, typer.Option(help="Processes that simulate.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    small: Annotated[
        bool, typer.Option("--small", help="100 canaries and alpha 0.05 only.")
    ] = False,
) -> None:
    """Measure the chance that each rule refutes a true claim, ours and others'.

    Exits with 1 if a rule of dpaudit's is wrong more often than it promises.
    """
    import sqlite3  # noqa: PLC0415 (so that --help stays light)

    try:
        from dpaudit.experiments.calibration import cases  # noqa: PLC0415

        chosen = cases(canaries=(100,), alphas=(0.05,)) if small else cases()
        rows = _rows(chosen, store, runs=runs, workers=workers)
    except KeyboardInterrupt:
        typer.echo(
            f"dpaudit calibrate: stopped; what was simulated is in {store}, and the "
            "same command goes on from there",
            err=True,
        )
        raise typer.Exit(130) from None
    except (InvalidInputError, MissingExtraError) as error:
        typer.echo(f"dpaudit calibrate: {error}", err=True)
        raise typer.Exit(2) from error
    except sqlite3.Error as error:
        typer.echo(
            f"dpaudit calibrate: {store} cannot be used as a store ({error}); name "
            "another file with --store",
            err=True,
        )
        raise typer.Exit(2) from error
    if json:
        typer.echo(_json(rows, runs))
    else:
        _print(rows)
    if any(row.fails for row in rows if row.ours):
        raise typer.Exit(1)


def _rows(chosen: "list[Case]", path: Path, *, runs: int, workers: int) -> "list[Row]":
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from dpaudit.engines.local import LocalEngine  # noqa: PLC0415
    from dpaudit.engines.store import Store  # noqa: PLC0415
    from dpaudit.engines.sweep import run  # noqa: PLC0415
    from dpaudit.experiments.calibration import sweep, table  # noqa: PLC0415

    planned, engine = sweep(chosen, runs=runs), LocalEngine(workers=workers)
    with Store(path) as store, Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("simulating")
        run(
            planned,
            engine=engine,
            store=store,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        bar.update(task, description="summing")
        return table(chosen, store, runs=runs)


def _json(rows: "list[Row]", runs: int) -> str:
    from dataclasses import asdict  # noqa: PLC0415

    from dpaudit.experiments.calibration import FALSE_ALARM  # noqa: PLC0415

    return _canonical.text(
        {
            "format": _FORMAT,
            "runs": runs,
            "false_alarm": FALSE_ALARM,
            "rows": [asdict(row) | {"fails": row.fails} for row in rows],
        }
    )


def _print(rows: "list[Row]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from dpaudit.experiments.calibration import FALSE_ALARM  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console.width = 160
    shown = Table("rule", "null")
    for heading in ("canaries", "alpha", "how", "rate", "low", "high"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("verdict")
    for row in rows:
        shown.add_row(
            row.rule,
            row.null,
            f"{row.canaries}",
            f"{row.alpha:g}",
            row.how,
            *(f"{value:.5f}" for value in (row.rate, row.low, row.high)),
            "FAILS" if row.fails else "holds",
        )
    console.print(shown)
    for whose, ours in (("dpaudit's", True), ("others'", False)):
        theirs = [row for row in rows if row.ours is ours]
        failing = sum(row.fails for row in theirs)
        console.print(f"{whose} rules: {failing} of {len(theirs)} rows fail")
    console.print(
        "a row fails if its lower limit exceeds alpha; some row of a valid rule does "
        f"so with a chance of at most {FALSE_ALARM:g}"
    )
