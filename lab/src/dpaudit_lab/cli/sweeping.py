"""What commands that sweep share: where trials run, are kept and shown, the end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, final

import typer

from dpaudit.cli._engines import EngineName, chosen_engine
from dpaudit.cli._shared import leave

if TYPE_CHECKING:
    from rich.console import Console

    from dpaudit.engines.engine import Engine
    from dpaudit_lab.sweeps.store import Store
    from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["StoreOption", "TrialsOption", "Where", "filled", "table_console"]

_WIDE = 160  # characters

TrialsOption: TypeAlias = Annotated[
    int | None, typer.Option("--trials", help="Repeats of each setting.")
]
StoreOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--store",
        help="Where trials are kept and gone on from; name a new file when code that "
        "they run has changed.",
    ),
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where the trials of a command run, and where they are kept.

    Attributes:
        command: The command's name, to begin its messages with.
        store: File of the store.
        engine: What runs the trials.
        address: Of a cluster that exists.
        workers: Trials that run at once.
    """

    command: str
    store: Path
    engine: EngineName = EngineName.LOCAL
    address: str | None = None
    workers: int | None = None


@contextmanager
def filled(where: Where, sweeps: "Sequence[Sweep]") -> "Iterator[Store]":
    """Run what a store lacks, showing how far it is, and yield the store.

    An interrupt, trials that raised, and a store that cannot be used end the command
    with a message that says what to do; so they do inside the ``with`` block.
    """
    import sqlite3  # noqa: PLC0415 (so that --help stays light)

    from dpaudit_lab.sweeps.store import Store  # noqa: PLC0415

    try:
        engine = chosen_engine(
            where.engine, address=where.address, workers=where.workers
        )
        with Store(where.store) as store:
            _run(where, sweeps, engine, store)
            yield store
    except KeyboardInterrupt:
        leave(
            where.command,
            f"stopped; what was done is in {where.store}, and the same command goes on "
            "from there",
            code=130,
        )
    except sqlite3.OperationalError as error:
        leave(
            where.command,
            f"{where.store} cannot be read or written now ({error}); what is in it "
            "stays, and the same command goes on from there",
        )
    except sqlite3.Error as error:
        leave(
            where.command,
            f"{where.store} cannot be used as a store ({error}); name another file "
            "with --store",
        )


def _run(
    where: Where, sweeps: "Sequence[Sweep]", engine: "Engine", store: "Store"
) -> None:
    from dpaudit_lab.sweeps.progress import watched  # noqa: PLC0415
    from dpaudit_lab.sweeps.sweep import run  # noqa: PLC0415

    failed = 0
    for sweep in sweeps:
        with watched(sweep.name) as progress:
            failed += run(sweep, engine=engine, store=store, progress=progress).failed
    if failed:
        leave(
            where.command,
            f"{failed} trials raised and are missing; `dpaudit-lab sweep status "
            f"{where.store}` shows why, and the same command tries them again",
        )


def table_console() -> "Console":
    """Return what prints a table: as wide as the terminal, or wide where none is."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    return console
