"""``dpaudit-lab sweep``: how far a store of trials is, and what it holds as a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit._progress import progress_note
from dpaudit.cli._outputs import Output
from dpaudit.cli._shared import JsonOption, reflowed, reported
from dpaudit.errors import InvalidInputError, on_one_line

if TYPE_CHECKING:
    from dpaudit_lab.sweeps.store import State, Store

__all__ = ["sweep"]

_FORMAT = "dpaudit.sweep.1"

sweep = typer.Typer(
    help="Look into the store of a sweep: how far it is, what it holds.",
    no_args_is_help=True,
)
_StoreArgument = Annotated[Path, typer.Argument(help="The store of a sweep.")]


def status(
    store: _StoreArgument,
    cells: Annotated[bool, typer.Option("--cells", help="Show every setting.")] = False,
    json: JsonOption = False,
) -> None:
    """Tell how far each sweep of a store is, and why trials failed.

    Exits with 0 if nothing is missing, 1 if something is, 2 if something is misused.
    """
    with _opened(store) as opened:
        states = opened.states()
        if json:
            typer.echo(_json(states, opened))
        else:
            _print(states, opened, cells=cells)
    if any(_missing(state) for state in states):
        raise typer.Exit(1)


def export(
    store: _StoreArgument,
    table: Annotated[
        Path,
        typer.Argument(help="A .csv or .parquet file to write."),
        Output(suffixes=(".csv", ".parquet")),
    ],
) -> None:
    """Write every trial of a store into one flat table.

    Exits with 0, or 2 if something is misused.
    """
    from dpaudit_lab.sweeps.export import export  # noqa: PLC0415

    with _opened(store) as opened, progress_note("writing the table"):
        rows = export(opened, table)
    typer.echo(f"{rows} trials written to {table}")


@contextmanager
def _opened(path: Path) -> "Iterator[Store]":
    """Open a copy of a store; say what is wrong if there is none."""
    import sqlite3  # noqa: PLC0415 (so that --help stays light)

    from dpaudit_lab.sweeps.store import Store  # noqa: PLC0415

    try:
        if not path.is_file():
            raise InvalidInputError(f"there is no store {path}")
        with Store.copy(path) as store:
            yield store
    except sqlite3.Error as error:
        raise InvalidInputError(f"{path} is not a store ({error})") from error


def _missing(state: "State") -> int:
    return max(0, (state.planned or 0) - state.trials)


def _print(states: "list[State]", store: "Store", *, cells: bool) -> None:
    if not states:
        typer.echo("no trials yet")
    groups: dict[tuple[str, int], list[State]] = {}
    for state in states:
        key = state.cell.name, state.cell.revision
        groups.setdefault(key, []).append(state)
    for (name, revision), group in groups.items():
        done, missing = sum(s.trials for s in group), sum(map(_missing, group))
        complete = sum(not _missing(s) for s in group)
        typer.echo(
            f"{on_one_line(name)} (revision {revision}): {done:,} trials, {missing:,} "
            f"missing; {complete} of {len(group)} settings complete"
        )
        for state in group if cells else ():
            wanted = "" if state.planned is None else f" of {state.planned}"
            setting = on_one_line(state.cell.setting)
            typer.echo(f"  {state.trials}{wanted}  {setting}")
        _print_failures(group, store)


def _print_failures(group: "list[State]", store: "Store") -> None:
    """Print how many trials failed, and the first traceback."""
    failing = [state for state in group if state.failed]
    if not failing:
        return
    trial, trace = next(store.failures(failing[0].cell))
    failed = sum(state.failed for state in failing)
    typer.echo(
        f"  {failed} failed, in {len(failing)} settings; the first is trial {trial} of "
        f"{on_one_line(failing[0].cell.setting)}:"
    )
    rows = trace.splitlines()
    typer.echo("".join(f"    {on_one_line(row)}\n" for row in rows), nl=False)


def _json(states: "list[State]", store: "Store") -> str:
    from dpaudit import _canonical  # noqa: PLC0415
    from dpaudit_lab.sweeps.store import entries  # noqa: PLC0415

    return _canonical.text(
        {
            "format": _FORMAT,
            "cells": [
                {
                    "name": state.cell.name,
                    "revision": state.cell.revision,
                    "setting": entries(state.cell.setting),
                    "trials": state.trials,
                    "planned": state.planned,
                    "failures": [
                        {"trial": trial, "traceback": trace}
                        for trial, trace in store.failures(state.cell)
                    ],
                }
                for state in states
            ],
        }
    )


for _command in (status, export):
    _name = _command.__name__
    sweep.command(_name, help=reflowed(_command))(
        reported(f"dpaudit-lab sweep {_name}")(_command)
    )
